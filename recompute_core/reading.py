"""Files that are read whole, and only if they are small. No torch."""

from pathlib import Path

from .errors import InputError


def read_at_most(path: Path, most_bytes: int, too_large: str) -> bytes:
    """The bytes of a file; raises InputError when it cannot be read, or `too_large` about it."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > most_bytes:
        raise InputError(f"{path}: {too_large}")
    return data
