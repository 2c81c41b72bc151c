"""The encoder on its fixed batch, ready to be trained."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...settings import ReceiptsSettings
from ..job import Job
from .dataset import choose_batch
from .encoder import Encoder, token_count
from .labels import LABELS
from .photo_set import photo_set

Batch = tuple[Tensor, Tensor]
"""Photos `[B, 1, H, W]` in 0 to 1 and labels `[B]`."""


def build(settings: ReceiptsSettings, seed: int, home: Path) -> Job:
    """The encoder under `seed`, with labelled photos of the training split chosen by `seed`.

    Makes the rendered set in `home` if it is not there. Raises InputError for a batch larger than
    the training split, and for what is wrong with a user's own images.
    """
    photos = photo_set(settings, home)
    train = [row for row in photos.train if row.accepted]
    chosen = [train[place] for place in choose_batch([row.label for row in train], settings.batch, seed)]
    batch = as_photos(photos.pixels(chosen)), as_classes(row.label for row in chosen)
    return _job(settings, seed, batch, photos.digest)


def build_blank(settings: ReceiptsSettings, seed: int) -> Job:
    """The same model on blank photos: for estimates, which look at sizes and need no data set."""
    batch = (
        torch.zeros(settings.batch, 1, settings.height, settings.image_width),
        torch.zeros(settings.batch, dtype=torch.long),
    )
    return _job(settings, seed, batch, None)


def as_photos(pixels: NDArray[np.uint8]) -> Tensor:
    """uint8 `[n, H, W]` as float32 `[n, 1, H, W]` in 0 to 1."""
    return torch.from_numpy(pixels.astype(np.float32) / np.float32(255))[:, None]


def as_classes(labels: Iterable[str]) -> Tensor:
    return torch.tensor([LABELS.index(label) for label in labels])


def _job(settings: ReceiptsSettings, seed: int, batch: Batch, digest: str | None) -> Job:
    torch.manual_seed(seed)
    return Job(
        model=Encoder(settings),
        batch=batch,
        blocks=tuple(f"blocks.{index}" for index in range(settings.blocks)),
        outside=("stem",),
        tokens=settings.batch * token_count(settings),
        data_digest=digest,
    )
