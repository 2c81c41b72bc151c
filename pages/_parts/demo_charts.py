"""The pictures of the demo, drawn to be read from the back of a room. Pure.

Large type, few marks: peaks, gates and phases are named where they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from recompute_core.gates import megabytes
from recompute_core.results import Memory, Timeline
from recompute_core.spec import Thresholds

from .pairs import pairs_chart
from .palette import Palette, faint
from .picture import Point, picture
from .timelines import phases
from .words import plan_label


@dataclass(frozen=True)
class Look:
    """How the pictures are drawn: in which colours, how high and in how large letters, in px."""

    colours: Palette
    height: int = 430
    text_px: int = 16


def kept_chart(memory: Memory, timeline: Timeline, look: Look) -> go.Figure:
    """Bytes in use over a plain update: the state below, and on it what the update makes."""
    figure = _over_time(look, [timeline])
    _state(figure, memory.state_bytes, timeline, look)
    _made(figure, "made by the update", memory.state_bytes, timeline, look.colours.plain, 0.28)
    _peak(figure, "peak", timeline, look, True)
    _phases(figure, timeline, look)
    return figure


def teeth_chart(
    plan: str,
    plain: tuple[Memory, Timeline],
    own: tuple[Memory, Timeline],
    look: Look,
) -> go.Figure:
    """A recomputed update over a plain one, on one clock."""
    (_, before), (memory, after) = plain, own
    name, blue = plan_label(plan), look.colours.series[0]
    figure = _over_time(look, [before, after])
    longer = max((before, after), key=lambda one: one.seconds[-1])
    _state(figure, memory.state_bytes, longer, look)
    _made(figure, "plain", memory.state_bytes, before, look.colours.plain, 0.1, "dot")
    _made(figure, name, memory.state_bytes, after, blue, 0.4)
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
                "itemclick": False,
                "itemdoubleclick": False,
            },
            "font": {"size": look.text_px},
            "xaxis": {**across, "title": _title("ms into the update", look), "rangemode": "tozero",
                      "showgrid": False},
            # Room above the peak for the names of the phases.
            "yaxis": {**across, "title": _title("MB in use", look), "range": [0, 1.16 * highest]},
        }
    )  # fmt: skip


def _title(text: str, look: Look) -> dict[str, object]:
    return {"text": text, "standoff": 8, "font": {"size": look.text_px}}


def _state(figure: go.Figure, state: int, timeline: Timeline, look: Look) -> None:
    """What no plan changes: the ground that every update stands on."""
    figure.add_trace(
        go.Scatter(
            x=[0, timeline.seconds[-1] * 1e3], y=[state / 1e6] * 2, mode="lines", fill="tozeroy",
            name=f"model, gradients, optimizer: {megabytes(state)}",
            fillcolor=faint(look.colours.ink, 0.5), line={"width": 0, "color": look.colours.ink},
            hoverinfo="skip",
        )
    )  # fmt: skip


def _made(
    figure: go.Figure,
    name: str,
    state: int,
    timeline: Timeline,
    colour: str,
    alpha: float,
    dash: str = "solid",
) -> None:
    """What an update makes, as an area that stands on the state."""
    across = [at * 1e3 for at in timeline.seconds]
    ground = go.Scatter(
        x=[across[0], across[-1]], y=[state / 1e6] * 2, mode="lines", line={"width": 0},
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    figure.add_trace(ground)
    figure.add_trace(
        go.Scatter(
            x=across, y=[count / 1e6 for count in timeline.bytes], mode="lines", name=name,
            fill="tonexty", fillcolor=faint(colour, alpha),
            line={"color": colour, "width": 2.5, "dash": dash},
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
            textfont={"size": look.text_px + 2, "color": look.colours.ink},
        )
    )  # fmt: skip


def _phases(figure: go.Figure, timeline: Timeline, look: Look) -> None:
    """Forward and backward, parted by a thin line and named at the top."""
    whole = timeline.seconds[-1] * 1e3
    for name, begin, end in phases(timeline):
        if end - begin < 0.06 * whole:
            continue
        if begin > 0.02 * whole:
            figure.add_vline(x=begin, line={"color": look.colours.faint, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=(begin + end) / 2, y=1, yref="paper", yanchor="top", text=name, showarrow=False,
            font={"size": look.text_px, "color": look.colours.ink},
        )  # fmt: skip


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


def middle_chart(marks: Sequence[Point], limits: Thresholds, look: Look) -> go.Figure:
    """The picture everything turns on, in large type."""
    figure = picture(marks, limits, look.colours, look.height)
    figure.update_layout(font={"size": look.text_px}, legend={"font": {"size": look.text_px}})
    figure.update_annotations(font={"size": look.text_px})
    left, right = figure.layout.xaxis.range
    figure.update_xaxes(range=[left, right + 0.2 * (right - left)])  # large names need the room
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        axis.update(tickfont={"size": look.text_px - 2}, title={"font": {"size": look.text_px}})
    for trace in figure.data:
        if trace.mode == "markers+text":
            trace.update(textfont={"size": look.text_px}, marker={"size": 16})
    return figure
