"""What a report says of a second use of saved memory: the finished reinvestments of its plan.

They are evidence like any other: each result follows again from its raw samples, training runs included.
Nothing of it touches the decision on the plan itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ..intervals import Interval
from ..reinvest.found import SIDES, Findings, ReinvestGate
from ..reinvest.kept import runs
from ..reinvest.result import findings_of, judged, plain_microbatch, used_microbatch
from ..results import Measured, StudyResult, Verdict
from ..spec import StudySpec, explain
from ..studies.store import Store


class ClassRecalled(BaseModel):
    """Recall of one class on validation, by receipts, with Wilson's intervals."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    label: str
    receipts: int
    photos: int
    plain: float
    plain_ci95: Interval
    recomputed: float
    recomputed_ci95: Interval


class SecondUse(BaseModel):
    """One reinvestment: its own thresholds, gates and verdict."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    run_id: str
    shape_key: str
    verdict: Verdict
    sentence: str
    objective: str | None
    """Why the training objective changed, where it did."""
    plain_microbatch: int
    microbatch: int | None
    """Under the plan; None where no larger one fits."""
    effective_batch: int
    recomputed_effective_batch: int
    declared_at: str
    asked_digest: str
    """SHA-256 of all that was asked, thresholds included."""
    gates: tuple[ReinvestGate, ...]
    classes: tuple[ClassRecalled, ...]
    accuracy: dict[str, tuple[float, ...]]
    """On validation, by side and seed; empty without training."""


def finished(store: Store, study: str, plan: str) -> list[Findings]:
    """The newest finished reinvestment of a plan at each shape."""
    spec = store.study(study).spec
    found: dict[str, Findings] = {}
    for kept in runs(store, study):
        if kept.asked.plan == plan and kept.asked.shape not in found:
            findings = findings_of(kept)
            if judged(findings, spec).verdict is not None:
                found[kept.asked.shape] = findings
    return list(found.values())


def written(findings: Sequence[Findings]) -> list[dict[str, Any]]:
    """As evidence: what was found, without what follows from it."""
    return [one.model_dump(mode="json", by_alias=True, exclude_computed_fields=True) for one in findings]


def read(listed: Any) -> tuple[Findings, ...]:
    """From evidence; raises ValueError in one line."""
    if not isinstance(listed, list) or not listed:
        raise ValueError("expected a list of reinvestments")
    try:
        return tuple(Findings.model_validate(one) for one in listed)
    except ValidationError as error:
        raise ValueError(explain(error)) from None


def said(found: Findings, spec: StudySpec) -> SecondUse:
    """What follows from a finished reinvestment. Raises ValueError where it is none."""
    result = judged(found, spec)
    if result.verdict is None:
        raise ValueError(f"reinvestment {found.run_id} is not finished")
    training = result.training
    return SecondUse(
        run_id=found.run_id,
        shape_key=found.asked.shape,
        verdict=result.verdict,
        sentence=result.sentence,
        objective=result.objective,
        plain_microbatch=result.plain_microbatch,
        microbatch=result.microbatch,
        effective_batch=found.asked.effective_batch,
        recomputed_effective_batch=found.asked.recomputed_batch,
        declared_at=found.declared_at,
        asked_digest=result.asked_digest,
        gates=result.gates,
        classes=tuple(
            ClassRecalled(
                label=one.label,
                receipts=one.receipts,
                photos=one.photos,
                plain=one.plain,
                plain_ci95=one.plain_ci95,
                recomputed=one.recomputed,
                recomputed_ci95=one.recomputed_ci95,
            )
            for one in (training.classes if training else ())
        ),
        accuracy={**training.accuracy} if training else {},
    )


def disagreements(found: Findings, study: str, plan: str, result: StudyResult) -> Iterator[str]:
    """Where a reinvestment is not of this study, or its own records do not fit, in words."""
    asked, spec = found.asked, result.spec
    if (asked.study, asked.plan) != (study, plan):
        yield "is of another study or plan"
        return
    candidate = next((one for one in result.judged if one.candidate.shape_key == asked.shape), None)
    if candidate is None or not isinstance(candidate.candidate, Measured):
        yield "is at a shape that was not measured"
        return
    if candidate.verdict != "adopt":
        yield "is of a plan that did not pass its gates at this shape"
    plain = plain_microbatch(spec, asked)
    reaches, used = found.reaches, found.used
    if reaches is not None:
        if reaches.batch.budget_bytes != candidate.candidate.memory.plain.peak_bytes:
            yield "has another budget than plain's measured peak"
        if reaches.batch.plain_size != plain:
            yield "has another microbatch of plain than the study"
        if used is not None and used.size != used_microbatch(asked, reaches):
            yield "uses another microbatch than the one that follows from what fits"
    if used is None:
        return
    passes = (-(-asked.effective_batch // plain), -(-asked.recomputed_batch // used.size))
    rate, same = found.throughput, found.accumulation
    if rate is not None and (rate.plain_microbatches, rate.recomputed_microbatches) != passes:
        yield "timed other microbatches than it says"
    if rate is not None and not (
        asked.timing.min_pairs <= len(rate.timing.samples) <= asked.timing.max_pairs
    ):
        yield "timed another number of pairs than was declared"
    if same is not None and (
        same.effective_batch != asked.effective_batch
        or sum(same.plain_microbatches) != same.accepted
        or sum(same.recomputed_microbatches) != same.accepted
        or same.accepted > same.effective_batch
    ):
        yield "accumulated other examples than it says"
    yield from _runs(found, plain, used.size)


def _runs(found: Findings, plain: int, microbatch: int) -> Iterator[str]:
    asked = found.asked
    wanted = [(side, seed) for seed in asked.training.seeds for side in SIDES]
    if found.runs and [(run.side, run.seed) for run in found.runs] != wanted:
        yield "trained other runs than were asked for"
    for run in found.runs:
        batch = asked.effective_batch if run.side == "plain" else asked.recomputed_batch
        updates = max(1, asked.training.examples // batch)
        sizes = (plain if run.side == "plain" else microbatch, batch)
        if (run.microbatch, run.effective_batch) != sizes:
            yield f"trained {run.side} with other batches than it says"
        if [one.number for one in run.updates] != list(range(1, updates + 1)):
            yield f"trained {run.side} for another number of updates than it says"
        if [(s.row, s.receipt, s.label) for s in run.seen] != [
            (s.row, s.receipt, s.label) for s in found.runs[0].seen
        ]:
            yield "looked at other validation photos in one run than in another"
