"""Do the phases of a run belong together, and to what was asked? Pure functions. No torch.

A phase that does not is no finding: a run does it again, and a report that holds it is refused.
"""

from collections.abc import Iterator

from ..workloads.receipts.labels import LABELS
from .asked import SIDES, passes
from .found import Accumulation, Findings, Throughput, TrainingRun, used_microbatch
from .kept import training_name

Misfit = tuple[str, str]
"""Name of a phase, as its file is called, and what it does wrong, after `it`."""


def fitting(found: Findings, plain: int) -> Findings:
    """What was found without the phases that do not fit; `plain` is plain's microbatch."""
    while names := {name for name, _ in misfits(found, plain)}:
        kept: dict[str, object] = dict.fromkeys(names & {"used", "accumulation", "throughput"})
        if "batch" in names:
            kept["reaches"] = None
        kept["runs"] = tuple(run for run in found.runs if training_name(run.side, run.seed) not in names)
        found = found.model_copy(update=kept)
    return found


def misfits(found: Findings, plain: int) -> Iterator[Misfit]:
    """Phases that cannot be of this run, each with the reason."""
    asked, used = found.asked, found.used
    batch = None if found.reaches is None else found.reaches.batch
    if batch is not None and batch.plain_size != plain:
        yield "batch", "has another microbatch of plain than the study"
    if batch is not None and used_microbatch(asked, batch) is None:
        phases = {"used": used, "accumulation": found.accumulation, "throughput": found.throughput}
        later = [name for name, phase in phases.items() if phase is not None]
        later += [training_name(run.side, run.seed) for run in found.runs]
        yield from ((name, "measured a larger microbatch, of which none fits") for name in later)
        return
    if used is None:
        return
    if batch is not None and used.size != used_microbatch(asked, batch):
        yield "used", "uses another microbatch than the one that follows from what fits"
    if batch is not None and any(one.size == used.size and one != used for one in batch.tried):
        yield "used", "measured the microbatch that it uses twice, and otherwise"
    if used.peak_bytes is not None and used.bitwise is None and used.without_plain is None:
        yield "used", "measured a microbatch whose parity did not pass"
    if found.accumulation is not None:
        yield from _accumulated(found, found.accumulation, plain, used.size)
    if found.throughput is not None:
        yield from _timed(found, found.throughput, plain, used.size)
    yield from _trained(found, plain, used.size)


def _accumulated(found: Findings, same: Accumulation, plain: int, own: int) -> Iterator[Misfit]:
    drawn = found.asked.effective_batch
    for counts, size in ((same.plain_microbatches, plain), (same.recomputed_microbatches, own)):
        sizes = [min(size, drawn - start) for start in range(0, drawn, size)]
        if (
            same.effective_batch != drawn
            or sum(counts) != same.accepted
            or len(counts) != len(sizes)
            or any(not 0 <= count <= most for count, most in zip(counts, sizes, strict=True))
        ):
            yield "accumulation", "accumulated other examples than it says"


def _timed(found: Findings, rate: Throughput, plain: int, own: int) -> Iterator[Misfit]:
    asked, same = found.asked, found.accumulation
    wanted = (passes(asked.effective_batch, plain), passes(asked.recomputed_batch, own))
    if (rate.plain_microbatches, rate.recomputed_microbatches) != wanted:
        yield "throughput", "timed other microbatches than it says"
    if not asked.timing.min_pairs <= rate.timing.pairs <= asked.timing.max_pairs:
        yield "throughput", "timed another number of pairs than was declared"
    is_same_batch = asked.recomputed_batch == asked.effective_batch
    if (
        (same is not None and rate.plain_examples != same.accepted)
        or (is_same_batch and rate.recomputed_examples != rate.plain_examples)
        or rate.plain_examples > asked.effective_batch
        or rate.recomputed_examples > asked.recomputed_batch
    ):
        yield "throughput", "timed other examples than it accumulated"


def _trained(found: Findings, plain: int, own: int) -> Iterator[Misfit]:
    wanted = {(side, seed) for seed in found.asked.training.seeds for side in SIDES}
    for run in found.runs:
        name = training_name(run.side, run.seed)
        yield from ((name, what) for what in _trained_one(found, run, plain, own))
        if (run.side, run.seed) not in wanted:
            yield name, "trained other runs than were asked for"
    looked = {tuple((one.row, one.receipt, one.label) for one in run.seen) for run in found.runs}
    digests = {run.data_digest for run in found.runs}
    for run in found.runs:  # which of them is the odd one cannot be told
        if len(digests) > 1:
            yield training_name(run.side, run.seed), "trained on other photos in one run than in another"
        if len(looked) > 1:
            words = "looked at other validation photos in one run than in another"
            yield training_name(run.side, run.seed), words


def _trained_one(found: Findings, run: TrainingRun, plain: int, own: int) -> Iterator[str]:
    asked = found.asked
    batch = asked.batch_of(run.side)
    if (run.microbatch, run.effective_batch) != (plain if run.side == "plain" else own, batch):
        yield f"trained {run.side} with other batches than it says"
    if [one.number for one in run.updates] != list(range(1, asked.updates_of(run.side) + 1)):
        yield f"trained {run.side} for another number of updates than it says"
    if any(one.accepted > batch for one in run.updates):
        yield f"trained {run.side} on more examples than it drew"
    if not {s.label for s in run.seen} | {s.predicted for s in run.seen} <= set(LABELS):
        yield "knows a class that there is not"
