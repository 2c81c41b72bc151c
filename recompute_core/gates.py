"""Results against thresholds: outcomes, verdicts, and the sentences that state them. Pure functions.

A gate passes when the whole interval of its figure keeps to the threshold, fails when none of it
does, and is undecided in between. A figure that is missing or not a number never passes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from .intervals import Interval
from .plans.names import in_a_sentence
from .results import (
    Candidate,
    FigureKind,
    Gap,
    Gate,
    GateId,
    Judged,
    Measured,
    Outcome,
    ParityFailed,
    ParityPassed,
    Proven,
    Refused,
    Rollback,
    Timing,
    Verdict,
)
from .spec import Thresholds
from .words import interval_words, pairs_words

# --- the receipt project's gate, on supplied figures -------------------------------------------


@dataclass(frozen=True)
class MemoryRun:
    """Supplied figures of one path: peak in MB, median update in ms, largest gradient gap."""

    peak_allocated_mb: float
    median_update_ms: float
    largest_gradient_gap: float


def release_failures(
    reference: MemoryRun, candidate: MemoryRun, thresholds: Thresholds | None = None
) -> list[str]:
    """The gates that `candidate` fails against `reference`; empty when it may be released.

    NaN anywhere in a comparison fails that gate.
    """
    limits = thresholds or Thresholds()
    checks = {
        "gradient parity": candidate.largest_gradient_gap <= limits.gradient_gap,
        "memory saving": candidate.peak_allocated_mb <= reference.peak_allocated_mb * limits.peak_ratio,
        "update latency": candidate.median_update_ms <= reference.median_update_ms * limits.update_ratio,
    }
    return [name for name, kept in checks.items() if not kept]


# --- one gate ------------------------------------------------------------------------------------


def outcome_of(interval: Interval | None, threshold: float) -> Outcome:
    """Where an interval lies against a threshold that must not be exceeded."""
    if interval is None or any(math.isnan(edge) for edge in interval):
        return "fail"
    low, high = interval
    if high <= threshold:
        return "pass"
    return "fail" if low > threshold else "undecided"


def parity_gate(parity: ParityPassed | ParityFailed | None, thresholds: Thresholds) -> Gate:
    """Gradient parity: exact, so never undecided."""
    if parity is None:
        return not_run("gradient_parity", thresholds.gradient_gap, "Parity was not tested.")
    failures = parity.failures(thresholds)
    threshold, gap = thresholds.gradient_gap, parity.largest_gradient_gap
    if failures:
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        sentence = f"{gap_words(failures[0])}{more}."
        sentence = sentence[0].upper() + sentence[1:]
        if gap is not None and gap <= threshold:  # the relative gap is what failed: show that one
            threshold, gap = thresholds.relative_gap, parity.largest_relative_gap
    elif isinstance(parity, ParityFailed) and parity.stuck is not None:
        sentence = stuck_sentence(parity.stuck, parity.noise_floor)
    elif parity.bitwise:
        sentence = "Every compared tensor is bitwise equal."
    else:
        sentence = f"Largest relative gap {parity.largest_relative_gap:.2g}."
    return Gate(
        id="gradient_parity",
        outcome="fail" if failures or (isinstance(parity, ParityFailed) and parity.stuck) else "pass",
        threshold=threshold,
        observed=gap,
        ci95=None if gap is None else (gap, gap),
        sentence=sentence,
    )


def gap_words(gap: Gap) -> str:
    """One tensor's gap in words: what it is, and how far off."""
    what = f"{_PARTS[gap.part]} {gap.name}".strip()
    if gap.problem is not None:
        return f"{what}: {gap.problem}"
    return f"{what}: relative gap {gap.relative:.2g}, absolute {gap.absolute:.2g}"


def stuck_sentence(rollback: Rollback, noise_floor: float | None) -> str:
    """What is left of a plan that was taken off, for a rollback that failed."""
    gaps = rollback.beyond(noise_floor)
    found = [
        *(f"{name} is not as it was" for name in rollback.left),
        *(f"{name} is not called as in plain" for name in rollback.replayed),
        *map(gap_words, gaps),
    ]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"Taking the plan off does not give plain back: {found[0]}{more}."


_PARTS = {
    "output": "output",
    "loss": "loss",
    "input_grad": "gradient of the",
    "grad": "gradient of",
    "buffer": "buffer",
    "rng": "random state",
    "weight": "next-step weight",
}


def gates_of(candidate: Candidate, thresholds: Thresholds) -> tuple[Gate, ...]:
    """The three gates of a candidate, in the order they are measured."""
    memory = candidate.memory
    timing = candidate.timing
    stopped = _why_not_run(candidate)
    parity = parity_gate(candidate.parity, thresholds)
    saving = not_run("memory_saving", thresholds.peak_ratio, stopped)
    if memory is not None and memory.ratio is None:
        saving = not_run("memory_saving", thresholds.peak_ratio, "This device has no peak counter.")
    elif memory is not None and memory.ratio_ci95 is not None:
        plain, own = memory.plain.peak_bytes or 0, memory.candidate.peak_bytes or 0
        saving = memory_gate(
            plain, own, memory.ratio_ci95, memory.candidate.kind, thresholds, len(memory.candidate.ranks)
        )
    latency = not_run("update_latency", thresholds.update_ratio, stopped)
    if timing is not None:
        latency = latency_gate(timing, thresholds)
    return parity, saving, latency


def memory_gate(
    plain: int,
    own: int,
    ratio_ci95: Interval,
    kind: FigureKind,
    thresholds: Thresholds,
    ranks: int = 0,
) -> Gate:
    """Memory saving, from both peaks in bytes and the interval of their ratio. Over ranks the peaks are
    each the worst one's."""
    return Gate(
        id="memory_saving",
        outcome=outcome_of(ratio_ci95, thresholds.peak_ratio),
        threshold=thresholds.peak_ratio,
        observed=own / plain,
        ci95=ratio_ci95,
        kind=kind,
        sentence=f"Peak {megabytes(own)} instead of {megabytes(plain)}{worst_of_ranks(ranks)}.",
    )


def latency_gate(timing: Timing, thresholds: Thresholds) -> Gate:
    """Update latency, from pairs of updates."""
    return Gate(
        id="update_latency",
        outcome=outcome_of(timing.ratio_ci95, thresholds.update_ratio),
        threshold=thresholds.update_ratio,
        observed=timing.ratio_median,
        ci95=timing.ratio_ci95,
        kind=timing.kind,
        sentence=f"Update {timing.update_s * 1e3:.0f} ms instead of "
        f"{timing.plain_median_s * 1e3:.0f} ms, {pairs_words(timing)}{worst_of_ranks(timing.ranks)}.",
    )


def worst_of_ranks(ranks: int) -> str:
    """Whose figure it is, where several ranks trained together."""
    return f", the worst of {ranks} ranks" if ranks > 1 else ""


def not_run(gate: GateId, threshold: float, sentence: str, kind: FigureKind = "measured") -> Gate:
    """A gate that has no figure, and why."""
    return Gate(
        id=gate,
        outcome="not_run",
        threshold=threshold,
        observed=None,
        ci95=None,
        kind=kind,
        sentence=sentence,
    )


def _why_not_run(candidate: Candidate) -> str:
    if isinstance(candidate, Measured):
        return ""
    if candidate.failure:
        return f"Not measured: {candidate.failure.rstrip('.')}."
    if isinstance(candidate, Proven) or candidate.stopped_by == "pending":
        return "Not measured yet."
    return f"Not measured: {candidate.stopped_by} refused it."


# --- verdicts --------------------------------------------------------------------------------------


def judge(candidate: Candidate, thresholds: Thresholds) -> Judged:
    """A candidate with its gates and its own verdict."""
    gates = gates_of(candidate, thresholds)
    if candidate.canary is not None and not candidate.canary.caught_under(thresholds):
        sentence = "Under these thresholds a replay broken on purpose would pass too."
        parity = gates[0].model_copy(update={"outcome": "undecided", "sentence": sentence})
        gates = (parity, *gates[1:])
    verdict = verdict_of(gates)
    if isinstance(candidate, Refused) and candidate.stopped_by in ("noise", "legality"):
        verdict = "keep_original"
    return Judged(candidate=candidate, gates=gates, verdict=verdict)


def is_open(one: Judged) -> bool:
    """Whether something of this candidate is still to come, so that its verdict says nothing yet."""
    candidate = one.candidate
    if isinstance(candidate, Refused):
        return candidate.stopped_by == "pending"
    return isinstance(candidate, Proven) and candidate.failure is None


def verdict_of(gates: Iterable[Gate]) -> Verdict:
    """What gates come to: one that fails keeps the original, all that pass adopt."""
    found = {gate.outcome for gate in gates}
    if "fail" in found:
        return "keep_original"
    if found == {"pass"}:
        return "adopt"
    return "undecided"


def plan_verdicts(judged: Sequence[Judged]) -> dict[str, Verdict]:
    """Each plan's verdict over all its shapes: the worst of them."""
    order: list[Verdict] = ["keep_original", "undecided", "adopt"]
    verdicts: dict[str, Verdict] = {}
    for one in judged:
        plan = one.candidate.plan
        verdicts[plan] = min(verdicts.get(plan, "adopt"), one.verdict, key=order.index)
    return verdicts


def study_verdict(judged: Sequence[Judged]) -> Verdict:
    """`adopt` when one plan passes every gate at every shape, `keep_original` when every plan fails."""
    verdicts = set(plan_verdicts(judged).values())
    if "adopt" in verdicts:
        return "adopt"
    return "keep_original" if verdicts == {"keep_original"} else "undecided"


def chosen(judged: Sequence[Judged]) -> Judged | None:
    """The best adopted plan, at its largest shape: the lowest peak, and among peaks within 1 % the
    shortest update."""
    verdicts = plan_verdicts(judged)
    largest: dict[str, tuple[Measured, Judged]] = {}
    for one in judged:
        found = one.candidate
        if isinstance(found, Measured) and verdicts[found.plan] == "adopt":
            known = largest.get(found.plan)
            if known is None or prod(found.shape.values()) > prod(known[0].shape.values()):
                largest[found.plan] = (found, one)
    if not largest:
        return None
    peaks = {plan: found.memory.candidate.peak_bytes or 0 for plan, (found, _) in largest.items()}
    near = [plan for plan, peak in peaks.items() if peak <= min(peaks.values()) * 1.01]
    return largest[min(near, key=lambda plan: largest[plan][0].timing.ratio_median)][1]


def told_of_plan(judged: Sequence[Judged], plan: str) -> Judged:
    """The candidate whose figures the verdict on a plan is told with: adopted, at its largest shape, or
    else the first that has the plan's verdict."""
    own = [one for one in judged if one.candidate.plan == plan]
    verdict = plan_verdicts(own)[plan]
    return chosen(own) or next(one for one in own if one.verdict == verdict)


def deciding(judged: Sequence[Judged]) -> Judged:
    """The candidate whose gates say why the verdict of a study is what it is.

    The one adopted, or the first that is undecided; of those that fail the nearest: the one that misses
    the fewest gates, and of those the one whose figures come nearest to the thresholds.
    """
    best = chosen(judged)
    if best is not None:
        return best
    verdict = study_verdict(judged)
    plans = plan_verdicts(judged)
    those = [one for one in judged if plans[one.candidate.plan] == one.verdict == verdict]
    timed = [one for one in those if one.candidate.timing is not None]
    return min(timed, key=_missed_by) if verdict == "keep_original" and timed else those[0]


# --- sentences ---------------------------------------------------------------------------------------


def megabytes(count: int) -> str:
    """Bytes as MB (10^6 bytes), or GB from 10 000 MB on."""
    if count >= 10_000_000_000:
        return f"{count / 1e9:.1f} GB"
    return f"{in_mb(count)} MB"


def in_mb(count: float) -> str:
    """Bytes in MB (10^6 bytes): `0.512`, `4.23`, `42.3`, `423.1`, `1,234.5`."""
    if not count:
        return "0"
    power = int(f"{count / 1e6:.2e}".partition("e")[2])
    return f"{count / 1e6:,.{max(1, 2 - power)}f}"


def signed_mb(count: float) -> str:
    """A difference in MB with its sign: `+4.23`, `-0.512`, `0`."""
    return f"{'-' if count < 0 else '+' if count else ''}{in_mb(abs(count))}"


_RATHER = "Keep the original rather than"


def candidate_sentence(one: Judged) -> str:
    """The verdict on one candidate with its figures, as shown everywhere."""
    return _sentence(one, _RATHER)


def _sentence(one: Judged, rather: str) -> str:
    """The same; `rather` begins it where the original is kept."""
    candidate = one.candidate
    name = f"{in_a_sentence(candidate.plan)} at {candidate.shape_key}"
    if isinstance(candidate, Refused):
        if candidate.stopped_by == "pending":
            return f"Not decided yet: {name}."
        why = candidate.troubles[0].rstrip(".")
        if candidate.stopped_by in ("failure", "canary"):
            return f"Undecided on {name}: {why}."
        return f"{rather} {name}: {why}."
    if not isinstance(candidate, Measured):
        why = (candidate.failure or "still running").rstrip(".")
        return f"Not measured in full, {name}: {why}."
    timing, memory = candidate.timing, candidate.memory
    interval = interval_words(timing.ratio_ci95, timing.pairs)
    gates = "gradients bitwise equal" if candidate.parity.bitwise else "gradients within tolerance"
    plain, own = memory.plain.peak_bytes, memory.candidate.peak_bytes
    peak = (
        f"peak {megabytes(own)} instead of {megabytes(plain)} ({memory.ratio:.2f})"
        if own is not None and plain is not None
        else "peak not measured on this device"
    )
    figures = (
        f"{peak}, update {timing.ratio_median:.2f} times as long ({interval})"
        f"{worst_of_ranks(timing.ranks)}, {gates}"
    )
    if one.verdict == "adopt":
        return f"Adopt {name}: {figures}."
    misses = [
        f"{GATE_NAMES[g.id]} {'fails' if g.outcome == 'fail' else 'is undecided'}"
        for g in one.gates
        if g.outcome != "pass"
    ]
    head = rather if one.verdict == "keep_original" else "Undecided on"
    return f"{head} {name}: {' and '.join(misses)} ({figures})."


GATE_NAMES = {
    "gradient_parity": "gradient parity",
    "memory_saving": "memory saving",
    "update_latency": "update latency",
}


def study_sentence(judged: Sequence[Judged]) -> str:
    """The verdict of a study in one sentence."""
    best = chosen(judged)
    if best is not None:
        own = [one.candidate for one in judged if one.candidate.plan == best.candidate.plan]
        timed = [one for one in own if isinstance(one, Measured)]
        slowest = max(timed, key=lambda one: one.timing.ratio_ci95[1])  # what the gate judges
        interval = interval_words(slowest.timing.ratio_ci95, slowest.timing.pairs)
        more = (
            f" Every gate holds at all {len(own)} shapes; the least favourable update is "
            f"{slowest.timing.ratio_median:.2f} times as long ({interval}), at {slowest.shape_key}."
        )
        return candidate_sentence(best) + (more if len(own) > 1 else "")
    verdict = study_verdict(judged)
    if verdict == "keep_original" and len(judged) > 1:
        passed = [one for one in judged if one.verdict == "adopt"]
        if passed:
            places = ", ".join(
                f"{in_a_sentence(p.candidate.plan)} at {p.candidate.shape_key}" for p in passed
            )
            return f"Keep the original: no plan passes at every shape. Passing: {places}."
        if all(isinstance(one.candidate, Refused) for one in judged):
            return f"{candidate_sentence(deciding(judged))} Every other candidate is refused too."
        if all(one.candidate.timing is None for one in judged):
            return "Keep the original: no plan could be measured in full."
        return _sentence(deciding(judged), f"{_RATHER} any plan; nearest is")
    return candidate_sentence(deciding(judged))


def _missed_by(one: Judged) -> tuple[int, float]:
    """How many gates were missed, and by how much in shares of their thresholds."""
    missed = [gate for gate in one.gates if gate.outcome != "pass"]
    return len(missed), sum(map(_beyond, missed))


def _beyond(gate: Gate) -> float:
    """How far a figure lies beyond its threshold, as a share of it; 0 where there is none."""
    return 0.0 if gate.observed is None else max(0.0, gate.observed / gate.threshold - 1)
