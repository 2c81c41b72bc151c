"""Outcomes and verdicts of a reinvestment: from figures alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.reinvest.asked import ReinvestSpec, parse_reinvest
from recompute_core.reinvest.found import (
    Accumulation,
    Rare,
    Reach,
    Reaches,
    ReinvestGate,
    Throughput,
    Training,
    Tried,
    used_microbatch,
)
from recompute_core.reinvest.gates import gates_of, objective_of, sentence_of, verdict_of
from recompute_core.reinvest.recall import Paired
from recompute_core.results import Gap, Pair, Timing

FITS = Tried(size=32, estimated_peak_bytes=98, peak_bytes=99, bitwise=True)
TOO_MUCH = Tried(size=33, estimated_peak_bytes=99, peak_bytes=101, bitwise=True)


def asked(**changes: Any) -> ReinvestSpec:
    return parse_reinvest(
        {"study": "s", "plan": "every-block", "shape": "x B=16", "effective_batch": 64, **changes}
    )


def reaches(*tried: Tried) -> Reaches:
    return Reaches(batch=Reach(field="batch", plain_size=16, budget_bytes=100, tried=tried))


def accumulation(gap: float | None, **also: Any) -> Accumulation:
    problem = "not finite" if gap is None else None
    return Accumulation(
        effective_batch=64,
        accepted=62,
        plain_microbatches=(16, 15, 15, 16),
        recomputed_microbatches=(32, 30),
        gaps=(Gap(part="grad", name="w", absolute=gap, relative=gap, problem=problem),),
        noise_floor=0.0,
        mean_of_means_gap=0.1,
        **also,
    )


def throughput(*pairs: tuple[float, float], examples: tuple[int, int] = (62, 62)) -> Throughput:
    samples = tuple(Pair(plain_s=plain, candidate_s=own) for plain, own in pairs)
    return Throughput(
        timing=Timing(samples=samples, stopped="all pairs taken"),
        plain_examples=examples[0],
        recomputed_examples=examples[1],
        plain_microbatches=4,
        recomputed_microbatches=2,
    )


def training(plain: float, other: float, receipts: int = 400) -> Training:
    pair = Paired(plain, other, 0.0, receipts)
    return Training(
        seeds=(0, 1, 2),
        examples=640,
        classes=(),
        rare=Rare(
            label="torn",
            plain=plain,
            receipts=receipts,
            photos=3 * receipts,
            train_receipts=19,
            train_photos=57,
            loss=pair.loss,
            loss_ci95=pair.interval(),
            seeds_reach=pair.seeds,
            receipts_to_settle=pair.receipts_to_settle(0.1),
        ),
        accuracy={"plain": (0.9,), "recomputed": (0.9,)},
        disagreements=(1, 2),
        seconds_per_update={"plain": 1.0, "recomputed": 1.0},
    )


def judged(**changes: Any) -> dict[str, ReinvestGate]:
    facts: dict[str, Any] = {
        "asked": asked(),
        "reaches": reaches(FITS),
        "used": FITS,
        "accumulation": accumulation(1e-6),
        "throughput": throughput(*[(2.0, 1.0)] * 7),
        "training": training(0.9, 0.9),
        "not_trained": None,
    }
    return {gate.id: gate for gate in gates_of(**facts | changes)}


def test_all_gates_pass_and_the_larger_microbatch_is_adopted() -> None:
    gates = judged()
    assert [gate.outcome for gate in gates.values()] == ["pass"] * 4
    assert list(gates) == ["plain_peak", "same_objective", "throughput", "rare_recall"]
    assert verdict_of(list(gates.values())) == "adopt"
    sentence = sentence_of(asked(), "adopt", list(gates.values()), FITS)
    assert sentence == (
        "Adopt microbatch 32 under every-block at x B=16: 2.00 times as many examples per second."
    )


@pytest.mark.parametrize(
    ("change", "gate", "outcome"),
    [
        ({"used": TOO_MUCH}, "plain_peak", "fail"),
        ({"used": None, "reaches": reaches(TOO_MUCH)}, "plain_peak", "fail"),
        ({"reaches": None}, "plain_peak", "not_run"),
        ({"accumulation": accumulation(1e-3)}, "same_objective", "fail"),
        ({"accumulation": accumulation(None)}, "same_objective", "fail"),
        ({"accumulation": None}, "same_objective", "not_run"),
        ({"throughput": throughput(*[(1.0, 1.2)] * 7)}, "throughput", "fail"),
        ({"throughput": throughput((1.0, 0.9), (1.0, 1.1), (1.0, 1.0))}, "throughput", "undecided"),
        ({"training": training(0.9, 0.6)}, "rare_recall", "fail"),
        ({"training": training(1.0, 1.0, receipts=5)}, "rare_recall", "undecided"),
        ({"training": training(0.0, 0.0)}, "rare_recall", "undecided"),
        ({"accumulation": accumulation(0.02, rounding=2**-7)}, "same_objective", "undecided"),
        ({"accumulation": accumulation(0.4, rounding=2**-7)}, "same_objective", "fail"),
        ({"training": None, "not_trained": "gpt has no rare class"}, "rare_recall", "not_run"),
    ],
)
def test_one_gate_decides(change: dict[str, Any], gate: str, outcome: str) -> None:
    gates = judged(**change)
    assert gates[gate].outcome == outcome
    assert all(other.outcome == "pass" for name, other in gates.items() if name != gate)
    wanted = "keep_original" if outcome == "fail" else "undecided"
    assert verdict_of(list(gates.values())) == wanted


def test_few_receipts_say_how_many_would_tell() -> None:
    sentence = judged(training=training(1.0, 1.0, receipts=5))["rare_recall"].sentence
    assert sentence.endswith("So few cannot tell; 35 such receipts would.")
    assert "on 5 receipts (15 photos), 3 seeds" in sentence


def test_an_encoder_that_sees_no_rare_defect_shows_nothing_about_them() -> None:
    gate = judged(training=training(0.05, 0.0))["rare_recall"]
    assert gate.outcome == "undecided"
    assert gate.sentence == (
        "Plain's own recall of torn is 0.05: it was not learnt, so nothing can be lost; more examples "
        "would tell, as in the preset full."
    )


def test_slower_is_said_to_be_slower() -> None:
    gate = judged(throughput=throughput(*[(1.0, 1.25)] * 7))["throughput"]
    assert gate.observed == pytest.approx(0.8) and gate.bound == "at least"
    assert gate.sentence == "49.6 examples per second instead of 62.0, 7 pairs."
    few = judged(throughput=throughput(*[(1.0, 1.25)] * 3))["throughput"]
    assert few.sentence.endswith("62.0, 3 pairs (their interval covers 75 %).")


def test_examples_are_counted_by_what_was_accepted_on_each_side() -> None:
    gate = judged(throughput=throughput(*[(1.0, 2.0)] * 7, examples=(62, 124)))["throughput"]
    assert gate.observed == pytest.approx(1.0) and gate.outcome == "pass"


# --- the objective ---------------------------------------------------------------------------


def test_batch_statistics_change_the_objective_and_are_named() -> None:
    names = ("blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1")
    found = accumulation(0.4, batch_statistics=names)
    assert objective_of(asked(), found) == (
        "The training objective changed: blocks.0.norm1, blocks.0.norm2 and 1 more normalise over "
        "the microbatch; another size, another model."
    )


def test_another_effective_batch_changes_the_objective_before_anything_is_measured() -> None:
    other = asked(recomputed_effective_batch=128)
    assert objective_of(other, None) == (
        "The training objective changed: an update averages 128 examples under the plan and 64 in plain."
    )
    assert judged(asked=other)["same_objective"].outcome == "fail"


def test_a_model_that_draws_and_one_that_mixes_examples_are_told_apart() -> None:
    assert "draws random numbers" in str(objective_of(asked(), accumulation(0.4, draws=True)))
    assert "mixes the examples" in str(objective_of(asked(), accumulation(0.4)))
    assert objective_of(asked(), accumulation(1e-6, batch_statistics=("a",))) is None


# --- properties ------------------------------------------------------------------------------

ratios = st.lists(st.floats(0.2, 5), min_size=3, max_size=9)


@given(ratios, st.floats(0.3, 3))
def test_a_higher_bound_never_helps(found: list[float], bound: float) -> None:
    order = {"fail": 0, "undecided": 1, "pass": 2}
    rates = throughput(*((ratio, 1.0) for ratio in found))

    def outcome(least: float) -> int:
        limits = asked(thresholds={"rate_ratio": least})
        return order[judged(asked=limits, throughput=rates)["throughput"].outcome]

    assert outcome(bound) >= outcome(bound * 1.1)


@given(st.lists(st.sampled_from(["pass", "fail", "undecided", "not_run"]), min_size=4, max_size=4))
def test_the_verdict_is_as_good_as_the_worst_gate(outcomes: list[str]) -> None:
    gates = [
        gate.model_copy(update={"outcome": outcome})
        for gate, outcome in zip(judged().values(), outcomes, strict=True)
    ]
    verdict = verdict_of(gates)
    assert (verdict == "keep_original") == ("fail" in outcomes)
    assert (verdict == "adopt") == (set(outcomes) == {"pass"})


@given(st.integers(1, 64), st.integers(1, 400))
def test_the_microbatch_used_fits_and_takes_fewer_passes(plain: int, largest: int) -> None:
    batch = Reach(
        field="batch",
        plain_size=plain,
        budget_bytes=100,
        tried=(Tried(size=largest, estimated_peak_bytes=1, peak_bytes=100),),
    )
    size = used_microbatch(asked(), batch)
    if size is not None:
        assert plain < size <= min(largest, 64)
        assert -(-64 // size) <= -(-64 // plain)
    elif largest > plain:
        assert -(-64 // largest) == -(-64 // plain) or largest <= plain
