"""Bytes alive over one update, plain and recomputed on one time line. Pure.

State and what an update makes above it are told apart. Above it the meter counts the allocator's events
as one sum: which of these bytes are activations and which temporaries is not measured.
"""

import plotly.graph_objects as go

from recompute_core.gates import megabytes
from recompute_core.results import Memory, Timeline

from .palette import Palette, faint
from .words import plan_label

_PHASES = ("forward", "backward", "optimizer")


def phases(timeline: Timeline) -> list[tuple[str, float, float]]:
    """Each phase of an update: its name, when it begins and ends, in ms."""
    begins = [(label, at * 1e3) for at, label in timeline.marks if label in ("zero_grad", *_PHASES)]
    ends = [at for _, at in begins[1:]] + [timeline.seconds[-1] * 1e3]
    return [(name, at, end) for (name, at), end in zip(begins, ends, strict=True) if name in _PHASES]


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


def timeline_chart(
    plan: str,
    plain: tuple[Timeline, int],
    own: tuple[Timeline, int],
    colours: Palette,
    height: int = 430,
) -> go.Figure:
    """Both updates over time, their peaks marked, and below which phase each is in.

    Each comes with its state in bytes.
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
            "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            "xaxis": {"title": {"text": "ms into the update", "standoff": 8}, "zeroline": False,
                      "anchor": "y2", "rangemode": "tozero"},
            "yaxis": {"title": {"text": "MB alive", "standoff": 8}, "domain": [0.27, 1],
                      "rangemode": "tozero", "zeroline": False},
            "yaxis2": {"domain": [0, 0.2], "autorange": "reversed", "showgrid": False,
                       "zeroline": False, "ticks": ""},
        }
    )  # fmt: skip
    for label, (timeline, _), colour in (
        ("plain", plain, colours.plain),
        (plan_label(plan), own, colours.series[0]),
    ):
        figure.add_trace(_area(timeline, colour))
        figure.add_trace(_line(label, timeline, colour))
        figure.add_trace(_peak(label, timeline, colour, colours.ink))
        _add_phases(figure, label, timeline, colour, colours.ink)
    state = own[1]
    figure.add_hrect(
        y0=0, y1=state / 1e6, fillcolor=colours.faint, opacity=0.18, line_width=0, layer="below",
        row="all",
    )  # fmt: skip
    figure.add_hline(
        y=state / 1e6, line={"color": colours.faint, "width": 1, "dash": "dot"}, row="all",
        annotation_text=f"state {megabytes(state)}", annotation_position="bottom right",
        annotation_font={"size": 12, "color": colours.faint},
    )  # fmt: skip
    return figure


def _line(label: str, timeline: Timeline, colour: str) -> go.Scatter:
    return go.Scatter(
        x=[at * 1e3 for at in timeline.seconds],
        y=[count / 1e6 for count in timeline.bytes],
        name=label,
        mode="lines",
        line={"color": colour, "width": 1.8},
        text=_labels(timeline),
        customdata=[megabytes(count) for count in timeline.bytes],
        hovertemplate=f"<b>{label}</b>: %{{customdata}} at %{{x:,.0f}} ms<br>%{{text}}<extra></extra>",
    )


def _area(timeline: Timeline, colour: str) -> go.Scatter:
    """What is alive, filled: where both updates overlap both fills are seen."""
    return go.Scatter(
        x=[at * 1e3 for at in timeline.seconds],
        y=[count / 1e6 for count in timeline.bytes],
        mode="none",
        fill="tozeroy",
        fillcolor=faint(colour, 0.16),
        showlegend=False,
        hoverinfo="skip",
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
    found = phases(timeline)
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
