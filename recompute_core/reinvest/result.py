"""From a run's files to its result: one function for page, command line and report. No torch."""

from collections.abc import Sequence
from statistics import fmean

from ..intervals import median
from ..settings import ReceiptsSettings, shape_key, size_fields
from ..spec import StudySpec
from ..workloads.receipts.labels import LABELS, RARE
from .asked import SIDES, ReinvestSpec, Side
from .fitting import fitting
from .found import (
    Accumulation,
    ClassRecall,
    Findings,
    Rare,
    Reach,
    Reaches,
    ReinvestResult,
    Seen,
    Throughput,
    Training,
    TrainingRun,
    Tried,
    used_microbatch,
)
from .gates import gates_of, no_fewer_passes, objective_of, sentence_of, verdict_of
from .kept import Kept, training_name
from .recall import paired, receipt_recalls, seeds_reach


def result_of(kept: Kept) -> ReinvestResult:
    """What a run has found so far, judged by its declared thresholds."""
    found = findings_of(kept)
    result = judged(found, kept.store.study(kept.asked.study).spec)
    status = kept.status(result.verdict is not None)
    return result.model_copy(update={"status": status, "failure": kept.failure()})


def findings_of(kept: Kept) -> Findings:
    """A run's files as one record; a phase that does not fit the others has not been done."""
    spec = kept.store.study(kept.asked.study).spec
    return fitting(_read(kept, spec), plain_microbatch(spec, kept.asked.shape))


def _read(kept: Kept, spec: StudySpec) -> Findings:
    names = [(side, seed) for seed in kept.asked.training.seeds for side in SIDES]
    runs = [kept.read(training_name(*name), TrainingRun) for name in names]
    return Findings(
        run_id=kept.run_id,
        asked=kept.asked,
        declared_at=kept.declared_at,
        environment=kept.environment(),
        reaches=_reaches(kept, spec),
        used=kept.read("used", Tried),
        accumulation=kept.read("accumulation", Accumulation),
        throughput=kept.read("throughput", Throughput),
        runs=tuple(
            run
            for name, run in zip(names, runs, strict=True)
            if run is not None and (run.side, run.seed) == name
        ),
    )


def _reaches(kept: Kept, spec: StudySpec) -> Reaches | None:
    """How far it goes, once it is known in every size that the workload has."""
    batch, seq_len = kept.read("batch", Reach), kept.read("seq_len", Reach)
    if batch is None or (seq_len is None and "seq_len" in size_fields(spec.workload)):
        return None
    return Reaches(batch=batch, seq_len=seq_len)


def judged(found: Findings, spec: StudySpec) -> ReinvestResult:
    """The result that follows from what was found, in a study of `spec`; a pure function.

    Its status is `done` once there is a verdict, and `incomplete` before.
    """
    asked, reaches, used = found.asked, found.reaches, found.used
    not_trained = why_not_trained(spec, asked)
    is_trained = len(found.runs) == len(SIDES) * len(asked.training.seeds)
    training = training_of(asked, found.runs) if is_trained and not_trained is None else None
    useless = None if reaches is None else no_fewer_passes(asked, reaches.batch)
    if reaches is None:
        is_complete = False
    elif used_microbatch(asked, reaches.batch) is None:
        not_trained = useless or "No larger microbatch fits, so that there is nothing to train."
        is_complete = True
    elif used is not None and used.peak_bytes is None:
        not_trained = "The microbatch could not be measured."
        is_complete = True
    else:
        is_measured = None not in (used, found.accumulation, found.throughput)
        is_complete = is_measured and (training is not None or not_trained is not None)
    gates = gates_of(asked, reaches, used, found.accumulation, found.throughput, training, not_trained)
    verdict = verdict_of(gates) if is_complete else None
    if verdict is not None and useless is not None:
        verdict = "keep_original"
    return ReinvestResult(
        run_id=found.run_id,
        status="done" if is_complete else "incomplete",
        verdict=verdict,
        sentence=sentence_of(asked, verdict, gates, used, useless),
        objective=objective_of(asked, found.accumulation),
        asked=asked,
        asked_digest=asked.digest(),
        declared_at=found.declared_at,
        environment=found.environment,
        microbatch=None if used is None else used.size,
        plain_microbatch=plain_microbatch(spec, asked.shape),
        reaches=reaches,
        used=used,
        accumulation=found.accumulation,
        throughput=found.throughput,
        training=training,
        not_trained=not_trained,
        gates=gates,
    )


def plain_microbatch(spec: StudySpec, shape: str) -> int:
    """The batch of a study's shape, by its key."""
    sized = (spec.at(sizes) for sizes in spec.shapes)
    found = next((one.batch for one in sized if shape_key(one) == shape), None)
    return found or 1


def trains(spec: StudySpec) -> bool:
    """Whether the workload has a rare class to look at."""
    return isinstance(spec.workload, ReceiptsSettings)


def why_not_trained(spec: StudySpec, asked: ReinvestSpec) -> str | None:
    """Why there are no training runs; None where there are."""
    if not trains(spec):
        return f"{spec.workload.name} has no rare class to look at; the receipts workload has."
    return None if asked.training.seeds else "No seed was asked for."


def training_of(asked: ReinvestSpec, runs: Sequence[TrainingRun]) -> Training:
    """All runs in figures: recall by class and receipt, and what the rare class lost."""
    by_side = {side: [run for run in runs if run.side == side] for side in SIDES}
    once = by_side["plain"][0].seen
    classes = [_recall(label, once, by_side) for label in LABELS if any(s.label == label for s in once)]
    plain, other = ([one for run in by_side[side] for one in run.seen] for side in SIDES)
    pairs = list(zip(plain, other, strict=True))
    return Training(
        seeds=asked.training.seeds,
        examples=asked.updates_of("plain") * asked.effective_batch,
        classes=tuple(classes),
        rare=_rare(asked, runs[0], once, by_side),
        accuracy={side: tuple(_accuracy(run.seen) for run in by_side[side]) for side in SIDES},
        disagreements=(
            sum(_is_right(p) and not _is_right(r) for p, r in pairs),
            sum(_is_right(r) and not _is_right(p) for p, r in pairs),
        ),
        seconds_per_update={
            side: median([one.seconds for run in by_side[side] for one in run.updates]) for side in SIDES
        },
    )


def _recall(label: str, once: Sequence[Seen], by_side: dict[Side, list[TrainingRun]]) -> ClassRecall:
    shares = {side: _receipts(label, by_side[side]) for side in SIDES}
    by_seed = {side: tuple(fmean(one.values()) for one in shares[side]) for side in SIDES}
    return ClassRecall(
        label=label,
        receipts=len(shares["plain"][0]),
        photos=sum(one.label == label for one in once),
        plain=fmean(by_seed["plain"]),
        recomputed=fmean(by_seed["recomputed"]),
        by_seed=by_seed,
        seeds_reach={side: seeds_reach(shares[side]) for side in SIDES},
    )


def _rare(
    asked: ReinvestSpec, run: TrainingRun, once: Sequence[Seen], by_side: dict[Side, list[TrainingRun]]
) -> Rare | None:
    found = paired(*(_receipts(RARE, by_side[side]) for side in SIDES))
    if found is None:
        return None
    return Rare(
        label=RARE,
        receipts=found.receipts,
        photos=sum(one.label == RARE for one in once),
        train_receipts=run.rare_receipts,
        train_photos=run.rare_photos,
        plain=found.plain,
        loss=found.loss,
        loss_ci95=found.interval(),
        seeds_reach=found.seeds,
        receipts_to_settle=found.receipts_to_settle(asked.thresholds.rare_recall_loss),
    )


def _receipts(label: str, runs: Sequence[TrainingRun]) -> list[dict[str, float]]:
    return [
        receipt_recalls((one.receipt, _is_right(one)) for one in run.seen if one.label == label)
        for run in runs
    ]


def _accuracy(seen: Sequence[Seen]) -> float:
    return sum(map(_is_right, seen)) / len(seen)


def _is_right(one: Seen) -> bool:
    return one.label == one.predicted
