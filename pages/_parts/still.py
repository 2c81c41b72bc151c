"""The picture where nothing is moved or picked: on Home, Live and the Demo. As on Trade-off, without the
hand.

Plotly's script alone is five times as large as all else of the first page that a browser fetches.
"""

from dataclasses import dataclass

from recompute_core.results import StudyResult
from recompute_core.spec import Thresholds

from . import plotted
from .data import Snapshot
from .draggable import HTML
from .gate_address import ends_of
from .served import served


@dataclass(frozen=True)
class Size:
    """How large a picture is that is read from afar."""

    scale: float
    """Of letters and marks, against other pages; less where the picture is narrow."""
    height_px: int


def still(found: Snapshot, result: StudyResult | None = None, size: Size | None = None) -> None:
    """The picture of a study, judged by its declared thresholds, or as `result` has it."""
    result = result or found.result
    shapes = list(dict.fromkeys(one.candidate.shape_key for one in result.judged))
    document = plotted.document(found, result, shapes, ends_of(found.row.spec.thresholds))
    if size:
        document |= {"scale": size.scale, "height": size.height_px}
    _draw(document)


def unfilled(limits: Thresholds) -> None:
    """The picture before anything was measured: plain, the gates, the adopt region."""
    _draw(plotted.unfilled(limits))


def _draw(document: dict[str, object]) -> None:
    picture = served("picture", HTML, isolated=True)
    still = {"seq": 0, "picked": [], "hidden": False, "still": True}
    picture(key="still picture", data=document | still)
