"""From a study's cells to its result: pure, so the page, the command line and a report agree."""

from typing import Any

from pydantic import ValidationError

from ..errors import StudyError
from ..gates import candidate_sentence, gap_words, judge, stuck_sentence, study_sentence, study_verdict
from ..plans.names import budget_of, hash_of, regions_of
from ..results import (
    Candidate,
    Judged,
    Measured,
    Memory,
    MemoryPair,
    ParityFailed,
    Proven,
    Reference,
    Refused,
    StudyResult,
    Timing,
    Verdict,
)
from ..settings import shape_key, size_fields
from ..spec import StudySpec, Thresholds
from ..words import noise_found
from .flow import PLAIN, Book, block_names, module_names, next_task
from .store import Cell, Phase, StudyRow


def assemble(row: StudyRow, cells: list[Cell], thresholds: Thresholds | None = None) -> StudyResult:
    """The result of a study so far, judged by its declared thresholds.

    Other `thresholds` give a what-if: gates and verdicts change, what was measured does not. Raises
    StudyError where a record of a cell is damaged.
    """
    try:
        return _assembled(row, cells, thresholds)
    except ValidationError as error:
        raise StudyError(f"study {row.id} is damaged: a record cannot be read ({error.title})") from None


def _assembled(row: StudyRow, cells: list[Cell], thresholds: Thresholds | None) -> StudyResult:
    book = Book.of(cells)
    limits = thresholds or row.spec.thresholds
    candidates = [
        _candidate(row.spec, book, shape, plan) for shape in row.spec.shapes for plan in row.spec.plans
    ]
    judged = tuple(judge(candidate, limits) for candidate in candidates)
    verdict, sentence = _conclusion(row, book, judged)
    return StudyResult(
        study_id=row.id,
        status=row.status,
        verdict=verdict,
        sentence=sentence,
        thresholds=limits,
        declared_at=row.declared_at,
        spec=row.spec,
        spec_hash=row.spec_hash,
        environment=row.environment,
        references={
            cell.shape_key: Reference.model_validate(cell.payload)
            for cell in cells
            if cell.phase == "reference" and cell.state == "done"
        },
        judged=judged,
    )


def _conclusion(row: StudyRow, book: Book, judged: tuple[Judged, ...]) -> tuple[Verdict | None, str]:
    missed = next(
        (
            one
            for one in judged
            if isinstance(one.candidate, Refused) and one.candidate.stopped_by == "canary"
        ),
        None,
    )
    if missed is not None:
        return "undecided", candidate_sentence(missed)
    if next_task(row.spec, book) is not None:
        return None, "Not decided yet."
    return study_verdict(judged), study_sentence(judged)


def _candidate(spec: StudySpec, book: Book, shape: dict[str, int], plan: str) -> Candidate:
    settings = spec.at(shape)
    key = shape_key(settings)
    blocks = block_names(spec, plan)
    facts: dict[str, Any] = {
        "plan": plan,
        "plan_hash": hash_of(spec, plan),
        "shape": {name: getattr(settings, name) for name in size_fields(settings)},
        "shape_key": key,
        "blocks": blocks,
        "regions": regions_of(spec, plan),
    }
    refused = _refused(spec, book, key, plan, facts)
    if refused is not None:
        return refused
    legality, canary = book.legality(key), book.canary(key, plan)
    proof = book.proof(key, plan)
    assert legality and canary and proof, "a candidate that was not refused has all three"
    facts |= {
        "legality": legality.over(module_names(spec, plan)),
        "canary": canary,
        "parity": proof,
    }
    plain, own = book.done(key, PLAIN, "memory"), book.done(key, plan, "memory")
    memory = (
        MemoryPair(
            plain=Memory.model_validate(plain.payload), candidate=Memory.model_validate(own.payload)
        )
        if plain and own
        else None
    )
    timed = book.done(key, plan, "time")
    timing = Timing.model_validate(timed.payload) if timed else None
    reference = book.done(key, PLAIN, "reference")
    if memory is None or timing is None or reference is None:
        failure = _failure(book, key, PLAIN, ("memory",)) or _failure(
            book, key, plan, ("memory", "time")
        )
        return Proven(**facts, memory=memory, timing=timing, failure=failure)
    kept = Reference.model_validate(reference.payload)
    return Measured(
        **facts,
        memory=memory,
        timing=timing,
        flops={"plain": kept.flops, "candidate": proof.flops, "envelope": kept.envelope_flops},
        # Empty where the study is compiled: calls in Python cannot be counted there.
        block_calls={} if spec.compile else {"plain": kept.block_calls, "candidate": proof.block_calls},
    )


def _refused(spec: StudySpec, book: Book, key: str, plan: str, facts: dict[str, Any]) -> Refused | None:
    """The candidate's record when it has no proof of parity; None when it has one."""
    failure = _failure(book, key, PLAIN, ("reference", "noise", "legality"))
    if failure:
        return Refused(**facts, stopped_by="failure", failure=failure)
    noise, legality = book.noise(key), book.legality(key)
    off = noise.failures(spec.thresholds) if noise else ()
    if off:
        reason = f"{noise_found(spec.ranks)}: {gap_words(off[0])}"
        return Refused(**facts, stopped_by="noise", reasons=(reason,))
    if legality is None:
        return Refused(**facts, stopped_by="pending")
    facts = {**facts, "legality": legality.over(module_names(spec, plan))}
    refusals = legality.refusals(module_names(spec, plan))
    if refusals:
        return Refused(
            **facts, stopped_by="legality", reasons=tuple(reason.sentence for reason in refusals)
        )
    failure = _failure(book, key, plan, ("canary", "parity"))
    if failure:
        return Refused(**facts, stopped_by="failure", failure=failure)
    canary = book.canary(key, plan)
    facts["canary"] = canary
    if canary is not None and not canary.caught:
        reason = (
            f"the canary was missed: {canary.break_} in {canary.block}, and these thresholds let it "
            "pass; tighten relative_gap"
        )
        return Refused(**facts, stopped_by="canary", reasons=(reason,))
    cell = book.done(key, plan, "parity")
    if cell is None or canary is None or cell.payload is None:
        return Refused(**facts, stopped_by="pending")
    if cell.payload.get("passed"):
        return None
    parity = ParityFailed.model_validate(cell.payload)
    if parity.stuck is not None:
        reason = stuck_sentence(parity.stuck, parity.noise_floor)
        return Refused(**facts, stopped_by="parity", parity=parity, reasons=(reason,))
    more = len(parity.failed) - 1
    reason = f"parity fails: {gap_words(parity.failed[0])}" + (
        f", and {more} more tensors" if more else ""
    )
    if budget_of(plan) is not None and any(
        condition.code == "rng_preserved" for one in legality.blocks for condition in one.conditions
    ):
        reason += "; random ops (dropout) that a memory budget has run again draw other numbers then"
    return Refused(**facts, stopped_by="parity", parity=parity, reasons=(reason,))


def _failure(book: Book, key: str, plan: str, phases: tuple[Phase, ...]) -> str | None:
    for phase in phases:
        cell = book.cells.get((key, plan, phase))
        if cell is not None and cell.state == "failed":
            whose = "plain's " if plan == PLAIN else ""
            return f"{whose}{phase} could not be completed: {cell.reason}"
    return None
