"""Recompute Studio: should this training job recompute activations, where, and at what cost?

The names below are imported when they are first used, so that `import recompute_core` loads neither
torch nor the store.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checks.blocks import check_blocks
    from .estimating import estimate
    from .gates import MemoryRun, release_failures
    from .planning import Wish, plan
    from .spec import StudySpec, Thresholds
    from .studies.run import run_study

__version__ = "0.4.0"
__all__ = [
    "MemoryRun",
    "StudySpec",
    "Thresholds",
    "Wish",
    "check_blocks",
    "estimate",
    "plan",
    "release_failures",
    "run_study",
]

_HOMES = {
    "MemoryRun": ".gates",
    "StudySpec": ".spec",
    "Thresholds": ".spec",
    "Wish": ".planning",
    "check_blocks": ".checks.blocks",
    "estimate": ".estimating",
    "plan": ".planning",
    "release_failures": ".gates",
    "run_study": ".studies.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
