"""The picture everything turns on: update time across, peak memory up, both as ratios to plain.

Plain sits at the corner (1, 1). A candidate is adopted when its whole interval lies in the filled
region, so the verdict can be read without words. Candidates without measured figures have no place
here; `not_measured` lists them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf

from recompute_core.gates import candidate_sentence, is_open
from recompute_core.results import Judged, Measured, Outcome
from recompute_core.spec import Thresholds
from recompute_core.words import POINT_MEANINGS, shape_labels

from .found import Budget, Estimated
from .palette import VERDICT_MARK
from .whole_intervals import with_intervals
from .words import plan_short

NAMED_IN_WORDS = 12
"""So many points does `describe` name."""


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
    best: bool
    """On the Pareto line of its shape."""


PLAIN_AT = (1.0, 1.0)
"""Where plain lies: a plan that plain beats is on no Pareto line."""


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
                False,
            )
        )
    return _with_pareto(found)


def _with_pareto(found: list[Point]) -> list[Point]:
    by_shape: dict[str, list[int]] = {}
    for index, point in enumerate(found):
        by_shape.setdefault(point.shape_key, []).append(index)
    best = {
        indices[i - 1]
        for indices in by_shape.values()
        for i in pareto([PLAIN_AT, *((found[index].update, found[index].peak) for index in indices)])
        if i
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
    low = min([1.0, *(p.update for p in found)])
    near = [p.update_ci for p in found if p.update <= reach]
    low, high = with_intervals(low, reach, near)
    x_high = max(1 + (limits.update_ratio - 1) * 1.18, high + 0.03 * (high - low))
    x_low = min(low - 0.02, 1 - (x_high - 1) * 0.05)
    y_high = max([1.0, *(p.peak for p in found), *(p.peak_ci[1] for p in found)]) + 0.04
    lows = [p.peak_ci[0] for p in found] + [p.peak for p in searched] + ([budget.peak] if budget else [])
    y_low = max(0.0, min([limits.peak_ratio - 0.12, *(low - 0.08 for low in lows)]))
    return x_low, x_high, y_low, y_high


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
