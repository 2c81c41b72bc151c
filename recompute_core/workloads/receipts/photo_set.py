"""All that a training run reads: the photos of the rendered set, or of a user's own folder.

Training has every row, rejected ones too, for a run that leaves them out counts them; validation has
accepted ones only. Importing this imports no torch; pixels of another size than the set's need it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...settings import ReceiptsSettings
from .cache import RECEIPTS
from .dataset import ensure_dataset
from .manifest import load_grey, read_manifest

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """One photo, as the manifest has it."""

    place: int
    """Among all rows of the set or folder, counted from 0."""
    label: str
    receipt: str
    """The physical receipt; all photos of one are on one side."""
    accepted: bool
    reject_reason: str
    """Empty for an accepted photo; may be for a rejected one of a user's."""


@dataclass(frozen=True)
class PhotoSet:
    """Rows in the manifest's order, and the way to their pixels."""

    train: tuple[Row, ...]
    """Rejected rows included."""
    validation: tuple[Row, ...]
    """Accepted rows only."""
    digest: str
    """`sha256:` over rows and photos."""
    height: int
    width: int
    _read: Callable[[Sequence[int]], Pixels] = field(repr=False)
    """Pixels of accepted places; at least one."""
    _closed: frozenset[int] = field(repr=False)
    """Places whose photos are never opened."""

    def pixels(self, rows: Sequence[Row]) -> Pixels:
        """Photos of `rows`, `[n, height, width]` grey; black for a rejected row of a user's folder."""
        pixels = np.zeros((len(rows), self.height, self.width), np.uint8)
        open_ = [index for index, row in enumerate(rows) if row.place not in self._closed]
        if open_:
            pixels[open_] = self._read([rows[index].place for index in open_])
        return pixels


def photo_set(settings: ReceiptsSettings, home: Path, receipts: int = RECEIPTS) -> PhotoSet:
    """The photos that `settings` name, at its size; the rendered set is made in `home` if need be.

    Photos of a user's folder are decoded when their pixels are asked for. Raises InputError for what
    is wrong with either.
    """
    if settings.images:
        return _own(settings, Path(settings.images).expanduser())
    return _rendered(settings, home, receipts)


def _rendered(settings: ReceiptsSettings, home: Path, receipts: int) -> PhotoSet:
    dataset = ensure_dataset(home, receipts=receipts)

    def read(places: Sequence[int]) -> Pixels:
        return resized(dataset.photos[list(places)], settings.height, settings.image_width)

    rows = [
        Row(place, label, str(receipt), accepted, reason)
        for place, (label, receipt, accepted, reason) in enumerate(
            zip(dataset.labels, dataset.receipts, dataset.accepted, dataset.reject_reasons, strict=True)
        )
    ]
    return _set(settings, rows, dataset.sides, dataset.digest, read, frozenset())


def _own(settings: ReceiptsSettings, folder: Path) -> PhotoSet:
    manifest = read_manifest(folder)

    def read(places: Sequence[int]) -> Pixels:
        photos = (manifest.rows[place] for place in places)
        return load_grey(manifest, photos, settings.height, settings.image_width)

    rows = [
        Row(place, photo.label, photo.receipt, photo.accepted, photo.reject_reason)
        for place, photo in enumerate(manifest.rows)
    ]
    closed = frozenset(row.place for row in rows if not row.accepted)
    return _set(settings, rows, [p.side for p in manifest.rows], manifest.digest, read, closed)


def _set(
    settings: ReceiptsSettings,
    rows: Sequence[Row],
    sides: Sequence[str],
    digest: str,
    read: Callable[[Sequence[int]], Pixels],
    closed: frozenset[int],
) -> PhotoSet:
    sided = list(zip(rows, sides, strict=True))
    return PhotoSet(
        train=tuple(row for row, side in sided if side == "train"),
        validation=tuple(row for row, side in sided if side == "validation" and row.accepted),
        digest=digest,
        height=settings.height,
        width=settings.image_width,
        _read=read,
        _closed=closed,
    )


def resized(photos: Pixels, height: int, width: int) -> Pixels:
    """`[n, H, W]` to `[n, height, width]`, smoothed where it shrinks."""
    if photos.shape[1:] == (height, width):
        return photos
    import torch
    from torch.nn import functional as F

    exact = torch.from_numpy(photos.astype(np.float32))[:, None]
    fitted = F.interpolate(exact, (height, width), mode="bilinear", align_corners=False, antialias=True)
    out: Pixels = fitted[:, 0].round().clamp(0, 255).to(torch.uint8).numpy()
    return out
