"""The encoder on its fixed batch, ready to be trained."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...settings import ReceiptsSettings
from ..job import Job
from .dataset import choose_batch, ensure_dataset
from .encoder import Encoder, token_count
from .labels import LABELS
from .manifest import load_grey, read_manifest

Batch = tuple[Tensor, Tensor]
"""Photos `[B, 1, H, W]` in 0 to 1 and labels `[B]`."""


def build(settings: ReceiptsSettings, seed: int, home: Path) -> Job:
    """The encoder under `seed`, with labelled photos of the training split chosen by `seed`.

    Makes the rendered set in `home` if it is not there. Raises InputError for a batch larger than
    the training split, and for what is wrong with a user's own images.
    """
    if settings.images:
        batch, digest = own_batch(settings, seed, Path(settings.images).expanduser())
    else:
        batch, digest = rendered_batch(settings, seed, home)
    return _job(settings, seed, batch, digest)


def build_blank(settings: ReceiptsSettings, seed: int) -> Job:
    """The same model on blank photos: for estimates, which look at sizes and need no data set."""
    batch = (
        torch.zeros(settings.batch, 1, settings.height, settings.image_width),
        torch.zeros(settings.batch, dtype=torch.long),
    )
    return _job(settings, seed, batch, None)


def rendered_batch(settings: ReceiptsSettings, seed: int, home: Path) -> tuple[Batch, str]:
    dataset = ensure_dataset(home)
    train = [i for i, side in enumerate(dataset.sides) if side == "train"]
    places = choose_batch([dataset.labels[i] for i in train], settings.batch, seed)
    chosen = [train[place] for place in places]
    photos = as_photos(dataset.photos[chosen])
    size = (settings.height, settings.image_width)
    if photos.shape[2:] != size:
        photos = F.interpolate(photos, size, mode="bilinear", align_corners=False, antialias=True)
    return (photos, as_classes(dataset.labels[i] for i in chosen)), dataset.digest


def own_batch(settings: ReceiptsSettings, seed: int, folder: Path) -> tuple[Batch, str]:
    manifest = read_manifest(folder)
    train = [photo for photo in manifest.photos if photo.side == "train"]
    places = choose_batch([photo.label for photo in train], settings.batch, seed)
    chosen = [train[place] for place in places]
    pixels = load_grey(manifest, chosen, settings.height, settings.image_width)
    return (as_photos(pixels), as_classes(photo.label for photo in chosen)), manifest.digest


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
