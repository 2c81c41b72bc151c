"""Receipt photos and the encoder that judges them: ok, blurry, faint, glare, cutoff or torn.

Photos are rendered, 1,200 receipts of them, or a user's own (`manifest`). Importing this imports no
torch: `dataset_ready` and `check_images` run without it, `build` imports it, and `ensure_dataset`
does when the set has to be made.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ...settings import ReceiptsSettings
from .cache import dataset_ready
from .dataset import Dataset, ensure_dataset
from .labels import LABELS
from .manifest import Summary, check_images

if TYPE_CHECKING:
    from ..job import Job

__all__ = [
    "LABELS",
    "Dataset",
    "Summary",
    "build",
    "build_blank",
    "check_images",
    "dataset_ready",
    "ensure_dataset",
]


def build(settings: ReceiptsSettings, seed: int, home: Path) -> "Job":
    """The encoder under `seed` on its fixed batch; see `job.build`."""
    from .job import build

    return build(settings, seed, home)


def build_blank(settings: ReceiptsSettings, seed: int) -> "Job":
    """The same on blank photos, needing no data set; see `job.build_blank`."""
    from .job import build_blank

    return build_blank(settings, seed)
