"""The picture everything turns on: update time across, peak memory up, both as ratios to plain.

Plain sits at the corner (1, 1). A candidate is adopted when its whole interval lies in the filled
region, so the verdict can be read without words. Candidates without measured figures have no place
here; `not_measured` lists them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, floor, inf

import plotly.graph_objects as go

from recompute_core.gates import candidate_sentence, is_open, megabytes
from recompute_core.results import Judged, Measured, Outcome
from recompute_core.spec import Thresholds
from recompute_core.words import OUTCOMES, POINT_MEANINGS, shape_labels

from .found import Budget, Estimated, draw_estimated
from .labels import Named, place
from .palette import SYMBOLS, VERDICT_MARK, Palette
from .words import KINDS, plan_label, plan_short

NAMED_IN_WORDS = 12
"""So many points does `describe` name."""
_AROUND_PX = 115.0
"""What legend, ticks and titles take of a chart's height."""


@dataclass(frozen=True)
class Point:
    """One measured candidate in the picture."""

    plan: str
    shape_key: str
    update: float
    update_ci: tuple[float, float]
    peak: float
    peak_ci: tuple[float, float]
    plain_s: float
    plain_bytes: int
    outcome: Outcome
    hover: str
    best: bool
    """On the Pareto line of its shape."""


def points(judged: Sequence[Judged]) -> list[Point]:
    """Where each measured candidate lies."""
    found: list[Point] = []
    for one in judged:
        candidate = one.candidate
        if not isinstance(candidate, Measured) or candidate.memory.ratio is None:
            continue
        peak, timing = candidate.memory.ratio, candidate.timing
        found.append(
            Point(
                candidate.plan,
                candidate.shape_key,
                timing.ratio_median,
                timing.ratio_ci95,
                peak,
                candidate.memory.ratio_ci95 or (peak, peak),
                timing.plain_median_s,
                candidate.memory.plain.peak_bytes or 0,
                VERDICT_MARK[one.verdict],
                _hover(one, candidate),
                False,
            )
        )
    return _with_pareto(found)


def _with_pareto(found: list[Point]) -> list[Point]:
    by_shape: dict[str, list[int]] = {}
    for index, point in enumerate(found):
        by_shape.setdefault(point.shape_key, []).append(index)
    best = {
        indices[i]
        for indices in by_shape.values()
        for i in pareto([(found[index].update, found[index].peak) for index in indices])
    }
    return [replace(point, best=index in best) for index, point in enumerate(found)]


def pareto(costs: Sequence[tuple[float, float]]) -> list[int]:
    """Which of the costs nothing beats: nothing is at most as high in both and lower in one."""
    best: list[int] = []
    lowest = inf
    ordered = sorted(range(len(costs)), key=costs.__getitem__)
    for update, group in groupby(ordered, lambda i: costs[i][0]):
        here = list(group)
        peak = costs[here[0]][1]
        if peak < lowest:
            best += [i for i in here if costs[i] == (update, peak)]
            lowest = peak
    return sorted(best)


def _hover(one: Judged, candidate: Measured) -> str:
    timing, memory = candidate.timing, candidate.memory
    low, high = timing.ratio_ci95
    gates = "<br>".join(f"{gate.id.replace('_', ' ')}: {OUTCOMES[gate.outcome]}" for gate in one.gates)
    own, plain = memory.candidate.peak_bytes or 0, memory.plain.peak_bytes or 0
    return (
        f"<b>{plan_label(candidate.plan)}</b> at {candidate.shape_key}<br>"
        f"peak {megabytes(own)}, plain {megabytes(plain)} ({memory.ratio:.3f})<br>"
        f"update {timing.update_s * 1e3:.0f} ms, plain "
        f"{timing.plain_median_s * 1e3:.0f} ms: {timing.ratio_median:.3f} "
        f"({low:.3f} to {high:.3f}), {timing.pairs_words}<br>{gates}<br>"
        f"<i>{KINDS[timing.kind]}</i>"
    )


def not_measured(judged: Sequence[Judged]) -> list[str]:
    """The candidates that have no place in the picture, and why, in a sentence each."""
    return [
        candidate_sentence(one)
        for one in judged
        if not isinstance(one.candidate, Measured) and not is_open(one)
    ]


def describe(found: Sequence[Point], limits: Thresholds, searched: Sequence[Estimated] = ()) -> str:
    """The picture in words, for those who cannot see it."""
    seen = "; ".join(
        f"{p.plan} at {p.shape_key}: update {p.update:.2f}, peak {p.peak:.2f}, "
        f"{POINT_MEANINGS.get(p.outcome, p.outcome)}"
        for p in found[:NAMED_IN_WORDS]
    )
    rings = "; ".join(
        f"{p.plan}: update {p.update:.2f}, peak {p.peak:.2f}" for p in searched[:NAMED_IN_WORDS]
    )
    where = f" Estimated at {searched[0].shape_key}: {rings}." if searched else ""
    return (
        f"Peak memory against update time, as ratios to plain. Gates at update "
        f"{limits.update_ratio:g} and peak {limits.peak_ratio:g}. {seen or 'Nothing measured yet'}."
        f"{where}"
    )


def picture(
    found: Sequence[Point],
    limits: Thresholds,
    colours: Palette,
    height: int = 440,
    searched: Sequence[Estimated] = (),
    budget: Budget | None = None,
) -> go.Figure:
    """The chart: gate lines, the adopt region, plain in the corner, every measured candidate, hollow
    what a search has found, and a budget as a thin line.

    Points far beyond all others lie on the right edge, with their figure beside them.
    """
    x_low, x_high, y_low, y_high = view_of(found, limits, searched, budget)
    edge = x_high - 0.012 * (x_high - x_low)
    figure = go.Figure(layout=_layout(height, (x_low, x_high), (y_low, y_high), found))
    figure.update_layout(
        shapes=_gates(limits, colours, x_low, y_low),
        annotations=_gate_names(limits, colours, (x_low, x_high), (y_low, y_high)),
    )
    if budget:
        _draw_budget(figure, budget, limits, colours)
    _draw_pareto(figure, found, colours)
    ink = {"pass": colours.passed, "fail": colours.failed, "undecided": colours.undecided}
    view = (x_low, x_high), (y_low, y_high), height - _AROUND_PX
    placed = _placed_names(found, searched, limits, view, edge, budget)
    if searched:
        known = {(p.plan, p.shape_key) for p in found}
        rings = {k: at for k, at in placed.items() if k not in known}
        draw_estimated(figure, searched, rings, colours, edge)
    for outcome, words in POINT_MEANINGS.items():
        these = [p for p in found if p.outcome == outcome]
        if these:
            marks = {"symbol": SYMBOLS[outcome], "size": 12, "color": ink[outcome]}
            figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=words, marker=marks))
            figure.add_trace(_marks(these, placed, marks, colours.ink, edge))
    figure.add_trace(
        go.Scatter(
            x=[1], y=[1], mode="markers+text", text=["plain"], textposition="bottom right",
            name="plain", showlegend=False, textfont={"size": 12, "color": colours.ink},
            hovertemplate="plain: the ratio is 1 by definition<extra></extra>",
            marker={"symbol": "square", "size": 11, "color": colours.plain}, cliponaxis=False,
        )
    )  # fmt: skip
    return figure


_FAR = 1.5
"""How many times as far to the right as the others a point is that would squeeze them."""


def _reach(found: Sequence[Point], limits: Thresholds, searched: Sequence[Estimated]) -> float:
    """How far right the view must show points: up to the farthest, but for a few that are far off."""
    places = sorted(p.update for p in (*found, *searched))
    few = min(len(places) // 4, 2)
    others = max([limits.update_ratio, *places[: len(places) - few]])
    near = [x for x in places if x - 1 <= _FAR * (others - 1)]
    return max([limits.update_ratio, *near])


def view_of(
    found: Sequence[Point], limits: Thresholds, searched: Sequence[Estimated], budget: Budget | None
) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of what is shown."""
    reach = _reach(found, limits, searched)
    highs = [p.update_ci[1] for p in found if p.update <= reach] + [reach]
    x_high = max([1 + (limits.update_ratio - 1) * 1.18, *(h * 1.03 for h in highs)])
    # An interval may reach far beyond the next; the view keeps the points, bars may leave it.
    x_high = min(x_high, 1 + max((reach - 1) * 1.8, 0.1))
    lowest = min([1.0, *(p.update for p in found), *(max(p.update_ci[0], 0.92) for p in found)])
    x_low = min(lowest - 0.02, 1 - (x_high - 1) * 0.05)
    y_high = max([1.0, *(p.peak for p in found)]) + 0.04
    lows = [p.peak_ci[0] for p in found] + [p.peak for p in searched] + ([budget.peak] if budget else [])
    y_low = max(0.0, min([limits.peak_ratio - 0.12, *(low - 0.08 for low in lows)]))
    return x_low, x_high, y_low, y_high


def _draw_budget(figure: go.Figure, budget: Budget, limits: Thresholds, colours: Palette) -> None:
    """A thin line with its name, on the side of it that is away from the gate."""
    line = {"color": colours.series[0], "width": 1}
    figure.add_shape(
        type="line", xref="paper", x0=0, x1=1, y0=budget.peak, y1=budget.peak, line=line, layer="below"
    )  # fmt: skip
    below = budget.peak < limits.peak_ratio
    figure.add_annotation(
        text=budget.name, showarrow=False, x=0, xref="paper", xanchor="left", xshift=8, y=budget.peak,
        yanchor="top" if below else "bottom", font={"size": 12, "color": colours.series[0]},
    )  # fmt: skip


def _layout(
    height: int, across: tuple[float, float], up: tuple[float, float], found: Sequence[Point]
) -> dict[str, object]:
    # At one shape a ratio stands for one absolute value: a second tick line says it.
    one = found[0] if len({p.shape_key for p in found}) == 1 else None
    return {
        "height": height,
        "margin": {"l": 20, "r": 16, "t": 34, "b": 20},
        "uirevision": "picture",
        "dragmode": False,
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        "xaxis": {
            "title": {"text": "update time, ratio to plain", "standoff": 12},
            "automargin": True,
            "range": across,
            "zeroline": False,
            **_ticks(across, lambda at: f"<br>{at * one.plain_s * 1e3:,.0f} ms" if one else ""),
        },
        "yaxis": {
            "title": {"text": "peak memory, ratio to plain", "standoff": 12},
            "automargin": True,
            "range": up,
            "zeroline": False,
            **_ticks(up, lambda at: f"<br>{megabytes(round(at * one.plain_bytes))}" if one else ""),
        },
    }


def _ticks(edges: tuple[float, float], also: Callable[[float], str]) -> dict[str, object]:
    """Round ratios within the edges, each with what `also` adds below it."""
    step = next((s for s in _STEPS if (edges[1] - edges[0]) / s <= 8), _STEPS[-1])
    first, last = ceil(edges[0] / step - 1e-9), floor(edges[1] / step + 1e-9)
    places = [n * step for n in range(first, last + 1)]
    return {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [f"{place:.2f}{also(place)}" for place in places],
    }


_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


def _gates(limits: Thresholds, colours: Palette, x_low: float, y_low: float) -> list[dict[str, object]]:
    line = {"color": colours.ink, "width": 1.4, "dash": "dash"}
    return [
        {"type": "rect", "x0": x_low, "x1": limits.update_ratio, "y0": y_low,
         "y1": limits.peak_ratio, "fillcolor": colours.region, "line": {"width": 0}, "layer": "below"},
        {"type": "line", "x0": limits.update_ratio, "x1": limits.update_ratio, "yref": "paper",
         "y0": 0, "y1": 1, "line": line, "layer": "below"},
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": limits.peak_ratio,
         "y1": limits.peak_ratio, "line": line, "layer": "below"},
    ]  # fmt: skip


def _gate_names(
    limits: Thresholds, colours: Palette, across: tuple[float, float], up: tuple[float, float]
) -> list[dict[str, object]]:
    """Both on the wider side of the vertical line, whatever the chart's width: it crosses neither."""
    base: dict[str, object] = {"showarrow": False, "font": {"size": 12, "color": colours.ink}}
    on_the_left = limits.update_ratio > sum(across) / 2
    beside: dict[str, object] = {"x": limits.update_ratio, "xshift": -5 if on_the_left else 5}
    beside |= {"xanchor": "right" if on_the_left else "left"}
    end = beside if on_the_left else {"x": 1, "xref": "paper", "xanchor": "right"}
    # Close to the top the horizontal line's name stands below it, where the other's is not.
    high = limits.peak_ratio > up[1] - 0.16 * (up[1] - up[0])
    side: dict[str, object] = (
        {"yanchor": "top", "yshift": -2} if high else {"yanchor": "bottom", "yshift": 2}
    )
    return [
        {**base, **beside, "y": 1, "yref": "paper", "yanchor": "top",
         "text": f"update {limits.update_ratio:.2f}"},
        {**base, **end, **side, "y": limits.peak_ratio, "text": f"peak {limits.peak_ratio:.2f}"},
        {**base, "x": 0, "xref": "paper", "y": up[0], "xanchor": "left", "yanchor": "bottom",
         "xshift": 8, "yshift": 4, "text": "adopt region",
         "font": {"size": 12, "color": colours.passed}},
    ]  # fmt: skip


def _draw_pareto(figure: go.Figure, found: Sequence[Point], colours: Palette) -> None:
    """From plain along the best points of each shape: one broken line for all of them."""
    line: list[tuple[float | None, float | None]] = []
    for shape in dict.fromkeys(p.shape_key for p in found):
        best = sorted((p.update, p.peak) for p in found if p.shape_key == shape and p.best)
        line += [(1.0, 1.0), *best, (None, None)]
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in line], y=[y for _, y in line], mode="lines",
            line={"color": colours.faint, "width": 1, "dash": "dot"},
            hoverinfo="skip", showlegend=False,
        )
    )  # fmt: skip


def names(found: Sequence[Point]) -> dict[tuple[str, str], str]:
    """What stands beside each point: the plan, the shape, or both, whichever tells them apart."""
    shapes = shape_labels(list(dict.fromkeys(p.shape_key for p in found)))
    plans = {p.plan for p in found}
    said = {}
    for point in found:
        parts = []
        if len(plans) > 1:
            parts.append(plan_short(point.plan))
        if len(shapes) > 1:
            parts.append(shapes[point.shape_key])
        said[point.plan, point.shape_key] = ", ".join(parts) or plan_short(point.plan)
    return said


def _placed_names(
    found: Sequence[Point],
    searched: Sequence[Estimated],
    limits: Thresholds,
    view: tuple[tuple[float, float], tuple[float, float], float],
    edge: float,
    budget: Budget | None,
) -> dict[tuple[str, str], tuple[str, str]]:
    """The name beside each point and where it stands, by plan and shape."""
    named = names(found)
    # Of a plan that was found and then measured only the measured point is named; among points of
    # several shapes the hover and the table name those that were found.
    hollow = [p for p in searched if (p.plan, p.shape_key) not in named]
    several = len({p.shape_key for p in (*found, *searched)}) > 1
    named |= {(p.plan, p.shape_key): "" if several else p.plan for p in hollow}
    # Those on the edge and the best ones get room first.
    ordered: list[Point | Estimated] = [
        *sorted(found, key=lambda p: (p.update <= edge, not p.best)),
        *sorted(hollow, key=lambda p: p.update <= edge),
    ]
    across, up, height_px = view
    bars = [((p.update_ci[0], p.peak), (p.update_ci[1], p.peak)) for p in found if p.update <= edge]
    bars += [((p.update, p.peak_ci[0]), (p.update, p.peak_ci[1])) for p in found if p.update <= edge]
    if budget:
        aside = 0.05 * (up[1] - up[0]) * (-1 if budget.peak < limits.peak_ratio else 1)
        name_ends = across[0] + 0.36 * (across[1] - across[0]), budget.peak + aside
        bars.append(((across[0], budget.peak), (across[1], budget.peak)))
        bars.append(((across[0], budget.peak), name_ends))

    def placed(texts: list[str]) -> list[str | None]:
        points = [Named(1.0, 1.0, "")]
        points += [
            Named(min(p.update, edge), p.peak, text) for p, text in zip(ordered, texts, strict=True)
        ]
        gates = limits.update_ratio, limits.peak_ratio
        return place(points, across, up, gates, len(hollow), bars, height_px)[1:]

    keys = [(p.plan, p.shape_key) for p in ordered]
    figures = [f"{p.update:.2f} →" if p.update > edge else "" for p in ordered]
    texts = [f"{named[key]} {figure}".strip() for key, figure in zip(keys, figures, strict=True)]
    places = placed(texts)
    if any(figure and not at for figure, at in zip(figures, places, strict=True)):
        # No room for the name there: the figure alone says more than nothing.
        shorter = zip(texts, figures, places, strict=True)
        texts = [text if at or not figure else figure for text, figure, at in shorter]
        places = placed(texts)
    return {
        key: (text if at else "", at or "top right")
        for key, text, at in zip(keys, texts, places, strict=True)
    }


def _marks(
    these: Sequence[Point],
    placed: dict[tuple[str, str], tuple[str, str]],
    marks: dict[str, object],
    ink: str,
    edge: float,
) -> go.Scatter:
    bars = {"color": marks["color"], "thickness": 1.3, "width": 5, "symmetric": False, "type": "data"}
    return go.Scatter(
        x=[min(p.update, edge) for p in these],
        y=[p.peak for p in these],
        error_x={
            **bars,  # none on the edge, where a point does not lie at its figure
            "array": [max(0.0, p.update_ci[1] - p.update) * (p.update <= edge) for p in these],
            "arrayminus": [max(0.0, p.update - p.update_ci[0]) * (p.update <= edge) for p in these],
        },
        error_y={
            **bars,
            "array": [max(0.0, p.peak_ci[1] - p.peak) for p in these],
            "arrayminus": [max(0.0, p.peak - p.peak_ci[0]) for p in these],
        },
        mode="markers+text",
        text=[placed[p.plan, p.shape_key][0] for p in these],
        textposition=[placed[p.plan, p.shape_key][1] for p in these],
        textfont={"size": 12, "color": ink},
        showlegend=False,
        customdata=[[f"{p.plan} {p.shape_key}"] for p in these],
        hovertext=[p.hover for p in these],
        hovertemplate="%{hovertext}<extra></extra>",
        marker={**marks, "opacity": [1.0 if p.best else 0.5 for p in these]},
    )
