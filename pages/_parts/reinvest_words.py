"""What Reinvest says in sentences: how far a run has come, how far memory goes, what it buys. Pure."""

from collections.abc import Sequence

from recompute_core.gates import megabytes
from recompute_core.reinvest.asked import SIDES
from recompute_core.reinvest.driver import PHASES
from recompute_core.reinvest.found import (
    SIZE_WORDS,
    Accumulation,
    Reach,
    ReinvestGate,
    Throughput,
    Training,
)
from recompute_core.reinvest.kept import Now
from recompute_core.reinvest.result import trains
from recompute_core.settings import size_fields
from recompute_core.studies.locks import machine_holder, machine_lock
from recompute_core.words import count, sentence_case

from .progress import Step
from .reinvest_data import Learnt, Shown
from .words import VERDICTS, duration, plan_label, when_short

STATUS_SENTENCES = {
    "cancelled": "Cancelled; what was finished is kept.",
    "interrupted": "Interrupted: its driver is gone; what was finished is kept.",
    "failed": "It could not be completed; what was finished is kept.",
}


def run_label(one: Shown) -> str:
    """`30 Nov 07:09, every-block at 192x96 B=16, microbatch 42 instead of 16, keep original`."""
    asked, result = one.kept.asked, one.result
    standing = VERDICTS[result.verdict] if result.status == "done" else result.status
    what = f"{plan_label(asked.plan)} at {asked.shape}"
    size = ""
    if result.microbatch is not None:
        size = f", microbatch {result.microbatch:,} instead of {result.plain_microbatch:,}"
    elif result.verdict is not None:
        size = ", no larger microbatch"
    return f"{when_short(one.kept.declared_at)}, {what}{size}, {standing}"


# --- while it runs -------------------------------------------------------------------------------


def share_done(now: Now | None) -> float:
    """For the bar: phases and updates of training, of all of them."""
    return 0.0 if now is None else min(1.0, now.done / now.total)


def seconds_left(now: Now | None, at: float) -> float | None:
    """At the pace of the present process's own updates; None before there is any to go by."""
    if now is None or now.done_then < PHASES or now.done <= now.done_then:
        return None
    each_s = (now.at - now.started) / (now.done - now.done_then)
    return max(0.0, each_s * (now.total - now.done) - (at - now.at))


def standing(one: Shown, at: float) -> str:
    """What is being done, how long it has been, and how long it may take."""
    now = one.now
    if one.kept.cancel_asked():
        return "Cancelling: stopping after what is being written."
    if one.result.status == "waiting" and machine_lock().is_held():
        holder = machine_holder() or "something else that is measured"
        return f"Waiting: this machine is busy with {holder}. It starts after that."
    if now is None or one.result.status == "waiting":
        return "Starting: torch is being loaded in a process of its own."
    left = seconds_left(now, at)
    still = "" if left is None else f", about {duration(left)} left (estimated)"
    if left == 0:
        still = ", longer than estimated"
    done = f", {now.done} of {now.total} steps"
    return f"{sentence_case(now.words)}{done}{still}."


def steps(one: Shown) -> list[Step]:
    """The phases in their order, as on Live."""
    result, asked = one.result, one.kept.asked
    reaches = 2 if "seq_len" in size_fields(one.spec.workload) else 1
    runs = len(SIDES) * len(asked.training.seeds) if trains(one.spec) else 0
    found = [
        _step("how far it goes", reaches if result.reaches else 0, reaches),
        _step("same objective", int(result.accumulation is not None), 1),
        _step("what it buys", int(result.throughput is not None), 1),
        _step("rare defects", sum(run.is_done for run in one.runs), runs),
        _step("gates", sum(gate.outcome != "not_run" for gate in result.gates), len(result.gates)),
    ]
    if result.not_trained or not runs:
        found[3] = Step("rare defects", 0, 0, runs, "skipped")
    if result.verdict is not None:
        found[4] = Step("gates", len(result.gates), 0, len(result.gates), "done")
        return [one if one.state != "waiting" else _with(one, "skipped") for one in found]
    present = next((place for place, step in enumerate(found[:4]) if step.state == "waiting"), None)
    if present is not None:
        states = {"running": "running", "failed": "failed"}
        found[present] = _with(found[present], states.get(result.status, "waiting"))
    return found


def _step(name: str, done: int, total: int) -> Step:
    return Step(name, done, 0, total, "done" if total and done == total else "waiting")


def _with(step: Step, state: str) -> Step:
    return Step(step.name, step.done, step.failed, step.total, state)  # type: ignore[arg-type]


# --- how far it goes -----------------------------------------------------------------------------


def reach_sentence(reach: Reach) -> str:
    """The largest size within plain's peak, and what ends it."""
    what, budget, best = SIZE_WORDS[reach.field], megabytes(reach.budget_bytes), reach.largest
    if best is None or best.peak_bytes is None:
        return f"No {what} was measured within plain's peak of {budget}."
    if reach.is_asked:
        return (
            f"Microbatch {best.size:,}, as asked for, takes {megabytes(best.peak_bytes)} under the "
            f"plan; plain's peak at {reach.plain_size:,} is {budget}. No larger one was looked for."
        )
    if best.size <= reach.plain_size:
        return (
            f"Plain's peak of {budget} has room for {what} {best.size:,} under the plan, no more than "
            f"plain's own {reach.plain_size:,}."
        )
    said = (
        f"Plain's peak of {budget} at {what} {reach.plain_size:,} has room for {best.size:,} under the "
        f"plan, measured {megabytes(best.peak_bytes)}."
    )
    if reach.limit is not None:
        return f"{said} It ends there: {reach.limit}."
    if reach.estimated_next_bytes is not None:
        next_one = next((one for one in reach.tried if one.size == reach.next_size), None)
        if next_one is not None and next_one.peak_bytes is not None:
            return f"{said} At {reach.next_size:,} it takes more, {megabytes(next_one.peak_bytes)}."
        need = megabytes(reach.estimated_next_bytes)
        said += f" At {reach.next_size:,} it would take {need} (estimated)."
    return said


# --- the same objective --------------------------------------------------------------------------


def objective_facts(found: Accumulation) -> list[tuple[str, str]]:
    """What the two accumulated gradients were of."""
    rejected = found.effective_batch - found.accepted
    return [
        ("Examples drawn", f"{found.effective_batch:,}"),
        ("Accepted, which alone count", f"{found.accepted:,}"),
        ("Rejected, which count nowhere", f"{rejected:,}"),
        ("Dropout", "off for this comparison" if found.dropout_off else "none in the model"),
    ]


def accepted_words(microbatches: Sequence[int]) -> str:
    """`15, 16, 15, 16`; long rows shortened."""
    words = [f"{number:,}" for number in microbatches]
    return ", ".join(words if len(words) <= 12 else [*words[:10], "…", words[-1]])


def dropout_words(found: Accumulation) -> str:
    if not found.dropout_off:
        return ""
    return (
        "Dropout was off: its masks are drawn microbatch by microbatch, so no two microbatch sizes draw "
        "the same. It is on in timing and training."
    )


# --- what it buys --------------------------------------------------------------------------------


def speed_sentence(found: Throughput) -> str:
    """Faster or slower, as it is."""
    low, high = found.rate_ratio_ci95
    said = (
        f"{found.rate_ratio:.2f} times as many examples per second as plain ({low:.2f} to {high:.2f}): "
        f"{found.recomputed_rate:.1f} instead of {found.plain_rate:.1f}"
    )
    own, plain = found.recomputed_microbatches, found.plain_microbatches
    each = f"{count(own, 'pass', 'passes')} an update instead of {plain:,}"
    if own >= plain:
        each = f"{count(own, 'pass', 'passes')} an update against plain's {plain:,}"
    elif high < 1:
        return f"Slower. {said}. {sentence_case(each)} do not make up for recomputing here."
    if high < 1:
        return f"Slower. {said}, with {each}."
    if low > 1:
        return f"Faster. {said}, with {each}."
    return f"No difference that these pairs can tell. {said}, with {each}."


# --- rare defects --------------------------------------------------------------------------------


def rare_facts(found: Training) -> list[tuple[str, str]]:
    """How few the rare ones are."""
    if found.rare is None:
        return [("Rare receipts on validation", "none")]
    rare = found.rare
    train = f"{count(rare.train_receipts, 'receipt')}, {count(rare.train_photos, 'photo')}"
    looked = f"{count(rare.receipts, 'receipt')}, {count(rare.photos, 'photo')}"
    return [
        (f"{sentence_case(rare.label)} in training, accepted", train),
        (f"{sentence_case(rare.label)} on validation", looked),
        ("Seeds", ", ".join(map(str, found.seeds))),
        ("Examples drawn in each run", f"{found.examples:,}"),
    ]


def disagreement_sentence(found: Training) -> str:
    """Where one setting alone was right, over all looks."""
    photos = sum(one.photos for one in found.classes)
    looks = photos * len(found.seeds)
    plain, own = found.disagreements
    of = f"Of {looks:,} looks ({count(photos, 'validation photo')}, {count(len(found.seeds), 'seed')})"
    if not plain and not own:
        return f"{of} there is none in which one setting was right and the other was not."
    return f"{of} plain alone was right in {plain:,}, the plan alone in {own:,}."


def gate_sentence(gates: Sequence[ReinvestGate], which: str) -> str:
    return next((gate.sentence for gate in gates if gate.id == which), "")


# --- charts in words -----------------------------------------------------------------------------


def describe_recall(found: Training) -> str:
    """The recall chart for who cannot see it."""
    each = "; ".join(
        f"{one.label} {one.plain:.2f} plain, {one.recomputed:.2f} recomputed" for one in found.classes
    )
    return f"Recall on validation with Wilson intervals, class by class: {each}"


def describe_curves(runs: Sequence[Learnt], what: str) -> str:
    seeds = len({run.seed for run in runs})
    return f"{what} over the examples drawn, plain and recomputed, {count(seeds, 'seed')}"
