"""From cells to a result: pending, failed, refused, proven, measured; and what a what-if changes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings

from recompute_core.results import Gap, Measured, Noise, Proven, Refused, StudyResult
from recompute_core.spec import Thresholds
from recompute_core.studies.assemble import assemble
from recompute_core.studies.flow import PLAIN, CellKey
from recompute_core.studies.store import Cell
from tests.core import records as make
from tests.core.cells import BLOCKS, LARGE, SMALL, SPEC, cell, failed, legality, play, reference, row
from tests.core.test_flow import Choices, books, cells_of

ONE = SPEC.model_copy(update={"shapes": ({"seq_len": 16},), "plans": ("every-block",)})
OWN = "every-block"


def result_of(worker: Any = lambda key: None, spec: Any = ONE, until: int = 1000) -> StudyResult:
    _, cells = play(worker, spec, until=until)
    return assemble(row(spec), list(cells.values()))


def when(phase: str, found: Any, plan: str | None = None) -> Any:
    def worker(key: CellKey) -> Cell | None:
        return cell(key, found) if key[2] == phase and plan in (None, key[1]) else None

    return worker


def dying(phase: str, plan: str) -> Any:
    return lambda key: failed(key) if key[1:] == (plan, phase) else None


def only(result: StudyResult) -> Any:
    (judged,) = result.judged
    return judged.candidate


def test_nothing_yet() -> None:
    found = assemble(row(ONE), [])
    candidate = only(found)
    assert isinstance(candidate, Refused)
    assert (candidate.stopped_by, candidate.shape, candidate.shape_key, candidate.blocks) == (
        "pending",
        {"seq_len": 16, "batch": 2},
        SMALL,
        BLOCKS,
    )
    assert (found.verdict, found.sentence, found.references) == (None, "Not decided yet.", {})


@pytest.mark.parametrize("done", [0, 1])
def test_pending_until_parity_is_known(done: int) -> None:
    found = result_of(until=done)
    assert only(found).stopped_by == "pending"
    assert found.verdict is None


@pytest.mark.parametrize("done", [2, 3, 4])
def test_proven_while_costs_are_still_to_come(done: int) -> None:
    found = result_of(until=done)
    candidate = only(found)
    assert isinstance(candidate, Proven)
    assert candidate.failure is None
    assert (candidate.memory is not None) is (done == 4)
    assert found.verdict is None


def test_measured() -> None:
    found = result_of()
    candidate = only(found)
    assert isinstance(candidate, Measured)
    assert candidate.memory.ratio == 0.5
    assert candidate.timing.ratio_median == 1.25
    assert candidate.flops == {"plain": 30, "candidate": 40, "envelope": 24}
    assert candidate.block_calls == {
        "plain": {"blocks.0": 1, "blocks.1": 1},
        "candidate": {"blocks.0": 2},
    }
    assert [one.block for one in candidate.legality] == list(BLOCKS)
    assert (found.verdict, found.status) == ("adopt", "running")
    assert found.references == {SMALL: reference()}
    assert found.sentence.startswith("Adopt every-block at T=16 B=2: peak 2.00 MB instead of 4.00 MB")


def test_candidates_come_by_shape_then_plan() -> None:
    found = result_of(spec=SPEC)
    assert [(one.candidate.shape_key, one.candidate.plan) for one in found.judged] == [
        (SMALL, OWN),
        (SMALL, "blocks:1"),
        (LARGE, OWN),
        (LARGE, "blocks:1"),
    ]


def test_the_facts_of_the_study_are_carried_over() -> None:
    found, of = result_of(), row(ONE)
    assert (found.study_id, found.declared_at, found.spec, found.spec_hash, found.environment) == (
        of.id,
        of.declared_at,
        ONE,
        ONE.digest(),
        {"device": "cpu"},
    )
    assert found.thresholds == ONE.thresholds


# --- refusals -------------------------------------------------------------------------------------


def test_refused_by_legality() -> None:
    found = result_of(when("legality", legality("blocks.1")))
    candidate = only(found)
    assert (candidate.state, candidate.stopped_by) == ("refused", "legality")
    assert candidate.reasons == ("blocks.1: it moves.",)
    assert [one.verdict for one in candidate.legality] == ["legal", "illegal"]
    assert found.verdict == "keep_original"
    assert "blocks.1: it moves." in found.sentence


def test_refused_by_parity() -> None:
    also = Gap(part="output", name="0", absolute=1.0, relative=0.01)
    found = result_of(when("parity", make.failed(make.OFF, also)))
    candidate = only(found)
    assert (candidate.state, candidate.stopped_by) == ("refused", "parity")
    assert candidate.parity == make.failed(make.OFF, also)
    assert candidate.canary == make.canary()
    assert "gradient of w: relative gap 0.25" in candidate.reasons[0]
    assert candidate.reasons[0].endswith(", and 1 more tensors")
    assert found.verdict == "keep_original"


def test_refused_by_a_missed_canary() -> None:
    found = result_of(when("canary", make.canary(caught=False)), SPEC)
    first = found.judged[0].candidate
    assert isinstance(first, Refused)
    assert (first.stopped_by, first.canary) == ("canary", make.canary(caught=False))
    assert "a break in blocks.0" in first.reasons[0]
    assert found.verdict == "undecided"


def test_refused_by_noise() -> None:
    candidate = only(result_of(when("noise", Noise(gaps=(make.OFF,)))))
    assert (candidate.state, candidate.stopped_by) == ("refused", "noise")
    assert "gradient of w" in candidate.reasons[0]


def test_a_refused_candidate_takes_no_figure_from_cells_that_should_not_be() -> None:
    """Even if somebody wrote memory and time into the store, nothing would show them."""
    _, cells = play(when("parity", make.failed()), ONE)
    for key in ((SMALL, PLAIN, "memory"), (SMALL, OWN, "memory"), (SMALL, OWN, "time")):
        cells[key] = cell(key)  # type: ignore[index]
    text = json.dumps(assemble(row(ONE), list(cells.values())).document()["candidates"])
    for name in ("peak_samples", "peak_bytes", "saved_bytes", "plain_s", "ratio_median"):
        assert name not in text


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["reference", "noise", "legality"])
def test_plains_failure_before_parity(phase: str) -> None:
    found = result_of(dying(phase, PLAIN))
    candidate = only(found)
    assert (candidate.state, candidate.stopped_by) == ("refused", "failure")
    assert candidate.failure == f"plain's {phase} could not be completed: it died"
    assert found.verdict == "undecided"


@pytest.mark.parametrize("phase", ["canary", "parity"])
def test_a_candidates_failure_before_its_proof(phase: str) -> None:
    found = result_of(dying(phase, OWN))
    candidate = only(found)
    assert (candidate.state, candidate.stopped_by) == ("refused", "failure")
    assert candidate.failure == f"{phase} could not be completed: it died"
    assert found.verdict == "undecided"


@pytest.mark.parametrize(
    ("phase", "plan", "failure"),
    [
        ("memory", PLAIN, "plain's memory could not be completed: it died"),
        ("memory", OWN, "memory could not be completed: it died"),
        ("time", OWN, "time could not be completed: it died"),
    ],
)
def test_a_failure_after_the_proof_keeps_the_rest(phase: str, plan: str, failure: str) -> None:
    found = result_of(dying(phase, plan))
    candidate = only(found)
    assert isinstance(candidate, Proven)
    assert candidate.failure == failure
    assert (candidate.memory is None) is (phase == "memory")
    assert (candidate.timing is None) is (phase == "time")
    assert candidate.parity == make.passed()
    assert found.verdict == "undecided"


def test_one_plans_failure_does_not_keep_another_from_being_adopted() -> None:
    found = result_of(dying("memory", "blocks:1"), SPEC)
    assert found.verdict == "adopt"
    assert found.sentence.startswith("Adopt every-block")


def test_a_verdict_is_not_given_while_something_is_still_to_come() -> None:
    """Memory has failed, and time is not yet measured."""
    tasks, cells = play(dying("memory", OWN), ONE, until=4)
    assert tasks[-1].phases == ("memory",)
    assert assemble(row(ONE), list(cells.values())).verdict is None


# --- what-if --------------------------------------------------------------------------------------


def figures(result: StudyResult) -> list[Any]:
    return [one.candidate.model_dump() for one in result.judged]


def test_other_thresholds_change_gates_and_not_figures() -> None:
    _, cells = play(spec=ONE)
    declared = assemble(row(ONE), list(cells.values()))
    strict = Thresholds(peak_ratio=0.25, update_ratio=1.125)
    what_if = assemble(row(ONE), list(cells.values()), strict)
    assert figures(what_if) == figures(declared)
    assert (declared.verdict, what_if.verdict) == ("adopt", "keep_original")
    assert [gate.outcome for gate in what_if.judged[0].gates] == ["pass", "fail", "fail"]
    assert [gate.threshold for gate in what_if.judged[0].gates] == [1e-4, 0.25, 1.125]
    assert what_if.thresholds == strict
    assert what_if.spec.thresholds == ONE.thresholds
    assert what_if.spec_hash == declared.spec_hash
    assert assemble(row(ONE), list(cells.values()), ONE.thresholds) == declared


def test_a_what_if_cannot_bring_back_a_refused_candidate() -> None:
    _, cells = play(when("parity", make.failed()), ONE)
    loose = Thresholds(gradient_gap=100, relative_gap=0.9, peak_ratio=1, update_ratio=100)
    what_if = assemble(row(ONE), list(cells.values()), loose)
    assert isinstance(only(what_if), Refused)
    assert [gate.outcome for gate in what_if.judged[0].gates][1:] == ["not_run", "not_run"]
    assert what_if.verdict != "adopt"


def test_a_what_if_can_fail_parity() -> None:
    near = Gap(part="grad", name="w", absolute=1e-5, relative=5e-5)
    _, cells = play(when("parity", make.passed(near)), ONE)
    assert assemble(row(ONE), list(cells.values())).verdict == "adopt"
    strict = Thresholds(relative_gap=1e-5)
    assert assemble(row(ONE), list(cells.values()), strict).verdict == "keep_original"


# --- whatever the cells are -----------------------------------------------------------------------


@settings(max_examples=200)
@given(books)
def test_any_cells_give_a_publishable_result(choices: Choices) -> None:
    found = assemble(row(SPEC), list(cells_of(choices).values()))
    document = found.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert len(found.judged) == 4
    for one in found.judged:
        if one.candidate.memory is not None or one.candidate.timing is not None:
            assert one.candidate.parity is not None
            assert one.candidate.parity.passed
            assert one.candidate.canary is not None
            assert one.candidate.canary.caught
        if found.verdict == "adopt" and one.verdict == "adopt":
            assert isinstance(one.candidate, Measured)
    assert "\n" not in found.sentence
