"""What the demo says aloud: one finding a step, from measured figures alone. Pure.

For people who may never have heard of activation checkpointing. What is marked as surprising is so by
these very figures; every other outcome has words of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recompute_core.gates import GATE_NAMES, megabytes, outcome_of
from recompute_core.intervals import median, median_interval
from recompute_core.plans.names import in_a_sentence
from recompute_core.results import (
    Candidate,
    Judged,
    Measured,
    Memory,
    PeakAt,
    Proven,
    Refused,
    Timeline,
    Verdict,
)
from recompute_core.words import ENOUGH_PAIRS, count, listed, scientific, sentence_case

STEPS = (
    "What a step keeps",
    "Throw away and bring back",
    "The price",
    "The middle",
    "The decision",
)


@dataclass(frozen=True)
class Said:
    """A finding in a sentence or two, and whether it is one that people do not expect."""

    text: str
    surprising: bool = False


def lead(step: int, whole: bool = True) -> str:
    """What a step of the demo is about. `whole`: the plan that is shown recomputes whole blocks."""
    thrown = (
        "Recomputing keeps only what goes into a block and throws the rest away. When backward needs "
        "it, the block is run once more."
        if whole
        else "Recomputing throws away part of what the blocks compute. When backward needs it, that "
        "part is computed once more."
    )
    return (
        "A training update runs forward through the model, then backward to find the gradients. "
        "Backward needs what forward computed, so all of it is kept until it has been used.",
        thrown,
        "Doing work twice takes time. Updates with and without recomputing run in turn, side by side: "
        "each pair gives one ratio, and more pairs narrow down the truth.",
        "It need not be all or nothing: plans in between recompute some blocks and keep others. Two "
        "gates say what is worth it: a plan is adopted that lies below one and left of the other.",
        "Before anything is measured, recomputing has to be proven to change nothing else. Only then do "
        "figures count, held against gates that were declared before the run.",
    )[step - 1]


# --- figures -------------------------------------------------------------------------------------------


def times(factor: float) -> str:
    """How many times: `1.32`, `4`, `13.8`, `1,240`; never a bare zero."""
    if factor < 0.095:
        return f"{factor:.2g}"
    if factor < 1.995:
        return f"{factor:.2f}"
    return f"{factor:.1f}".removesuffix(".0") if factor < 99.95 else f"{factor:,.0f}"


def percent(share: float) -> str:
    """`57 %`; what rounding would call nothing or everything is not called so."""
    if 0 < share < 0.01:
        return "less than 1 %"
    if 0.99 < share < 1:
        return "more than 99 %"
    return f"{share * 100:,.0f} %"


def ratio(value: float) -> str:
    """A ratio of update times, as in the verdict's sentence: `1.26`."""
    return f"{value:,.2f}" if value >= 0.095 else f"{value:.2g}"


def edges(ratios: Sequence[float], gate: float | None = None) -> str:
    """`1.26 to 1.33`: the interval of the median; an edge beside the gate is not rounded onto it."""
    low, high = (_edge(edge, gate) for edge in median_interval(ratios))
    return low if low == high else f"{low} to {high}"


def _edge(edge: float, gate: float | None) -> str:
    near = gate is not None and edge != gate and ratio(edge) == ratio(gate)
    return f"{edge:.4g}" if near else ratio(edge)


# --- 1: what a step keeps --------------------------------------------------------------------------


def keeps(plain: Memory) -> Said:
    """How high a plain update climbs, against what the model itself takes."""
    peak, state = plain.peak_bytes, plain.state_bytes
    if not peak:
        return Said(
            f"{megabytes(plain.saved_bytes)} are kept for backward. This device has no counter for the "
            "highest moment."
        )
    where = _where(plain.peak_at)
    if 0 < 2 * state <= peak:
        return Said(
            f"The model with its gradients and its optimizer takes {megabytes(state)}. At the highest "
            f"moment{where}, {megabytes(peak)} are in use: {times(peak / state)} times as much."
            f"{_kept(plain)}",
            True,
        )
    if not state:
        return Said(f"At the highest moment{where}, {megabytes(peak)} are in use.{_kept(plain)}")
    return Said(
        f"At the highest moment{where}, {megabytes(peak)} are in use, and {percent(state / peak)} of "
        f"that is the model with its gradients and its optimizer.{_kept(plain)} Recomputing can only "
        "touch what is not the model."
    )


def _kept(plain: Memory) -> str:
    """How much of the highest moment forward has kept for backward; empty where kinds are not known."""
    line = plain.timeline
    if line is None or line.kept is None:
        return ""
    kept = line.kept[line.bytes.index(max(line.bytes))]
    return f" {megabytes(kept)} of what is in use forward has kept for backward." if kept else ""


def _where(at: PeakAt | None) -> str:
    return f", in {at.words}" if at else ""


def passing(line: Timeline) -> str | None:
    """What the kind that has no name of its own is; None where kinds are not known."""
    if line.kept is None:
        return None
    return "Passing: gradients and intermediate results on their way."


# --- 2: throw away and bring back ------------------------------------------------------------------


@dataclass(frozen=True)
class Replays:
    """How often blocks were run again: counted, not concluded from the plan."""

    blocks: int
    """Blocks that ran more often than in plain."""
    of: int
    """Blocks that there are."""
    most: int
    """Runs more than in plain, of the block that has most."""


def replays(plain: Mapping[str, int], own: Mapping[str, int]) -> Replays:
    """From the forward calls of each block in a plain and in a recomputed update."""
    more = [own[name] - calls for name, calls in plain.items() if own.get(name, 0) > calls]
    return Replays(len(more), len(plain), max(more, default=0))


_SAME = 1.02
"""Figures this near to each other are called the same."""


def comes_back(plan: str, plain: Memory, own: Memory, again: Replays) -> Said:
    """How far saved bytes and the peak fall, and why the one falls further than the other."""
    saved = _fall(plain.saved_bytes, own.saved_bytes)
    if plain.peak_bytes is None or own.peak_bytes is None:
        return Said(f"Saved bytes {saved}. This device has no counter for the peak.")
    if not plain.peak_bytes or not own.peak_bytes:
        return Said(f"Saved bytes {saved}. The peak counter has seen no allocation.")
    kept = plain.saved_bytes / own.saved_bytes if own.saved_bytes else float("inf")
    peak = plain.peak_bytes / own.peak_bytes
    if plain.saved_bytes * _SAME >= own.saved_bytes >= plain.saved_bytes / _SAME:
        return Said(
            f"Saved bytes stay as they are: {in_a_sentence(plan)} throws away next to nothing. "
            f"The peak {_change(peak)}."
        )
    if own.saved_bytes > plain.saved_bytes:
        return Said(f"Saved bytes {saved}, and the peak {_change(peak)}.", True)
    if peak < _SAME:
        return Said(f"Saved bytes {saved}, yet the peak {_change(peak)}{_cause(own, again)}.", True)
    if kept <= peak * 1.1:
        return Said(f"Saved bytes {saved}, and the peak with them, {times(peak)} times.")
    rest = own.state_bytes / own.peak_bytes
    stays = (
        f" And {megabytes(own.state_bytes)} of model, gradients and optimizer stay, whatever is thrown "
        "away."
        if rest >= 0.3
        else ""
    )
    return Said(f"Saved bytes {saved}, the peak {times(peak)} times{_cause(own, again)}.{stays}", True)


def tooth(again: Replays, whole: bool, own: Memory) -> str | None:
    """What a tooth in the picture is; None where blocks do not come back one by one."""
    if not whole or again.most != 1 or again.blocks < 2 or own.timeline is None:
        return None
    return f"Each of the {again.blocks} teeth is a block that is run again, used and let go."


def _fall(plain: int, own: int) -> str:
    if own == plain:
        return "stay the same"
    if not own:
        return f"fall from {megabytes(plain)} to nothing"
    if own > plain:
        return f"grow from {megabytes(plain)} to {megabytes(own)}"
    return f"fall {times(plain / own)} times"


def _change(fall: float) -> str:
    if fall >= _SAME:
        return f"falls {times(fall)} times"
    return "stays where it was" if fall > 1 / _SAME else f"rises to {times(1 / fall)} times plain's"


def _cause(own: Memory, again: Replays) -> str:
    """Why the peak falls by less; empty where the meters do not tell."""
    if own.peak_at is None:
        return ""
    if not own.peak_at.replaying:
        return f": it is now in {own.peak_at.words}, where nothing is being recomputed"
    most = _most_back(own)
    if again.most != 1:
        return f": what was thrown away comes back, a part at a time{most}"
    whose = (
        "each block's activations"
        if again.blocks == again.of
        else f"the activations of {again.blocks} of {again.of} blocks"
    )
    return f": {whose} come back once{most}"


def _most_back(own: Memory) -> str:
    """How much replays have brought back at most at any moment; empty where kinds are not known."""
    back = own.timeline.back if own.timeline else None
    return f", at most {megabytes(max(back))} at a time" if back and max(back) else ""


# --- 3: the price ------------------------------------------------------------------------------------


def arriving(ratios: Sequence[float]) -> Said:
    """What the pairs say while more are still to come, from a timing or from its replay."""
    if not ratios:
        return Said("The pairs come once more, as they were timed.")
    so_far = f"After {count(len(ratios), 'pair')}: {ratio(median(ratios))} times as long"
    if len(ratios) < 3:
        return Said(f"{so_far}. That tells little yet.")
    if len(ratios) < ENOUGH_PAIRS:
        return Said(f"{so_far}, so far from {ratio(min(ratios))} to {ratio(max(ratios))}.")
    return Said(f"{so_far}, interval {edges(ratios)}.")


def price(ratios: Sequence[float], gate: float, work: float | None) -> Said:
    """What recomputing costs, by all pairs. `work`: operations of an update over plain's."""
    low, high = median_interval(ratios)
    pairs = count(len(ratios), "pair")
    takes = f"takes {ratio(median(ratios))} times as long ({edges(ratios, gate)}) in {pairs}"
    if low <= 1 <= high:
        return Said(
            f"No price can be told yet: an update {takes}. The interval has 1 in it, so it may take no "
            "longer at all.",
            True,
        )
    if high < 1:
        return Said(f"It costs no time here: an update {takes}.", True)
    said = f"An update {takes}."
    if outcome_of((low, high), gate) == "undecided":
        return Said(
            f"{said} That does not tell whether it keeps to {gate:g}: the interval lies on both sides.",
            True,
        )
    if work is None or work <= 1:
        return Said(said)
    grows = f"the work, which grows {times(work)} times"
    if low > work:
        return Said(f"{said} That is more than {grows}: recomputing has to be organised, too.", True)
    if high < work:
        return Said(f"{said} That is less than {grows}.", True)
    return Said(f"{said} That is about as {grows}.")


def narrowing(ratios: Sequence[float]) -> str | None:
    """How the interval shrank from the first that covers as much to that of all; None: it did not."""
    first = ratios[:ENOUGH_PAIRS]
    (low, high), (least, most) = median_interval(first), median_interval(ratios)
    if most - least >= high - low or edges(first) == edges(ratios):
        return None
    return (
        f"After {ENOUGH_PAIRS} pairs the interval was {edges(first)}, after {len(ratios)} it is "
        f"{edges(ratios)}."
    )


# --- 4: the middle -----------------------------------------------------------------------------------


def middle(measured: Sequence[Measured], subject: Measured | None, blocks: Sequence[str]) -> Said:
    """What a plan in between brings, against the plan that the demo tells of.

    `measured` are the candidates at one shape, `blocks` the FQNs of the model's blocks.
    """
    others = [one for one in measured if subject and one.plan != subject.plan and one.memory.ratio]
    if subject is None or subject.memory.ratio is None or not subject.memory.ratio or not others:
        return Said("This study has no measured plan in between to compare with.")
    name = in_a_sentence(subject.plan)
    if subject.memory.ratio > 0.99:
        return Said(
            f"{sentence_case(name)} hardly lowers the peak here: there is no middle to look for."
        )
    same = [one for one in others if _same_peak(one, subject) and len(one.blocks) < len(subject.blocks)]
    if same:
        best = min(same, key=lambda one: (len(one.blocks), one.timing.ratio_median))
        peak = megabytes(best.memory.candidate.peak_bytes or 0)
        said = (
            f"{sentence_case(in_a_sentence(best.plan))} recomputes {len(best.blocks)} blocks instead of "
            f"{len(subject.blocks)} and its peak is as low as that of {name}: {peak}."
        )
        if set(subject.blocks) - set(best.blocks) == {*blocks[-1:]}:
            said += " What the last block throws away, backward needs at once."
        elif best.timing.ratio_ci95[1] < subject.timing.ratio_ci95[0]:
            said += " It also takes less time."
        return Said(said, True)
    return _shares(others, subject)


def _same_peak(one: Measured, other: Measured) -> bool:
    mine, theirs = one.memory.ratio or 0, other.memory.ratio or 0
    return theirs / 1.01 <= mine <= theirs * 1.01


def _shares(others: Sequence[Measured], subject: Measured) -> Said:
    """How much of the fall in peak a plan brings, for how much of the added time."""
    name = in_a_sentence(subject.plan)
    fall, added = 1 - (subject.memory.ratio or 1), _extra(subject)
    lower = [one for one in others if _kept_of(one, fall) > 0]
    if not lower:
        return Said("No plan in between lowers the peak here.")
    is_known = subject.timing.ratio_ci95[0] > 1
    best = max(lower, key=lambda one: _kept_of(one, fall) - (_extra(one) / added if is_known else 0))
    kept = _kept_of(best, fall)
    brings = f"{sentence_case(in_a_sentence(best.plan))} brings {percent(kept)} of the fall in peak"
    if not is_known:
        return Said(f"{brings} of {name}. {_no_price(subject)}")
    low, high = best.timing.ratio_ci95
    if low <= 1 <= high:
        pairs = count(best.timing.pairs, "pair")
        return Said(f"{brings} of {name} for a time that {pairs} cannot tell from plain's.", True)
    if high < 1:
        return Said(f"{brings} of {name}, and is faster than plain.", True)
    spent = _extra(best) / added
    return Said(
        f"{brings} of {name} for {percent(spent)} of the time it adds, by the medians.",
        kept > spent + 0.05,
    )


def _no_price(subject: Measured) -> str:
    """Why nobody can say what part of the added time a plan in between spares."""
    if subject.timing.ratio_ci95[1] < 1:
        return "That one is faster than plain, so there is no time to spare."
    pairs = count(subject.timing.pairs, "pair")
    return f"What it spares in time cannot be told: {pairs} of that one do not tell it from plain's."


def _kept_of(one: Measured, fall: float) -> float:
    """The share of the fall in peak that a plan brings."""
    return (1 - (one.memory.ratio or 1)) / fall


def _extra(one: Measured) -> float:
    return one.timing.ratio_median - 1


# --- 5: the decision ---------------------------------------------------------------------------------


def proof(candidate: Candidate) -> Said:
    """What was proven before any measurement: nothing changed, and a change would show."""
    parity, canary = candidate.parity, candidate.canary
    if parity is None or not parity.passed or canary is None or not canary.caught:
        return Said(
            f"Nothing was proven of {in_a_sentence(candidate.plan)}: no cost of it may be shown."
        )
    caught = f"The same check caught a replay that was broken on purpose ({canary.break_})"
    gap = canary.largest_relative_gap
    caught += f" and {_off(gap)} off." if gap else "."
    tensors = count(len(parity.gaps), "tensor")
    if parity.bitwise:
        return Said(f"Not one bit differs from plain's update, in {tensors}. {caught}", True)
    apart = parity.largest_relative_gap or 0.0
    return Said(
        f"The recomputed update differs from plain's by at most {scientific(apart)} (relative), in "
        f"{tensors}. {caught}"
    )


def _off(gap: float) -> str:
    """A relative gap that people can picture: `2.8 %`; a tiny or a huge one as it is."""
    return f"{gap * 100:.2g} %" if 1e-3 <= gap < 1 else scientific(gap)


_FAILS = {
    "gradient_parity": "the recomputed update is not plain's, so that its cost does not matter",
    "memory_saving": "the peak falls by less than was declared to be worth it",
    "update_latency": "an update takes longer than was declared to be worth it",
}
_OPEN = {
    "gradient_parity": "the check of the gradients has not told",
    "memory_saving": "the peak straddles its gate",
    "update_latency": "the interval of the update time straddles its gate; more pairs may tell",
}


def decided(verdict: Verdict | None, best: Judged, judged: Sequence[Judged]) -> str:
    """What a verdict means and what to do with it; `best` is the candidate that decides it."""
    own = [one for one in judged if one.candidate.plan == best.candidate.plan]
    if verdict is None:
        return "There is no verdict yet."
    if verdict == "adopt":
        where = f" at all {len(own)} shapes" if len(own) > 1 else ""
        return f"Every gate is passed{where}. Sign it on Decision: others can check it without us."
    name = in_a_sentence(best.candidate.plan)
    there = f"{name} at {best.candidate.shape_key}" if len(own) > 1 else name
    if verdict == "undecided":
        return f"Undecided on {there}: {'; '.join(_open_gates(best))}.{_elsewhere(own)}"
    why = [_FAILS[gate.id] for gate in best.gates if gate.outcome == "fail"]
    refused = best.candidate.stopped_by if isinstance(best.candidate, Refused) else ""
    why = why or [_REFUSED.get(refused, "it was refused before anything was measured")]
    return (
        f"Keep the original rather than {there}: {'; '.join(why)}.{_elsewhere(own)} Decision signs that "
        "as well."
    )


_REFUSED = {
    "legality": "it may not be replayed",
    "noise": "plain differs from plain here, so that nothing can be compared",
}


def _open_gates(one: Judged) -> list[str]:
    """What is not known of a candidate that nothing speaks against."""
    unclear = [_OPEN[gate.id] for gate in one.gates if gate.outcome == "undecided"]
    without = [GATE_NAMES[gate.id] for gate in one.gates if gate.outcome == "not_run"]
    return unclear + ([f"no figure for {listed(without)}"] if without else [])


def _elsewhere(own: Sequence[Judged]) -> str:
    """Where a plan passes that does not pass everywhere."""
    passed = [one.candidate.shape_key for one in own if one.verdict == "adopt"]
    if not passed:
        return ""
    where = passed[0] if len(passed) == 1 else f"{len(passed)} other shapes"
    return f" It passes at {where}, but a plan has to pass at every shape."


# --- what is not there ---------------------------------------------------------------------------------

_FIRST = (
    "Plain's memory is measured as soon as one recomputed update is proven equal to plain's.",
    "The memory of a recomputed update is measured once it is proven equal to plain's.",
    "Pairs are timed after memory.",
    "A plan has a place in the picture once its memory and its time are measured.",
    "The verdict is given when every plan has been measured.",
)


def not_yet(step: int) -> str:
    """What a step of the demo waits for while the study runs."""
    return _FIRST[step - 1]


def missing(candidate: Candidate, ended: bool, failed: str | None = None) -> tuple[str, str]:
    """Why a candidate has no figure in a study that will bring none, and what to do about it.

    `ended`: the study is over, well or not. `failed`: why a measurement of plain did not end well.
    """
    name = in_a_sentence(candidate.plan)
    trouble = failed or (candidate.troubles[0].rstrip(".") if candidate.troubles else None)
    stopped = candidate.stopped_by if isinstance(candidate, Refused) else None
    small = "The study made for the demo is small; measure that, or resume this one on Live."
    if stopped == "parity":
        return (
            f"The update under {name} is not plain's, so that nothing it costs was measured: {trouble}.",
            "See Live for what differs, or measure the study made for the demo.",
        )
    if stopped == "canary":
        return (
            f"The check let a replay pass that was broken on purpose, and proves nothing: {trouble}.",
            "Lower the relative gap in Set up and run it again.",
        )
    if stopped == "legality":
        return (
            f"{sentence_case(name)} may not be replayed: {trouble}.",
            "Choose other blocks or another plan in Set up.",
        )
    if stopped == "noise":
        return f"Nothing can be compared on this device: {trouble}.", small
    if trouble:
        return f"This could not be measured: {trouble}.", small
    if ended:
        return "The study ended before this was measured.", "Resume it on Live."
    return "This is not measured yet.", "Wait, or watch it on Live."


def no_timeline(memory: Memory) -> str:
    """Why there is no picture of memory over time."""
    why = memory.not_measured.get("timeline", "").rstrip(".")
    return f"No memory over time on this device{f': {why}' if why else ''}."


def unfit(status: str, candidates: Sequence[Candidate]) -> str:
    """Why the study in the address is not the one that is shown."""
    refused = [one for one in candidates if isinstance(one, Refused) and one.troubles]
    why = f": {refused[0].troubles[0].rstrip('.')}" if refused else ""
    if any(isinstance(one, Measured | Proven) and one.memory for one in candidates):
        why = ": it has no memory over time"
    return f"The study you chose ({status}) has nothing to show here{why}. This is the newest that has."
