"""What a report says of a second use of saved memory: the finished reinvestments of its plan.

They are evidence like any other: each result follows again from its raw samples, training runs included.
Nothing of it touches the decision on the plan itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ..reinvest.asked import SIDES
from ..reinvest.fitting import misfits
from ..reinvest.found import ClassRecall, Findings, ReinvestGate
from ..reinvest.kept import is_moment, runs
from ..reinvest.result import findings_of, judged, plain_microbatch
from ..results import Measured, StudyResult, Verdict
from ..spec import StudySpec, explain
from ..studies.store import Store


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
    seeds: tuple[int, ...]
    """Of the training runs; empty without training."""
    examples: int
    """Drawn in each training run; 0 without."""
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
        seeds=training.seeds if training else (),
        examples=training.examples if training else 0,
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
    if not is_moment(found.declared_at):
        yield "was declared at no moment that there is"
    yield from (what for _, what in misfits(found, plain_microbatch(spec, asked.shape)))
    wanted = [(side, seed) for seed in asked.training.seeds for side in SIDES]
    if found.runs and [(run.side, run.seed) for run in found.runs] != wanted:
        yield "trained other runs than were asked for"
    reaches, same = found.reaches, found.accumulation
    if reaches is not None and reaches.batch.budget_bytes != candidate.candidate.memory.plain.peak_bytes:
        yield "has another budget than plain's measured peak"
    reference = result.references.get(asked.shape)
    if reference is None:
        return
    prints = reference.fingerprints
    if (
        same is not None
        and prints is not None
        and {f"grad/{gap.name}" for gap in same.gaps}
        != {one.name for one in prints if one.name.startswith("grad/")}
    ):
        yield "compared other gradients than plain's update left"
    if any(run.data_digest != reference.data_digest for run in found.runs):
        yield "trained on other photos than the study's"
