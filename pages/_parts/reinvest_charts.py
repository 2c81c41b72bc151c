"""Curves of training and recalls with their intervals. Pure.

Plain is grey with squares and a solid line, recomputed is blue with discs and a dashed one: on the same
data the two often lie on one another.
"""

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from recompute_core.reinvest.asked import SIDES, Side
from recompute_core.reinvest.found import ClassRecall, Evaluation, Training
from recompute_core.words import count

from .palette import Palette
from .reinvest_data import Learnt

_SYMBOLS = {"plain": "square", "recomputed": "circle"}
_DASHES = {"plain": "solid", "recomputed": "dash"}
_MARKED = 40
"""Points up to which a line has marks."""
Place = tuple[int, float]
"""Examples drawn, figure."""


def colour_of(side: Side, colours: Palette) -> str:
    return colours.plain if side == "plain" else colours.series[0]


# --- while they learn --------------------------------------------------------------------------------


def losses(run: Learnt) -> list[Place]:
    """Mean loss of each update against the examples drawn by then; updates without any left out."""
    return [(one.number * run.effective_batch, one.loss) for one in run.updates if one.loss is not None]


def shares(run: Learnt, which: str) -> list[Place]:
    """Accuracy, or recall of a class, at each look at the validation photos."""
    read = _reading(which)
    return [
        (one.after * run.effective_batch, value)
        for one in run.evaluations
        if (value := read(one)) is not None
    ]


def _reading(which: str) -> Callable[[Evaluation], float | None]:
    if which == "accuracy":
        return lambda one: one.accuracy
    return lambda one: one.recall(which) if one.photos.get(which) else None


def classes_of(runs: Sequence[Learnt]) -> list[str]:
    """The classes that were looked at, in the order of the encoder."""
    looks = [look for run in runs for look in run.evaluations]
    return list(looks[0].photos) if looks else []


def curves(
    runs: Sequence[Learnt],
    read: Callable[[Learnt], list[Place]],
    unit: str,
    colours: Palette,
    is_share: bool = False,
    height: int = 300,
) -> go.Figure:
    """One line a training run; one name a setting."""
    up: dict[str, object] = {"title": {"text": unit, "standoff": 8}, "zeroline": False}
    if is_share:
        up |= {"range": [-0.03, 1.03], "tickformat": ".1f"}
    figure = go.Figure(
        layout={
            "height": height,
            "margin": {"l": 56, "r": 12, "t": 28, "b": 48},
            "dragmode": False,
            "hovermode": "closest",
            "uirevision": unit,
            "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            "xaxis": {"title": {"text": "examples drawn", "standoff": 6}, "zeroline": False,
                      "rangemode": "tozero", "tickformat": ",d"},
            "yaxis": up,
        }
    )  # fmt: skip
    for side in SIDES:
        mine = [run for run in runs if run.side == side]
        for place, run in enumerate(mine):
            points = read(run)
            name = f"{side}, {count(len(mine), 'seed')}"
            figure.add_trace(_run(run, points, name, place == 0, unit, colours))
    return figure


def _run(
    run: Learnt, points: Sequence[Place], name: str, is_first: bool, unit: str, colours: Palette
) -> go.Scatter:
    colour = colour_of(run.side, colours)
    return go.Scatter(
        x=[x for x, _ in points], y=[y for _, y in points], name=name, legendgroup=run.side,
        showlegend=is_first, mode="lines+markers" if len(points) <= _MARKED else "lines",
        line={"color": colour, "width": 1.8, "dash": _DASHES[run.side]},
        marker={"symbol": _SYMBOLS[run.side], "size": 7 if run.side == "plain" else 5, "color": colour},
        hovertemplate=f"{run.side}, seed {run.seed}: {unit} %{{y:.3f}} after %{{x:,}}<extra></extra>",
    )  # fmt: skip


# --- what they learnt --------------------------------------------------------------------------------

_APART = 0.17
"""Half the distance between the two settings of one class."""


def recall_chart(found: Training, colours: Palette) -> go.Figure:
    """Recall of each class with its Wilson interval, plain above recomputed."""
    rare = found.rare.label if found.rare else None
    names = [_class_name(one, one.label == rare) for one in found.classes]
    places = list(range(len(found.classes)))
    figure = go.Figure(
        layout={
            "height": 84 + 54 * len(found.classes),
            "margin": {"l": 8, "r": 16, "t": 30, "b": 46},
            "dragmode": False,
            "hovermode": "closest",
            "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            "xaxis": {"title": {"text": "recall on validation, with 95 % intervals", "standoff": 6},
                      "range": [-0.02, 1.02], "zeroline": False, "tickformat": ".1f"},
            "yaxis": {"tickvals": places, "ticktext": names, "automargin": True, "ticksuffix": "  ",
                      "range": [len(places) - 0.5, -0.5], "showgrid": False, "zeroline": False},
        }
    )  # fmt: skip
    if rare is not None:
        at = next(place for place, one in enumerate(found.classes) if one.label == rare)
        figure.add_hrect(y0=at - 0.44, y1=at + 0.44, fillcolor=colours.faint, opacity=0.12, line_width=0)
    for side in SIDES:
        figure.add_trace(_recalls(found.classes, side, colours))
    return figure


def _class_name(one: ClassRecall, is_rare: bool) -> str:
    label = f"<b>{one.label}</b>" if is_rare else one.label
    return f"{label}<br><span style='font-size:11px'>{count(one.receipts, 'receipt')}</span>"


def _recalls(classes: Sequence[ClassRecall], side: Side, colours: Palette) -> go.Scatter:
    down = -_APART if side == "plain" else _APART
    is_plain = side == "plain"
    values = [one.plain if is_plain else one.recomputed for one in classes]
    edges = [one.plain_ci95 if is_plain else one.recomputed_ci95 for one in classes]
    colour = colour_of(side, colours)
    return go.Scatter(
        x=values, y=[place + down for place in range(len(classes))], name=side, mode="markers",
        marker={"symbol": _SYMBOLS[side], "size": 10, "color": colour},
        error_x={
            "type": "data", "symmetric": False, "thickness": 1.6, "width": 4, "color": colour,
            "array": [max(0.0, high - value) for value, (_, high) in zip(values, edges, strict=True)],
            "arrayminus": [max(0.0, value - low) for value, (low, _) in zip(values, edges, strict=True)],
        },
        hovertext=[
            f"{one.label}, {side}: {value:.2f} ({low:.2f} to {high:.2f})"
            for one, value, (low, high) in zip(classes, values, edges, strict=True)
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip
