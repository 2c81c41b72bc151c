"""The pairs of plain and recomputed updates as they arrive, and the interval that they narrow. Pure."""

from collections.abc import Sequence

import plotly.graph_objects as go

from recompute_core.intervals import median, median_interval

from .palette import Palette, faint


def pairs_chart(
    pairs: Sequence[tuple[float, float]], gate: float, colours: Palette, height: int = 230
) -> go.Figure:
    """The ratio of each pair, the median so far and its interval, narrowing from left to right."""
    ratios = [candidate / plain for plain, candidate in pairs]
    stops = _prefixes(len(ratios))
    bands = [median_interval(ratios[:n]) for n in stops]
    blue = colours.series[0]
    figure = go.Figure(
        layout={
            "height": height,
            "margin": {"l": 56, "r": 12, "t": 12, "b": 46},
            "showlegend": False,
            "dragmode": False,
            "uirevision": "pairs",
            "xaxis": {"title": {"text": "pair", "standoff": 6}, "zeroline": False,
                      "range": [0.5, max(8, len(ratios)) + 0.5], "tickformat": "d"},
            "yaxis": {"title": {"text": "ratio", "standoff": 6}, "zeroline": False,
                      "tickformat": ".2f", "nticks": 6},
        }
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=[*stops, *reversed(stops)],
            y=[*(high for _, high in bands), *(low for low, _ in reversed(bands))],
            fill="toself", fillcolor=faint(blue, 0.18), line={"width": 0}, hoverinfo="skip",
            mode="lines",
        )
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(x=stops, y=[median(ratios[:n]) for n in stops], mode="lines",
                   line={"color": blue, "width": 2}, hovertemplate="median %{y:.3f}<extra></extra>")
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(x=list(range(1, len(ratios) + 1)), y=ratios, mode="markers",
                   marker={"color": blue, "size": 6, "symbol": "circle-open"},
                   hovertemplate="pair %{x}: %{y:.3f}<extra></extra>")
    )  # fmt: skip
    figure.add_hline(y=gate, line={"color": colours.ink, "width": 1.4, "dash": "dash"})
    return figure


def _prefixes(count: int) -> list[int]:
    """At most 40 lengths up to `count`, odd ones, whose interval is cheap; the last always."""
    every = list(range(1, count + 1, 2))
    step = max(1, len(every) // 40)
    chosen = every[::step]
    return chosen if not count or chosen[-1] == count else [*chosen, count]
