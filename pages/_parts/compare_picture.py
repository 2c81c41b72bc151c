"""Both studies in the one picture: peak ratio against update ratio. Pure.

A is hollow and grey, B filled and blue; the shape says the outcome as everywhere. A line leads from a
candidate in A to the same one in B.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from recompute_core.comparing.records import Side
from recompute_core.results import Judged, Measured, Outcome, StudyResult
from recompute_core.spec import Thresholds
from recompute_core.words import POINT_MEANINGS, shape_labels

from .labels import Named, place
from .palette import SYMBOLS, VERDICT_MARK, Palette
from .whole_intervals import with_intervals
from .words import plan_label, plan_short

_HEIGHT = 460
_AROUND_PX = 120.0
_MOST_NAMES = 40
_APART_PX = 11.0


@dataclass(frozen=True)
class Dot:
    """A measured candidate of one study."""

    side: Side
    plan: str
    plan_hash: str
    shape_key: str
    update: float
    update_ci: tuple[float, float]
    peak: float
    peak_ci: tuple[float, float]
    mark: Outcome
    pairs: int
    drawn_at: float
    """The height at which it is drawn: the peak, or a little off where another dot would lie on it."""


def dots(side: Side, judged: Sequence[Judged]) -> list[Dot]:
    """Where the candidates of one study lie."""
    return [_dot(side, one) for one in judged if _has_place(one)]


def _has_place(one: Judged) -> bool:
    return isinstance(one.candidate, Measured) and one.candidate.memory.ratio is not None


def _dot(side: Side, one: Judged) -> Dot:
    found = one.candidate
    assert isinstance(found, Measured) and found.memory.ratio is not None
    return Dot(
        side=side,
        plan=found.plan,
        plan_hash=found.plan_hash,
        shape_key=found.shape_key,
        update=found.timing.ratio_median,
        update_ci=found.timing.ratio_ci95,
        peak=found.memory.ratio,
        peak_ci=found.memory.ratio_ci95 or (found.memory.ratio, found.memory.ratio),
        mark=VERDICT_MARK[one.verdict],
        pairs=found.timing.pairs,
        drawn_at=found.memory.ratio,
    )


def apart(
    a: Sequence[Dot], b: Sequence[Dot], up: tuple[float, float], gates: Sequence[float]
) -> list[Dot]:
    """The dots of A, moved a little where the same candidate of B is at the same height, so that both
    intervals and the line between them are seen; never across a gate."""
    step = _APART_PX / (_HEIGHT - _AROUND_PX) * (up[1] - up[0])
    at = _partners(b)
    drawn = []
    for p in a:
        other = _partner(at, p)
        if other is not None and abs(other.peak - p.peak) < step:
            above = other.peak + step
            crossed = any(min(p.peak, above) <= gate <= max(p.peak, above) for gate in gates)
            p = replace(p, drawn_at=other.peak - step if crossed else above)
        drawn.append(p)
    return drawn


def _partners(b: Sequence[Dot]) -> dict[tuple[str, str], Dot]:
    return {(p.shape_key, p.plan_hash): p for p in b} | {(p.shape_key, p.plan): p for p in b}


def _partner(at: dict[tuple[str, str], Dot], p: Dot) -> Dot | None:
    return at.get((p.shape_key, p.plan_hash)) or at.get((p.shape_key, p.plan))


def overlay(a: StudyResult, b: StudyResult, colours: Palette) -> go.Figure:
    """The chart; lines of thresholds that differ carry the letter of their study."""
    sides = {"a": dots("a", a.judged), "b": dots("b", b.judged)}
    across, up = _view([*sides["a"], *sides["b"]], (a.thresholds, b.thresholds))
    gates = (a.thresholds.peak_ratio, b.thresholds.peak_ratio)
    sides["a"] = apart(sides["a"], sides["b"], up, gates)
    every = [*sides["a"], *sides["b"]]
    figure = go.Figure(
        layout={
            "height": _HEIGHT,
            "margin": {"l": 20, "r": 16, "t": 40, "b": 20},
            "dragmode": False,
            "hovermode": "closest",
            "uirevision": "overlay",
            "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
            "xaxis": _axis("update time, ratio to plain", across),
            "yaxis": _axis("peak memory, ratio to plain", up),
        }
    )
    _gates(figure, a.thresholds, b.thresholds, across, colours)
    _steps(figure, sides["a"], sides["b"], colours)
    names = _names(every, across, up, b.thresholds)
    ink: dict[Side, str] = {"a": colours.plain, "b": colours.series[0]}
    for side, found in sides.items():
        _draw(figure, side, found, names, ink[side], colours)
    _arrows(figure, every, across, ink)
    figure.add_trace(
        go.Scatter(
            x=[1], y=[1], mode="markers+text", text=["plain"], textposition="bottom right",
            showlegend=False, textfont={"size": 12, "color": colours.ink}, cliponaxis=False,
            hovertemplate="plain: the ratio is 1 by definition<extra></extra>",
            marker={"symbol": "square", "size": 11, "color": colours.plain},
        )
    )  # fmt: skip
    return figure


def describe(a: StudyResult, b: StudyResult) -> str:
    """The chart in words."""
    said = []
    for side, result in (("A", a), ("B", b)):
        found = dots("a", result.judged)
        seen = "; ".join(
            f"{p.plan} at {p.shape_key}: update {p.update:.2f}, peak {p.peak:.2f}, "
            f"{POINT_MEANINGS[p.mark]}"
            for p in found[:12]
        )
        said.append(f"{side}: {seen or 'nothing measured'}.")
    return " ".join(("Peak memory against update time of both studies, as ratios to plain.", *said))


def _axis(title: str, edges: tuple[float, float]) -> dict[str, object]:
    return {
        "title": {"text": title, "standoff": 12},
        "automargin": True,
        "range": edges,
        "zeroline": False,
        "tickformat": ".2f",
        "nticks": 9,
    }


def _view(
    found: Sequence[Dot], limits: Sequence[Thresholds]
) -> tuple[tuple[float, float], tuple[float, float]]:
    right = max([1 + 1.15 * (one.update_ratio - 1) for one in limits] + [p.update for p in found])
    left = min([1.0, *(p.update for p in found)])
    left, right = with_intervals(left, right, [p.update_ci for p in found])
    bottom = min([one.peak_ratio for one in limits] + [p.peak for p in found])
    top = max([1.0, *(p.peak for p in found)])
    wide, tall = max(right - left, 0.05), max(top - bottom, 0.05)
    across = left - 0.05 * wide, right + 0.08 * wide
    return across, (max(0.0, bottom - 0.16 * tall), top + 0.06 * tall)


def _gates(
    figure: go.Figure, a: Thresholds, b: Thresholds, across: tuple[float, float], colours: Palette
) -> None:
    """The lines, with their names on the wider side of the vertical ones, which so cross none."""
    first = min(a.update_ratio, b.update_ratio)
    left = first > sum(across) / 2
    end = {"x": first, "xshift": -5} if left else {"x": 1, "xref": "paper"}
    for field, axis in (("update_ratio", "x"), ("peak_ratio", "y")):
        values = {"A": getattr(a, field), "B": getattr(b, field)}
        if values["A"] == values["B"]:
            values = {"": values["A"]}
        what = field.removesuffix("_ratio")
        for letter, value in values.items():
            dash = "dot" if letter == "A" else "dash"
            line = {"color": colours.ink, "width": 1.4, "dash": dash}
            name = f"{what} {value:g}" + (f" ({letter})" if letter else "")
            font = {"size": 12, "color": colours.ink}
            if axis == "x":
                figure.add_vline(x=value, line=line, layer="below")
                figure.add_annotation(
                    x=value, y=1, yref="paper", xanchor="right" if left else "left", yanchor="top",
                    xshift=-5 if left else 5, yshift=-16 if letter == "B" else 0, text=name,
                    showarrow=False, font=font,
                )  # fmt: skip
            else:
                figure.add_hline(y=value, line=line, layer="below")
                figure.add_annotation(
                    **end, y=value, xanchor="right", yanchor="bottom", yshift=2, text=name,
                    showarrow=False, font=font,
                )  # fmt: skip


def _peak_name(
    limits: Thresholds, across: tuple[float, float], up: tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """About where the name of the horizontal gate stands, from corner to corner."""
    wide, tall = across[1] - across[0], up[1] - up[0]
    end = limits.update_ratio if limits.update_ratio > sum(across) / 2 else across[1]
    return (end - 0.13 * wide, limits.peak_ratio + 0.005 * tall), (end, limits.peak_ratio + 0.05 * tall)


def _steps(figure: go.Figure, a: Sequence[Dot], b: Sequence[Dot], colours: Palette) -> None:
    """A line from each candidate of A to the same one of B."""
    at = _partners(b)
    x: list[float | None] = []
    y: list[float | None] = []
    for p in a:
        other = _partner(at, p)
        if other is not None:
            x += [p.update, other.update, None]
            y += [p.drawn_at, other.drawn_at, None]
    figure.add_trace(
        go.Scatter(
            x=x, y=y, mode="lines", hoverinfo="skip", showlegend=False,
            line={"color": colours.faint, "width": 1.2},
        )
    )  # fmt: skip


def _names(
    found: Sequence[Dot],
    across: tuple[float, float],
    up: tuple[float, float],
    limits: Thresholds,
) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Text and its place for the points of B, and for those that A alone has."""
    shapes = shape_labels(list(dict.fromkeys(p.shape_key for p in found)))
    several = len(shapes) > 1
    in_b = {(p.shape_key, p.plan) for p in found if p.side == "b"}
    named = [p for p in found if p.side == "b" or (p.shape_key, p.plan) not in in_b]
    if len(named) > _MOST_NAMES:
        return {}
    order = sorted(found, key=lambda p: p not in named)
    shown = {p: plan_short(p.plan, 20 if several else 28) for p in named}
    texts = [
        f"{shown[p]}, {shapes[p.shape_key]}" if several and p in shown else shown.get(p, "")
        for p in order
    ]
    bars = [((p.update_ci[0], p.drawn_at), (p.update_ci[1], p.drawn_at)) for p in order]
    bars.append(_peak_name(limits, across, up))
    places = place(
        [Named(p.update, p.drawn_at, text) for p, text in zip(order, texts, strict=True)],
        across,
        up,
        (limits.update_ratio, limits.peak_ratio),
        bars=bars,
        height_px=_HEIGHT - _AROUND_PX,
    )
    return {
        (p.side, p.plan, p.shape_key): (text, where)
        for p, text, where in zip(order, texts, places, strict=True)
        if text and where
    }


def _draw(
    figure: go.Figure,
    side: Side,
    found: Sequence[Dot],
    names: dict[tuple[str, str, str], tuple[str, str]],
    ink: str,
    colours: Palette,
) -> None:
    letter = side.upper()
    for mark in dict.fromkeys(p.mark for p in found):
        these = [p for p in found if p.mark == mark]
        hollow = "-open" if side == "a" else ""
        text = [names.get((p.side, p.plan, p.shape_key), ("", "top right")) for p in these]
        figure.add_trace(
            go.Scatter(
                x=[p.update for p in these],
                y=[p.drawn_at for p in these],
                name=f"{letter}: {POINT_MEANINGS[mark]}",
                mode="markers+text",
                text=[_plain(words) for words, _ in text],
                textposition=[where for _, where in text],
                textfont={"size": 12, "color": colours.ink},
                marker={
                    "symbol": SYMBOLS[mark] + hollow,
                    "size": 12,
                    "color": ink,
                    "line": {"width": 2 if hollow else 0, "color": ink},
                },
                error_x=_bars([(p.update, p.update_ci) for p in these], ink),
                error_y=_bars([(p.peak, p.peak_ci) for p in these], ink),
                hovertext=[_hover(p) for p in these],
                hoverinfo="text",
                cliponaxis=False,
            )
        )


def _arrows(
    figure: go.Figure, found: Sequence[Dot], across: tuple[float, float], ink: dict[Side, str]
) -> None:
    """Where an interval leaves the picture: Plotly cuts it off there."""
    left, right = across
    ends = [(left, p, "triangle-left") for p in found if p.update_ci[0] < left]
    ends += [(right, p, "triangle-right") for p in found if p.update_ci[1] > right]
    figure.add_trace(
        go.Scatter(
            x=[x for x, _, _ in ends], y=[p.drawn_at for _, p, _ in ends], mode="markers",
            marker={
                "symbol": [symbol for *_, symbol in ends], "size": 9,
                "color": [ink[p.side] for _, p, _ in ends],
            },
            hoverinfo="skip", showlegend=False, cliponaxis=False,
        )
    )  # fmt: skip


def _bars(found: Sequence[tuple[float, tuple[float, float]]], ink: str) -> dict[str, object]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - at for at, (_, high) in found],
        "arrayminus": [at - low for at, (low, _) in found],
        "color": ink,
        "thickness": 1.2,
        "width": 3,
    }


def _hover(p: Dot) -> str:
    low, high = p.update_ci
    return (
        f"<b>{p.side.upper()}: {_plain(plan_label(p.plan))}</b> at {_plain(p.shape_key)}<br>"
        f"update {p.update:.3f} ({low:.3f} to {high:.3f}), {p.pairs} pairs<br>peak {p.peak:.3f}<br>"
        f"{POINT_MEANINGS[p.mark]}"
    )


def _plain(text: str) -> str:
    """Foreign text for Plotly, which reads a little HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
