"""Files that appear whole or not at all. No torch."""

import os
import secrets
import shutil
from pathlib import Path


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


def _target(path: Path) -> Path:
    """Where a link leads, so that the link itself stays one."""
    return path.resolve() if path.is_symlink() else path


def _is_special(path: Path) -> bool:
    """A pipe or a device, `/dev/stdout` say, which cannot be replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _part_of(path: Path) -> Path:
    """A name beside it that nobody else writes to, other threads of this process included."""
    return path.with_name(f".{secrets.token_hex(8)}.part")
