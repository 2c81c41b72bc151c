"""Where the rendered set is kept, and whether it is there: no torch, no pandas.

A folder appears whole, by one rename, or not at all. Each load compares file sizes with the
recorded ones; the recorded digest is believed, not recomputed.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from ...errors import InputError
from ...settings import Frozen

VERSION = 3
"""Raised whenever a change to the drawing, the photos or the split changes any byte."""
RECEIPTS = 1200
PHOTOS_FILE, MANIFEST_FILE, FACTS_FILE = "photos.npy", "manifest.parquet", "facts.json"


class Facts(Frozen):
    """What a finished folder says of itself."""

    photos: int
    digest: str
    """`sha256:` over the photos' bytes and the manifest's rows."""
    sizes: dict[str, int]
    """Bytes of each file."""


def folder_of(home: Path, receipts: int = RECEIPTS) -> Path:
    return home / "datasets" / f"receipts-v{VERSION}-{receipts}"


def dataset_ready(home: Path, receipts: int = RECEIPTS) -> bool:
    """Whether the rendered set is there, whole, so that a study need not make it first."""
    folder = folder_of(home, receipts)
    try:
        return folder.is_dir() and bool(read_facts(folder))
    except InputError:
        return False


def read_facts(folder: Path) -> Facts:
    """The recorded facts of a finished folder; raises InputError where a file does not match."""
    try:
        facts = Facts.model_validate_json((folder / FACTS_FILE).read_bytes())
        for name, size in facts.sizes.items():
            found = (folder / name).stat().st_size
            if found != size:
                raise damaged(folder, f"{name} has {found} bytes, not {size}")
    except (OSError, ValidationError) as error:
        raise damaged(folder, str(error).splitlines()[0]) from None
    return facts


def damaged(folder: Path, why: str) -> InputError:
    return InputError(
        f"the receipt photos in {folder} are damaged ({why}); delete that folder and they are made again"
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One maker of `folder` at a time; the kernel drops the lock of a process that dies."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
