"""Plans that a search has found: in the picture, in a table, against a budget, and as a study. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from recompute_core.gates import in_mb, megabytes
from recompute_core.planning import measured, study_of
from recompute_core.results import PlanPoint, PlanResult, StudyResult
from recompute_core.settings import Anatomy
from recompute_core.spec import StudySpec
from recompute_core.studies.searching import at_shape
from recompute_core.studies.store import Cell

from . import markup, planmap


@dataclass(frozen=True)
class Estimated:
    """A plan that was found, in the picture; never gated."""

    plan: str
    shape_key: str
    update: float
    peak: float
    hover: str


def plans_of(answer: PlanResult) -> tuple[PlanPoint, ...]:
    """The plans of an answer that recompute anything, highest peak first."""
    return tuple(point for point in answer.points if point.regions)


def estimated_points(answer: PlanResult) -> list[Estimated]:
    """Where the plans lie, as ratios to plain's estimate."""
    return [
        Estimated(
            point.plan,
            answer.shape_key,
            1 + point.overhead,
            point.peak_bytes / answer.plain.peak_bytes,
            f"<b>{point.plan}</b> at {answer.shape_key}, estimated<br>"
            f"peak {megabytes(point.peak_bytes)}, plain {megabytes(answer.plain.peak_bytes)}<br>"
            f"update {100 * point.overhead:.1f} % longer",
        )
        for point in plans_of(answer)
    ]


@dataclass(frozen=True)
class Budget:
    """A budget in the picture."""

    peak: float
    """As a ratio to plain's estimated peak."""
    name: str


def budget_in(answer: PlanResult, budget_mb: float, several: bool) -> Budget:
    """Where a budget lies in a picture, of several shapes or of the answer's alone."""
    name = f"budget {megabytes(round(budget_mb * 1e6))}"
    where = f" at {answer.shape_key}" if several else ""
    return Budget(budget_mb * 1e6 / answer.plain.peak_bytes, name + where)


# --- against a budget -------------------------------------------------------------------------------


def fits(point: PlanPoint, budget_mb: float) -> bool:
    """Whether a peak is within a budget, at the digits at which the peak is shown."""
    shown_mb = float(in_mb(point.peak_bytes).replace(",", ""))
    return min(shown_mb, point.peak_bytes / 1e6) <= budget_mb


def cheapest_within(answer: PlanResult, budget_mb: float) -> PlanPoint | None:
    """The plan of the least overhead whose estimated peak fits; None when plain fits, or nothing."""
    if fits(answer.plain, budget_mb):
        return None
    fitting = [point for point in plans_of(answer) if fits(point, budget_mb)]
    return min(fitting, key=lambda point: (point.overhead, point.peak_bytes), default=None)


def budget_sentence(answer: PlanResult, budget_mb: float) -> str:
    """What a budget asks for, in one line."""
    budget = megabytes(round(budget_mb * 1e6))
    if fits(answer.plain, budget_mb):
        return f"No recompute needed: plain's estimated peak is {megabytes(answer.plain.peak_bytes)}."
    point = cheapest_within(answer, budget_mb)
    if point is None:
        return (
            f"No plan found reaches {budget}; the lowest is {megabytes(answer.floor.peak_bytes)}, "
            f"by {answer.floor.plan}."
        )
    return (
        f"Cheapest within {budget}: {point.plan}, estimated peak {megabytes(point.peak_bytes)}, "
        f"{100 * point.overhead:.1f} % more update time."
    )


# --- the table --------------------------------------------------------------------------------------


def with_measured(answer: PlanResult, result: StudyResult) -> PlanResult:
    """The answer with what this study has measured of its plans at its shape."""
    here = tuple(one for one in result.judged if one.candidate.shape_key == answer.shape_key)
    return measured(answer, result.model_copy(update={"judged": here}))


_MEASURED = ("Measured peak (MB)", "Off by (%)", "Measured time (+%)")


def plans_table(answer: PlanResult, anatomy: Anatomy, best: PlanPoint | None) -> str:
    """Plain and every plan found; `best` is marked. Measured columns where a study has run them."""
    plans = plans_of(answer)
    known = any(point.measured_peak_bytes for point in plans)
    heads = [("Plan", False), ("Peak (MB)", True), ("Of plain", True), ("Time (+%)", True)]
    heads += [(name, True) for name in _MEASURED] if known else []
    heads.append(("Recomputed", False))
    rows = [_row(point, answer.plain, anatomy, known, best) for point in (answer.plain, *plans)]
    return markup.table(heads, rows)


def _row(
    point: PlanPoint, plain: PlanPoint, anatomy: Anatomy, known: bool, best: PlanPoint | None
) -> list[str]:
    name = escape(point.plan) if point.regions else "plain"
    row = [
        _marked(name) if best and best.plan == point.plan else name,
        in_mb(point.peak_bytes),
        f"{point.peak_bytes / plain.peak_bytes:.3f}",
        f"{100 * point.overhead:.1f}",
    ]
    if known:
        peak, miss, ratio = point.measured_peak_bytes, point.miss, point.measured_ratio
        row += [
            "–" if peak is None else in_mb(peak),
            "–" if miss is None else f"{100 * miss:+.1f}" + (", beyond 2 %" if point.flagged else ""),
            "–" if ratio is None else f"{100 * (ratio - 1):.1f}",
        ]
    what = planmap.summary(planmap.plan_map(point.regions, anatomy))
    return [*row, f'<span title="{escape(what)}">{escape(regions_line(point, anatomy))}</span>']


def _marked(name: str) -> str:
    return f'<strong>▸ {name}</strong><span class="rs-vh"> (the budget\'s choice)</span>'


_FINER: tuple[planmap.State, ...] = ("nested", "selective")


def regions_line(point: PlanPoint, anatomy: Anatomy) -> str:
    """`20 of 24 parts, 3 nested`: how much a plan recomputes, in the words of its map."""
    cells = [cell for row in planmap.plan_map(point.regions, anatomy) for cell in row.cells]
    touched = sum(cell.state != "kept" for cell in cells)
    counts = {state: sum(cell.state == state for cell in cells) for state in _FINER}
    finer = "".join(f", {number} {state}" for state, number in counts.items() if number)
    return f"{touched} of {len(cells)} parts{finer}"


# --- measuring --------------------------------------------------------------------------------------


def cell_seconds(cells: Sequence[Cell], shape: str) -> float | None:
    """About what all phases of one plan took at a shape; None before any has ended."""
    spent: dict[str, float] = {}
    for cell in cells:
        if cell.shape_key == shape and cell.plan != "none" and cell.seconds is not None:
            spent[cell.plan] = spent.get(cell.plan, 0.0) + cell.seconds
    return median(spent.values()) if spent else None


def measuring(spec: StudySpec, answer: PlanResult, points: Sequence[PlanPoint]) -> StudySpec:
    """The study of these plans at the answer's shape, with the thresholds and timing of `spec`."""
    wanted = answer.model_copy(update={"points": tuple(points), "recipes": (), "chosen": None})
    asked = study_of(at_shape(spec, answer.shape_key), wanted)
    return asked.model_copy(update={"timing": spec.timing, "follows": ()})  # these plans are new
