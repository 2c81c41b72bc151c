"""What a report says: our predicate, and how it follows from the evidence, by one pure function.

`report` signs what `derive` gives; `verify` derives it once more from the evidence it was handed.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..gates import candidate_sentence, stuck_sentence, told_of_plan
from ..plans.names import budget_of, plan_hash
from ..rerun import said_of_reruns
from ..results import (
    Candidate,
    FigureKind,
    Gate,
    Judged,
    Measured,
    Memory,
    MemoryPair,
    OptimizerUsed,
    ParityFailed,
    ParityPassed,
    Reference,
    RngUsed,
    StudyResult,
    Timing,
    Verdict,
)
from ..spec import CheckpointSettings, Earlier, Region, Thresholds
from ..words import count
from .agreement import check_agreement
from .claims import not_claimed, rollback_code, rollback_words
from .evidence import STUDY, Evidence, Found
from .read_evidence import read_evidence
from .refusal import CANNOT_BE, Untrusted, contradiction, quoted
from .second_use import SecondUse, said


class Said(BaseModel):
    """A part of a predicate; it never changes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class StudyFacts(Said):
    """Which study it is."""

    id: str
    created_at: str
    """UTC, ISO 8601."""
    status: str
    """`done`, or `incomplete` when a measurement could not be completed."""
    spec_hash: str
    """SHA-256 of the whole specification as it was declared, thresholds included."""


class Declared(Said):
    """The thresholds, and that they were there first."""

    thresholds: Thresholds
    declared_at: str
    """UTC, ISO 8601."""
    first_measured_at: str
    """When the first phase of plain or of the plan began."""
    follows: Annotated[tuple[Earlier, ...], Field(exclude_if=lambda earlier: not earlier)] = ()
    """The studies that this one repeats, as it declared, oldest first; not written if none."""


class Figure(Said):
    """One figure of plain and of the plan, alike."""

    name: str
    unit: Literal["bytes", "seconds", "FLOPs", "calls"]
    plain: float | int | None
    candidate: float | int | None
    kind: FigureKind
    source: str
    """What counted it."""
    not_measured: str | None = None
    """Why there is none."""


class ParityFacts(Said):
    """The recomputed update against plain's."""

    bitwise: bool
    tensors: int
    """How many were compared."""
    largest_gradient_gap: float | None
    largest_relative_gap: float | None
    noise_floor: float | None
    """Largest relative gap of plain against plain."""


class CanaryFacts(Said):
    """The replay that was broken on purpose."""

    caught: bool
    block: str
    broken: str
    largest_relative_gap: float | None


class References(Said):
    """What the update was run on and what it gave, by digest; None where a study recorded none."""

    update: str
    """SHA-256 of plain's outputs, gradients, next weights, buffers and random states."""
    batch: str
    data: str | None
    loss: float
    optimizer: OptimizerUsed | None
    """With the digest of its state."""
    rng: RngUsed | None
    """How random numbers were drawn and replayed."""


class ShapeDecision(Said):
    """What was found at one shape."""

    shape_key: str
    shape: dict[str, int]
    state: Literal["measured", "proven", "refused"]
    stopped_by: str | None
    """What refused the plan here."""
    verdict: Verdict
    sentence: str
    gates: tuple[Gate, ...]
    parity: ParityFacts | None
    canary: CanaryFacts | None
    figures: tuple[Figure, ...]
    troubles: tuple[str, ...]
    """Why it was refused or not measured in full."""
    references: References | None


class RollbackProof(Said):
    """Whether plain was plain again once the plan was off."""

    shape_key: str
    is_plain: bool | None
    """None: the study has not looked."""
    bitwise: bool | None
    """Whether every tensor of the update equals the reference to the last bit."""
    compared: int
    """How many tensors were compared."""
    sentence: str


class Rollback(Said):
    """How the plan is taken off."""

    words: str
    code: str
    proof: tuple[RollbackProof, ...]


class Predicate(Said):
    """A decision on one plan, `https://recompute-studio.dev/decision/v1`."""

    TYPE: ClassVar = "https://recompute-studio.dev/decision/v1"
    ASKED: ClassVar = f"evidence/{STUDY}"
    """The file that says what was asked."""

    schema_name: Literal["recompute-decision/1"] = Field("recompute-decision/1", alias="schema")
    made_by: str
    """Which version of ours wrote it."""
    study: StudyFacts
    workload: dict[str, Any]
    plan: str
    plan_hash: str
    regions: tuple[Region, ...]
    """What is recomputed as one, outer regions first."""
    checkpoint: CheckpointSettings
    verdict: Verdict
    sentence: str
    declared: Declared
    shapes: tuple[ShapeDecision, ...]
    environment: dict[str, Any]
    revisions: dict[str, Any] | None
    """The git commit, and the digests of the sources of every block's modules."""
    rollback: Rollback
    second_use: tuple[SecondUse, ...]
    """What the saved memory buys, with thresholds and a verdict of its own; empty: nobody looked."""
    not_claimed: tuple[str, ...]
    not_recorded: dict[str, str]
    """By the file that would hold it: why it is missing."""

    def document(self) -> dict[str, Any]:
        """As it is signed."""
        return self.model_dump(mode="json", by_alias=True)


def derive(evidence: Evidence) -> Predicate:
    """What follows from evidence. Raises Untrusted as `read_evidence` and `concluded`."""
    return concluded(read_evidence(evidence))


def concluded(found: Found) -> Predicate:
    """The decision on records that were read.

    Raises Untrusted: spec-hash, declared-late, incomplete, and as `check_agreement`.
    """
    check_agreement(found)
    check_spec_hash(found)
    check_declared_first(found)
    return decide(found)


def check_spec_hash(found: Found) -> str:
    """That the specification is the one that was declared; the sentence, or Untrusted."""
    if found.asked_hash != found.row.spec_hash:
        raise Untrusted(
            "spec-hash",
            f"the specification hashes to {found.asked_hash}, but the study declared "
            f"{quoted(found.row.spec_hash)}",
        )
    return f"The specification is the one that was declared, {found.row.spec_hash}."


def check_declared_first(found: Found) -> str:
    """That the thresholds were there before the first measurement; the sentence, or Untrusted."""
    first = _written(found)
    if found.declared_at > found.first_measured_at:
        raise Untrusted(
            "declared-late",
            f"the thresholds were declared at {found.row.declared_at}, after the first measurement, "
            f"which began at {first}",
        )
    when = f"The thresholds were declared at {found.row.declared_at}; measuring began at {first}."
    return " ".join((when, *said_of_reruns(found.asked.follows, found.asked.thresholds)))


def decide(found: Found) -> Predicate:
    """The decision. Raises Untrusted: incomplete, contradiction."""
    try:
        return _decided(found)
    except CANNOT_BE as error:
        raise contradiction(error) from error


def _decided(found: Found) -> Predicate:
    row, result = found.row, found.result
    if result.verdict is None:
        raise Untrusted("incomplete", f"the evidence is not that of a finished study of {found.plan}")
    shapes = tuple(_shape(one, result.references.get(one.candidate.shape_key)) for one in result.judged)
    first = result.judged[0].candidate
    return Predicate(
        schema="recompute-decision/1",
        made_by=found.made_by,
        study=StudyFacts(
            id=row.id, created_at=row.created_at, status=row.status, spec_hash=row.spec_hash
        ),
        workload=row.spec.workload.model_dump(mode="json"),
        plan=found.plan,
        plan_hash=plan_hash(first.regions, row.spec.checkpoint, budget_of(first.plan)),
        regions=first.regions,
        checkpoint=row.spec.checkpoint,
        verdict=result.verdict,
        sentence=_sentence(result),
        declared=Declared(
            thresholds=row.spec.thresholds,
            declared_at=row.declared_at,
            first_measured_at=_written(found),
            follows=row.spec.follows,
        ),
        shapes=shapes,
        environment=row.environment,
        revisions=found.revisions,
        rollback=Rollback(
            words=rollback_words(found.plan),
            code=rollback_code(found.plan),
            proof=tuple(_rolled_back(one.candidate) for one in result.judged),
        ),
        second_use=tuple(said(one, row.spec) for one in found.reinvested),
        not_claimed=not_claimed(
            row, sum(shape.state == "measured" for shape in shapes), found.not_recorded
        ),
        not_recorded=found.not_recorded,
    )


def _sentence(result: StudyResult) -> str:
    """The verdict on the plan: as of a study, but where it misses, at the first shape where it does."""
    stopped = any(getattr(one.candidate, "stopped_by", None) == "canary" for one in result.judged)
    missed = [one for one in result.judged if one.verdict == result.verdict]
    if result.verdict == "adopt" or stopped or not missed:
        return result.sentence
    shapes = len(result.judged)
    more = f" This is the verdict at {len(missed)} of {shapes} shapes." if shapes > 1 else ""
    return candidate_sentence(told_of_plan(result.judged, missed[0].candidate.plan)) + more


def _written(found: Found) -> str:
    return found.first_measured_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- one shape -------------------------------------------------------------------------------


def _shape(one: Judged, reference: Reference | None) -> ShapeDecision:
    candidate = one.candidate
    canary = candidate.canary
    return ShapeDecision(
        shape_key=candidate.shape_key,
        shape=candidate.shape,
        state=candidate.state,
        stopped_by=getattr(candidate, "stopped_by", None),
        verdict=one.verdict,
        sentence=candidate_sentence(one),
        gates=one.gates,
        parity=_parity(candidate.parity),
        canary=canary
        and CanaryFacts(
            caught=canary.caught,
            block=canary.block,
            broken=canary.break_,
            largest_relative_gap=canary.largest_relative_gap,
        ),
        figures=tuple(_figures(candidate)),
        troubles=candidate.troubles,
        references=reference
        and References(
            update=reference.digest,
            batch=reference.batch_digest,
            data=reference.data_digest,
            loss=reference.loss,
            optimizer=reference.optimizer,
            rng=reference.rng,
        ),
    )


def _parity(parity: ParityPassed | ParityFailed | None) -> ParityFacts | None:
    if parity is None:
        return None
    return ParityFacts(
        bitwise=parity.bitwise,
        tensors=len(parity.gaps),
        largest_gradient_gap=parity.largest_gradient_gap,
        largest_relative_gap=parity.largest_relative_gap,
        noise_floor=parity.noise_floor,
    )


def _figures(candidate: Candidate) -> Iterator[Figure]:
    if candidate.memory is not None:
        yield from _memory(candidate.memory)
    if candidate.timing is not None:
        yield _time(candidate.timing)
    if isinstance(candidate, Measured):
        yield Figure(
            name="flops",
            unit="FLOPs",
            plain=candidate.flops["plain"],
            candidate=candidate.flops["candidate"],
            kind="measured",
            source="floating-point operations of one update, counted as they ran",
        )
        calls = {side: sum(each.values()) for side, each in candidate.block_calls.items()}
        yield Figure(
            name="block_calls",
            unit="calls",
            plain=calls.get("plain"),
            candidate=calls.get("candidate"),
            kind="measured",
            source="forward calls of all blocks in one update",
            not_measured=None if calls else "a compiled graph makes no calls that could be counted",
        )


_MEMORY = (
    "saved_bytes",
    "naive_saved_bytes",
    "state_bytes",
    "peak_bytes",
    "peak_above_state_bytes",
    "peak_reserved_bytes",
    "process_peak_bytes",
)
_SOURCES = {
    "saved_bytes": "what autograd keeps for backward, once per storage: saved-tensor hooks, exact",
    "naive_saved_bytes": "what autograd keeps for backward, once per pointer: saved-tensor hooks, exact",
    "state_bytes": "parameters, buffers, gradients, optimizer state and inputs, added up",
}
"""Of figures that are not the allocator's."""


def _memory(memory: MemoryPair) -> Iterator[Figure]:
    for name in _MEMORY:
        plain, candidate = getattr(memory.plain, name), getattr(memory.candidate, name)
        missing = memory.candidate.not_measured.get(name) or memory.plain.not_measured.get(name)
        is_there = plain is not None and candidate is not None
        yield Figure(
            name=name,
            unit="bytes",
            plain=plain,
            candidate=candidate,
            kind=memory.candidate.kind,
            source=_source(name, memory.candidate),
            not_measured=None if is_there else missing or "the meter gave none",
        )


def _source(name: str, memory: Memory) -> str:
    if name == "process_peak_bytes":
        return memory.process_peak_source
    return _SOURCES.get(name, memory.source)


def _time(timing: Timing) -> Figure:
    return Figure(
        name="update_s",
        unit="seconds",
        plain=timing.plain_median_s,
        candidate=timing.update_s,
        kind=timing.kind,
        source=f"plain's median of {timing.pairs} pairs, and that times the median of their ratios: "
        f"{timing.source}",
    )


def _rolled_back(candidate: Candidate) -> RollbackProof:
    shape, parity = candidate.shape_key, candidate.parity
    look = None if parity is None else parity.rollback
    if parity is None or look is None:
        why = "has passed nothing" if parity is None or not parity.passed else "left no such record"
        sentence = f"Not looked at: the plan {why} at {shape}."
        return RollbackProof(shape_key=shape, is_plain=None, bitwise=None, compared=0, sentence=sentence)
    is_plain = look.is_plain(parity.noise_floor)
    again = "replay" if parity.compiled is None else "replayed op"
    tried = (
        f"An update ran under the plan at {shape}, {count(look.replays_before, again)} in it, then "
        "the plan was taken off"
        if look.replays_before
        else f"Plan put on and taken off at {shape}, no update in between"
    )
    if not is_plain:
        sentence = stuck_sentence(look, parity.noise_floor)
    elif look.bitwise:
        sentence = (
            f"{tried}: nothing is left on the model, and all {look.compared} tensors of the next update "
            "equal plain's to the last bit."
        )
    else:
        sentence = (
            f"{tried}: nothing is left on the model, and the next update differs from plain's no more "
            "than plain does from itself on this device."
        )
    return RollbackProof(
        shape_key=shape,
        is_plain=is_plain,
        bitwise=look.bitwise,
        compared=look.compared,
        sentence=sentence,
    )
