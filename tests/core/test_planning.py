"""The best plan for a budget: structure and bytes, never seconds, which are noisy."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from recompute_core import planning
from recompute_core.checks.parity import check_parity
from recompute_core.checks.snapshot import fixed_update
from recompute_core.errors import InputError
from recompute_core.gates import megabytes
from recompute_core.meters.estimate import FakeUpdate
from recompute_core.planner import costs, frontier, runs
from recompute_core.planner.frontier import Point, undominated
from recompute_core.planning import MEASURING, Wish, measured, plan, study_of
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import RECIPES, named_regions, plan_hash
from recompute_core.results import (
    Candidate,
    Legality,
    ParityPassed,
    PlanPoint,
    PlanResult,
    StudyResult,
)
from recompute_core.settings import ReceiptsSettings
from recompute_core.spec import CheckpointSettings, StudySpec
from recompute_core.studies.admission import admit
from recompute_core.terminal import plan_table
from recompute_core.workloads import build_blank
from recompute_core.workloads.job import Job
from tests.core import records as make
from tests.core.toys import SMALL

GPT = StudySpec(workload=SMALL.model_copy(update={"blocks": 2}), threads=1)
RECEIPTS = StudySpec(
    workload=ReceiptsSettings(
        blocks=2, width=48, heads=2, height=64, image_width=64, batch=4, dropout=0.25
    ),
    threads=1,
)
SPECS = {"gpt": GPT, "receipts": RECEIPTS}
WHOLE = Wish(frontier=True, against_recipes=True)
ALONE = Wish(frontier=True)


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """Costs are measured and a menu is made once for each workload: they take seconds."""
    threads = torch.get_num_threads()
    measure_costs, planner = costs.measure_costs, frontier.Planner
    found: dict[str, costs.Costs] = {}
    planners: dict[tuple[int, Legality], frontier.Planner] = {}

    def measured_once(job: Job, *rest: Any) -> costs.Costs:
        workload = type(job.model).__name__
        if workload not in found:
            found[workload] = measure_costs(job, *rest)
        return found[workload]

    def planner_once(on: runs.Runs, of: costs.Costs, legality: Legality, *rest: Any) -> frontier.Planner:
        key = id(of), legality
        if key not in planners:
            planners[key] = planner(on, of, legality, *rest)
        return planners[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "measure_costs", measured_once)
        patch.setattr(frontier, "Planner", planner_once)
        patch.setattr(runs, "shared_runs", lambda *made: nullcontext(runs.Runs(*made)))
        yield
    torch.set_num_threads(threads)


@cache
def planned(name: str, wish: Wish | None = None) -> PlanResult:
    """The answer to a wish; by default the frontier, of the GPT with the recipes beside it."""
    return plan(SPECS[name], wish or (WHOLE if name == "gpt" else ALONE))


def everything(found: PlanResult) -> list[PlanPoint]:
    return [found.plain, found.floor, *found.points, *found.recipes]


# --- the frontier ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_the_frontier_falls_in_peak_and_rises_in_overhead(name: str) -> None:
    points = planned(name).points
    assert len(points) >= 3
    for one, other in pairwise(points):
        assert one.peak_bytes > other.peak_bytes
        assert one.overhead < other.overhead
    assert points[0] == planned(name).plain
    assert (points[0].plan, points[0].regions, points[0].overhead) == ("none", (), 0)


@pytest.mark.parametrize("name", SPECS)
def test_no_plan_that_was_run_peaks_below_the_floor(name: str) -> None:
    found = planned(name)
    assert found.floor.peak_bytes == min(point.peak_bytes for point in everything(found))
    assert found.points[-1] == found.floor
    assert found.floor.peak_bytes < found.plain.peak_bytes


def test_at_every_recipes_peak_a_plan_costs_no_more() -> None:
    found = planned("gpt")
    assert {"every-block", "norms", "nested", "keep-attention"} <= {r.plan for r in found.recipes}
    for recipe in found.recipes:
        assert any(
            point.peak_bytes <= recipe.peak_bytes and point.overhead <= recipe.overhead
            for point in found.points
        ), recipe.plan


def test_recipes_are_named_once_a_plan_and_left_out_where_they_cannot_be() -> None:
    found = planned("gpt")
    known = {recipe.name for recipe in RECIPES}
    assert {one.plan for one in found.recipes} < known
    assert len({one.regions for one in found.recipes}) == len(found.recipes)
    # Plain is no recipe; of two blocks every third is every second, and all but one the first.
    assert not {"none", "every-3rd-block", "all-but-last"} & {one.plan for one in found.recipes}
    for one in found.recipes:
        assert one.regions == named_regions(one.plan, anatomy_of(GPT.workload))


@pytest.mark.parametrize("name", SPECS)
def test_every_plan_run_again_reaches_exactly_its_peak(name: str) -> None:
    spec = SPECS[name]
    fake = FakeUpdate(lambda: build_blank(spec.workload, spec.seed), spec.optimizer)
    found = planned(name)
    assert found.state_bytes == fake.state_bytes
    for point in (*found.points[::3], found.floor, *found.recipes[::6]):
        run = fake.run(point.regions, spec.checkpoint).estimate
        assert point.peak_bytes == run.peak_bytes == found.state_bytes + point.peak_above_state_bytes
        assert point.saved_bytes == run.saved_bytes
        assert point.plan_hash == plan_hash(point.regions, spec.checkpoint)


@pytest.mark.parametrize("name", SPECS)
def test_names_are_the_plans_own(name: str) -> None:
    found = planned(name)
    names: dict[str, Any] = {}
    for point in everything(found):
        assert names.setdefault(point.plan, point.regions) == point.regions
    assert len(set(names.values())) == len(names)
    peaks = {point.plan: point.peak_bytes / 1e6 for point in everything(found)}
    ours = {n for n in names if n.startswith("best-")}
    assert ours
    for one in ours:
        assert abs(float(one.removeprefix("best-").removesuffix("mb")) - peaks[one]) <= 0.5
    assert set(names) - ours <= {recipe.name for recipe in RECIPES}


@pytest.mark.parametrize("name", SPECS)
def test_every_plan_offered_is_bitwise_equal(name: str) -> None:
    spec = SPECS[name]

    def build() -> Any:
        return build_blank(spec.workload, spec.seed)

    plain = fixed_update(build(), spec.optimizer, spec.seed)
    for point in planned(name).points:
        if point.regions:
            found = check_parity(build, spec, plain.tensors, point.regions, 0.0, plain.block_calls)
            assert isinstance(found, ParityPassed), point.plan
            assert found.bitwise, point.plan


@pytest.mark.parametrize("name", SPECS)
def test_the_json_reads_back(name: str) -> None:
    found = planned(name)
    document = json.loads(found.model_dump_json(by_alias=True))
    assert document["schema"] == "recompute-plan/1"
    assert document["points"][0]["kind"] == "estimated"
    assert document["points"][0]["flagged"] is False
    assert document["shape_key"] in ("T=16 B=2", "64x64 B=4")
    assert document["floor"] == document["points"][-1]


def _point(peak: int, overhead: float) -> Any:
    """Only these two are looked at."""

    class Pointlike(Point):
        peak = property(lambda self: peak)  # type: ignore[assignment]

    return Pointlike((), None, overhead)  # type: ignore[arg-type]


def test_undominated_by_hand() -> None:
    best, dear, low, same = _point(9, 0.0), _point(9, 0.1), _point(3, 0.2), _point(3, 0.2)
    assert undominated([low, dear, same, best]) == [best, low]


# --- a budget -------------------------------------------------------------------------------------


def test_within_the_budget_plain_stays() -> None:
    plain = planned("gpt").plain
    found = planned("gpt", Wish(budget_bytes=plain.peak_bytes))
    assert found.chosen == plain
    assert found.points == (plain,)
    assert found.recipes == ()
    assert found.sentence == (
        f"No recompute needed: plain's estimated peak is {megabytes(plain.peak_bytes)}, within "
        f"{megabytes(plain.peak_bytes)}."
    )
    with pytest.raises(InputError, match="nothing to measure: plain is the only plan"):
        study_of(GPT, found)


def test_below_the_floor_nothing_is_chosen() -> None:
    floor = planned("gpt").floor
    found = planned("gpt", Wish(budget_bytes=floor.peak_bytes - 1))
    assert (found.chosen, found.verdict) == (None, "none")
    assert found.points == (found.floor,)
    assert found.floor.peak_bytes == floor.peak_bytes
    assert found.sentence.startswith(f"No plan fits {megabytes(floor.peak_bytes - 1)}: ")
    assert f"{megabytes(floor.peak_bytes)}, by {found.floor.plan} at " in found.sentence
    assert f"{megabytes(found.state_bytes)} of it is state" in found.sentence


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_between_the_two_the_plan_fits(name: str, share: float) -> None:
    whole = planned(name)
    low, high = whole.floor.peak_bytes, whole.plain.peak_bytes
    budget = int(low + share * (high - low))
    found = planned(name, Wish(budget_bytes=budget))
    assert found.chosen is not None
    assert low <= found.chosen.peak_bytes <= budget < high
    assert found.points == (found.chosen,)
    assert found.sentence.startswith(f"{found.chosen.plan}: estimated peak ")
    for point in whole.points:
        if point.peak_bytes <= budget:
            assert found.chosen.overhead <= point.overhead


def test_more_time_never_means_more_memory() -> None:
    whole = planned("gpt")
    peaks = []
    for point in whole.points[1::2] + whole.points[-1:]:
        found = planned("gpt", Wish(max_overhead=point.overhead))
        assert found.chosen is not None
        assert found.chosen.overhead <= point.overhead
        assert found.chosen.peak_bytes <= point.peak_bytes
        peaks.append(found.chosen.peak_bytes)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] == whole.floor.peak_bytes


def test_no_time_at_all_leaves_plain() -> None:
    found = planned("gpt", Wish(max_overhead=1e-12))
    assert found.chosen == found.plain
    assert found.sentence == "Nothing lowers the peak for 0.0 % more update time: plain stays."


# --- measuring ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_the_study_of_an_answer_is_admitted(name: str, tmp_path: Path) -> None:
    spec, found = SPECS[name], planned(name)
    study = study_of(spec, found)
    admit(StudySpec.model_validate(study.model_dump()), tmp_path)
    offered = {one.plan for one in (*found.points, *found.recipes) if one.regions}
    assert set(study.plans) == offered
    assert set(study.custom_plans) == {n for n in offered if n.startswith("best-")}
    assert study.timing == MEASURING
    assert (study.shapes, study.workload, study.threads) == (spec.shapes[:1], spec.workload, 1)


def test_the_study_is_of_the_first_shape_alone() -> None:
    spec = GPT.model_copy(update={"shapes": ({"seq_len": 16}, {"seq_len": 32})})
    assert study_of(spec, planned("gpt")).shapes == ({"seq_len": 16},)


def result(*candidates: Candidate) -> StudyResult:
    return StudyResult(
        schema="recompute-study/1",
        study_id="a-study",
        status="done",
        verdict=None,
        sentence="",
        thresholds=GPT.thresholds,
        declared_at="2026-01-01T00:00:00.000Z",
        spec=GPT,
        spec_hash="sha256:0",
        environment={},
        references={},
        judged=tuple({"candidate": one, "gates": (), "verdict": "undecided"} for one in candidates),
    )


def test_measured_figures_stand_beside_the_estimates() -> None:
    before = make.plan_answer(
        make.plan_point("best-3mb", 3_000_000, "blocks.0"),
        make.plan_point("best-2mb", 2_000_000, "blocks.1"),
    )
    after = measured(
        before,
        result(
            make.measured("best-3mb", peaks=(4_000_000, 3_030_000), ratios=(1.25, 1.5, 1.25)),
            make.measured("best-2mb", peaks=(4_000_000, 2_050_000), ratios=(2.0, 2.0, 2.0)),
        ),
    )
    plain, first, second = after.points
    assert after.study_id == "a-study"
    assert (plain.measured_peak_bytes, plain.measured_ratio, plain.parity) == (4_000_000, 1.0, None)
    assert (first.measured_peak_bytes, first.measured_ratio) == (3_030_000, 1.25)
    assert (first.measured_ratio_ci95, first.measured_pairs) == ((1.25, 1.5), 3)
    heads = [column.header for column in plan_table(after).columns]
    assert "75 % interval" in heads and "95 % interval" not in heads
    assert (first.parity, second.parity) == ("bitwise", "bitwise")
    assert (second.measured_peak_bytes, second.measured_ratio) == (2_050_000, 2.0)
    assert (first.miss, second.miss) == (pytest.approx(0.01), pytest.approx(0.025))
    assert (plain.flagged, first.flagged, second.flagged) == (False, False, True)
    assert (after.chosen, after.floor, after.recipes, after.plain) == (first, second, (first,), plain)
    assert [p.peak_bytes for p in after.points] == [p.peak_bytes for p in before.points]


@pytest.mark.parametrize(
    ("wish", "verdict", "ends"),
    [
        ({}, "found", "parity bitwise."),
        ({"budget_bytes": 3_030_000}, "found", "parity bitwise."),
        ({"budget_bytes": 3_029_999}, "none", "parity bitwise: over the budget of 3.03 MB."),
        ({"max_overhead": 0.6}, "found", "parity bitwise."),
        ({"max_overhead": 0.3}, "undecided", "parity bitwise: undecided against 1.30."),
        ({"max_overhead": 0.2}, "none", "parity bitwise: above 1.20."),
    ],
)
def test_what_was_measured_of_the_chosen_plan_decides(
    wish: dict[str, Any], verdict: str, ends: str
) -> None:
    before = make.plan_answer(make.plan_point("best-3mb", 3_000_000, "blocks.0")).model_copy(update=wish)
    one = make.measured("best-3mb", peaks=(4_000_000, 3_030_000), ratios=(1.25, 1.5, 1.25))
    after = measured(before, result(one))
    assert after.verdict == verdict
    assert after.sentence.endswith(ends)
    took = "1.25 times as long (1.25 to 1.50, the 75 % interval of 3 pairs)"
    assert f"Measured: peak 3.03 MB, update {took}" in after.sentence


def test_a_study_that_was_not_completed_says_so() -> None:
    before = make.plan_answer(make.plan_point("best-3mb", 3_000_000, "blocks.0"))
    after = measured(before, result().model_copy(update={"status": "incomplete"}))
    assert after.verdict == "incomplete"
    assert after.sentence.endswith("The study a-study could not be completed; resume it.")


@pytest.mark.parametrize("wish", [{}, {"budget_bytes": 1, "frontier": True}, {"budget_bytes": -3}])
def test_a_wish_that_cannot_be(wish: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Wish(**wish)


@pytest.mark.parametrize("which", ["batch norm", "random state ignored"])
def test_where_a_block_may_not_be_replayed_its_legal_parts_are_offered(which: str) -> None:
    """Running statistics, or dropout without its random state: what is left passes parity."""
    spec = with_batch_norm() if which == "batch norm" else without_random_state()
    found = plan(spec, Wish(frontier=True, against_recipes=True))
    assert found.verdict == "found"
    modules = {name for point in everything(found) for r in point.regions for name in r.modules}
    assert modules
    assert not modules & {"blocks.0", "blocks.1"}
    inside = {name.rpartition(".")[2] for name in modules}
    legal = {"attn", "mlp"} if which == "batch norm" else {"norm1", "norm2"}
    assert legal <= inside <= {*legal, "stem"}
    reference = fixed_update(build_blank(spec.workload, spec.seed), spec.optimizer, spec.seed)
    for point in (found.floor, *found.recipes):
        parity = check_parity(
            lambda: build_blank(spec.workload, spec.seed),
            spec,
            reference.tensors,
            point.regions,
            0.0,
            reference.block_calls,
        )
        assert isinstance(parity, ParityPassed), (point.plan, parity)


def test_where_nothing_may_be_recomputed_no_plan_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Legality(blocks=tuple(make.illegal(name) for name in ("stem", "blocks.0", "blocks.1")))
    monkeypatch.setattr(planning, "_legality", lambda spec, job: nothing)
    found = plan(SPECS["receipts"], Wish(frontier=True))
    assert (found.verdict, found.chosen, found.points) == ("none", None, (found.plain,))
    assert found.sentence.startswith("No plan can pass: ")


def without_random_state() -> StudySpec:
    return SPECS["receipts"].model_copy(update={"checkpoint": CheckpointSettings(rng="ignore")})


def with_batch_norm() -> StudySpec:
    workload = SPECS["receipts"].workload.model_copy(update={"norm": "batch"})
    return SPECS["receipts"].model_copy(update={"workload": workload})


@pytest.mark.parametrize(("peak", "flagged"), [(1_959_000, True), (1_961_000, False), (2_041_000, True)])
def test_an_estimate_that_is_off_by_more_than_two_percent_is_flagged(peak: int, flagged: bool) -> None:
    one = make.plan_point("best-2mb", 2_000_000).model_copy(update={"measured_peak_bytes": peak})
    assert one.flagged is flagged
    assert one.model_dump()["flagged"] is flagged


def test_what_a_study_could_not_measure_stays_empty() -> None:
    names = ("lost", "refused", "stopped", "proven", "close")
    before = make.plan_answer(*(make.plan_point(name, 2_000_000, "blocks.0") for name in names))
    near = make.passed(make.SAME.model_copy(update={"absolute": 1e-6, "relative": 1e-6}))
    after = measured(
        before,
        result(
            make.refused("parity", "refused", parity=make.failed()),
            make.refused("failure", "stopped", failure="it died"),
            make.proven("proven"),
            make.measured("close", parity=near),
        ),
    )
    by_name = {one.plan: one for one in after.points}
    assert {name: by_name[name].parity for name in names} == {
        "lost": None,
        "refused": "failed",
        "stopped": None,
        "proven": "bitwise",
        "close": "passed",
    }
    for name in names[:-1]:
        one = by_name[name]
        assert (one.measured_peak_bytes, one.measured_ratio, one.miss) == (None, None, None)
        assert not one.flagged


def test_planning_by_itself_runs_no_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "home"))
    planning.plan(GPT, Wish(budget_bytes=1))
    assert not (tmp_path / "home").exists()
