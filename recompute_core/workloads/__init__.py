"""What is trained: a registry of workloads. Importing this room does not import torch."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..settings import GptSettings, OwnSettings, ReceiptsSettings, Settings

if TYPE_CHECKING:
    from .job import Job

Progress = Callable[[int, int], None]
"""Told how many of how many photos are made."""


def prepare(settings: Settings, home: Path, progress: Progress) -> None:
    """Make the data that a workload needs, once; `home` is RECOMPUTE_HOME, where it is kept."""
    if isinstance(settings, ReceiptsSettings) and settings.images is None:
        from .receipts import ensure_dataset

        ensure_dataset(home, progress)


def build(settings: Settings, seed: int, home: Path) -> "Job":
    """The model, its blocks and its fixed batch, on the CPU, seeded.

    `home` is RECOMPUTE_HOME, where data sets are cached.
    """
    if isinstance(settings, GptSettings):
        from . import gpt

        return gpt.build(settings, seed)
    if isinstance(settings, OwnSettings):
        from . import others

        return others.build(settings, seed)
    from . import receipts

    return receipts.build(settings, seed, home)


def build_blank(settings: Settings, seed: int) -> "Job":
    """The same on a blank batch: for estimates, which look at sizes and need no data set.

    Somebody's own model needs a `FakeTensorMode` around it.
    """
    if isinstance(settings, GptSettings):
        from . import gpt

        return gpt.build(settings, seed)
    if isinstance(settings, OwnSettings):
        from . import others

        return others.build_blank(settings, seed)
    from . import receipts

    return receipts.build_blank(settings, seed)
