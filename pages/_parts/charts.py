"""Curves over shapes and over recomputed blocks. Pure.

Plain is grey with squares; every plan has its own colour and marker, so that no line is told apart by
colour alone. Measured lines are solid with filled markers, estimated ones dashed with hollow markers.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from recompute_core.gates import in_mb
from recompute_core.intervals import median
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import first_blocks, named_regions
from recompute_core.results import Judged, Measured, Memory, Proven, StudyResult

from .palette import Palette
from .words import plan_short

MOST_LINES = 12
"""So many plans can be told apart in a chart."""
_FADED = 0.2
_MARKERS = ("circle", "diamond", "triangle-up", "cross", "pentagon", "star")


@dataclass(frozen=True)
class Axis:
    """What varies from shape to shape, and where each shape lies on it."""

    title: str
    places: dict[str, float | str]
    """By shape key, in order."""
    field: str | None = None
    """The size that varies."""

    @property
    def is_numeric(self) -> bool:
        return all(not isinstance(place, str) for place in self.places.values())


@dataclass(frozen=True)
class Look:
    """How curves are drawn, whatever they show."""

    colours: Palette
    plans: tuple[str, ...]
    """Those that have a line."""
    faded: frozenset[str] = frozenset()
    """Plans that are not picked, while others are."""
    log: bool = False


def plans_shown(every: Sequence[str], picked: Collection[str]) -> tuple[str, ...]:
    """The plans that have a line: those picked, then others, as many as can be told apart."""
    chosen = [plan for plan in every if plan in picked] + [plan for plan in every if plan not in picked]
    shown = set(chosen[:MOST_LINES])
    return tuple(plan for plan in every if plan in shown)


def shape_axis(result: StudyResult) -> Axis:
    """Sequence length or batch where only that varies; else the shapes by name."""
    shapes = {one.candidate.shape_key: one.candidate.shape for one in result.judged}
    names = next(iter(shapes.values())).keys()
    varying = [name for name in names if len({shape[name] for shape in shapes.values()}) > 1]
    titles = {"seq_len": "sequence length (tokens)", "batch": "batch size"}
    if len(varying) == 1 and varying[0] in titles:
        ordered = sorted(shapes, key=lambda key: shapes[key][varying[0]])
        places: dict[str, float | str] = {key: shapes[key][varying[0]] for key in ordered}
        return Axis(titles[varying[0]], places, varying[0])
    return Axis("shape", {key: key for key in shapes})


def _memory(one: Judged) -> tuple[Memory, Memory] | None:
    pair = one.candidate.memory
    return (pair.plain, pair.candidate) if pair is not None else None


def _base(unit: str, axis: Axis, height: int, log: bool = False, more: Sequence[int] = ()) -> go.Figure:
    """An empty chart; `more` are sizes beyond those of the axis."""
    across: dict[str, object] = {"title": {"text": axis.title, "standoff": 8}, "zeroline": False}
    if axis.is_numeric:
        places = [*axis.places.values(), *more]
        across |= {"tickvals": _apart(places, log), "rangemode": "normal", "tickformat": ",d"}
        across |= {"type": "log"} if log else {}
    else:
        across |= {"type": "category", "categoryarray": list(axis.places.values())}
    return go.Figure(
        layout={
            "height": height,
            "margin": {"l": 64, "r": 12, "t": 28, "b": 52},
            "dragmode": False,
            "hovermode": "x unified",
            "uirevision": "curves",
            "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            "xaxis": across,
            "yaxis": {"title": {"text": unit, "standoff": 8}, "rangemode": "tozero",
                      "zeroline": False},
        }
    )  # fmt: skip


def _apart(places: Sequence[float | str], log: bool) -> list[float | str]:
    """The places whose ticks have room, from the largest down."""
    kept: list[float | str] = []
    for place in sorted(places, key=float, reverse=True):
        least, most = float(min(places, key=float)), float(max(places, key=float))
        if kept and most > least:
            last, here = float(kept[-1]), float(place)
            share = (
                math.log(last / here) / math.log(most / least)
                if log and here > 0 and least > 0
                else (last - here) / (most - least)
            )
            if share < _TICK_SHARE:
                continue
        kept.append(place)
    return kept[::-1]


_TICK_SHARE = 0.07
"""How far two ticks are apart at least, of the whole axis."""


def _line(
    name: str,
    places: Sequence[float | str],
    values: Sequence[float],
    colour: str,
    index: int | None,
    bars: Sequence[tuple[float, float]] | None = None,
    suffix: str = "",
    unit: str = "",
    faded: bool = False,
) -> go.Scatter:
    error = None
    if bars is not None:
        error = {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, high - value) for value, (_, high) in zip(values, bars, strict=True)],
            "arrayminus": [max(0.0, value - low) for value, (low, _) in zip(values, bars, strict=True)],
            "thickness": 1.2,
            "width": 4,
        }
    return go.Scatter(
        x=list(places),
        y=list(values),
        error_y=error,
        name=name,
        mode="lines+markers",
        opacity=_FADED if faded else 1,
        line={"color": colour, "width": 2},
        marker={"symbol": "square" if index is None else _MARKERS[index % 6], "size": 8},
        customdata=_said(unit, values) if unit else None,
        hovertemplate=("%{customdata}" if unit else "%{y:,.4~g}") + suffix,
    )


def _said(unit: str, values: Sequence[float]) -> list[str]:
    """Figures in MB or in ms, in words."""
    return [in_mb(value * 1e6) if unit == "MB" else f"{value:,.1f}" for value in values]


Reading = Callable[[Judged], tuple[float, float] | None]
"""Plain's and the candidate's figure of one candidate, or None."""


Beyond = Mapping[str, Mapping[int, float]]
"""Estimated figures by plan (`none` is plain) and size."""


def over_shapes(
    result: StudyResult,
    unit: str,
    read: Reading,
    look: Look,
    beyond: Beyond | None = None,
    height: int = 320,
) -> go.Figure:
    """One figure over the shapes: plain and every plan; dashed what was estimated beyond them."""
    axis = shape_axis(result)
    colours = look.colours
    sizes = sorted({size for found in (beyond or {}).values() for size in found})
    figure = _base(unit, axis, height, look.log, sizes)
    if look.log:
        figure.update_yaxes(type="log", rangemode="normal")
    plain: dict[str, float] = {}
    lines: dict[str, dict[str, float]] = {}
    for one in result.judged:
        found = read(one)
        if found is not None:
            plain.setdefault(one.candidate.shape_key, found[0])
            if one.candidate.plan in look.plans:
                lines.setdefault(one.candidate.plan, {})[one.candidate.shape_key] = found[1]
    if len(axis.places) == 1 and not beyond:
        return _bars(unit, plain, lines, look)
    if plain:
        keys = [key for key in axis.places if key in plain]
        figure.add_trace(
            _line("plain", [axis.places[k] for k in keys], [plain[k] for k in keys],
                  colours.plain, None, unit=unit)
        )  # fmt: skip
        _add_beyond(figure, "plain", axis, plain, (beyond or {}).get("none"), colours.plain, unit)
    for index, plan in enumerate(look.plans):
        values = lines.get(plan)
        if values:
            keys = [key for key in axis.places if key in values]
            colour = colours.series[index % len(colours.series)]
            figure.add_trace(
                _line(plan_short(plan), [axis.places[k] for k in keys], [values[k] for k in keys],
                      colour, index, unit=unit, faded=plan in look.faded)
            )  # fmt: skip
            _add_beyond(
                figure, plan_short(plan), axis, values, (beyond or {}).get(plan), colour, unit, index
            )
    return figure


def _add_beyond(
    figure: go.Figure,
    name: str,
    axis: Axis,
    measured: Mapping[str, float],
    estimated: Mapping[int, float] | None,
    colour: str,
    unit: str,
    index: int | None = None,
) -> None:
    """A dashed line on from the last measured point, hollow where something was estimated."""
    if not estimated:
        return
    last = [key for key in axis.places if key in measured][-1]
    sizes = sorted(estimated)
    values = [measured[last], *(estimated[size] for size in sizes)]
    symbol = "square" if index is None else _MARKERS[index % 6]
    figure.add_trace(
        go.Scatter(
            x=[axis.places[last], *sizes], y=values, name=name, mode="lines+markers", showlegend=False,
            line={"color": colour, "width": 2, "dash": "dash"},
            marker={"symbol": f"{symbol}-open", "size": [0, *[9] * len(sizes)], "color": colour,
                    "line": {"width": 2, "color": colour}},
            customdata=["", *(f"{text} {unit}, estimated" for text in _said(unit, values[1:]))],
            hovertemplate="%{customdata}",
        )
    )  # fmt: skip


def _bars(
    unit: str, plain: dict[str, float], lines: dict[str, dict[str, float]], look: Look
) -> go.Figure:
    """At a single shape there is nothing to run along: a bar for plain and one for each plan."""
    colours = look.colours
    names = ["plain"] * len(plain) + [plan_short(plan) for plan in lines]
    values = [*plain.values(), *(next(iter(found.values())) for found in lines.values())]
    colour = [colours.plain] * len(plain) + [colours.series[0]] * len(lines)
    opacity = [1.0] * len(plain) + [_FADED if plan in look.faded else 1.0 for plan in lines]
    return go.Figure(
        go.Bar(
            x=values,
            y=names,
            orientation="h",
            marker={"color": colour, "opacity": opacity},
            text=_said(unit, values),
            textposition="auto",
            hovertemplate="%{y}: %{text} " + unit + "<extra></extra>",
        ),
        layout={
            "height": 90 + 34 * len(names),
            "margin": {"l": 8, "r": 12, "t": 8, "b": 46},
            "dragmode": False,
            "xaxis": {"title": {"text": unit, "standoff": 6}, "zeroline": False},
            "yaxis": {"autorange": "reversed", "automargin": True, "ticksuffix": "  "},
            "bargap": 0.3,
        },
    )


def saved_mb(one: Judged) -> tuple[float, float] | None:
    pair = _memory(one)
    return None if pair is None else (pair[0].saved_bytes / 1e6, pair[1].saved_bytes / 1e6)


def peak_mb(one: Judged) -> tuple[float, float] | None:
    pair = _memory(one)
    if pair is None or pair[0].peak_bytes is None or pair[1].peak_bytes is None:
        return None
    return pair[0].peak_bytes / 1e6, pair[1].peak_bytes / 1e6


def step_ms(result: StudyResult) -> Callable[[Judged], tuple[float, float] | None]:
    """Reads update times, in ms: plain's median over all pairs at a shape, and that times the ratio of
    a plan's own pairs. Medians of plans timed one after another would show the machine's drift."""
    taken: dict[str, list[float]] = {}
    for one in result.judged:
        if one.candidate.timing is not None:
            pairs = one.candidate.timing.samples
            taken.setdefault(one.candidate.shape_key, []).extend(pair.plain_s for pair in pairs)
    plain = {shape: median(seconds) * 1e3 for shape, seconds in taken.items()}

    def read(one: Judged) -> tuple[float, float] | None:
        timing = one.candidate.timing
        if timing is None:
            return None
        at = plain[one.candidate.shape_key]
        return at, at * timing.ratio_median

    return read


def ratio_over_shapes(
    result: StudyResult, limit: float, limit_name: str, look: Look, height: int = 320
) -> go.Figure:
    """The ratio of update times with its intervals, and the gate."""
    axis = shape_axis(result)
    colours = look.colours
    figure = _base("update time, ratio to plain", axis, height, look.log)
    figure.update_yaxes(rangemode="normal")
    figure.add_hline(y=1, line={"color": colours.plain, "width": 1})
    figure.add_hline(
        y=limit, line={"color": colours.ink, "width": 1.4, "dash": "dash"},
        annotation_text=f"{limit_name} {limit:.2f}", annotation_position="bottom right",
    )  # fmt: skip
    for index, plan in enumerate(look.plans):
        timings = {
            one.candidate.shape_key: one.candidate.timing
            for one in result.judged
            if one.candidate.plan == plan
        }
        timed = [(key, timing) for key in axis.places if (timing := timings.get(key)) is not None]
        if timed:
            figure.add_trace(
                _line(
                    plan_short(plan),
                    [axis.places[key] for key, _ in timed],
                    [timing.ratio_median for _, timing in timed],
                    colours.series[index % len(colours.series)],
                    index,
                    [timing.ratio_ci95 for _, timing in timed],
                    faded=plan in look.faded,
                )
            )
    return figure


# --- the selective curve -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Stop:
    """One point of the selective curve: so many of the first blocks recomputed."""

    blocks: int
    saved_mb: float
    peak_mb: float | None
    ratio: float | None
    """Median of the paired ratios of update times; 1 for plain."""
    ratio_ci95: tuple[float, float] | None


def selective(result: StudyResult, shape: str) -> list[Stop]:
    """0, 1, 2 … first blocks recomputed at one shape; empty with fewer than two."""
    anatomy = anatomy_of(result.spec.workload)
    curve = {
        number: named_regions(plan, anatomy)
        for number, plan in enumerate(first_blocks(anatomy.blocks), start=1)
    }
    stops: dict[int, Stop] = {}
    for one in result.judged:
        candidate = one.candidate
        count = len(candidate.regions)
        if candidate.shape_key != shape or candidate.regions != curve.get(count):
            continue
        if not isinstance(candidate, Measured | Proven) or candidate.memory is None:
            continue
        plain, own, timing = candidate.memory.plain, candidate.memory.candidate, candidate.timing
        stops.setdefault(0, Stop(0, plain.saved_bytes / 1e6, _mb(plain.peak_bytes), 1.0, (1.0, 1.0)))
        stops[count] = Stop(
            count,
            own.saved_bytes / 1e6,
            _mb(own.peak_bytes),
            timing.ratio_median if timing else None,
            timing.ratio_ci95 if timing else None,
        )
    return [stops[k] for k in sorted(stops)] if len(stops) > 2 else []


def _mb(count: int | None) -> float | None:
    return None if count is None else count / 1e6


def selective_memory(stops: Sequence[Stop], colours: Palette, height: int = 320) -> go.Figure:
    """Saved bytes and peak against the number of recomputed blocks."""
    axis = Axis("blocks recomputed, from the first", {str(s.blocks): s.blocks for s in stops})
    figure = _base("MB", axis, height)
    places = [s.blocks for s in stops]
    figure.add_trace(_line("saved for backward", places, [s.saved_mb for s in stops],
                           colours.series[0], 0, unit="MB"))  # fmt: skip
    peaks = [s.peak_mb for s in stops if s.peak_mb is not None]
    if len(peaks) == len(stops):
        figure.add_trace(_line("peak", places, peaks, colours.series[1], 1, unit="MB"))
    return figure


def selective_time(stops: Sequence[Stop], colours: Palette, height: int = 320) -> go.Figure:
    """Step time against the number of recomputed blocks, as a ratio to plain with its interval."""
    axis = Axis("blocks recomputed, from the first", {str(s.blocks): s.blocks for s in stops})
    figure = _base("update time, ratio to plain", axis, height)
    figure.update_yaxes(rangemode="normal")
    timed = [(s.blocks, s.ratio, s.ratio_ci95) for s in stops if s.ratio and s.ratio_ci95]
    figure.add_trace(
        _line(
            "update time",
            [blocks for blocks, _, _ in timed],
            [ratio for _, ratio, _ in timed],
            colours.series[0],
            0,
            [edges for _, _, edges in timed],
        )
    )
    return figure
