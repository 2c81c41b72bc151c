"""The one picture: update time across, peak memory up, both as ratios to plain.

Plain sits at (1, 1). The plan is adopted at a shape when its whole interval lies in the filled region.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...gates import megabytes
from ...results import Outcome
from ...spec import Thresholds
from ...words import OUTCOMES, POINT_MEANINGS, shape_labels
from .markup import Html, el, paragraph
from .plot import Plot, Scale, drawing, legend
from .view import ReportView, ShapeView
from .words import VERDICT_OUTCOME, limit

_HEIGHT = 330
_NARROW, _LETTER = 320, 7.2
"""Pixels: the drawing's width in a narrow window, and a letter's. A wider one has more room."""
_MOST_NAMES = 12


@dataclass(frozen=True)
class Point:
    """One shape in the picture."""

    name: str
    update: float
    update_ci: tuple[float, float]
    peak: float
    peak_ci: tuple[float, float]
    outcome: Outcome


def points(view: ReportView) -> list[Point]:
    """Where each shape's gates put it; a shape without both ratios has no place."""
    names = shape_labels([one.shape_key for one in view.shapes])
    return [found for one in view.shapes if (found := _point(one, names[one.shape_key])) is not None]


def _point(one: ShapeView, name: str) -> Point | None:
    gates = {gate.id: gate for gate in one.gates}
    update, peak = gates.get("update_latency"), gates.get("memory_saving")
    if update is None or peak is None or update.observed is None or peak.observed is None:
        return None
    return Point(
        name,
        update.observed,
        update.ci95 or (update.observed, update.observed),
        peak.observed,
        peak.ci95 or (peak.observed, peak.observed),
        VERDICT_OUTCOME[one.verdict],
    )


def picture(view: ReportView) -> Html:
    """The drawing with its legend; empty where no shape has both ratios."""
    found = points(view)
    if not found:
        return paragraph("No shape has both a peak and an update time, so none has a place here.")
    limits = view.thresholds
    plot = _plot(found, limits)
    inside = [
        _region(plot, limits),
        plot.grid(*_ticks(plot, view)),
        _gates(plot, limits),
        plot.mark(1, 1, "plain", "fill-plain"),
        plot.at(1, 1, el("text", "plain", x=10, y=17, class_="name")),
    ]
    inside += [_drawn(plot, point) for point in found]
    if len(view.shapes) > 1:
        inside.append(_names(plot, found))
    kinds = [o for o in POINT_MEANINGS if any(p.outcome == o for p in found)]
    return el(
        "div",
        legend(
            [(o, f"fill-{o}", POINT_MEANINGS[o]) for o in kinds]
            + [("plain", "fill-plain", "plain, 1 by definition")]
        ),
        paragraph("peak memory, ratio to plain", css="axis-title"),
        drawing(inside, _says(found, limits), _HEIGHT, "two-lines" if len(view.shapes) == 1 else ""),
        paragraph("update time, ratio to plain", css="axis-title across"),
        class_="chart",
    )


def _plot(found: Sequence[Point], limits: Thresholds) -> Plot:
    right = max([limits.update_ratio, *(p.update for p in found)])
    reach = max([right, *(min(p.update_ci[1], 1 + (right - 1) * 1.6) for p in found)])
    left = min([1.0, *(p.update for p in found), *(max(p.update_ci[0], 0.9) for p in found)])
    span = max(reach - left, 0.1)
    top = max([1.0, *(p.peak_ci[1] for p in found)])
    bottom = min([limits.peak_ratio, *(p.peak_ci[0] for p in found)])
    tall = max(top - bottom, 0.1)
    return Plot(
        Scale(left - 0.07 * span, reach + 0.1 * span),
        Scale(max(0.0, bottom - 0.22 * tall), top + 0.1 * tall),
    )


def _region(plot: Plot, limits: Thresholds) -> Html:
    right, top = plot.across.share(limits.update_ratio), 1 - plot.up.share(limits.peak_ratio)
    return el(
        "rect",
        x="0", y=f"{top * 100:.2f}%", width=f"{right * 100:.2f}%", height=f"{(1 - top) * 100:.2f}%",
        class_="region",
    )  # fmt: skip


def _gates(plot: Plot, limits: Thresholds) -> Html:
    left = plot.across.share(limits.update_ratio) > 0.75
    x, y = plot.x(limits.update_ratio), plot.y(limits.peak_ratio)
    update, peak = f"limit {limit(limits.update_ratio)}", f"limit {limit(limits.peak_ratio)}"
    return Html(
        el("line", x1=x, x2=x, y1="0", y2="100%", class_="gate")
        + el("line", x1="0", x2="100%", y1=y, y2=y, class_="gate")
        + el("text", update, x=x, y="0", dx=-7 if left else 7, dy=8, class_="name" + " end" * left)
        + el("text", peak, x="0", y=y, dx="8", dy="-6", class_="name")
        + el("text", "adopt region", x="0", y="100%", dx="8", dy="-9", class_="name is-pass")
    )


def _drawn(plot: Plot, point: Point) -> Html:
    css = f"bar line-{point.outcome}"
    return Html(
        plot.bar(*point.update_ci, point.peak, css)
        + plot.bar(*point.peak_ci, point.update, css, upright=True)
        + plot.mark(point.update, point.peak, point.outcome, f"fill-{point.outcome} edged")
    )


def _names(plot: Plot, found: Sequence[Point]) -> Html:
    """A name beside each point, where it covers least in a narrow window; of many the outermost."""
    ordered = sorted(found, key=lambda p: -p.peak)
    if len(ordered) > _MOST_NAMES:
        ordered = [ordered[0], ordered[-1]]
    return Html(
        "".join(
            plot.at(
                point.update, point.peak,
                el("text", point.name, x=x, y=y, class_="name strong end" if x < 0 else "name strong"),
            )
            for point, (x, y) in zip(ordered, _places(plot, found, ordered), strict=True)
        )
    )  # fmt: skip


_Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""
_OFFSETS = [(x, y) for y in (-9, 19, -25, 35, -41, 51) for x in (9, -9)]
"""Where a name may begin, or end, seen from its point; those liked best first."""


def _places(plot: Plot, found: Sequence[Point], named: Sequence[Point]) -> list[tuple[int, int]]:
    """One of the offsets for each name: the first that covers least of marks, intervals, other names."""

    def box(update: tuple[float, float], peak: tuple[float, float], around: float) -> _Box:
        left, right = (plot.across.share(value) * _NARROW for value in update)
        bottom, top = ((1 - plot.up.share(value)) * _HEIGHT for value in peak)
        return left - around, top - around, right + around, bottom + around

    def at(point: Point, offset: tuple[int, int]) -> _Box:
        left, top, *_ = box((point.update, point.update), (point.peak, point.peak), 0)
        x, y = left + offset[0], top + offset[1]
        width = _LETTER * len(point.name)
        return (x, y - 11, x + width, y + 3) if offset[0] > 0 else (x - width, y - 11, x, y + 3)

    taken = [box((1, 1), (1, 1), 7), (*box((1, 1), (1, 1), 0)[:2], *_beside_plain(plot))]
    for point in found:
        update, peak = (point.update, point.update), (point.peak, point.peak)
        taken += [box(update, peak, 7), box(point.update_ci, peak, 4), box(update, point.peak_ci, 4)]
    chosen = []
    for point in named:

        def covers(offset: tuple[int, int], point: Point = point) -> float:
            left, top, right, bottom = mine = at(point, offset)
            inside = max(left, 0), max(top, 0), min(right, _NARROW), min(bottom, _HEIGHT)
            outside = (right - left) * (bottom - top) - _overlap(mine, inside)
            return outside + sum(_overlap(mine, other) for other in taken)

        chosen.append(min(_OFFSETS, key=covers))
        taken.append(at(point, chosen[-1]))
    return chosen


def _beside_plain(plot: Plot) -> tuple[float, float]:
    """Where the word `plain` ends."""
    return plot.across.share(1) * _NARROW + 45, (1 - plot.up.share(1)) * _HEIGHT + 20


def _overlap(one: _Box, other: _Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0) * max(high, 0)


_Ticks = list[tuple[float, list[str]]]


def _ticks(plot: Plot, view: ReportView) -> tuple[_Ticks, _Ticks]:
    """Ratios, and below each, where there is one shape alone, what it is in ms and MB."""
    one = view.shapes[0] if len(view.shapes) == 1 else None
    plain_s = one.timing.plain_median_s if one and one.timing else None
    plain_bytes = one.memory.plain.peak_bytes if one and one.memory else None

    def labelled(scale: Scale, most: int, also: Callable[[float], str] | None) -> _Ticks:
        return [(at, [f"{at:.2f}", *([also(at)] if also else [])]) for at in scale.ticks(most)]

    across = (lambda at: f"{at * plain_s * 1e3:,.0f} ms") if plain_s else None
    up = (lambda at: megabytes(round(at * plain_bytes))) if plain_bytes else None
    return labelled(plot.across, 5, across), labelled(plot.up, 6, up)


def _says(found: Sequence[Point], limits: Thresholds) -> str:
    seen = "; ".join(
        f"{p.name}: update {p.update:.3f}, peak {p.peak:.3f}, {OUTCOMES[p.outcome]}" for p in found
    )
    return (
        f"Peak memory against update time, as ratios to plain. Limits: update {limits.update_ratio:g} "
        f"and peak {limits.peak_ratio:g}. {seen}."
    )
