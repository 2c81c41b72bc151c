"""Locks that the kernel gives back when their holder dies, however it dies (flock).

One lock a study keeps two drivers apart. One lock for the machine, shared by every study of every
RECOMPUTE_HOME, keeps measurements from disturbing each other.
"""

import fcntl
import os
import tempfile
import time
from pathlib import Path

from ..errors import StoreError


class Lock:
    """An exclusive lock on a file, held until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None

    def acquire(self, patience_s: float = 0.0) -> bool:
        """Take the lock; False when somebody else holds it for all of `patience_s`."""
        deadline = time.monotonic() + patience_s
        descriptor = self._open()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    return False
                time.sleep(0.02)
            else:
                self.descriptor = descriptor
                return True

    def adopt(self, descriptor: int) -> None:
        """Go on holding a lock that the starting process took and handed over."""
        self.descriptor = descriptor

    def release(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def is_held(self) -> bool:
        """Whether any process holds it now."""
        if not self.path.exists():
            return False
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        # Reading is enough for flock, and in a sticky /tmp another user's file opens no other way.
        for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT):
            try:
                return os.open(self.path, flags | os.O_NOFOLLOW, 0o644)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"{self.path}: cannot open the lock: {error.strerror}") from None
        raise StoreError(f"{self.path}: cannot make the lock: no such folder")


def machine_lock() -> Lock:
    """Held by the one driver that is measuring on this machine."""
    return Lock(Path(tempfile.gettempdir()) / "recompute-studio.lock")
