"""The best plan for a budget, a time budget, or the whole frontier; measured by a study when asked to.

Importing this imports no torch.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import InputError
from .gates import megabytes
from .plans.anatomy import anatomy_of
from .plans.names import RECIPES, Regions, named_regions, plan_hash
from .results import (
    BlockLegality,
    Legality,
    Measured,
    PlanPoint,
    PlanResult,
    Proven,
    Refused,
    StudyResult,
)
from .settings import Anatomy, GptSettings, OwnSettings, ReceiptsSettings, WorkloadSettings, shape_key
from .spec import StudySpec, TimingSettings, check_not_compiled
from .studies.admission import check_memory
from .studies.driver import Listener, unheard
from .words import ENOUGH_PAIRS, interval_words

if TYPE_CHECKING:
    from .planner.frontier import Planner, Point
    from .planner.runs import Runs
    from .workloads.job import Job

MEASURING = TimingSettings(min_pairs=6, max_pairs=6, budget_s=0)
"""How a study times the plans that were found."""


@dataclass(frozen=True)
class Wish:
    """What is asked for: exactly one of the first three."""

    budget_bytes: int | None = None
    """The whole update may take this much, state included."""
    max_overhead: float | None = None
    """Replay may take this share of a plain update."""
    frontier: bool = False
    against_recipes: bool = False
    """Set the plans against every named recipe, with a plan of ours at each recipe's peak."""

    def __post_init__(self) -> None:
        asked = (self.budget_bytes is not None, self.max_overhead is not None, self.frontier)
        if asked.count(True) != 1:
            raise InputError("ask for one of a budget, a largest overhead and the frontier")
        for name, value in (("budget_bytes", self.budget_bytes), ("max_overhead", self.max_overhead)):
            if value is not None and not 0 < value < inf:
                raise InputError(f"{name}: expected a number above 0, got {value}")


def plan(spec: StudySpec, wish: Wish) -> PlanResult:
    """Find plans for the workload of `spec` at its first shape; everything is estimated.

    Raises InputError when this machine cannot hold the two blocks whose ops are timed, and for another
    device than the CPU: the estimates speak for its kernels.
    """
    import torch

    from .planner.costs import measure_costs
    from .planner.frontier import LARGEST_OVERHEAD, Planner
    from .workloads.device import pick_device

    if spec.ranks is not None:
        raise InputError("ranks: plans are searched for one process alone; a study measures several")
    check_not_compiled(spec, "plan")
    if pick_device(spec.device).type != "cpu":
        raise InputError("plan speaks for the CPU's kernels alone; add --set device=cpu")
    settings = spec.at(spec.shapes[0])
    if isinstance(settings, OwnSettings):
        raise InputError(
            f"plan searches gpt and receipts; for {settings.name} run a study of the named plans"
        )
    timed = settings.model_copy(update={"blocks": min(settings.blocks, 2)})
    check_memory(spec.model_copy(update={"workload": timed, "shapes": ({},)}))
    build = partial(_build, spec, settings)
    names = _Names(spec)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(spec.threads or threads)
        with torch.random.fork_rng([]), ExitStack() as stack:
            runs = stack.enter_context(_runs(spec, partial(build, settings.blocks), wish))
            legality = _legality(spec, build(timed.blocks))
            runs.settle()
            costs = measure_costs(build(timed.blocks), spec.optimizer, spec.checkpoint)
            planner = Planner(runs, costs, legality, max(LARGEST_OVERHEAD, wish.max_overhead or 0))
            if not planner.has_choice:
                why = next(_refusals(legality), "nothing that is kept can be recomputed.")
                why = f"No plan can pass: {why}"
                return _answer(settings, planner, names, wish, planner.plain, None, why)
            named = _recipes(settings, wish, legality)
            recipes = list(zip(named, planner.points(list(named.values())), strict=True))
            for name, regions in named.items():
                names.take(name, regions)
            points = _points(planner, [point for _, point in recipes], wish)
            floor = planner.floor()
            chosen, sentence = _chosen(planner, floor, wish, names)
            points = points or [chosen or floor]
    finally:
        torch.set_num_threads(threads)
    answer = _answer(settings, planner, names, wish, floor, chosen, sentence)
    return answer.model_copy(
        update={
            "verdict": "found" if chosen or wish.frontier else "none",
            "points": tuple(names.named(point) for point in points),
            "recipes": tuple(names.named(point, name) for name, point in recipes),
        }
    )


def _build(spec: StudySpec, settings: GptSettings | ReceiptsSettings, blocks: int) -> "Job":
    from .workloads import build_blank
    from .workloads.device import cast

    model = settings.model_copy(update={"blocks": blocks})
    return cast(build_blank(model, spec.seed), spec.precision)


def _runs(spec: StudySpec, build: Callable[[], "Job"], wish: Wish) -> AbstractContextManager["Runs"]:
    """Runs on fake tensors; with processes of their own where many plans are wanted."""
    from .planner.runs import Runs, shared_runs

    made = (build, spec.optimizer, spec.checkpoint)
    if wish.frontier or wish.against_recipes:
        return shared_runs(*made)
    return nullcontext(Runs(*made))


def _legality(spec: StudySpec, job: "Job") -> Legality:
    """What may be replayed, parts of blocks that may not included.

    Where the random state is not preserved, what draws from it may not.
    """
    from .checks.legality import check_legality, check_modules

    first = f"{job.blocks[0]}."
    inside = tuple(name for name, _ in job.model.named_modules() if name.startswith(first))
    if spec.checkpoint.rng == "preserve":
        return check_legality(job, spec.checkpoint, spec.seed, inside)
    every = check_modules(job, (*job.outside, *job.blocks, *inside), spec.checkpoint, spec.seed)
    return Legality(blocks=tuple(map(_without_random_state, every)))


def _without_random_state(found: BlockLegality) -> BlockLegality:
    drawn = tuple(one for one in found.conditions if one.code == "rng_preserved")
    if not drawn:
        return found
    return found.model_copy(update={"verdict": "illegal", "reasons": (*found.reasons, *drawn)})


def _refusals(legality: Legality) -> Iterator[str]:
    for block in legality.blocks:
        yield from (reason.sentence for reason in block.reasons)


def _answer(
    settings: WorkloadSettings,
    planner: "Planner",
    names: "_Names",
    wish: Wish,
    floor: "Point",
    chosen: "Point | None",
    sentence: str,
) -> PlanResult:
    """An answer without plans: that nothing may be recomputed, until plans are put in."""
    return PlanResult(
        sentence=sentence,
        verdict="none",
        budget_bytes=wish.budget_bytes,
        max_overhead=wish.max_overhead,
        workload=settings.model_dump(mode="json"),
        shape_key=shape_key(settings),
        state_bytes=planner.plain.estimate.state_bytes,
        plain_s=planner.plain_s,
        plain=names.named(planner.plain),
        floor=names.named(floor),
        chosen=names.named(chosen) if chosen else None,
        points=(names.named(planner.plain),),
    )


def _recipes(settings: WorkloadSettings, wish: Wish, legality: Legality) -> dict[str, Regions]:
    """The recipes that this model can take and that may be replayed, each plan once."""
    found: dict[Regions, str] = {}
    for recipe in RECIPES if wish.against_recipes else ():
        try:
            regions = named_regions(recipe.name, anatomy_of(settings))
        except InputError:
            continue  # every fourth block of two, for one
        if regions and not legality.refusals(_in_first(anatomy_of(settings), regions)):
            found.setdefault(regions, recipe.name)
    return {name: regions for regions, name in found.items()}


def _in_first(anatomy: Anatomy, regions: Regions) -> list[str]:
    """The modules of a plan as they are called in the first block: what is legal there is so in each."""

    def moved(name: str) -> str:
        block = next((b for b in anatomy.names if f"{name}.".startswith(f"{b}.")), None)
        return name if block is None else anatomy.names[0] + name.removeprefix(block)

    return [moved(name) for region in regions for name in region.modules]


def _chosen(
    planner: "Planner", floor: "Point", wish: Wish, names: "_Names"
) -> tuple["Point | None", str]:
    plain = planner.plain
    if wish.budget_bytes is not None:
        if plain.peak <= wish.budget_bytes:
            return plain, (
                f"No recompute needed: plain's estimated peak is {megabytes(plain.peak)}, within "
                f"{megabytes(wish.budget_bytes)}."
            )
        found = planner.within(wish.budget_bytes)
        if found is None:
            return None, (
                f"No plan fits {megabytes(wish.budget_bytes)}: the lowest estimated peak found is "
                f"{megabytes(floor.peak)}, by {names.of(floor)} at {_share(floor.overhead)} more update "
                f"time; {megabytes(floor.estimate.state_bytes)} of it is state, which no plan changes."
            )
        return found, _found(names.of(found), found, plain)
    if wish.max_overhead is not None:
        found = planner.cheaper(wish.max_overhead)
        if found is plain:
            return plain, (
                f"Nothing lowers the peak for {_share(wish.max_overhead)} more update time: plain stays."
            )
        return found, _found(names.of(found), found, plain)
    return None, (
        f"From plain's {megabytes(plain.peak)} down to {megabytes(floor.peak)} at "
        f"{_share(floor.overhead)} more update time, estimated."
    )


def _found(name: str, point: "Point", plain: "Point") -> str:
    return (
        f"{name}: estimated peak {megabytes(point.peak)} instead of {megabytes(plain.peak)} "
        f"({point.peak / plain.peak:.2f}), {_share(point.overhead)} more update time."
    )


def _share(overhead: float) -> str:
    return f"{100 * overhead:.1f} %"


def _points(planner: "Planner", recipes: list["Point"], wish: Wish) -> list["Point"]:
    """The frontier, or what stands at the recipes' peaks; nothing when only a budget is asked for."""
    from .planner.frontier import undominated

    found = planner.frontier() if wish.frontier else []
    planner.expect(recipe.peak for recipe in recipes)
    beside = [planner.within(recipe.peak) for recipe in recipes]
    return undominated([*found, *(point for point in beside if point is not None)])


class _Names:
    """A name for every plan: its recipe's, or `best-<N>mb` by its peak, with the digits it takes."""

    def __init__(self, spec: StudySpec) -> None:
        self._checkpoint = spec.checkpoint
        self._names: dict[Regions, str] = {(): "none"}

    def take(self, name: str, regions: Regions) -> None:
        self._names.setdefault(regions, name)

    def of(self, point: "Point") -> str:
        if point.regions not in self._names:
            taken = set(self._names.values())
            exact = (f"best-{point.peak / 1e6:.{digits}f}mb" for digits in range(7))
            self._names[point.regions] = next(name for name in exact if name not in taken)
        return self._names[point.regions]

    def named(self, point: "Point", name: str | None = None) -> PlanPoint:
        return PlanPoint(
            plan=name or self.of(point),
            plan_hash=plan_hash(point.regions, self._checkpoint),
            regions=point.regions,
            peak_bytes=point.peak,
            peak_above_state_bytes=point.estimate.peak_above_state_bytes,
            saved_bytes=point.estimate.saved_bytes,
            overhead=point.overhead,
        )


# --- measuring ------------------------------------------------------------------------------------


def study_of(spec: StudySpec, found: PlanResult) -> StudySpec:
    """The study that measures the plans of an answer, each once, at its shape."""
    wanted = {
        point.plan: point.regions
        for point in (*found.points, *found.recipes, *([found.chosen] if found.chosen else []))
        if point.regions
    }
    if not wanted:
        raise InputError("nothing to measure: plain is the only plan")
    recipes = {recipe.name for recipe in RECIPES}
    return spec.model_copy(
        update={
            "shapes": spec.shapes[:1],
            "plans": tuple(wanted),
            "custom_plans": {name: regions for name, regions in wanted.items() if name not in recipes},
            "timing": MEASURING,
        }
    )


def measured(found: PlanResult, result: StudyResult) -> PlanResult:
    """The answer with what a study has measured of its plans."""
    by_hash = {one.candidate.plan_hash: one.candidate for one in result.judged}  # names are used again
    plain = next((c.memory.plain for c in by_hash.values() if c.memory is not None), None)

    def fill(point: PlanPoint) -> PlanPoint:
        if not point.regions:
            return point.model_copy(
                update={"measured_peak_bytes": plain.peak_bytes, "measured_ratio": 1.0} if plain else {}
            )
        candidate = by_hash.get(point.plan_hash)
        if candidate is None:
            return point
        facts: dict[str, object] = {}
        if isinstance(candidate, Measured | Proven):
            facts["parity"] = "bitwise" if candidate.parity.bitwise else "passed"
            if candidate.memory:
                facts["measured_peak_bytes"] = candidate.memory.candidate.peak_bytes
            if candidate.timing:
                facts["measured_ratio"] = candidate.timing.ratio_median
                facts["measured_ratio_ci95"] = candidate.timing.ratio_ci95
                facts["measured_pairs"] = candidate.timing.pairs
        elif isinstance(candidate, Refused) and candidate.stopped_by in ("legality", "parity"):
            facts["parity"] = "failed"
        return point.model_copy(update=facts)

    filled = found.model_copy(
        update={
            "study_id": result.study_id,
            "plain": fill(found.plain),
            "floor": fill(found.floor),
            "chosen": found.chosen and fill(found.chosen),
            "points": tuple(map(fill, found.points)),
            "recipes": tuple(map(fill, found.recipes)),
        }
    )
    if result.status != "done":
        sentence = f"{found.sentence} The study {result.study_id} could not be completed; resume it."
        return filled.model_copy(update={"sentence": sentence, "verdict": "incomplete"})
    return _concluded(filled)


def _concluded(found: PlanResult) -> PlanResult:
    """The answer with what was measured of the chosen plan in its sentence and its verdict."""
    chosen = found.chosen
    if chosen is None or chosen.measured_peak_bytes is None or chosen.measured_ratio_ci95 is None:
        return found
    (low, high), limit = chosen.measured_ratio_ci95, 1 + (found.max_overhead or inf)
    interval = interval_words((low, high), chosen.measured_pairs or ENOUGH_PAIRS)
    verdict, remark = found.verdict, ""
    if found.budget_bytes is not None and chosen.measured_peak_bytes > found.budget_bytes:
        verdict, remark = "none", f": over the budget of {megabytes(found.budget_bytes)}"
    elif low > limit:
        verdict, remark = "none", f": above {limit:.2f}"
    elif high > limit:
        verdict, remark = "undecided", f": undecided against {limit:.2f}"
    sentence = (
        f"{found.sentence} Measured: peak {megabytes(chosen.measured_peak_bytes)}, update "
        f"{chosen.measured_ratio:.2f} times as long ({interval}), parity "
        f"{chosen.parity}{remark}."
    )
    return found.model_copy(update={"sentence": sentence, "verdict": verdict})


def measure(
    spec: StudySpec, found: PlanResult, home: Path | None = None, listener: Listener = unheard
) -> PlanResult:
    """Run the study of an answer's plans in the foreground and fill in what it measured."""
    from .studies.run import run_study

    return measured(found, run_study(study_of(spec, found), home, listener))
