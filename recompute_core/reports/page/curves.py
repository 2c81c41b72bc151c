"""Curves over the shapes: saved bytes, peak and update time, plain and recomputed."""

from collections.abc import Callable, Sequence

from ...words import shape_labels
from .markup import Html, el, join, paragraph
from .plot import Plot, Scale, drawing, legend
from .view import ReportView, ShapeView
from .words import limit as limit_words
from .words import plan_label

_HEIGHT = 190
_SIZES = {"seq_len": "sequence length (tokens)", "batch": "batch size"}
Reading = Callable[[ShapeView], tuple[float | None, float | None]]
"""Plain's and the recomputed figure of a shape."""


def curves(view: ReportView) -> Html:
    """Four small plots, solid where measured; empty with one shape alone."""
    if len(view.shapes) < 2:
        return Html()
    panels = [
        _panel(view, "Saved bytes (MB)", _saved, 1e-6),
        _panel(view, "Peak (MB)", _peak, 1e-6),
        _panel(view, "Median update (ms)", _update, 1e3),
        _ratio_panel(view),
    ]
    drawn = [panel for panel in panels if panel is not None]
    if not drawn:
        return Html()
    own = f"{plan_label(view.plan)}, measured"
    return join(
        legend([("plain", "fill-plain", "plain"), ("recomputed", "fill-recomputed", own)]),
        el("div", drawn, class_="panels curves"),
    )


def _saved(one: ShapeView) -> tuple[float | None, float | None]:
    if one.memory is None:
        return None, None
    return one.memory.plain.saved_bytes, one.memory.candidate.saved_bytes


def _peak(one: ShapeView) -> tuple[float | None, float | None]:
    if one.memory is None:
        return None, None
    return one.memory.plain.peak_bytes, one.memory.candidate.peak_bytes


def _update(one: ShapeView) -> tuple[float | None, float | None]:
    if one.timing is None:
        return None, None
    return one.timing.plain_median_s, one.timing.update_s


def _axis(view: ReportView) -> tuple[str, list[tuple[float, str]]]:
    """What varies, and where each shape lies: by its size where one size varies, else by its place."""
    shapes = view.shapes
    names = list(shapes[0].shape)
    varying = [n for n in names if len({one.shape.get(n) for one in shapes}) > 1]
    if len(varying) == 1 and varying[0] in _SIZES:
        sizes = [one.shape[varying[0]] for one in shapes]
        return _SIZES[varying[0]], [(float(size), f"{size:,}") for size in sizes]
    short = shape_labels([one.shape_key for one in shapes])
    return "shape", [(float(i), short[one.shape_key]) for i, one in enumerate(shapes)]


def _across(places: Sequence[tuple[float, str]]) -> tuple[Scale, list[tuple[float, Sequence[str]]]]:
    """The axis, and as many of its labels as have room."""
    low, high = min(p for p, _ in places), max(p for p, _ in places)
    margin = 0.1 * (high - low)
    scale = Scale(low - margin, high + margin)
    kept: list[tuple[float, Sequence[str]]] = []
    room = 0.02 + max(len(label) for _, label in places) * 0.032
    for place, label in sorted(places):
        if not kept or scale.share(place) - scale.share(kept[-1][0]) >= room:
            kept.append((place, [label]))
    return scale, kept


def _panel(view: ReportView, title: str, read: Reading, scale: float) -> Html | None:
    """One figure over the shapes; `scale` turns it into the unit of the title."""
    varies, places = _axis(view)
    found = [(at, *read(one)) for (at, _), one in zip(places, view.shapes, strict=True)]
    plain = sorted((at, p * scale) for at, p, _ in found if p is not None)
    own = sorted((at, o * scale) for at, _, o in found if o is not None)
    if not own:
        return None
    across, labels = _across(places)
    plot = Plot(across, Scale(0, 1.12 * max(v for _, v in [*plain, *own])))
    inside = [plot.grid(labels, [(at, [f"{at:,g}"]) for at in plot.up.ticks(4)])]
    for points, kind in ((plain, "plain"), (own, "recomputed")):
        if len(points) > 1:
            inside.append(plot.path(points, f"curve line-{kind}"))
        inside += [plot.mark(x, y, kind, f"fill-{kind}") for x, y in points]
    said = "; ".join(f"{label}: plain {_said(p, scale)}, {_said(o, scale)}"
                     for (_, label), (_, p, o) in zip(places, found, strict=True))  # fmt: skip
    return _figure(title, inside, f"{title} over {varies}. {said}.", varies)


def _said(value: float | None, scale: float) -> str:
    return "not measured" if value is None else f"{value * scale:,.4g}"


def _ratio_panel(view: ReportView) -> Html | None:
    """Update time over plain's, with intervals and the gate."""
    varies, places = _axis(view)
    gates = [next((g for g in one.gates if g.id == "update_latency"), None) for one in view.shapes]
    found = sorted(
        (at, gate.observed, gate.ci95 or (gate.observed, gate.observed))
        for (at, _), gate in zip(places, gates, strict=True)
        if gate is not None and gate.observed is not None
    )
    if not found:
        return None
    limit = view.thresholds.update_ratio
    lowest = min([1.0, *(ci[0] for *_, ci in found)])
    highest = max([limit, *(ci[1] for *_, ci in found)])
    margin = 0.12 * (highest - lowest)
    across, labels = _across(places)
    plot = Plot(across, Scale(lowest - margin, highest + margin))
    y = plot.y(limit)
    inside = [
        plot.grid(labels, [(at, [f"{at:.2f}"]) for at in plot.up.ticks(5)]),
        el("line", x1="0", x2="100%", y1=y, y2=y, class_="gate"),
        el("text", f"limit {limit_words(limit)}", x="100%", y=y, dy="-5", class_="name end"),
    ]
    if len(found) > 1:
        inside.append(plot.path([(x, v) for x, v, _ in found], "curve line-recomputed"))
    for x, value, ci in found:
        inside.append(plot.bar(*ci, x, "bar line-recomputed", upright=True))
        inside.append(plot.mark(x, value, "recomputed", "fill-recomputed"))
    said = "; ".join(f"{value:.3f} ({ci[0]:.3f} to {ci[1]:.3f})" for _, value, ci in found)
    title = "Update time, ratio to plain"
    return _figure(title, inside, f"{title}, over {varies}: {said}.", varies)


def _figure(title: str, inside: Sequence[Html], says: str, varies: str) -> Html:
    return el(
        "figure",
        el("figcaption", title),
        drawing(inside, says, _HEIGHT, "small"),
        paragraph(varies, css="axis-title across"),
    )
