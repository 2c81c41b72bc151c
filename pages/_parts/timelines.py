"""Bytes alive over one update, plain and recomputed on one time line. Pure.

One of the two is drawn as areas by kind, the other as a line over them. Kinds are what the meter told
apart (`recompute_core.meters.kinds`); an update of a version that did not is one area above its state.
"""

from dataclasses import dataclass

import plotly.graph_objects as go

from recompute_core.gates import megabytes
from recompute_core.results import Memory, StateParts, Timeline

from .palette import Palette, faint
from .words import plan_label


@dataclass(frozen=True)
class Area:
    """Bytes of one kind at each moment of a timeline; kinds are told by hatching too."""

    name: str
    bytes: tuple[int, ...]
    colour: str
    hatch: str


def peak_sentence(plan: str, plain: Memory, own: Memory) -> str:
    """Where both peaks sit and why, in one sentence; says so when a meter could not tell."""
    if plain.peak_bytes is None or own.peak_bytes is None:
        return "The peak was not measured on this device."
    back = own.peak_at is not None and own.peak_at.replaying
    return (
        f"Plain peaks at {megabytes(plain.peak_bytes)}{_where(plain)}, {plan_label(plan)} at "
        f"{megabytes(own.peak_bytes)}{_where(own)}{': its activations came back' if back else ''}."
    )


def _where(memory: Memory) -> str:
    return f" in {memory.peak_at.words}" if memory.peak_at else ""


def areas(memory: Memory, timeline: Timeline, colours: Palette) -> list[Area]:
    """What is alive, from the ground up, less what there is none of; their sum is the timeline."""
    state = min(memory.state_bytes, *timeline.bytes)
    made = [alive - state for alive in timeline.bytes]
    ground = Area("state", (state,) * len(made), colours.plain, "")
    if timeline.kept is None or timeline.back is None:
        return [ground, Area("made by the update", tuple(made), colours.series[0], "")]
    passing = [
        max(all_ - kept - back, 0)
        for all_, kept, back in zip(made, timeline.kept, timeline.back, strict=True)
    ]
    kinds = (
        Area("kept for backward", timeline.kept, colours.series[0], ""),
        Area("brought back", timeline.back, colours.series[1], "/"),
        Area("passing", tuple(passing), colours.faint, "."),
    )
    return [ground, *(area for area in kinds if any(area.bytes))]


def explained(name: str, memory: Memory, timeline: Timeline, colours: Palette) -> str:
    """What the highest moment is made of, what the state is, and what the kinds mean."""
    top = timeline.bytes.index(max(timeline.bytes))
    drawn = areas(memory, timeline, colours)
    parts = ", ".join(f"{megabytes(area.bytes[top])} {area.name}" for area in drawn)
    said = [f"At its peak {name} holds {parts}."]
    if memory.state_parts is not None:
        said.append(
            "State, which no plan changes: "
            + ", ".join(f"{megabytes(size)} {kind}" for kind, size in _state(memory.state_parts))
            + "."
        )
    if timeline.kept is None:
        said.append("Kinds were not told apart when this was measured.")
    else:
        said.append(
            "Kept for backward: what autograd saved in forward. Brought back: what replays made again. "
            "Passing: gradients and intermediate results on their way."
        )
    return " ".join(said)


def _state(parts: StateParts) -> list[tuple[str, int]]:
    return [
        ("parameters", parts.parameters),
        ("gradients", parts.gradients),
        ("optimizer", parts.optimizer),
        ("buffers and inputs", parts.other),
    ]


def timeline_chart(
    plan: str,
    plain: tuple[Memory, Timeline],
    own: tuple[Memory, Timeline],
    colours: Palette,
    stack_plain: bool = False,
    height: int = 460,
) -> go.Figure:
    """Both updates over time, their peaks marked, and below which phase each is in.

    The recomputed one is stacked by kind and plain is a line, or the other way round.
    """
    figure = go.Figure(
        layout={
            "height": height,
            "margin": {"l": 84, "r": 16, "t": 30, "b": 50},
            "dragmode": False,
            "hovermode": "closest",
            "barmode": "overlay",
            "bargap": 0.24,
            "uniformtext": {"minsize": 11, "mode": "hide"},
            "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0,
                       "itemclick": False, "itemdoubleclick": False},
            "xaxis": {"title": {"text": "ms into the update", "standoff": 8}, "zeroline": False,
                      "anchor": "y2", "rangemode": "tozero"},
            "yaxis": {"title": {"text": "MB alive", "standoff": 8}, "domain": [0.25, 1],
                      "rangemode": "tozero", "zeroline": False},
            "yaxis2": {"domain": [0, 0.18], "autorange": "reversed", "showgrid": False,
                       "zeroline": False, "ticks": ""},
        }
    )  # fmt: skip
    memory, timeline = plain if stack_plain else own
    for area in areas(memory, timeline, colours):
        figure.add_trace(stacked(area, timeline))
    for label, (_, timeline), colour, dash in (
        ("plain", plain, colours.ink, "dot"),
        (plan_label(plan), own, colours.series[0], "solid"),
    ):
        figure.add_trace(_line(label, timeline, colour, dash))
        figure.add_trace(_peak(label, timeline, colour, colours.ink))
        _add_phases(figure, label, timeline, colour, colours.ink)
    return figure


def stacked(area: Area, timeline: Timeline) -> go.Scatter:
    """An area on top of those that were added before it."""
    return go.Scatter(
        x=[at * 1e3 for at in timeline.seconds],
        y=[count / 1e6 for count in area.bytes],
        name=area.name,
        stackgroup="kinds",
        mode="lines",
        line={"width": 0.6, "color": area.colour},
        fillcolor=faint(area.colour, 0.34),
        fillpattern={"shape": area.hatch, "fgcolor": area.colour, "size": 5, "fgopacity": 0.55,
                     "bgcolor": faint(area.colour, 0.2)} if area.hatch else None,
        customdata=[megabytes(count) for count in area.bytes],
        hovertemplate=f"<b>{area.name}</b>: %{{customdata}} at %{{x:,.0f}} ms<extra></extra>",
    )  # fmt: skip


def _line(label: str, timeline: Timeline, colour: str, dash: str) -> go.Scatter:
    return go.Scatter(
        x=[at * 1e3 for at in timeline.seconds],
        y=[count / 1e6 for count in timeline.bytes],
        name=label,
        mode="lines",
        line={"color": colour, "width": 1.8, "dash": dash},
        text=_labels(timeline),
        customdata=[megabytes(count) for count in timeline.bytes],
        hovertemplate=f"<b>{label}</b>: %{{customdata}} at %{{x:,.0f}} ms<br>%{{text}}<extra></extra>",
    )


def _labels(timeline: Timeline) -> list[str]:
    """What was running at each moment: the newest mark before it."""
    labels, number, said = [], 0, ""
    for at in timeline.seconds:
        while number < len(timeline.marks) and timeline.marks[number][0] <= at:
            said = timeline.marks[number][1]
            number += 1
        labels.append(said)
    return labels


def _peak(label: str, timeline: Timeline, colour: str, ink: str) -> go.Scatter:
    at = max(range(len(timeline.bytes)), key=lambda i: timeline.bytes[i])
    peak = timeline.bytes[at]
    return go.Scatter(
        x=[timeline.seconds[at] * 1e3],
        y=[peak / 1e6],
        mode="markers+text",
        marker={"color": colour, "size": 10, "symbol": "diamond"},
        text=[f"peak {megabytes(peak)}"],
        textposition="top right",
        textfont={"size": 12, "color": ink},
        cliponaxis=False,
        showlegend=False,
        hoverinfo="skip",
    )


def _add_phases(figure: go.Figure, label: str, timeline: Timeline, colour: str, ink: str) -> None:
    found = timeline.phases
    figure.add_trace(
        go.Bar(
            base=[begin for _, begin, _ in found],
            x=[end - begin for _, begin, end in found],
            y=[label] * len(found),
            yaxis="y2",
            orientation="h",
            text=[name for name, _, _ in found],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            insidetextfont={"color": ink},
            marker={"color": colour, "opacity": 0.28, "line": {"color": colour, "width": 1}},
            showlegend=False,
            hovertemplate="%{text}: %{x:,.0f} ms<extra></extra>",
        )
    )
