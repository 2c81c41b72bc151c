"""What a report says of a second use of saved memory: the finished reinvestments of its plan.

They are evidence like any other: each result follows again from its raw samples, training runs included.
Nothing of it touches the decision on the plan itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ..reinvest.asked import SIDES, passes
from ..reinvest.found import Accumulation, ClassRecall, Findings, ReinvestGate, used_microbatch
from ..reinvest.kept import runs
from ..reinvest.result import findings_of, judged, plain_microbatch
from ..results import Measured, StudyResult, Verdict
from ..spec import StudySpec, explain
from ..studies.store import Store
from ..workloads.receipts.labels import LABELS


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
    classes: tuple[ClassRecall, ...]
    accuracy: dict[str, tuple[float, ...]]
    """On validation, by side and seed; empty without training."""


def finished(store: Store, study: str, plan: str) -> list[Findings]:
    """Every finished reinvestment of a plan, the newest first: none hides another that failed."""
    spec = store.study(study).spec
    found = [findings_of(kept) for kept in runs(store, study) if kept.asked.plan == plan]
    return [one for one in found if judged(one, spec).verdict is not None]


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
        classes=training.classes if training else (),
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
    if found.run_id != asked.run_id:
        yield "goes by another name than what was asked gives it"
    if found.declared_at < result.declared_at:
        yield "was declared before the study"
    plain = plain_microbatch(spec, asked.shape)
    reaches, used = found.reaches, found.used
    if reaches is not None:
        if reaches.batch.budget_bytes != candidate.candidate.memory.plain.peak_bytes:
            yield "has another budget than plain's measured peak"
        if reaches.batch.plain_size != plain:
            yield "has another microbatch of plain than the study"
        if used is not None and used.size != used_microbatch(asked, reaches.batch):
            yield "uses another microbatch than the one that follows from what fits"
        if used is not None and any(
            one.size == used.size and one != used for one in reaches.batch.tried
        ):
            yield "measured the microbatch that it uses twice, and otherwise"
    if used is None:
        return
    if used.peak_bytes is not None and used.bitwise is None and used.without_plain is None:
        yield "measured a microbatch whose parity did not pass"
    wanted = (passes(asked.effective_batch, plain), passes(asked.recomputed_batch, used.size))
    rate, same = found.throughput, found.accumulation
    if rate is not None and (rate.plain_microbatches, rate.recomputed_microbatches) != wanted:
        yield "timed other microbatches than it says"
    if rate is not None and not (
        asked.timing.min_pairs <= len(rate.timing.samples) <= asked.timing.max_pairs
    ):
        yield "timed another number of pairs than was declared"
    if same is not None:
        yield from _accumulated(found, same, plain, used.size)
        reference = result.references.get(asked.shape)
        prints = None if reference is None else reference.fingerprints
        if prints is not None and {f"grad/{gap.name}" for gap in same.gaps} != {
            one.name for one in prints if one.name.startswith("grad/")
        }:
            yield "compared other gradients than plain's update left"
    if same is not None and rate is not None and rate.plain_examples != same.accepted:
        yield "timed other examples than it accumulated"
    yield from _runs(found, plain, used.size)


def _accumulated(found: Findings, same: Accumulation, plain: int, own: int) -> Iterator[str]:
    drawn = found.asked.effective_batch
    for counts, size in ((same.plain_microbatches, plain), (same.recomputed_microbatches, own)):
        sizes = [min(size, drawn - start) for start in range(0, drawn, size)]
        if (
            same.effective_batch != drawn
            or sum(counts) != same.accepted
            or len(counts) != len(sizes)
            or any(not 0 <= count <= most for count, most in zip(counts, sizes, strict=True))
        ):
            yield "accumulated other examples than it says"


def _runs(found: Findings, plain: int, microbatch: int) -> Iterator[str]:
    asked = found.asked
    wanted = [(side, seed) for seed in asked.training.seeds for side in SIDES]
    if found.runs and [(run.side, run.seed) for run in found.runs] != wanted:
        yield "trained other runs than were asked for"
    for run in found.runs:
        updates = asked.updates_of(run.side)
        sizes = (plain if run.side == "plain" else microbatch, asked.batch_of(run.side))
        if (run.microbatch, run.effective_batch) != sizes:
            yield f"trained {run.side} with other batches than it says"
        if [one.number for one in run.updates] != list(range(1, updates + 1)):
            yield f"trained {run.side} for another number of updates than it says"
        if run.data_digest != found.runs[0].data_digest:
            yield "trained on other photos in one run than in another"
        if not {s.label for s in run.seen} | {s.predicted for s in run.seen} <= set(LABELS):
            yield "knows a class that there is not"
        if [(s.row, s.receipt, s.label) for s in run.seen] != [
            (s.row, s.receipt, s.label) for s in found.runs[0].seen
        ]:
            yield "looked at other validation photos in one run than in another"
