"""Files that appear whole or not at all, and logs that grow. No torch."""

import errno
import os
import secrets
import shutil
import stat
from pathlib import Path

from .errors import InputError


def check_writable(path: Path) -> None:
    """Raises OSError when `write_whole` could not write there; leaves neither a file nor a trace."""
    path = _target(path)
    if _is_special(path):
        return
    if path.exists():
        with path.open("r+b"):
            pass
    part = _part_of(path)
    part.open("xb").close()
    part.unlink()


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file; whoever looks meanwhile, or after a crash, finds the old one. Raises OSError."""
    path, data = _target(path), content.encode() if isinstance(content, str) else content
    if _is_special(path):
        path.write_bytes(data)
        return
    part = _part_of(path)
    try:
        with part.open("xb") as file:
            file.write(data)
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def open_log(path: Path) -> int:
    """A descriptor that adds to a log. Raises OSError, rather than wait for who reads a pipe."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a pipe that nobody reads
            raise
    else:
        if path == Path(os.devnull) or stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def check_is_text(path: str | Path, what: str) -> None:
    """Raises InputError for a path whose bytes are no text, as records, which are, will have it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{what}: {path} is not UTF-8, and is to stand in records") from None


def _target(path: Path) -> Path:
    """Where a link leads, so that the link itself stays one."""
    if not path.is_symlink():
        return path
    try:
        return path.resolve()
    except RuntimeError:  # it leads back to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def _is_special(path: Path) -> bool:
    """A pipe or a device, `/dev/stdout` say, which cannot be replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _part_of(path: Path) -> Path:
    """A name beside it that nobody else writes to, other threads of this process included."""
    if path.name in ("", ".."):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path.with_name(f".{secrets.token_hex(8)}.part")
