"""The rendered set: receipts drawn, photographed, divided by receipt, and kept on disk.

Importing this imports neither torch nor kornia; making the set does.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from .cache import (
    FACTS_FILE,
    MANIFEST_FILE,
    PHOTOS_FILE,
    RECEIPTS,
    Facts,
    damaged,
    folder_of,
    locked,
    read_facts,
)
from .splitting import check_sides, divide

Progress = Callable[[int, int], None]
"""Called with photos done and photos in all."""
Rows = list[tuple[int, int, int, str, str, bool, str]]
COLUMNS = ("image", "receipt_id", "photo", "label", "split", "accepted", "reject_reason")


@dataclass(frozen=True)
class Dataset:
    """The photos of the rendered set, memory-mapped, and what is known of each."""

    photos: NDArray[np.uint8]  # [N, 192, 96]
    receipts: tuple[int, ...]
    """Receipt number of each photo; with `numbers` it names the photo for `photos.take`."""
    numbers: tuple[int, ...]
    labels: tuple[str, ...]
    """As recorded: of a photo rejected for a wrong label, the wrong one."""
    sides: tuple[str, ...]
    accepted: tuple[bool, ...]
    reject_reasons: tuple[str, ...]
    """Empty for an accepted photo."""
    digest: str


def ensure_dataset(home: Path, progress: Progress | None = None, receipts: int = RECEIPTS) -> Dataset:
    """The rendered set, made now if it is not there; raises InputError if it is damaged.

    Making it takes most of a minute on one core. A second process that asks meanwhile waits.
    """
    folder = folder_of(home, receipts)
    if not folder.is_dir():
        with locked(folder):
            if not folder.is_dir():
                _make(folder, receipts, progress or _silent)
    return _load(folder)


def _silent(done: int, total: int) -> None:
    """Progress that nobody asked for."""


def _load(folder: Path) -> Dataset:
    import pandas as pd

    facts = read_facts(folder)
    try:
        photos = np.load(folder / PHOTOS_FILE, mmap_mode="r")
        table = pd.read_parquet(folder / MANIFEST_FILE, columns=list(COLUMNS))
        columns = {name: tuple(table[name].tolist()) for name in COLUMNS}
        check_sides(columns["label"], columns["receipt_id"], columns["split"], columns["accepted"])
    except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are ValueErrors
        raise damaged(folder, str(error).splitlines()[0]) from None
    if len(photos) != facts.photos or columns["image"] != tuple(range(facts.photos)):
        raise damaged(folder, f"{len(photos)} photos, {len(table)} rows, not {facts.photos}")
    return Dataset(
        photos=photos,
        receipts=columns["receipt_id"],
        numbers=columns["photo"],
        labels=columns["label"],
        sides=columns["split"],
        accepted=columns["accepted"],
        reject_reasons=columns["reject_reason"],
        digest=facts.digest,
    )


def _make(folder: Path, receipts: int, progress: Progress) -> None:
    """Make the set beside `folder` and rename it into place."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a maker that died
    partial.mkdir()
    try:
        _write(partial, receipts, progress)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(folder: Path, receipts: int, progress: Progress) -> None:
    import pandas as pd

    from .paper import paper_of
    from .photos import HEIGHT, WIDTH, take

    rows = rows_of(receipts)
    photos = np.lib.format.open_memmap(folder / PHOTOS_FILE, "w+", np.uint8, (len(rows), HEIGHT, WIDTH))
    paper = None
    for index, receipt, photo, *_ in rows:
        if photo == 0:
            paper = paper_of(receipt)
            progress(index, len(rows))
        photos[index] = take(receipt, photo, paper)
    photos.flush()
    progress(len(rows), len(rows))
    pd.DataFrame(rows, columns=COLUMNS).to_parquet(folder / MANIFEST_FILE, index=False)
    facts = Facts(
        photos=len(rows),
        digest=digest_of(photos, rows),
        sizes={name: (folder / name).stat().st_size for name in (PHOTOS_FILE, MANIFEST_FILE)},
    )
    (folder / FACTS_FILE).write_text(facts.model_dump_json(indent=1) + "\n")


def rows_of(receipts: int) -> Rows:
    """The manifest of the first `receipts` receipts; no photo is made for it."""
    from .photos import photo_count, recorded_label, rejection

    named = [(receipt, photo) for receipt in range(receipts) for photo in range(photo_count(receipt))]
    papers = [receipt for receipt, _ in named]
    labels = [recorded_label(*name) for name in named]
    reasons = [rejection(*name) or "" for name in named]
    accepted = [not reason for reason in reasons]
    sides = divide(labels, papers, accepted)
    check_sides(labels, papers, sides, accepted)
    return [
        (index, *name, label, side, not reason, reason)
        for index, (name, label, side, reason) in enumerate(
            zip(named, labels, sides, reasons, strict=True)
        )
    ]


def digest_of(photos: NDArray[np.uint8], rows: Rows) -> str:
    """`sha256:` over the photos' bytes, then the rows as tab-separated lines."""
    sha = hashlib.sha256(np.ascontiguousarray(photos).data)
    for row in rows:
        sha.update(("\t".join(str(value) for value in row) + "\n").encode())
    return "sha256:" + sha.hexdigest()


def choose_batch(labels: list[str], batch: int, seed: int) -> list[int]:
    """Places in `labels` of the training photos that make the fixed batch, seeded.

    From 16 photos on every class that training has is among them, the rare one too. Raises
    InputError for a batch larger than the training side.
    """
    if batch > len(labels):
        raise InputError(
            f"workload.batch: {batch} photos asked for, but the training split has {len(labels)}"
        )
    rng = np.random.default_rng(seed)
    order: list[int] = rng.permutation(len(labels)).tolist()
    if batch >= 16:
        first = {labels[place]: place for place in reversed(order)}
        order.sort(key=lambda place: first[labels[place]] != place)  # stable: one of each in front
    return [int(place) for place in rng.permutation(order[:batch])]
