"""What the draggable picture is given: figures, names and words of every candidate, as JSON. Pure.

What the two lines decide is left to picture_web/outcome.js, so that it follows the hand at once; all
else of a candidate (its parity, its place on the Pareto line, its words) is said here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from recompute_core.gates import candidate_sentence, is_open, megabytes
from recompute_core.results import Judged, Measured, StudyResult
from recompute_core.spec import Thresholds
from recompute_core.words import count, pairs_words, shape_labels

from .data import Snapshot
from .filters import Filters
from .found import Budget, Estimated
from .gate_address import Ends, ends_of
from .palette import VERDICT_MARK, Mark
from .picture import NAMED_IN_WORDS, PLAIN_AT, Point, describe, names, pareto, points, view_of
from .words import KINDS, plan_label

_MOST_ASIDE = 24
EVERYTHING = Filters()
_LONGEST_REASON = 90


def candidate_id(one: Judged) -> str:
    """What picture, table and address call a candidate: `every-block T=256 B=4`."""
    return f"{one.candidate.plan} {one.candidate.shape_key}"


@dataclass(frozen=True)
class Plotted:
    """A measured candidate in the picture."""

    id: str
    plan: str
    name: str
    """What stands beside it."""
    update: float
    update_low: float
    update_high: float
    peak: float
    peak_low: float
    peak_high: float
    best: bool
    """On the Pareto line of its shape."""
    tip: list[str]
    """Its words, a line each; the kind of its figures last."""


@dataclass(frozen=True)
class Aside:
    """A candidate without figures, in the margin."""

    id: str
    name: str
    why: str
    """The reason in a few words."""
    sentence: str
    mark: Mark


def document(
    found: Snapshot,
    result: StudyResult,
    shapes: Sequence[str],
    ends: Ends,
    searched: Sequence[Estimated] = (),
    budget: Budget | None = None,
    filters: Filters = EVERYTHING,
) -> dict[str, object]:
    """All that the picture shows of these shapes, but for what the hand decides.

    Points that the filters leave out stay there, faded, so that no place of another moves.
    """
    declared = found.row.spec.thresholds
    judged = [one for one in result.judged if one.candidate.shape_key in shapes]
    measured = found.once(("measured points", *shapes), lambda: _measured(found, set(shapes)))
    plotted = found.once(("plotted", *shapes), lambda: _plotted(measured, judged))
    by_id = {candidate_id(one): one for one in judged}
    aside = _aside(filters.kept(judged))
    one_shape = len({point.shape_key for point in measured}) == 1
    several = len(set(shapes)) > 1
    return {
        "study": found.row.id,
        "points": [{**one, "parity": by_id[one["id"]].gates[0].outcome} for one in plotted],
        "rings": [_ring(one, several) for one in searched],
        "aside": aside[:_MOST_ASIDE],
        "more": len(aside) - len(aside[:_MOST_ASIDE]),
        "pareto": _pareto(measured),
        "budget": asdict(budget) if budget else None,
        "view": _view(measured, declared, searched, budget),
        "absolute": _absolute(measured[0]) if one_shape else None,
        "declared": _places(declared),
        "limits": _places(result.thresholds),
        "words": _words(measured, judged, result.thresholds, searched, filters),
        "filters": filters.document(),
        "ends": asdict(ends),
    }


def unfilled(limits: Thresholds) -> dict[str, object]:
    """The same before anything was measured: plain, the gates, the adopt region."""
    return {
        "study": "",
        **{name: [] for name in ("points", "rings", "aside", "pareto")},
        "more": 0,
        "budget": None,
        "view": _view([], limits),
        "absolute": None,
        "declared": _places(limits),
        "limits": _places(limits),
        "words": describe([], limits),
        "filters": EVERYTHING.document(),
        "ends": asdict(ends_of(limits)),
    }


def _view(
    measured: Sequence[Point],
    limits: Thresholds,
    searched: Sequence[Estimated] = (),
    budget: Budget | None = None,
) -> dict[str, float]:
    edges = view_of(measured, limits, searched, budget)
    return dict(zip(("left", "right", "bottom", "top"), edges, strict=True))


def _places(limits: Thresholds) -> dict[str, float]:
    return {"peak": limits.peak_ratio, "update": limits.update_ratio}


def _measured(found: Snapshot, shapes: set[str]) -> list[Point]:
    return points([one for one in found.result.judged if one.candidate.shape_key in shapes])


def _words(
    measured: Sequence[Point],
    judged: Sequence[Judged],
    limits: Thresholds,
    searched: Sequence[Estimated],
    filters: Filters,
) -> str:
    """The picture in words, as the thresholds judge it; so many points as are named there."""
    kept = {(one.candidate.plan, one.candidate.shape_key): one.verdict for one in filters.kept(judged)}
    left = [point for point in measured if (point.plan, point.shape_key) in kept]
    named = [
        replace(point, outcome=VERDICT_MARK[kept[point.plan, point.shape_key]])
        for point in left[:NAMED_IN_WORDS]
    ]
    out = len(measured) - len(left)
    faded = f" Faded, as the filters leave them out: {count(out, 'candidate')}." if out else ""
    return describe(named, limits, searched) + faded


def _plotted(measured: Sequence[Point], judged: Sequence[Judged]) -> list[dict[str, Any]]:
    said = names(measured)
    by_place = {(one.candidate.plan, one.candidate.shape_key): one for one in judged}
    plotted = []
    for point in measured:
        one = by_place[point.plan, point.shape_key]
        candidate = one.candidate
        assert isinstance(candidate, Measured)
        plotted.append(
            Plotted(
                id=candidate_id(one),
                plan=point.plan,
                name=said[point.plan, point.shape_key],
                update=point.update,
                update_low=point.update_ci[0],
                update_high=point.update_ci[1],
                peak=point.peak,
                peak_low=point.peak_ci[0],
                peak_high=point.peak_ci[1],
                best=point.best,
                tip=_tip(candidate, point.best),
            )
        )
    return [asdict(one) for one in plotted]


def _tip(candidate: Measured, best: bool) -> list[str]:
    timing, memory = candidate.timing, candidate.memory
    (low, high), ratio_ci95 = timing.ratio_ci95, memory.ratio_ci95
    own, plain = memory.candidate.peak_bytes or 0, memory.plain.peak_bytes or 0
    exact = ratio_ci95 is None or ratio_ci95[0] == ratio_ci95[1]
    spread = "exact" if exact else f"{ratio_ci95[0]:.3f} to {ratio_ci95[1]:.3f}"  # type: ignore[index]
    return [
        f"{plan_label(candidate.plan)} at {candidate.shape_key}",
        f"peak {megabytes(own)}, plain {megabytes(plain)}: {memory.ratio:.3f} ({spread})",
        f"update {timing.update_s * 1e3:,.0f} ms, "
        f"plain {timing.plain_median_s * 1e3:,.0f} ms: {timing.ratio_median:.3f} "
        f"({low:.3f} to {high:.3f}), {pairs_words(timing)}",
        *(() if best else ("dominated: another plan is at most as high and as slow",)),
        KINDS[timing.kind],
    ]


def _ring(one: Estimated, several: bool) -> dict[str, object]:
    tip = one.hover.replace("<b>", "").replace("</b>", "").split("<br>")
    return {
        "name": "" if several else one.plan,
        "shape": one.shape_key,
        "update": one.update,
        "peak": one.peak,
        "tip": tip,
    }


def _pareto(measured: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Along the best points of each shape, plain among them where none of them beats it."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for point in measured:
        if point.best:
            lines.setdefault(point.shape_key, []).append((point.update, point.peak))
    whole = [[PLAIN_AT, *line] for line in lines.values()]
    return [sorted(line[index] for index in pareto(line)) for line in whole]


def _absolute(point: Point) -> dict[str, float]:
    """At one shape a ratio stands for one absolute value."""
    return {"plain_ms": point.plain_s * 1e3, "plain_mb": point.plain_bytes / 1e6}


def _aside(judged: Sequence[Judged]) -> list[dict[str, object]]:
    labels = shape_labels(list(dict.fromkeys(one.candidate.shape_key for one in judged)))
    several = len(labels) > 1
    found = []
    for one in judged:
        candidate = one.candidate
        if is_open(one) or (isinstance(candidate, Measured) and candidate.memory.ratio is not None):
            continue
        name = plan_label(candidate.plan)
        found.append(
            Aside(
                id=candidate_id(one),
                name=f"{name}, {labels[candidate.shape_key]}" if several else name,
                why=reason(one),
                sentence=candidate_sentence(one),
                mark=VERDICT_MARK[one.verdict],
            )
        )
    return [asdict(one) for one in found]


def reason(one: Judged) -> str:
    """Why a candidate has no figures, in a few words; empty for one that has."""
    candidate = one.candidate
    if isinstance(candidate, Measured):
        return "" if candidate.memory.ratio is not None else "no peak counter on this device"
    if not candidate.troubles:
        return ""
    why = " ".join(candidate.troubles[0].rstrip(".").split())
    return why if len(why) <= _LONGEST_REASON else f"{why[: _LONGEST_REASON - 1]}…"
