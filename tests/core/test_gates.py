"""Outcomes, verdicts and sentences on hand-made figures."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recompute_core.gates import (
    MemoryRun,
    candidate_sentence,
    chosen,
    deciding,
    gates_of,
    judge,
    megabytes,
    outcome_of,
    parity_gate,
    plan_verdicts,
    release_failures,
    study_sentence,
    study_verdict,
)
from recompute_core.results import Candidate, Gap, Judged, MemoryPair, Verdict
from recompute_core.spec import Thresholds
from tests.core import records as make

LIMITS = Thresholds()
PLAIN = MemoryRun(2140, 38.2, 0.0)
CANDIDATE = MemoryRun(1600, 55.4, 3e-5)


# --- the receipt project's gate -------------------------------------------------------------------


def test_the_receipt_projects_example() -> None:
    assert release_failures(PLAIN, CANDIDATE) == ["update latency"]


def test_failures_come_in_the_order_of_the_flow() -> None:
    nothing_good = MemoryRun(2140, 55.4, 1.0)
    assert release_failures(PLAIN, nothing_good) == [
        "gradient parity",
        "memory saving",
        "update latency",
    ]


@pytest.mark.parametrize(
    ("of", "figure", "gate"),
    [
        ("candidate", "largest_gradient_gap", "gradient parity"),
        ("candidate", "peak_allocated_mb", "memory saving"),
        ("reference", "peak_allocated_mb", "memory saving"),
        ("candidate", "median_update_ms", "update latency"),
        ("reference", "median_update_ms", "update latency"),
    ],
)
def test_nan_fails_its_gate_and_no_other(of: str, figure: str, gate: str) -> None:
    runs = {"reference": PLAIN, "candidate": replace(CANDIDATE, median_update_ms=40.0)}
    assert release_failures(**runs) == []
    runs[of] = replace(runs[of], **{figure: math.nan})
    assert release_failures(**runs) == [gate]


def test_boundaries_are_inclusive() -> None:
    limits = Thresholds(gradient_gap=0.5, peak_ratio=0.75, update_ratio=1.25)
    plain = MemoryRun(1000, 40, 0)
    assert release_failures(plain, MemoryRun(750, 50, 0.5), limits) == []
    above = [
        (MemoryRun(750, 50, math.nextafter(0.5, 1)), "gradient parity"),
        (MemoryRun(math.nextafter(750, 751), 50, 0.5), "memory saving"),
        (MemoryRun(750, math.nextafter(50, 51), 0.5), "update latency"),
    ]
    for run, gate in above:
        assert release_failures(plain, run, limits) == [gate]


# --- one gate -------------------------------------------------------------------------------------

RANK = {"fail": 0, "undecided": 1, "pass": 2}
edges = st.floats(allow_nan=False)


@given(edges, edges, edges)
def test_an_interval_passes_fails_or_straddles(a: float, b: float, threshold: float) -> None:
    low, high = min(a, b), max(a, b)
    outcome = outcome_of((low, high), threshold)
    assert (outcome == "pass") == (high <= threshold)
    assert (outcome == "fail") == (low > threshold)
    assert (outcome == "undecided") == (low <= threshold < high)


@given(edges, edges, edges, edges)
def test_loosening_never_worsens_an_outcome(a: float, b: float, c: float, d: float) -> None:
    interval = (min(a, b), max(a, b))
    tight, loose = outcome_of(interval, min(c, d)), outcome_of(interval, max(c, d))
    assert RANK[loose] >= RANK[tight]


@given(edges, edges, edges, edges, edges)
def test_a_narrower_interval_never_turns_a_verdict_over(
    a: float, b: float, c: float, d: float, threshold: float
) -> None:
    lowest, low, high, highest = sorted((a, b, c, d))
    wide, narrow = outcome_of((lowest, highest), threshold), outcome_of((low, high), threshold)
    assume(wide != "undecided")
    assert narrow == wide


@pytest.mark.parametrize("interval", [None, (math.nan, 1.0), (0.0, math.nan), (math.nan, math.nan)])
def test_what_is_not_a_number_never_passes(interval: tuple[float, float] | None) -> None:
    assert outcome_of(interval, 1e300) == "fail"


def test_the_three_gates_of_a_measured_candidate() -> None:
    candidate = make.measured(peaks=(4_000_000, 2_000_000), ratios=(1.0, 1.25, 1.5))
    parity, saving, latency = gates_of(candidate, LIMITS)
    assert (parity.id, parity.outcome, parity.threshold, parity.observed, parity.ci95) == (
        "gradient_parity",
        "pass",
        1e-4,
        0.0,
        (0.0, 0.0),
    )
    assert parity.sentence == "Every compared tensor is bitwise equal."
    assert (saving.id, saving.outcome, saving.threshold, saving.observed, saving.ci95) == (
        "memory_saving",
        "pass",
        0.82,
        0.5,
        (0.5, 0.5),
    )
    assert saving.sentence == "Peak 2.00 MB instead of 4.00 MB."
    assert (latency.id, latency.outcome, latency.threshold, latency.observed, latency.ci95) == (
        "update_latency",
        "undecided",
        1.35,
        1.25,
        (1.0, 1.5),
    )
    assert latency.sentence == "Update 312 ms instead of 250 ms, 3 pairs (their interval covers 75 %)."
    assert {gate.kind for gate in (parity, saving, latency)} == {"measured"}


def test_the_threshold_of_a_gate_is_inclusive() -> None:
    at = Thresholds(peak_ratio=0.5, update_ratio=1.25)
    assert judge(make.measured(), at).verdict == "adopt"
    below = Thresholds(peak_ratio=math.nextafter(0.5, 0), update_ratio=math.nextafter(1.25, 0))
    assert [gate.outcome for gate in gates_of(make.measured(), below)] == ["pass", "fail", "fail"]


def test_the_gate_keeps_the_kind_of_its_figure() -> None:
    own = make.measured()
    supplied = own.memory.candidate.model_copy(update={"kind": "supplied"})
    mixed = own.model_copy(
        update={
            "memory": MemoryPair(plain=own.memory.plain, candidate=supplied),
            "timing": own.timing.model_copy(update={"kind": "estimated"}),
        }
    )
    assert [gate.kind for gate in gates_of(mixed, LIMITS)] == ["measured", "supplied", "estimated"]


def test_no_peak_counter_is_not_run_and_not_zero() -> None:
    own = make.measured()
    blind = own.model_copy(update={"memory": MemoryPair(plain=make.memory(), candidate=make.memory())})
    saving = gates_of(blind, LIMITS)[1]
    assert (saving.outcome, saving.observed, saving.ci95) == ("not_run", None, None)
    assert saving.sentence == "This device has no peak counter."
    assert judge(blind, LIMITS).verdict == "undecided"


# --- the parity gate ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (make.OFF, "Gradient of w: relative gap 0.25, absolute 0.5"),
        (
            Gap(part="grad", name="w", absolute=None, relative=None, problem="missing"),
            "Gradient of w: missing",
        ),
        (
            Gap(part="input_grad", name="input 0", absolute=1.0, relative=0.5),
            "Gradient of the input 0: relative gap 0.5, absolute 1",
        ),
        (Gap(part="loss", name="", absolute=1.0, relative=0.5), "Loss: relative gap 0.5, absolute 1"),
        (
            Gap(part="rng", name="torch", absolute=1.0, relative=0.5),
            "Random state torch: relative gap 0.5, absolute 1",
        ),
        (
            Gap(part="weight", name="w", absolute=1.0, relative=0.5),
            "Next-step weight w: relative gap 0.5, absolute 1",
        ),
    ],
)
def test_a_failed_parity_names_the_worst_tensor(gap: Gap, words: str) -> None:
    gate = parity_gate(make.failed(gap), LIMITS)
    assert (gate.outcome, gate.sentence) == ("fail", f"{words}.")
    also = Gap(part="buffer", name="b", absolute=9.0, relative=1e-3)
    assert parity_gate(make.failed(also, gap), LIMITS).sentence == f"{words}, and 1 more."


def test_parity_within_tolerance_says_how_far() -> None:
    near = Gap(part="grad", name="w", absolute=1e-6, relative=2e-5)
    gate = parity_gate(make.passed(near), LIMITS)
    assert (gate.outcome, gate.observed) == ("pass", 1e-6)
    assert gate.sentence == "Largest relative gap 2e-05."


def test_both_tolerances_are_inclusive_and_both_count() -> None:
    at = Gap(part="grad", name="w", absolute=1e-4, relative=1e-4)
    assert parity_gate(make.passed(at), LIMITS).outcome == "pass"
    for more in ({"absolute": 1.01e-4}, {"relative": 1.01e-4}):
        assert parity_gate(make.passed(at.model_copy(update=more)), LIMITS).outcome == "fail"


def test_the_absolute_tolerance_is_for_gradients_only() -> None:
    for part, outcome in (("grad", "fail"), ("input_grad", "fail"), ("output", "pass")):
        gap = Gap(part=part, name="x", absolute=1.0, relative=1e-6)
        assert parity_gate(make.passed(gap), LIMITS).outcome == outcome


def test_random_states_have_no_tolerance() -> None:
    gap = Gap(part="rng", name="torch", absolute=1e-9, relative=1e-9)
    assert parity_gate(make.passed(gap), LIMITS).outcome == "fail"


# --- candidates without parity --------------------------------------------------------------------


@pytest.mark.parametrize("stopped_by", ["noise", "legality", "canary", "parity", "failure", "pending"])
def test_without_parity_neither_memory_nor_time_is_gated(stopped_by: str) -> None:
    found: dict[str, object] = {"reasons": ("it is so",)}
    if stopped_by == "parity":
        found["parity"] = make.failed()
    if stopped_by == "failure":
        found["failure"] = "a worker died"
    parity, saving, latency = gates_of(make.refused(stopped_by, **found), LIMITS)
    assert parity.outcome == ("fail" if stopped_by == "parity" else "not_run")
    for gate in (saving, latency):
        assert (gate.outcome, gate.observed, gate.ci95) == ("not_run", None, None)


def test_why_a_gate_was_not_run() -> None:
    def said(candidate: Candidate) -> str:
        return gates_of(candidate, LIMITS)[1].sentence

    assert said(make.proven()) == "Not measured yet."
    assert said(make.refused("pending")) == "Not measured yet."
    assert said(make.proven(failure="a worker died")) == "Not measured: a worker died."
    assert said(make.refused("legality")) == "Not measured: legality refused it."


# --- verdicts -------------------------------------------------------------------------------------

GOOD = make.measured()
BAD = make.measured(peaks=(4_000_000, 4_000_000))
UNSURE = make.measured(ratios=(1.0, 1.25, 1.5))


def judged(*candidates: Candidate) -> list[Judged]:
    return [judge(candidate, LIMITS) for candidate in candidates]


@pytest.mark.parametrize(
    ("candidate", "verdict"),
    [
        (GOOD, "adopt"),
        (BAD, "keep_original"),
        (UNSURE, "undecided"),
        (make.measured(peaks=(4_000_000, 4_000_000), ratios=(1.0, 1.25, 1.5)), "keep_original"),
        (make.proven(), "undecided"),
        (make.refused("pending"), "undecided"),
        (make.refused("failure", failure="it died"), "undecided"),
        (make.refused("canary", canary=make.canary(False)), "undecided"),
        (make.refused("parity", parity=make.failed()), "keep_original"),
        (make.refused("legality"), "keep_original"),
    ],
)
def test_verdict_on_one_candidate(candidate: Candidate, verdict: Verdict) -> None:
    one = judge(candidate, LIMITS)
    assert one.verdict == verdict
    assert plan_verdicts([one]) == {"every-block": verdict}
    assert study_verdict([one]) == verdict


def test_a_plan_is_as_good_as_its_worst_shape() -> None:
    def at(seq_len: int, candidate: Candidate, plan: str) -> Candidate:
        return candidate.model_copy(update=make.facts(plan, seq_len))

    found = judged(
        at(128, GOOD, "a"),
        at(256, BAD, "a"),
        at(128, GOOD, "b"),
        at(256, UNSURE, "b"),
        at(128, UNSURE, "c"),
        at(256, BAD, "c"),
        at(128, GOOD, "d"),
        at(256, GOOD, "d"),
    )
    assert plan_verdicts(found) == {
        "a": "keep_original",
        "b": "undecided",
        "c": "keep_original",
        "d": "adopt",
    }
    assert study_verdict(found) == "adopt"
    assert study_verdict(found[:6]) == "undecided"
    assert study_verdict(found[:2] + found[4:6]) == "keep_original"


def test_the_chosen_plan_is_the_leanest_and_among_equals_the_fastest() -> None:
    found = judged(
        make.measured("lean", peaks=(4_000_000, 2_000_000), ratios=(1.25,)),
        make.measured("nearly as lean", peaks=(4_000_000, 2_020_000), ratios=(1.125,)),
        make.measured("just too fat", peaks=(4_000_000, 2_020_001), ratios=(1.0,)),
        make.measured("fails", peaks=(4_000_000, 1_000_000), ratios=(2.0,)),
    )
    best = chosen(found)
    assert best is not None
    assert best.candidate.plan == "nearly as lean"
    assert chosen(found[3:]) is None


def test_the_chosen_plan_is_shown_at_its_largest_shape_whatever_the_order() -> None:
    small = make.measured(seq_len=128)
    large = make.measured(seq_len=512, peaks=(40_000_000, 20_000_000))
    for order in ((small, large), (large, small)):
        best = chosen(judged(*order))
        assert best is not None
        assert best.candidate.shape_key == "T=512 B=4"


@given(
    st.floats(min_value=0.01, max_value=1),
    st.floats(min_value=0.01, max_value=1),
    st.floats(min_value=1, max_value=100),
    st.floats(min_value=1, max_value=100),
)
def test_loosening_a_threshold_never_worsens_a_verdict(
    peak_a: float, peak_b: float, time_a: float, time_b: float
) -> None:
    tight = Thresholds(peak_ratio=min(peak_a, peak_b), update_ratio=min(time_a, time_b))
    loose = Thresholds(peak_ratio=max(peak_a, peak_b), update_ratio=max(time_a, time_b))
    rank = {"keep_original": 0, "undecided": 1, "adopt": 2}
    for candidate in (GOOD, BAD, UNSURE):
        assert rank[judge(candidate, loose).verdict] >= rank[judge(candidate, tight).verdict]


# --- sentences ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 MB"),
        (512, "0.000512 MB"),
        (511_999, "0.512 MB"),
        (4_230_000, "4.23 MB"),
        (9_996_000, "10.0 MB"),
        (42_349_999, "42.3 MB"),
        (99_960_000, "100.0 MB"),
        (423_100_000, "423.1 MB"),
        (1_234_500_000, "1,234.5 MB"),
        (9_999_900_000, "9,999.9 MB"),
        (10**10, "10.0 GB"),
    ],
)
def test_megabytes_are_decimal(count: int, text: str) -> None:
    assert megabytes(count) == text


OF_3 = ", the 75 % interval of 3 pairs"
TOOK = f"1.25 times as long (1.25 to 1.25{OF_3})"
FIGURES = f"peak 2.00 MB instead of 4.00 MB (0.50), update {TOOK}"
NEAR = Gap(part="grad", name="w", absolute=1e-6, relative=2e-5)


@pytest.mark.parametrize(
    ("candidate", "sentence"),
    [
        (GOOD, f"Adopt every-block at T=128 B=4: {FIGURES}, gradients bitwise equal."),
        (
            make.measured(parity=make.passed(NEAR)),
            f"Adopt every-block at T=128 B=4: {FIGURES}, gradients within tolerance.",
        ),
        (
            make.measured(peaks=(4_000_000, 4_000_000), ratios=(2.0,) * 6),
            "Keep the original rather than every-block at T=128 B=4: memory saving fails and update "
            "latency fails (peak 4.00 MB instead of 4.00 MB (1.00), update 2.00 times as long (2.00 to "
            "2.00), gradients bitwise equal).",
        ),
        (
            UNSURE,
            "Undecided on every-block at T=128 B=4: update latency is undecided (peak 2.00 MB "
            f"instead of 4.00 MB (0.50), update 1.25 times as long (1.00 to 1.50{OF_3}), gradients "
            "bitwise equal).",
        ),
        (make.proven(), "Not measured in full, every-block at T=128 B=4: still running."),
        (
            make.proven(failure="a worker died."),
            "Not measured in full, every-block at T=128 B=4: a worker died.",
        ),
        (make.refused("pending"), "Not decided yet: every-block at T=128 B=4."),
        (
            make.refused("parity", reasons=("parity fails: w, missing",), parity=make.failed()),
            "Keep the original rather than every-block at T=128 B=4: parity fails: w, missing.",
        ),
        (
            make.refused("legality", reasons=("blocks.0: norm1 moves.", "blocks.1: another.")),
            "Keep the original rather than every-block at T=128 B=4: blocks.0: norm1 moves.",
        ),
        (
            make.refused("failure", failure="a worker died."),
            "Undecided on every-block at T=128 B=4: a worker died.",
        ),
        (
            make.refused("canary", reasons=("the canary was missed",), canary=make.canary(False)),
            "Undecided on every-block at T=128 B=4: the canary was missed.",
        ),
    ],
)
def test_sentence_of_a_candidate(candidate: Candidate, sentence: str) -> None:
    assert candidate_sentence(judge(candidate, LIMITS)) == sentence


@pytest.mark.parametrize(
    ("one", "other", "nearest"),
    [
        ((1.01, 1.0), (0.95, 1.0), "other"),
        ((0.95, 1.0), (1.01, 1.0), "one"),
        ((0.95, 1.0), (0.95, 1.0), "one"),
        ((0.83, 1.4), (1.01, 1.0), "other"),  # a gate more that is missed weighs more than any distance
        ((0.9, 2.0), (0.99, 1.4), "other"),  # 10 % and 48 % beyond, against 21 % and 4 %
        ((0.75, 1.5), (0.75, 1.4), "other"),
        ((0.83, 1.0), (0.5, 1.4), "one"),  # 1 % beyond, against 4 %
    ],
)
def test_the_nearest_misses_the_fewest_gates_and_of_those_by_least(
    one: tuple[float, float], other: tuple[float, float], nearest: str
) -> None:
    found = judged(
        *(
            make.measured(plan, peaks=(4_000_000, int(4_000_000 * peak)), ratios=(update,))
            for plan, (peak, update) in (("one", one), ("other", other))
        )
    )
    assert deciding(found).candidate.plan == nearest
    assert f"nearest is “{nearest}” at T=128 B=4" in study_sentence(found)


@pytest.mark.parametrize(
    ("pairs", "covers"),
    [
        (3, ", the 75 % interval of 3 pairs"),
        (4, ", the 87.5 % interval of 4 pairs"),
        (5, ", the 93.8 % interval of 5 pairs"),
        (6, ""),
        (31, ""),
    ],
)
def test_a_verdict_on_few_pairs_says_what_their_interval_covers(pairs: int, covers: str) -> None:
    said = candidate_sentence(judge(make.measured(ratios=(1.25,) * pairs), LIMITS))
    assert f" 1.25 times as long (1.25 to 1.25{covers}), gradients" in said


def test_sentence_of_a_study() -> None:
    assert study_sentence(judged(GOOD)) == candidate_sentence(judge(GOOD, LIMITS))
    other = make.measured(seq_len=256)
    slower = make.measured(ratios=(1.3, 1.3, 1.3))
    for first, said in (
        (GOOD, f"{TOOK}, at T=128"),
        (slower, f"1.30 times as long (1.30 to 1.30{OF_3}), at T=128"),
    ):
        assert study_sentence(judged(first, other)) == (
            f"Adopt every-block at T=256 B=4: {FIGURES}, gradients bitwise equal. "
            f"Every gate holds at all 2 shapes; the least favourable update is {said} B=4."
        )
    assert study_sentence(judged(BAD)) == candidate_sentence(judge(BAD, LIMITS))
    large_fails = make.measured(seq_len=256, peaks=(4_000_000, 4_000_000))
    assert study_sentence(judged(GOOD, large_fails)) == (
        "Keep the original: no plan passes at every shape. Passing: every-block at T=128 B=4."
    )
    nearer = make.measured("b", peaks=(4_000_000, 4_000_000))
    both_fail = make.measured("a", peaks=(4_000_000, 4_000_000), ratios=(2.0,))
    assert study_sentence(judged(both_fail, nearer)) == (
        "Keep the original rather than any plan; nearest is “b” at T=128 B=4: memory saving fails (peak "
        f"4.00 MB instead of 4.00 MB (1.00), update {TOOK}, gradients bitwise equal)."
    )
    refusals = [make.refused("parity", plan, parity=make.failed(), reasons=("No",)) for plan in "ab"]
    assert study_sentence(judged(*refusals)) == (
        f"{candidate_sentence(judge(refusals[0], LIMITS))} Every other candidate is refused too."
    )
    assert study_sentence(judged(UNSURE, both_fail)) == candidate_sentence(judge(UNSURE, LIMITS))
