"""The pictures of the demo, drawn to be read from the back of a room. Pure.

Large type, few marks: peaks, gates and phases are named where they are.
"""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log10

import plotly.graph_objects as go

from recompute_core.gates import megabytes
from recompute_core.results import Memory, Timeline

from .pairs import pairs_chart
from .palette import Palette
from .timelines import Area, areas, stacked
from .words import plan_label, plan_short


@dataclass(frozen=True)
class Look:
    """How the pictures are drawn: in which colours, how high and in how large letters, in px."""

    colours: Palette
    height: int = 430
    text_px: int = 16


def kept_chart(memory: Memory, timeline: Timeline, look: Look) -> go.Figure:
    """Bytes in use over a plain update: the state below, and on it what the update makes, by kind."""
    figure = _over_time(look, [timeline])
    _areas(figure, memory, timeline, look, max(timeline.bytes))
    _peak(figure, "peak", timeline, look, True)
    _phases(figure, timeline, look)
    return figure


def teeth_chart(
    plan: str,
    plain: tuple[Memory, Timeline],
    own: tuple[Memory, Timeline],
    look: Look,
) -> go.Figure:
    """A recomputed update by kind and plain's as a line, on one clock."""
    (_, before), (memory, after) = plain, own
    name = plan_label(plan)
    figure = _over_time(look, [before, after])
    figure.update_xaxes(title=_title(f"ms into the update; phases of {plan_short(plan)}", look))
    _areas(figure, memory, after, look, max(*before.bytes, *after.bytes))
    _line(figure, "plain", before, look.colours.ink, "dot")
    _line(figure, name, after, look.colours.series[0])
    higher = max(before.bytes) >= max(after.bytes)
    _peak(figure, "plain", before, look, higher)
    _peak(figure, name, after, look, not higher)
    _phases(figure, after, look)
    return figure


def _over_time(look: Look, drawn: Sequence[Timeline]) -> go.Figure:
    highest = max(max(one.bytes) for one in drawn) / 1e6
    across = {"zeroline": False, "automargin": True, "tickfont": {"size": look.text_px}}
    return go.Figure(
        layout={
            "height": look.height,
            "margin": {"l": 20, "r": 16, "t": 36, "b": 20},
            "dragmode": False,
            "hovermode": "closest",
            "legend": {
                "orientation": "h",
                "y": 1.0,
                "yanchor": "bottom",
                "x": 0,
                "font": {"size": look.text_px},
                "traceorder": "normal",
                "itemclick": False,
                "itemdoubleclick": False,
            },
            "font": {"size": look.text_px},
            "xaxis": {**across, "title": _title("ms into the update", look), "rangemode": "tozero",
                      "showgrid": False},
            # Room above for the names of the phases; the grid ends below the peak, so crosses no name.
            "yaxis": {**across, "title": _title("MB in use", look), "range": [0, _ROOM * highest],
                      "tickvals": _ticks(highest), "tickformat": ","},
        }
    )  # fmt: skip


_ROOM = 1.18
"""How high the picture is, of the highest figure in it."""
_TICKS = 5


def _ticks(highest: float) -> list[float]:
    """Round figures from 0 up to below the peak, whose name stands at its height."""
    power = 10.0 ** floor(log10(highest / _TICKS))
    step = next(power * one for one in (1, 2, 2.5, 5, 10) if highest / (power * one) <= _TICKS)
    return [number * step for number in range(floor(0.95 * highest / step) + 1)]


def _title(text: str, look: Look) -> dict[str, object]:
    return {"text": text, "standoff": 8, "font": {"size": look.text_px}}


def _areas(figure: go.Figure, memory: Memory, timeline: Timeline, look: Look, highest: int) -> None:
    """What is in use, by kind; the state, which no plan changes, is the ground of it.

    Kinds are named where they are, those that are too thin for a name in the legend.
    """
    state, *made = areas(memory, timeline, look.colours)
    ground = replace(state, name=f"model, gradients, optimizer: {megabytes(memory.state_bytes)}")
    below = [0] * len(timeline.bytes)
    for area in (ground, *made):
        figure.add_trace(stacked(area, timeline))
        at = max(range(len(below)), key=lambda i: area.bytes[i])
        if area.bytes[at] * look.height > 2.2 * look.text_px * highest * _ROOM:
            _name(figure, area, timeline, look, at, below[at])
            figure.data[-1].update(showlegend=False)
        below = [low + own for low, own in zip(below, area.bytes, strict=True)]


def _name(figure: go.Figure, area: Area, timeline: Timeline, look: Look, at: int, below: int) -> None:
    """The name of an area where it is highest; in the middle where it is as high all along."""
    whole = timeline.seconds[-1]
    level = min(area.bytes) == max(area.bytes)
    across = whole / 2 if level else min(max(timeline.seconds[at], 0.25 * whole), 0.75 * whole)
    figure.add_annotation(
        x=across * 1e3, y=(below + area.bytes[at] / 2.4) / 1e6, text=area.name, showarrow=False,
        font={"size": look.text_px, "color": look.colours.ink},
    )  # fmt: skip


def _line(figure: go.Figure, name: str, timeline: Timeline, colour: str, dash: str = "solid") -> None:
    figure.add_trace(
        go.Scatter(
            x=[at * 1e3 for at in timeline.seconds], y=[count / 1e6 for count in timeline.bytes],
            mode="lines", name=name, line={"color": colour, "width": 2.5, "dash": dash},
            showlegend=False,
            hovertemplate=f"{name}: %{{y:,.1f}} MB at %{{x:,.0f}} ms<extra></extra>",
        )
    )  # fmt: skip


def _peak(figure: go.Figure, name: str, timeline: Timeline, look: Look, alone: bool) -> None:
    """The highest moment, named beside it where nothing is as high, else above it."""
    at = max(range(len(timeline.bytes)), key=lambda i: timeline.bytes[i])
    across, up = timeline.seconds[at] * 1e3, timeline.bytes[at]
    late = timeline.seconds[at] > 0.6 * timeline.seconds[-1]
    figure.add_trace(
        go.Scatter(
            x=[across], y=[up / 1e6], mode="markers+text", cliponaxis=False, hoverinfo="skip",
            marker={"color": look.colours.ink, "size": 13, "symbol": "diamond"}, showlegend=False,
            text=[f"  {name} {megabytes(up)}  "],
            textposition=f"{'middle' if alone else 'top'} {'left' if late else 'right'}",
            textfont={"size": look.text_px + 2, "color": look.colours.ink,
                      "shadow": ", ".join([f"0 0 3px {look.colours.ground}"] * 4)},
        )
    )  # fmt: skip


def _phases(figure: go.Figure, timeline: Timeline, look: Look) -> None:
    """Forward and backward, parted by a thin line down to what is in use then, and named at the top."""
    whole, top = timeline.seconds[-1] * 1e3, figure.layout.yaxis.range[1]
    for name, begin, end in timeline.phases:
        if end - begin < 0.06 * whole:
            continue
        if begin > 0.02 * whole:
            figure.add_shape(
                type="line", x0=begin, x1=begin, yref="y", y0=_at(timeline, begin) / 1e6, y1=top,
                line={"color": look.colours.faint, "width": 1.5, "dash": "dot"},
            )  # fmt: skip
        figure.add_annotation(
            x=(begin + end) / 2, y=1, yref="paper", yanchor="top", text=name, showarrow=False,
            font={"size": look.text_px, "color": look.colours.ink},
        )  # fmt: skip


def _at(timeline: Timeline, ms: float) -> int:
    """Bytes in use at a moment."""
    return timeline.bytes[min(bisect(timeline.seconds, ms / 1e3), len(timeline.bytes) - 1)]


def price_chart(
    pairs: Sequence[tuple[float, float]],
    of: int,
    span: tuple[float, float],
    gate: float,
    look: Look,
) -> go.Figure:
    """The ratio of each pair so far and the interval that they narrow; `of` pairs will have come, whose
    ratios lie in `span`."""
    figure = pairs_chart(pairs, gate, look.colours, look.height)
    figure.update_layout(
        xaxis={"range": [0.5, 1.17 * max(of, 2) + 0.5], "automargin": True, "showgrid": False,
               "title": _title("pair of updates", look), "tickfont": {"size": look.text_px}},
        yaxis={"range": list(_around(span, gate)), "automargin": True,
               "title": _title("recomputed over plain", look), "tickfont": {"size": look.text_px}},
        margin={"l": 20, "r": 16, "t": 20, "b": 20},
        font={"size": look.text_px},
    )  # fmt: skip
    figure.update_traces(marker={"size": 11, "line": {"width": 2}}, selector={"mode": "markers"})
    figure.update_traces(line={"width": 3.5}, selector={"mode": "lines", "fill": None})
    figure.add_hline(y=1, line={"color": look.colours.plain, "width": 2})
    for at, text in ((gate, f"gate {gate:.2f}"), (1.0, "plain: 1.00")):
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=at, yanchor="bottom", text=text, showarrow=False,
            font={"size": look.text_px, "color": look.colours.ink},
        )  # fmt: skip
    return figure


def _around(span: tuple[float, float], gate: float) -> tuple[float, float]:
    """Edges that show plain, the gate and every ratio, with room for names."""
    low, high = min(1.0, span[0]), max(gate, span[1])
    room = 0.1 * (high - low) + 0.01
    return low - room, high + room
