"""Locks that the kernel gives back when their holder dies, however it dies (flock).

One lock a study keeps two drivers apart. One lock for the machine, shared by every study of every
RECOMPUTE_HOME, keeps measurements from disturbing each other.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import tempfile
import time
from pathlib import Path

from ..errors import StoreError
from ..words import printable


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
                return _open_plain(self.path, flags)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"{self.path}: cannot open the lock: {error.strerror}") from None
        raise StoreError(f"{self.path}: cannot make the lock: no such folder")


class _MachineLock(Lock):
    """The machine's lock, which says beside it what it is held for."""

    def __init__(self, path: Path, doing: str) -> None:
        super().__init__(path)
        self._doing = doing

    def acquire(self, patience_s: float = 0.0) -> bool:
        is_ours = super().acquire(patience_s)
        if is_ours:
            said = json.dumps({"pid": os.getpid(), "doing": self._doing})
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with contextlib.suppress(OSError):  # another user's file, or no place: it goes without
                descriptor = _open_plain(_words_of(self.path), flags)
                with os.fdopen(descriptor, "w") as file:
                    file.write(said)
        return is_ours


def _open_plain(path: Path, flags: int) -> int:
    """A descriptor of a regular file; raises OSError. Whoever may write to a temporary folder could lay
    a pipe there, which would make all who open it wait."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def machine_lock(doing: str = "") -> Lock:
    """Held by the one driver that is measuring on this machine; `doing` is for those who wait."""
    return _MachineLock(Path(tempfile.gettempdir()) / "recompute-studio.lock", doing)


def machine_holder() -> str | None:
    """What the machine is held for: `a check of the blocks of gpt`. None where nobody holds it, or who
    does has not said."""
    lock = machine_lock()
    if not lock.is_held():
        return None
    try:
        with os.fdopen(_open_plain(_words_of(lock.path), os.O_RDONLY), "rb") as file:
            said = json.loads(file.read(1_000))
        os.kill(int(said["pid"]), 0)
        doing = str(said["doing"])
    except PermissionError:  # another user's process, which is there
        doing = str(said["doing"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return printable(doing)[:120] or None


def _words_of(path: Path) -> Path:
    return path.with_suffix(".doing")
