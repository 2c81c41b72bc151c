"""The examples of an effective batch: seeded ids of a model, or photos drawn from the training side."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from .. import workloads
from ..errors import InputError
from ..settings import ReceiptsSettings, Settings
from ..spec import StudySpec
from ..workloads.device import cast, move
from ..workloads.job import Job
from ..workloads.receipts.photo_set import PhotoSet, Row, photo_set


def photos_of(settings: ReceiptsSettings, home: Path, digest: str | None) -> PhotoSet:
    """The photos, which must be those that the study was measured on; raises InputError."""
    photos = photo_set(settings, home)
    if digest is not None and photos.digest != digest:
        raise InputError("the photos are not those that the study was measured on; run the study again")
    return photos


def effective_job(
    spec: StudySpec,
    settings: Settings,
    drawn: int,
    home: Path,
    device: torch.device,
    digest: str | None,
) -> tuple[Job, tuple[bool, ...]]:
    """The workload under the study's seed with `drawn` examples for its batch, and which are accepted.

    `digest` is that of the study's photos. Receipts draws from all photos of the training side, rejected
    ones included; others accept all.
    """
    if not isinstance(settings, ReceiptsSettings):
        job = workloads.build(settings.model_copy(update={"batch": drawn}), spec.seed, home)
        return move(cast(job, spec.precision), device), (True,) * drawn
    photos = photos_of(settings, home, digest)
    rows = drawn_rows(photos, spec.seed, 0, drawn)
    job = photo_job(settings, photos, rows, spec.seed)
    return move(cast(job, spec.precision), device), tuple(row.accepted for row in rows)


def photo_job(settings: ReceiptsSettings, photos: PhotoSet, rows: Sequence[Row], seed: int) -> Job:
    """The encoder under `seed` with these photos for its batch."""
    from ..workloads.receipts.job import as_classes, as_photos

    blank = workloads.build_blank(settings.model_copy(update={"batch": 1}), seed)
    batch = as_photos(photos.pixels(rows)), as_classes(row.label for row in rows)
    return replace(blank, batch=batch, data_digest=photos.digest)


def drawn_rows(photos: PhotoSet, seed: int, start: int, count: int) -> list[Row]:
    """Examples `start` to `start + count` of a run: the training side again and again, each time in
    another order, all of it seeded."""
    rows = photos.train
    found: list[Row] = []
    while count > 0:
        epoch, at = divmod(start, len(rows))
        order = np.random.default_rng([seed, epoch]).permutation(len(rows))
        taken = order[at : at + count].tolist()
        found += [rows[place] for place in taken]
        start, count = start + len(taken), count - len(taken)
    return found
