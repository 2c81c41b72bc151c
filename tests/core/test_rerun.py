"""Why a study is undecided, the longer one that it leads to, and what is recorded of a re-run."""

import json

import pytest

from recompute_core.gates import deciding, judge, study_sentence, told_of_plan
from recompute_core.rerun import (
    MOST_PAIRS,
    MOST_SAMPLING_S,
    longer,
    repeated,
    said_of_reruns,
    torn,
    why_undecided,
)
from recompute_core.results import Judged, Measured, Pair, StudyResult, Timing
from recompute_core.spec import MOST_EARLIER, Earlier, StudySpec, Thresholds, TimingSettings, parse_spec
from tests.core import records as make

QUICK = TimingSettings(min_pairs=7, max_pairs=15, budget_s=3)
SPREAD = (1.0, 1.5, 1.1, 1.4, 1.2, 1.45, 1.25)
"""Ratios whose interval, 1.0 to 1.5, straddles 1.35."""


def timed(
    ratios: tuple[float, ...] = SPREAD,
    plain_ms: tuple[float, ...] = (200.0,),
    stopped: str = "budget spent",
    seq_len: int = 128,
    plan: str = "every-block",
) -> Measured:
    plain = [plain_ms[number % len(plain_ms)] / 1e3 for number in range(len(ratios))]
    samples = tuple(Pair(plain_s=s, candidate_s=s * r) for s, r in zip(plain, ratios, strict=True))
    timing = Timing.model_validate({"samples": samples, "stopped": stopped})
    return make.measured(seq_len=seq_len).model_copy(update={"timing": timing, "plan": plan})


def judged(*candidates: Measured, thresholds: Thresholds | None = None) -> list[Judged]:
    return [judge(one, thresholds or Thresholds()) for one in candidates]


def result_of(found: list[Judged], spec: StudySpec, thresholds: Thresholds | None = None) -> StudyResult:
    return StudyResult.model_validate(
        {
            "study_id": "20261130-141500-49bd",
            "status": "done",
            "verdict": "undecided",
            "sentence": "",
            "thresholds": thresholds or spec.thresholds,
            "declared_at": "2026-11-30T14:15:00Z",
            "spec": spec,
            "spec_hash": spec.digest(),
            "environment": {},
            "references": {},
            "judged": found,
        }
    )


# --- why -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stopped", "why"),
    [
        ("budget spent", "7 pairs were timed, then the 3 s of the time budget were spent."),
        ("all pairs taken", "7 pairs were timed, the largest number that was asked for."),
        ("narrow enough", "7 pairs were timed, until it was 0.04 wide or narrower, as was asked for."),
    ],
)
def test_an_undecided_study_says_why_and_why_no_more_was_measured(stopped: str, why: str) -> None:
    said = why_undecided(judged(timed(stopped=stopped)), QUICK)
    assert said == (
        "The interval of the update time of every-block at T=128 B=4, 1.000 to 1.500, crosses the gate "
        f"at 1.35: {why}"
    )


def test_a_busy_machine_is_told_by_plains_own_updates() -> None:
    calm, busy = (200.0, 201.0, 202.0), (200.0, 200.0, 260.0, 500.0, 220.0)
    assert "busy" not in str(why_undecided(judged(timed(plain_ms=calm)), QUICK))
    said = str(why_undecided(judged(timed(plain_ms=busy)), QUICK))
    # Sorted: 200 200 200 200 220 260 500; the quartiles are 200 and 240.
    assert said.endswith(
        " The machine was busy: plain's own updates took 200 to 500 ms, and the middle half of them "
        "spans 20 % of their median."
    )


def test_only_plans_that_time_leaves_undecided_are_spoken_of() -> None:
    slow = (1.9,) * 7
    found = judged(timed(), timed(slow, seq_len=256), timed(plan="all-but-last", seq_len=256))
    assert [(one.candidate.plan, one.candidate.shape_key) for one in torn(found)] == [
        ("all-but-last", "T=256 B=4")
    ]
    assert deciding(found) == torn(found)[0], "the sentence above speaks of the same candidate"
    assert why_undecided(judged(timed((1.2,) * 7)), QUICK) is None
    assert why_undecided(judged(timed(slow)), QUICK) is None
    two = judged(timed(), timed(seq_len=256))
    assert ", as does that of another candidate: 7 pairs" in str(why_undecided(two, QUICK))


# --- longer --------------------------------------------------------------------------------------

SPEC = parse_spec({"timing": QUICK.model_dump(), "shapes": [{"seq_len": 128}]})


def test_a_longer_study_takes_as_many_pairs_as_the_spread_asks_for() -> None:
    # Median 1.25, 0.1 below the gate; the interval reaches 0.25 above it: 2 * 7 * 2.5 ** 2 pairs.
    found = judged(timed())
    more = longer(result_of(found, SPEC), found, apart_s=10.0)
    assert more is not None
    assert (more.needed, more.pairs) == (88, 89)
    assert more.spec.timing.min_pairs == 15
    assert more.spec.timing.width == 0.04
    pair_s = 0.2 * 2.25
    assert more.spec.timing.budget_s == pytest.approx(1.5 * 89 * pair_s, abs=1)
    assert more.seconds == pytest.approx(10 + 89 * pair_s)
    assert more.words == (
        "A new study under the same thresholds, 15 to 89 pairs of each candidate in a budget of 61 s: "
        "about 50 s in all, estimated at the pace of this one."
    )


def test_a_longer_study_is_longer_and_bounded() -> None:
    clear = judged(timed((1.0, 1.01, 1.02, 1.0, 1.0, 1.02, 1.36)))  # far from the gate, but for one pair
    more = longer(result_of(clear, SPEC), clear, 0)
    assert more is not None and more.pairs == 15  # at least twice as many as there were
    on_it = judged(timed((1.2, 1.5, 1.35, 1.35, 1.35, 1.2, 1.5)))
    more = longer(result_of(on_it, SPEC), on_it, 0)
    assert more is not None and more.pairs == MOST_PAIRS
    assert more.spec.timing.width == 0.005
    assert more.words.endswith("that may not be enough: it may stay undecided.")
    slow = judged(timed(plain_ms=(5000.0,)))
    more = longer(result_of(slow, SPEC), slow, 0)
    assert more is not None and more.pairs == 27  # as many as fit into the time
    assert more.pairs * 5 * 2.25 <= MOST_SAMPLING_S + 5 * 2.25
    very_slow = judged(timed(plain_ms=(60_000.0,)))
    more = longer(result_of(very_slow, SPEC), very_slow, 0)
    assert more is not None and more.pairs == 15


def test_a_longer_study_can_be_asked_for_whatever_the_earlier_one_was() -> None:
    many = judged(timed((1.2, 1.5) * 300, stopped="all pairs taken"))
    asked = SPEC.model_copy(update={"timing": TimingSettings(min_pairs=600, max_pairs=1000)})
    more = longer(result_of(many, asked), many, 0)
    assert more is not None and (more.spec.timing.min_pairs, more.pairs) == (600, 1000)
    hours = judged(timed(plain_ms=(5e6,)))
    more = longer(result_of(hours, SPEC), hours, 0)
    assert more is not None and more.spec.timing.budget_s == 86_400
    all_there_may_be = judged(timed((1.2, 1.5) * 500))
    assert longer(result_of(all_there_may_be, SPEC), all_there_may_be, 0) is None


def test_a_longer_study_asks_the_same_of_the_same() -> None:
    found = judged(timed())
    more = longer(result_of(found, SPEC), found, 0)
    assert more is not None
    apart = {"timing", "follows"}
    assert more.spec.model_dump(exclude=apart) == SPEC.model_dump(exclude=apart)
    assert more.spec.follows == (Earlier(study="20261130-141500-49bd", thresholds=SPEC.thresholds),)
    assert parse_spec(json.loads(more.spec.model_dump_json())) == more.spec
    decided = judged(timed((1.2,) * 7))
    assert longer(result_of(decided, SPEC), decided, 0) is None


def test_a_what_if_that_is_undecided_is_declared_and_measured_longer() -> None:
    looser = Thresholds(update_ratio=1.45)
    found = judged(timed(), thresholds=looser)
    more = longer(result_of(found, SPEC, looser), found, 0)
    assert more is not None
    assert more.spec.thresholds == looser
    assert more.spec.follows[0].thresholds == SPEC.thresholds


# --- what is recorded ------------------------------------------------------------------------------


def test_a_rerun_says_which_gates_were_others() -> None:
    looser = Thresholds(update_ratio=1.51)
    once = repeated(SPEC, "A-49bd", looser)
    assert said_of_reruns(once.follows, once.thresholds) == (
        "Re-run of A-49bd, whose update gate was 1.35 (here 1.51), after its result was seen.",
    )
    # A second run under the moved gates does not hide the first.
    twice = repeated(once, "B-50ce", looser)
    assert said_of_reruns(twice.follows, twice.thresholds) == (
        "Re-run of B-50ce, under the same thresholds, after its result was seen.",
        "Re-run of A-49bd, whose update gate was 1.35 (here 1.51), after its result was seen.",
    )
    both = repeated(SPEC, "A-49bd", Thresholds(update_ratio=1.51, peak_ratio=0.9))
    (said,) = said_of_reruns(both.follows, both.thresholds)
    assert "whose peak gate was 0.82 (here 0.9) and update gate was 1.35 (here 1.51)," in said


def test_of_many_reruns_the_first_is_never_forgotten() -> None:
    spec = SPEC
    for number in range(MOST_EARLIER + 5):
        spec = repeated(spec, f"A-{number}", Thresholds(update_ratio=1.3 + number / 1000))
    assert len(spec.follows) == MOST_EARLIER
    assert spec.follows[0] == Earlier(study="A-0", thresholds=SPEC.thresholds)
    assert [one.study for one in spec.follows[1:3]] == ["A-6", "A-7"]
    assert parse_spec(spec.model_dump(mode="json")) == spec


def test_thresholds_that_hardly_differ_are_told_apart() -> None:
    spec = repeated(SPEC, "A-49bd", Thresholds(peak_ratio=0.8200001))
    assert "was 0.82 (here 0.8200001)" in said_of_reruns(spec.follows, spec.thresholds)[0]


def test_a_specification_that_repeats_none_is_written_as_ever() -> None:
    assert "follows" not in SPEC.model_dump_json()
    assert "follows" in repeated(SPEC, "A-49bd", SPEC.thresholds).model_dump_json()


# --- whose figures are told --------------------------------------------------------------------------


def test_the_least_favourable_shape_is_the_one_that_the_gate_judges_worst() -> None:
    steady = timed((1.25, 1.26, 1.27, 1.26, 1.25, 1.27, 1.26), seq_len=256)
    ragged = timed((0.9, 1.09, 1.3, 0.9, 1.09, 1.32, 1.34))
    said = study_sentence(judged(ragged, steady))
    assert said.endswith(
        "Every gate holds at all 2 shapes; the least favourable update is 1.09 times as long "
        "(0.90 to 1.34), at T=128 B=4."
    )


def test_the_figures_of_a_plan_are_of_the_shape_that_decides() -> None:
    found = judged(timed(), timed((1.2,) * 7, seq_len=256))
    assert told_of_plan(found, "every-block").candidate.shape_key == "T=128 B=4"
    passing = judged(timed((1.2,) * 7), timed((1.2,) * 7, seq_len=256))
    assert told_of_plan(passing, "every-block").candidate.shape_key == "T=256 B=4"
