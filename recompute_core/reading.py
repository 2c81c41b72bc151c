"""Files that are read whole, and only if they are small. No torch."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from .errors import InputError

_HANDED_OVER = ("/dev/fd", "/proc/self/fd")


def open_file(path: Path) -> BinaryIO:
    """A regular file, open for reading; raises OSError. A pipe or a device has no end, or makes one wait
    for it, and is taken only where a shell hands it over: /dev/stdin, /dev/fd/63."""
    if str(path) == "/dev/stdin" or str(path.parent) in _HANDED_OVER:
        return path.open("rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_at_most(path: Path, most_bytes: int, too_large: str) -> bytes:
    """The bytes of a file; raises InputError when it cannot be read, or `too_large` about it."""
    try:
        with open_file(path) as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > most_bytes:
        raise InputError(f"{path}: {too_large}")
    return data
