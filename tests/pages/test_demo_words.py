"""What the demo says: exact sentences, surprises only where figures bear them out, nothing absurd."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pages._parts import demo_words as words
from pages._parts.demo_study import DEMO, arrived, speed_up
from pages._parts.demo_words import Replays, Said
from recompute_core.gates import deciding, judge, study_sentence, study_verdict
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import regions_of, touched_blocks
from recompute_core.results import (
    Canary,
    Gap,
    Judged,
    Measured,
    Memory,
    MemoryPair,
    Pair,
    ParityPassed,
    PeakAt,
    Proven,
    Refused,
    Timeline,
    Timing,
)
from recompute_core.spec import Thresholds, parse_spec

BLOCKS = tuple(f"blocks.{i}" for i in range(8))
ONCE = Replays(8, 8, 1)
REPLAYED = PeakAt(phase="backward", module="blocks.7", replaying=True)
KEPT = PeakAt(phase="backward", module="blocks.7", replaying=False)


def memory(saved: int, peak: int | None, state: int = 14_000_000, at: PeakAt | None = KEPT) -> Memory:
    """In bytes, the peak with its state."""
    return Memory(
        source="test",
        saved_bytes=saved,
        naive_saved_bytes=saved,
        state_bytes=state,
        peak_samples=() if peak is None else (max(peak - state, 0),),
        peak_at=at,
        not_measured={} if peak is not None else {"timeline": "this device does not tell when."},
    )


PLAIN = memory(266_700_000, 286_300_000)
OWN = memory(18_400_000, 69_200_000, at=REPLAYED)


# --- figures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (13.79, "13.8"), (4.02, "4"), (3.96, "4"), (2.0, "2"), (1.998, "2"), (1.32, "1.32"),
        (1.0, "1.00"), (0.5, "0.50"), (0.004, "0.004"), (99.96, "100"), (1240.4, "1,240"),
        (1e12, "1,000,000,000,000"),
    ],
)  # fmt: skip
def test_how_many_times(factor: float, said: str) -> None:
    assert words.times(factor) == said


@given(st.floats(1e-9, 1e15))
def test_no_figure_rounds_to_nothing(factor: float) -> None:
    for said in (words.times(factor), words.ratio(factor)):
        assert float(said.replace(",", "")) == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.574, "57 %"), (0.004, "less than 1 %"), (0.997, "more than 99 %"), (1, "100 %"), (0, "0 %")],
)
def test_a_share_in_percent(share: float, said: str) -> None:
    assert words.percent(share) == said


# --- 1: what a step keeps --------------------------------------------------------------------------


def test_the_peak_is_many_times_the_model() -> None:
    assert words.keeps(PLAIN) == Said(
        "The model with its gradients and its optimizer takes 14.0 MB. At the highest moment, in "
        "backward of blocks.7, 286.3 MB are in use: 20.4 times as much.",
        True,
    )


def test_a_peak_that_is_mostly_the_model_is_no_surprise() -> None:
    assert words.keeps(memory(10, 100_000_000, state=80_000_000)) == Said(
        "At the highest moment, in backward of blocks.7, 100.0 MB are in use, and 80 % of that is the "
        "model with its gradients and its optimizer. Recomputing can only touch what is not the model."
    )


def test_a_device_without_a_peak_counter() -> None:
    assert words.keeps(memory(5_000_000, None)).text == (
        "5.00 MB are kept for backward. This device has no counter for the highest moment."
    )
    assert "MB are in use." in words.keeps(memory(1, 5_000_000, state=0)).text


def by_kind(memory: Memory, kept: tuple[int, ...], back: tuple[int, ...]) -> Memory:
    """With a timeline of three moments, the second of them the highest."""
    line = Timeline(
        seconds=(0.0, 0.1, 0.2),
        bytes=(10**6, memory.peak_bytes or 0, 10**6),
        kept=kept,
        back=back,
        marks=(),
    )
    return memory.model_copy(update={"timeline": line})


def test_how_much_of_the_peak_was_kept_is_said_where_kinds_are_known() -> None:
    kept = by_kind(PLAIN, (0, 250_000_000, 260_000_000), (0, 0, 0))
    assert words.keeps(kept).text.endswith(
        "20.4 times as much. 250.0 MB of what is in use forward has kept for backward."
    )
    assert words.passing(kept.timeline) is not None  # type: ignore[arg-type]
    mostly = by_kind(memory(10, 100_000_000, state=80_000_000), (0, 12_000_000, 0), (0, 0, 0))
    assert words.keeps(mostly).text.endswith(
        "12.0 MB of what is in use forward has kept for backward. Recomputing can only touch what is "
        "not the model."
    )
    unknown = kept.timeline.model_copy(update={"kept": None, "back": None})  # type: ignore[union-attr]
    assert words.passing(unknown) is None
    assert words.keeps(PLAIN.model_copy(update={"timeline": unknown})) == words.keeps(PLAIN)


# --- 2: throw away and bring back ------------------------------------------------------------------


def test_how_much_comes_back_at_a_time_is_said_where_kinds_are_known() -> None:
    own = by_kind(OWN, (0, 4_000_000, 0), (0, 33_000_000, 34_500_000))
    assert words.comes_back("every-block", PLAIN, own, ONCE).text == (
        "Saved bytes fall 14.5 times, the peak 4.1 times: each block's activations come back once, at "
        "most 34.5 MB at a time."
    )


def test_saved_bytes_fall_further_than_the_peak() -> None:
    assert words.comes_back("every-block", PLAIN, OWN, ONCE) == Said(
        "Saved bytes fall 14.5 times, the peak 4.1 times: each block's activations come back once.", True
    )


def test_the_state_is_said_to_stay_where_it_is_much_of_the_new_peak() -> None:
    said = words.comes_back(
        "every-block", memory(267_300_000, 350_100_000, 76_000_000),
        memory(19_400_000, 143_700_000, 76_000_000, REPLAYED), Replays(6, 6, 1),
    )  # fmt: skip
    assert said == Said(
        "Saved bytes fall 13.8 times, the peak 2.4 times: each block's activations come back once. And "
        "76.0 MB of model, gradients and optimizer stay, whatever is thrown away.",
        True,
    )


@pytest.mark.parametrize(
    ("own", "again", "said", "surprising"),
    [
        (memory(18_400_000, 69_200_000, at=REPLAYED), Replays(4, 8, 1),
         "Saved bytes fall 14.5 times, the peak 4.1 times: the activations of 4 of 8 blocks come back "
         "once.", True),
        (memory(18_400_000, 69_200_000, at=REPLAYED), Replays(0, 8, 0),
         "Saved bytes fall 14.5 times, the peak 4.1 times: what was thrown away comes back, a part at a "
         "time.", True),
        (memory(18_400_000, 69_200_000), ONCE,
         "Saved bytes fall 14.5 times, the peak 4.1 times: it is now in backward of blocks.7, where "
         "nothing is being recomputed.", True),
        (memory(18_400_000, 69_200_000, at=None), ONCE,
         "Saved bytes fall 14.5 times, the peak 4.1 times.", True),
        (memory(133_350_000, 147_000_000, at=REPLAYED), ONCE,
         "Saved bytes fall 2 times, and the peak with them, 1.95 times.", False),
        (memory(18_400_000, 286_300_000), ONCE,
         "Saved bytes fall 14.5 times, yet the peak stays where it was: it is now in backward of "
         "blocks.7, where nothing is being recomputed.", True),
        (memory(18_400_000, 300_000_000, at=REPLAYED), ONCE,
         "Saved bytes fall 14.5 times, yet the peak rises to 1.05 times plain's: each block's "
         "activations come back once.", True),
        (memory(0, 69_200_000, at=REPLAYED), ONCE,
         "Saved bytes fall from 266.7 MB to nothing, the peak 4.1 times: each block's activations come "
         "back once.", True),
        (memory(266_700_000, 286_300_000), ONCE,
         "Saved bytes stay as they are: every-block throws away next to nothing. The peak stays where "
         "it was.", False),
        (memory(300_000_000, 310_000_000), ONCE,
         "Saved bytes grow from 266.7 MB to 300.0 MB, and the peak rises to 1.08 times plain's.", True),
        (memory(18_400_000, None, at=None), ONCE,
         "Saved bytes fall 14.5 times. This device has no counter for the peak.", False),
    ],
)  # fmt: skip
def test_every_way_saved_bytes_and_peak_can_go(
    own: Memory, again: Replays, said: str, surprising: bool
) -> None:
    assert words.comes_back("every-block", PLAIN, own, again) == Said(said, surprising)


def test_replays_are_counted_from_the_calls_of_blocks() -> None:
    plain = dict.fromkeys(BLOCKS, 1)
    assert words.replays(plain, {**plain, "blocks.0": 2, "blocks.3": 3}) == Replays(2, 8, 2)
    assert words.replays(plain, plain) == Replays(0, 8, 0)
    assert words.replays({}, {}) == Replays(0, 0, 0)


# --- 3: the price ------------------------------------------------------------------------------------


def test_pairs_as_they_arrive() -> None:
    assert words.arriving([]).text == "The pairs come once more, as they were timed."
    assert words.arriving([1.3]).text == "After 1 pair: 1.30 times as long. That tells little yet."
    assert words.arriving([1.2, 1.3, 1.25]).text == (
        "After 3 pairs: 1.25 times as long, so far from 1.20 to 1.30."
    )
    assert words.arriving([1.2, 1.3] * 3).text == (
        "After 6 pairs: 1.25 times as long, interval 1.20 to 1.30."
    )


@pytest.mark.parametrize(
    ("ratios", "work", "said", "surprising"),
    [
        ((1.2,) * 9, None, "An update takes 1.20 times as long (1.20) in 9 pairs.", False),
        ((1.2,) * 9, 1.2, "An update takes 1.20 times as long (1.20) in 9 pairs. That is about as the "
         "work, which grows 1.20 times.", False),
        ((1.2,) * 9, 1.32, "An update takes 1.20 times as long (1.20) in 9 pairs. That is less than "
         "the work, which grows 1.32 times.", True),
        ((1.3,) * 9, 1.1, "An update takes 1.30 times as long (1.30) in 9 pairs. That is more than the "
         "work, which grows 1.10 times: recomputing has to be organised, too.", True),
        ((0.9, 1.1) * 5, 1.3, "No price can be told yet: an update takes 1.00 times as long (0.90 to "
         "1.10) in 10 pairs. The interval has 1 in it, so it may take no longer at all.", True),
        ((0.9,) * 9, 1.3, "It costs no time here: an update takes 0.90 times as long (0.90) in 9 "
         "pairs.", True),
        ((1.2, 1.5) * 5, 1.3, "An update takes 1.35 times as long (1.20 to 1.50) in 10 pairs. That does "
         "not tell whether it keeps to 1.35: the interval lies on both sides.", True),
    ],
)  # fmt: skip
def test_the_price_as_the_pairs_have_it(
    ratios: tuple[float, ...], work: float | None, said: str, surprising: bool
) -> None:
    assert words.price(ratios, 1.35, work) == Said(said, surprising)


def test_an_edge_beside_the_gate_is_not_rounded_onto_it() -> None:
    torn = words.price((1.3, 1.354) * 5, 1.35, None).text
    assert "(1.30 to 1.354) in 10 pairs. That does not tell whether it keeps to 1.35" in torn


def test_the_interval_is_said_to_shrink_where_it_did() -> None:
    ratios = (1.1, 1.5, 1.3, 1.29, 1.31, 1.3, 1.3, 1.3, 1.31)
    assert words.narrowing(ratios) == (
        "After 6 pairs the interval was 1.10 to 1.50, after 9 it is 1.29 to 1.31."
    )
    assert words.narrowing((1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.1, 1.5, 1.2, 1.4, 1.1)) is None
    assert words.narrowing(ratios[:4]) is None


def test_a_replay_brings_pairs_at_the_pace_they_were_timed() -> None:
    pairs = [(1.0, 1.5)] * 4
    assert speed_up(pairs) == 1
    assert [arrived(pairs, at) for at in (0, 2.4, 2.6, 7.6, 10.1, 99)] == [0, 0, 1, 3, 4, 4]
    slow = [(10.0, 20.0)] * 4
    assert speed_up(slow) == 10
    assert [arrived(slow, at) for at in (0, 3.1, 12.1)] == [0, 1, 4]


# --- 4: the middle -----------------------------------------------------------------------------------


def proven() -> ParityPassed:
    gaps = (Gap(part="grad", name="w", absolute=0.0, relative=0.0),) * 3
    return ParityPassed(gaps=gaps, noise_floor=0.0, block_calls={}, flops=4)


CANARY = Canary(
    caught=True, block="blocks.0", break_="every second feature is 1 % too large",
    largest_relative_gap=0.028,
)  # fmt: skip


def candidate(plan: str, peak_ratio: float | None, *ratios: float) -> Measured:
    """A measured candidate of a GPT with 8 blocks, whose plain peak is 200 MB."""
    spec = parse_spec({"workload": {"name": "gpt", "blocks": 8}, "plans": [plan]})
    regions = regions_of(spec, plan)
    peak = None if peak_ratio is None else round(200_000_000 * peak_ratio)
    return Measured(
        plan=plan,
        plan_hash="x",
        shape={"seq_len": 512},
        shape_key="T=512",
        blocks=touched_blocks(regions, anatomy_of(spec.workload)),
        regions=regions,
        legality=(),
        canary=CANARY,
        parity=proven(),
        memory=MemoryPair(
            plain=memory(180_000_000, None if peak is None else 200_000_000),
            candidate=memory(20_000_000, peak),
        ),
        timing=Timing(
            samples=tuple(Pair(plain_s=1.0, candidate_s=one) for one in ratios),
            stopped="narrow enough",
        ),
        flops={},
        block_calls={},
    )


EVERY = candidate("every-block", 0.25, *(1.3,) * 9)


def middle(*others: Measured, subject: Measured | None = EVERY) -> Said:
    return words.middle([EVERY, *others], subject, BLOCKS)


def test_a_plan_that_recomputes_less_may_reach_the_same_peak() -> None:
    assert middle(candidate("all-but-last", 0.25, *(1.28,) * 9)) == Said(
        "All-but-last recomputes 7 blocks instead of 8 and its peak is as low as that of every-block: "
        "50.0 MB. What the last block throws away, backward needs at once.",
        True,
    )
    assert middle(candidate("blocks:1,2,3", 0.251, *(1.1,) * 9)) == Said(
        "Blocks:1,2,3 recomputes 3 blocks instead of 8 and its peak is as low as that of every-block: "
        "50.2 MB. It also takes less time.",
        True,
    )


@pytest.mark.parametrize(
    ("peak", "ratios", "said", "surprising"),
    [
        (0.55, (1.12,) * 9, "Every-2nd-block brings 60 % of the fall in peak of every-block for 40 % of "
         "the time it adds, by the medians.", True),
        (0.70, (1.12,) * 9, "Every-2nd-block brings 40 % of the fall in peak of every-block for 40 % of "
         "the time it adds, by the medians.", False),
        (0.55, (0.9, 1.2) * 5, "Every-2nd-block brings 60 % of the fall in peak of every-block for a "
         "time that 10 pairs cannot tell from plain's.", True),
        (0.55, (0.9,) * 9, "Every-2nd-block brings 60 % of the fall in peak of every-block, and is "
         "faster than plain.", True),
        (1.10, (1.1,) * 9, "No plan in between lowers the peak here.", False),
    ],
)  # fmt: skip
def test_what_a_plan_in_between_brings(
    peak: float, ratios: tuple[float, ...], said: str, surprising: bool
) -> None:
    assert middle(candidate("every-2nd-block", peak, *ratios)) == Said(said, surprising)


def test_no_middle_is_said_too() -> None:
    nothing = Said("This study has no measured plan in between to compare with.")
    assert middle() == nothing
    assert middle(candidate("every-2nd-block", 0.5, 1.1), subject=None) == nothing
    assert middle(candidate("every-2nd-block", None, 1.1)) == nothing


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        # What it saves is known, what it costs is not: a saving of half is not called too little.
        (candidate("every-block", 0.5, *(0.9, 1.1) * 5),
         "Every-2nd-block brings 90 % of the fall in peak of every-block. What it spares in time cannot "
         "be told: 10 pairs of that one do not tell it from plain's."),
        (candidate("every-block", 0.5, *(0.9,) * 9),
         "Every-2nd-block brings 90 % of the fall in peak of every-block. That one is faster than "
         "plain, so there is no time to spare."),
        (candidate("every-block", 0.995, *(1.3,) * 9),
         "Every-block hardly lowers the peak here: there is no middle to look for."),
    ],
)  # fmt: skip
def test_a_plan_that_saves_or_costs_too_little_to_share_out_says_which(
    subject: Measured, said: str
) -> None:
    other = candidate("every-2nd-block", 0.55, *(1.1,) * 9)
    assert words.middle([subject, other], subject, BLOCKS) == Said(said)


def test_a_fast_plan_that_lowers_no_peak_hides_none_that_does() -> None:
    fast, lower = candidate("norms", 1.0, *(0.8,) * 9), candidate("every-2nd-block", 0.55, *(1.2,) * 9)
    assert middle(fast, lower).text.startswith("Every-2nd-block brings 60 % of the fall in peak")


# --- 5: the decision ---------------------------------------------------------------------------------


def test_what_was_proven_first() -> None:
    assert words.proof(EVERY) == Said(
        "Not one bit differs from plain's update, in 3 tensors. The same check caught a replay that was "
        "broken on purpose (every second feature is 1 % too large) and 2.8 % off.",
        True,
    )
    near = proven().model_copy(
        update={"gaps": (Gap(part="grad", name="w", absolute=1e-6, relative=2.8e-7),)}
    )
    assert words.proof(EVERY.model_copy(update={"parity": near})).text.startswith(
        "The recomputed update differs from plain's by at most 2.8e-7 (relative), in 1 tensor. The same"
    )
    unseen = EVERY.model_copy(update={"canary": CANARY.model_copy(update={"caught": False})})
    assert words.proof(unseen) == Said("Nothing was proven of every-block: no cost of it may be shown.")


PASSES, TORN, SLOW = (1.2,) * 9, (1.2, 1.5) * 5, (1.6,) * 9
STRADDLES = "the interval of the update time straddles its gate; more pairs may tell"
LONGER = "an update takes longer than was declared to be worth it"
ELSEWHERE = "It passes at {}, but a plan has to pass at every shape."


def judged_at(*times: tuple[float, ...], plan: str = "every-block") -> list[Judged]:
    """A plan at one shape after another, T=128, T=256 and so on, with these ratios of update times."""
    found = []
    for number, ratios in enumerate(times):
        shape = {"seq_len": 128 * 2**number}
        at = {"shape": shape, "shape_key": f"T={shape['seq_len']}"}
        found.append(judge(candidate(plan, 0.25, *ratios).model_copy(update=at), Thresholds()))
    return found


@pytest.mark.parametrize(
    ("times", "verdict", "shown", "said"),
    [
        ((PASSES, PASSES), "adopt", "T=256", "Every gate is passed at all 2 shapes. Sign it on"),
        ((PASSES, TORN), "undecided", "T=256",
         f"Undecided on every-block at T=256: {STRADDLES}. {ELSEWHERE.format('T=128')}"),
        ((TORN, PASSES), "undecided", "T=128",
         f"Undecided on every-block at T=128: {STRADDLES}. {ELSEWHERE.format('T=256')}"),
        ((TORN, TORN), "undecided", "T=128", f"Undecided on every-block at T=128: {STRADDLES}."),
        ((PASSES, SLOW), "keep_original", "T=256",
         f"Keep the original rather than every-block at T=256: {LONGER}. {ELSEWHERE.format('T=128')} "
         "Decision signs"),
        ((SLOW, PASSES), "keep_original", "T=128",
         f"Keep the original rather than every-block at T=128: {LONGER}. {ELSEWHERE.format('T=256')}"),
        ((SLOW, TORN), "keep_original", "T=128",
         f"Keep the original rather than every-block at T=128: {LONGER}. Decision signs"),
        ((TORN, SLOW), "keep_original", "T=256",
         f"Keep the original rather than every-block at T=256: {LONGER}. Decision signs"),
        ((SLOW, SLOW), "keep_original", "T=128",
         f"Keep the original rather than every-block at T=128: {LONGER}. Decision signs"),
        ((PASSES, PASSES, SLOW), "keep_original", "T=512",
         f"Keep the original rather than every-block at T=512: {LONGER}. "
         f"{ELSEWHERE.format('2 other shapes')}"),
        ((PASSES,), "adopt", "T=128", "Every gate is passed. Sign it on"),
        ((TORN,), "undecided", "T=128", f"Undecided on every-block: {STRADDLES}."),
        ((SLOW,), "keep_original", "T=128", f"Keep the original rather than every-block: {LONGER}."),
    ],
)  # fmt: skip
def test_the_verdict_and_the_gates_below_it_are_of_one_candidate(
    times: tuple[tuple[float, ...], ...], verdict: str, shown: str, said: str
) -> None:
    judged = judged_at(*times)
    best = deciding(judged)
    assert study_verdict(judged) == best.verdict == verdict
    assert best.candidate.shape_key == shown
    assert words.decided(best.verdict, best, judged).startswith(said)
    told = study_sentence(judged)
    if "Passing: " not in told:
        assert f"every-block at {shown}" in told
    # The same study as a what-if: what the lines are moved to is what the words speak of.
    loose = [judge(one.candidate, Thresholds(update_ratio=2.0)) for one in judged]
    assert words.decided(study_verdict(loose), deciding(loose), loose).startswith("Every gate is passed")
    strict = [judge(one.candidate, Thresholds(peak_ratio=0.2)) for one in judged]
    assert "the peak falls by less than" in words.decided(
        study_verdict(strict), deciding(strict), strict
    )


@pytest.mark.parametrize(
    ("one", "other", "verdict", "plan"),
    [
        (SLOW, TORN, "undecided", "every-2nd-block"),
        (SLOW, PASSES, "adopt", "every-2nd-block"),
        (TORN, PASSES, "adopt", "every-2nd-block"),
        (TORN, SLOW, "undecided", "every-block"),
        (SLOW, SLOW, "keep_original", "every-block"),
    ],
)
def test_of_several_plans_the_one_that_decides_is_shown(
    one: tuple[float, ...], other: tuple[float, ...], verdict: str, plan: str
) -> None:
    judged = judged_at(one, one) + judged_at(other, other, plan="every-2nd-block")
    best = deciding(judged)
    assert (study_verdict(judged), best.verdict, best.candidate.plan) == (verdict, verdict, plan)
    assert f"{plan} at {best.candidate.shape_key}" in study_sentence(judged)


def test_a_plan_that_misses_several_gates_says_each() -> None:
    strict = judge(EVERY, Thresholds(peak_ratio=0.2, update_ratio=1.1))
    assert words.decided("keep_original", strict, [strict]) == (
        "Keep the original rather than every-block: the peak falls by less than was declared to be "
        "worth it; an update takes longer than was declared to be worth it. Decision signs that as well."
    )


def test_what_has_no_figure_is_named() -> None:
    known = EVERY.model_dump(include={"plan", "plan_hash", "shape", "shape_key", "blocks", "regions"})
    one = judge(
        Proven(**known, legality=(), canary=CANARY, parity=proven(), failure="time: killed"),
        Thresholds(),
    )
    assert words.decided("undecided", one, [one]) == (
        "Undecided on every-block: no figure for memory saving and update latency."
    )
    assert words.decided(None, one, [one]) == "There is no verdict yet."


@pytest.mark.parametrize(
    ("stopped_by", "verdict", "said"),
    [
        ("legality", "keep_original",
         "Keep the original rather than every-block: it may not be replayed."),
        ("noise", "keep_original",
         "Keep the original rather than every-block: plain differs from plain here, so that nothing can "
         "be compared."),
        ("failure", "undecided", "Undecided on every-block: no figure for gradient parity,"),
    ],
)  # fmt: skip
def test_who_was_refused_before_a_figure_is_told_as_the_verdict_has_it(
    stopped_by: str, verdict: str, said: str
) -> None:
    one = judge(refused(stopped_by, reasons=("blocks.0.norm keeps running statistics",)), Thresholds())
    assert one.verdict == verdict
    assert words.decided(one.verdict, one, [one]).startswith(said)


# --- what is not there ---------------------------------------------------------------------------------


def refused(stopped_by: str, **more: Any) -> Refused:
    known = EVERY.model_dump(include={"plan", "plan_hash", "shape", "shape_key", "blocks", "regions"})
    return Refused(**known, stopped_by=stopped_by, **more)


@pytest.mark.parametrize(
    ("one", "why", "todo"),
    [
        (refused("parity", reasons=("parity fails: gradient of w: relative gap 0.7.",)),
         "The update under every-block is not plain's, so that nothing it costs was measured: parity "
         "fails: gradient of w: relative gap 0.7.", "See Live for what differs"),
        (refused("canary", reasons=("the canary was missed.",)), "and proves nothing: the canary was "
         "missed.", "Lower the relative gap in Set up"),
        (refused("legality", reasons=("blocks.0.norm keeps running statistics",)),
         "Every-block may not be replayed: blocks.0.norm keeps running statistics.", "Choose other"),
        (refused("noise", reasons=("plain differs from plain",)),
         "Nothing can be compared on this device: plain differs from plain.", "measure that, or resume"),
        (refused("failure", failure="parity could not be completed: out of memory."),
         "This could not be measured: parity could not be completed: out of memory.", "is small"),
        (refused("pending"), "The study ended before this was measured.", "Resume it on Live."),
    ],
)  # fmt: skip
def test_why_there_is_no_figure_and_what_to_do(one: Refused, why: str, todo: str) -> None:
    said, next_ = words.missing(one, ended=True)
    assert said.endswith(why)
    assert todo in next_


def test_plains_own_failure_is_the_reason() -> None:
    said, _ = words.missing(refused("pending"), True, "plain's memory could not be completed: killed")
    assert said == "This could not be measured: plain's memory could not be completed: killed."
    assert words.missing(refused("pending"), False)[0] == "This is not measured yet."


def test_why_another_study_is_shown() -> None:
    gone = [refused("parity", reasons=("parity fails: w.",))]
    assert words.unfit("done", gone) == (
        "The study you chose (done) has nothing to show here: parity fails: w. This is the newest that "
        "has."
    )
    assert "it has no memory over time" in words.unfit("done", [EVERY])
    assert words.no_timeline(memory(1, None)) == (
        "No memory over time on this device: this device does not tell when."
    )


# --- nothing absurd ------------------------------------------------------------------------------------

COUNTS = st.integers(0, 2**50)
ABSURD = re.compile(r"\b(nan|inf|none|null)\b|(?<![\d.,])0(\.0+)? (times|%)", re.IGNORECASE)
PLACES = st.sampled_from((None, KEPT, REPLAYED))
PATIENT = settings(deadline=None, max_examples=60)
RATIOS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=21)


def _sane(said: Said) -> None:
    assert not ABSURD.search(said.text), said.text
    assert said.text.endswith(".")
    assert "  " not in said.text


@PATIENT
@given(COUNTS, st.none() | COUNTS, COUNTS, COUNTS, st.none() | COUNTS, COUNTS, PLACES)
def test_no_absurd_memory_makes_an_absurd_sentence(
    saved: int, peak: int | None, state: int, kept: int, own_peak: int | None, own_state: int,
    at: PeakAt | None,
) -> None:  # fmt: skip
    plain, own = memory(saved, peak, state), memory(kept, own_peak, own_state, at)
    _sane(words.keeps(plain))
    for again in (ONCE, Replays(0, 8, 0), Replays(3, 8, 2)):
        said = words.comes_back("every-block", plain, own, again)
        _sane(said)
        if said.surprising and "fall " in said.text and " times, the peak " in said.text:
            assert plain.saved_bytes / own.saved_bytes > plain.peak_bytes / own.peak_bytes  # type: ignore[operator]


@PATIENT
@given(RATIOS, st.floats(1, 100), st.none() | st.floats(0.5, 10))
def test_no_absurd_times_make_an_absurd_sentence(
    ratios: list[float], gate: float, work: float | None
) -> None:
    said = words.price(ratios, gate, work)
    _sane(said)
    assert ("costs no time" in said.text) == (max(words.median_interval(ratios)) < 1)
    _sane(words.arriving(ratios))
    shrank = words.narrowing(ratios)
    assert shrank is None or not ABSURD.search(shrank)


@PATIENT
@given(
    st.none() | st.floats(1e-3, 5), st.none() | st.floats(1e-3, 5), RATIOS, RATIOS,
    st.sampled_from(("every-block", "all-but-last")), st.floats(0, 10),
)  # fmt: skip
def test_no_absurd_middle_makes_an_absurd_sentence(
    peak: float | None, other: float | None, ratios: list[float], others: list[float], plan: str,
    gap: float,
) -> None:  # fmt: skip
    subject = candidate(plan, peak, *ratios)
    said = words.middle([subject, candidate("every-2nd-block", other, *others)], subject, BLOCKS)
    assert not re.search(r"\b(nan|inf|none)\b", said.text, re.IGNORECASE)
    canary = CANARY.model_copy(update={"largest_relative_gap": gap})
    _sane(words.proof(subject.model_copy(update={"canary": canary})))
    one = judge(subject, Thresholds())
    assert words.decided(one.verdict, one, [one]).endswith(".")


def test_the_demo_study_is_small_and_has_a_middle() -> None:
    assert DEMO.plans == ("every-block", "all-but-last", "every-2nd-block")
    assert DEMO.thresholds == Thresholds()
    assert DEMO.timing.min_pairs >= 9  # so many that an interval covers what it says
    assert math.prod((DEMO.workload.seq_len, DEMO.workload.batch)) == 3072  # type: ignore[union-attr]


def test_every_step_has_its_words() -> None:
    for step in range(1, 6):
        for text in (words.lead(step), words.lead(step, whole=False), words.not_yet(step)):
            assert text.endswith(".")
    assert words.lead(2) != words.lead(2, whole=False)
    assert words.tooth(ONCE, True, OWN) is None  # without a timeline there is no tooth to see
    assert words.tooth(replace(ONCE, most=2), True, OWN) is None


def test_who_is_proven_but_not_yet_measured_is_not_measured_yet() -> None:
    known = EVERY.model_dump(include={"plan", "plan_hash", "shape", "shape_key", "blocks", "regions"})
    one = Proven(**known, legality=(), canary=CANARY, parity=proven(), failure="time: killed")
    assert words.missing(one, True)[0] == "This could not be measured: time: killed."
