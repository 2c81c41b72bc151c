"""A reinvestment's findings against its thresholds: outcomes, verdict, sentences. Pure functions.

As everywhere, a gate passes when the whole interval of its figure keeps to the threshold, fails when
none of it does, and is undecided in between. None of these gates touches the study's own verdict.
"""

from collections.abc import Sequence

from ..gates import gap_words, megabytes, outcome_of
from ..intervals import Interval
from ..results import Outcome, Verdict
from ..words import count, listed, pairs_words, scientific, sentence_case
from .asked import ReinvestSpec, ReinvestThresholds, passes
from .found import (
    Accumulation,
    Rare,
    Reach,
    Reaches,
    ReinvestGate,
    ReinvestGateId,
    ReinvestResult,
    Throughput,
    Training,
    Tried,
    used_microbatch,
)

CHANGED = "The training objective changed"
ROUNDINGS = 16
"""Spacings of a number's type that sums in another order may differ by."""


def objective_of(asked: ReinvestSpec, found: Accumulation | None) -> str | None:
    """Why the two settings do not train for the same objective; None where they do, or may."""
    if asked.recomputed_batch != asked.effective_batch:
        return (
            f"{CHANGED}: an update averages {asked.recomputed_batch} examples under the plan and "
            f"{asked.effective_batch} in plain."
        )
    tolerance = asked.thresholds.accumulation_gap
    if found is None or not found.failures(tolerance) or _is_rounding(found, tolerance):
        return None
    if found.batch_statistics:
        many = len(found.batch_statistics)
        more = [f"{many - 2} more"] if many > 2 else []
        names = listed([*found.batch_statistics[:2], *more])
        verb = "normalise" if many > 1 else "normalises"
        return f"{CHANGED}: {names} {verb} over the microbatch; another size, another model."
    if found.draws:
        return f"{CHANGED}, or cannot be told: the model draws random numbers for each microbatch."
    return f"{CHANGED}: the loss or the model mixes the examples of a microbatch."


def _is_rounding(found: Accumulation, tolerance: float) -> bool:
    """Whether the gap is beyond the tolerance and yet no more than the gradients' type rounds."""
    gap = found.largest_relative_gap
    return gap is not None and tolerance < gap <= ROUNDINGS * found.rounding


def gates_of(
    asked: ReinvestSpec,
    reaches: Reaches | None,
    used: Tried | None,
    accumulation: Accumulation | None,
    throughput: Throughput | None,
    training: Training | None,
    not_trained: str | None,
) -> tuple[ReinvestGate, ...]:
    """The four gates, in the order in which their figures arrive."""
    limits = asked.thresholds
    return (
        _peak(asked, reaches, used),
        _objective(asked, accumulation),
        _rate(throughput, limits),
        _rare(training, not_trained, limits),
    )


def _peak(asked: ReinvestSpec, reaches: Reaches | None, used: Tried | None) -> ReinvestGate:
    if reaches is None or (used is None and used_microbatch(asked, reaches.batch) is not None):
        return _gate("plain_peak", "not_run", 1.0, None, None, "Not measured yet.")
    reach = reaches.batch
    if used is None:
        used = reach.largest
        if used is None or used.size <= reach.plain_size:
            sentence = f"No larger microbatch fits plain's peak of {megabytes(reach.budget_bytes)}."
            return _gate("plain_peak", "fail", 1.0, None, None, sentence)
    if used.peak_bytes is None:
        return _gate("plain_peak", "fail", 1.0, None, None, f"Microbatch {used.size}: {used.problem}.")
    share = used.peak_bytes / reach.budget_bytes
    sentence = (
        f"Peak {megabytes(used.peak_bytes)} at microbatch {used.size}, plain's "
        f"{megabytes(reach.budget_bytes)} at {reach.plain_size}."
    )
    return _gate("plain_peak", outcome_of((share, share), 1.0), 1.0, share, (share, share), sentence)


def _objective(asked: ReinvestSpec, found: Accumulation | None) -> ReinvestGate:
    tolerance = asked.thresholds.accumulation_gap
    if found is None:
        return _gate("same_objective", "not_run", tolerance, None, None, "Not tested yet.")
    gap = found.largest_relative_gap
    interval = None if gap is None else (gap, gap)
    changed = objective_of(asked, found)
    failures = found.failures(tolerance)
    if changed is None and failures:
        words = (
            f"The largest relative gap, {scientific(gap or 0.0)}, is within the rounding of the "
            "gradients' type; such a tolerance cannot tell."
        )
        return _gate("same_objective", "undecided", tolerance, gap, interval, words)
    if changed is not None and not failures:  # the gap is of one effective batch: not what fails
        return _gate("same_objective", "fail", tolerance, None, None, changed)
    if changed is not None:
        words = f"{changed} {sentence_case(gap_words(failures[0]))}."
        return _gate("same_objective", "fail", tolerance, gap, interval, words)
    sentence = (
        f"The accumulated gradients agree, largest relative gap {scientific(gap or 0.0)}"
        if gap
        else "The accumulated gradients are bitwise equal"
    )
    return _gate("same_objective", "pass", tolerance, gap, interval, f"{sentence}.")


def _rate(found: Throughput | None, limits: ReinvestThresholds) -> ReinvestGate:
    if found is None:
        return _gate(
            "throughput", "not_run", limits.rate_ratio, None, None, "Not measured yet.", at_least=True
        )
    low, high = found.rate_ratio_ci95
    sentence = (
        f"{found.recomputed_rate:.1f} examples per second instead of {found.plain_rate:.1f}, "
        f"{pairs_words(found.timing)}."
    )
    return _gate(
        "throughput",
        outcome_of((-high, -low), -limits.rate_ratio),
        limits.rate_ratio,
        found.rate_ratio,
        (low, high),
        sentence,
        at_least=True,
    )


def _rare(found: Training | None, not_trained: str | None, limits: ReinvestThresholds) -> ReinvestGate:
    threshold = limits.rare_recall_loss
    if found is None or found.rare is None:
        why = not_trained or ("Not trained yet." if found is None else "No rare receipt on validation.")
        return _gate("rare_recall", "not_run", threshold, None, None, why)
    rare = found.rare
    outcome = outcome_of(rare.loss_ci95, threshold)
    if rare.plain <= threshold:
        words = (
            f"Plain's own recall of {rare.label} is {rare.plain:.2f}: it was not learnt, so nothing can "
            "be lost; more examples would tell, as in the preset full."
        )
        return _gate("rare_recall", "undecided", threshold, rare.loss, rare.loss_ci95, words)
    sentence = (
        f"Recall of {rare.label} {_lost(rare.loss)} on {count(rare.receipts, 'receipt')} "
        f"({count(rare.photos, 'photo')}), {count(len(found.seeds), 'seed')}."
    )
    if outcome == "undecided":
        many = rare.receipts_to_settle
        sentence += (
            f" So few cannot tell, nor would a million such receipts{_with_seeds(rare, found)}."
            if many is None
            else f" So few cannot tell; {many:,} such receipts would."
        )
    return _gate("rare_recall", outcome, threshold, rare.loss, rare.loss_ci95, sentence)


def _with_seeds(rare: Rare, found: Training) -> str:
    return f" with {count(len(found.seeds), 'seed')}" if rare.seeds_reach else ""


def _lost(loss: float) -> str:
    if loss == 0:
        return "is the same"
    return f"{'falls' if loss > 0 else 'rises'} by {abs(loss):.2f}"


def _gate(
    gate: str,
    outcome: Outcome,
    threshold: float,
    observed: float | None,
    ci95: Interval | None,
    sentence: str,
    at_least: bool = False,
) -> ReinvestGate:
    return ReinvestGate.model_validate(
        {
            "id": gate,
            "outcome": outcome,
            "bound": "at least" if at_least else "at most",
            "threshold": threshold,
            "observed": observed,
            "ci95": ci95,
            "sentence": sentence,
        }
    )


def verdict_of(gates: Sequence[ReinvestGate]) -> Verdict:
    """Adopt where every gate passes, keep plain's microbatch where one fails.

    A gate that was not run leaves it undecided: what was not trained has not shown its rare defects.
    """
    outcomes = {gate.outcome for gate in gates}
    if "fail" in outcomes:
        return "keep_original"
    return "adopt" if outcomes == {"pass"} else "undecided"


def no_fewer_passes(asked: ReinvestSpec, reach: Reach) -> str | None:
    """Why a larger microbatch that fits is not used; None where one is, or none fits."""
    best = reach.largest
    if best is None or best.size <= reach.plain_size or used_microbatch(asked, reach) is not None:
        return None
    return (
        f"Microbatch {best.size}, the largest that fits, takes as many passes of an update of "
        f"{asked.recomputed_batch} as {reach.plain_size} does."
    )


def used_sentence(result: ReinvestResult) -> str | None:
    """The microbatch of whole updates, and how many passes it takes; None where there is none."""
    if result.microbatch is None:
        return None
    asked, size = result.asked, result.microbatch
    plain = passes(asked.effective_batch, result.plain_microbatch)
    own = passes(asked.recomputed_batch, size)
    why = "as asked" if asked.microbatch is not None else "shared out evenly"
    said = (
        f"Whole updates use microbatch {size:,}: {asked.recomputed_batch:,} examples in "
        f"{count(own, 'pass', 'passes')}, {why}"
    )
    if asked.recomputed_batch != asked.effective_batch:
        return f"{said}; plain's {asked.effective_batch:,} take {plain:,}."
    return f"{said}, instead of plain's {plain:,}."


def sentence_of(
    asked: ReinvestSpec,
    verdict: Verdict | None,
    gates: Sequence[ReinvestGate],
    used: Tried | None,
    useless: str | None = None,
) -> str:
    """The verdict in one sentence; `useless` says why a larger microbatch that fits is not used."""
    if verdict is None:
        return "Not decided yet."
    if useless is not None:
        return f"Keep plain's microbatch under {asked.plan} at {asked.shape}. {useless}"
    size = "a larger microbatch" if used is None else f"microbatch {used.size}"
    what = f"{size} under {asked.plan} at {asked.shape}"
    if verdict == "adopt":
        rate = next(gate for gate in gates if gate.id == "throughput")
        return f"Adopt {what}: {rate.observed:.2f} times as many examples per second."
    wanted = ("fail",) if verdict == "keep_original" else ("undecided", "not_run")
    decisive = [gate for gate in gates if gate.outcome in wanted]
    why = listed([GATE_NAMES[gate.id] for gate in decisive])
    said = "" if len(decisive) > 1 else f" {decisive[0].sentence}"
    if verdict == "keep_original":
        verb = "fails" if len(decisive) == 1 else "fail"
        return f"Keep plain's microbatch: {why} {verb} for {what}.{said}"
    return f"Undecided: {what}, by {why}.{said}"


GATE_NAMES: dict[ReinvestGateId, str] = {
    "plain_peak": "plain's peak",
    "same_objective": "the same objective",
    "throughput": "examples per second",
    "rare_recall": "recall of the rare class",
}
