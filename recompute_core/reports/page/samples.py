"""The raw samples: a dot for each pair and its two times, so that the ratio can be had again."""

from collections import Counter
from collections.abc import Sequence

from ...results import MemoryPair, Timing
from ...words import count
from .markup import Column, Group, Html, el, join, paragraph, table
from .plot import Plot, Scale, drawing
from .view import ReportView, ShapeView
from .words import interval, ratio

_HEIGHT = 30
_MOST_ROWS = 2000
"""Pairs that are listed in all; what is beyond is in the evidence."""
_PAIRS = (
    Column("Pair", number=True),
    Column("Plain (ms)", number=True),
    Column("Recomputed (ms)", number=True),
    Column("Ratio", number=True),
)
_PEAKS = (
    Column("Shape"),
    Column("Path"),
    Column("State (bytes)", number=True),
    Column("Peaks above the state (bytes)", number=True),
    Column("Saved for backward (bytes)", number=True),
)


def samples(view: ReportView) -> Html:
    """Every shape's pairs, and the peaks."""
    drawn, listed = [], 0
    for one in view.shapes:
        if one.timing is not None:
            listed += one.timing.pairs
            drawn.append(_shape(view, one, one.timing, listed <= _MOST_ROWS))
    return join(el("div", drawn, class_="samples") if drawn else None, _peaks(view))


def _shape(view: ReportView, one: ShapeView, timing: Timing, with_rows: bool) -> Html:
    words = (
        f"median {ratio(timing.ratio_median)}, {interval(timing.ratio_ci95, True)}; "
        f"{count(timing.pairs, 'pair')}, {timing.stopped}"
    )
    rows = [
        (str(number), f"{pair.plain_s * 1e3:.3f}", f"{pair.candidate_s * 1e3:.3f}", f"{own:.4f}")
        for number, (pair, own) in enumerate(zip(timing.samples, timing.ratios, strict=True), 1)
    ]
    shown = (
        table(_PAIRS, [Group(rows)], f"Pairs at {one.shape_key}", "untitled")
        if with_rows
        else paragraph("These pairs are in evidence/cells.json.")
    )
    return el(
        "section",
        el("h3", one.shape_key),
        paragraph(words, css="note"),
        _dots(timing, view.thresholds.update_ratio),
        shown,
    )


def _dots(timing: Timing, limit: float) -> Html:
    """A dot for each pair's ratio, the interval of the median as a band, the gate as a line."""
    low, high = min([1.0, *timing.ratios]), max([limit, *timing.ratios])
    margin = 0.06 * (high - low)
    plot = Plot(Scale(low - margin, high + margin), Scale(0, 1))
    left, right = timing.ratio_ci95
    inside = [
        plot.grid([(at, [f"{at:.2f}"]) for at in plot.across.ticks(4)], []),
        el("rect", x=plot.x(left), width=plot.width(left, right), y="0", height="100%", class_="band"),
        plot.line((limit, 0), (limit, 1), "gate"),
        plot.line((timing.ratio_median, 0), (timing.ratio_median, 1), "median"),
    ]
    inside += [
        plot.mark(own, 0.7 - 0.4 * (number % 2), "recomputed", "fill-recomputed dot")
        for number, own in enumerate(timing.ratios)
    ]
    says = f"Ratio of each pair: {', '.join(f'{own:.3f}' for own in timing.ratios[:40])}."
    return drawing(inside, says, _HEIGHT, "dots")


def _peaks(view: ReportView) -> Html:
    groups = [
        Group([_peak_row(one.shape_key, path, one.memory) for path in ("plain", "recomputed")])
        for one in view.shapes
        if one.memory is not None
    ]
    if not groups:
        return Html()
    return join(
        el("h3", "Peaks"),
        table(_PEAKS, groups, "The ratio is state and median peak over plain's", "wide"),
    )


def _peak_row(shape: str, path: str, memory: MemoryPair) -> tuple[str, ...]:
    found = memory.plain if path == "plain" else memory.candidate
    return (
        shape,
        path,
        f"{found.state_bytes:,}",
        _counted(found.peak_samples),
        f"{found.saved_bytes:,}",
    )


def _counted(samples: Sequence[int]) -> str:
    """Every sample; equal ones once, with their number."""
    counts = Counter(samples)
    return (
        "; ".join(f"{n:,}" + (f" ({times} times)" if times > 1 else "") for n, times in counts.items())
        or "–"
    )
