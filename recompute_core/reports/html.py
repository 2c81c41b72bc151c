"""A decision as a page that a person reads: `report.html`, one file that needs nothing else.

What was decided stands in the predicate; the records behind it are read from the same evidence.
"""

import hashlib
from typing import Any

from ..rerun import said_of_reruns
from ..results import Candidate, StudyResult
from .evidence import Found
from .page.document import document
from .page.view import ReportView, Rollback, ShapeView, SignedFile
from .predicate import Predicate, ShapeDecision

_ELSEWHERE = {"workload", "shapes", "plans", "custom_plans", "thresholds", "silence_s", "follows"}
"""Of the specification: what the page shows in other places, and what no figure depends on."""


def render(predicate: Predicate, found: Found) -> bytes:
    """The page, UTF-8: the same evidence gives the same bytes."""
    return document(view_of(predicate, found))


def preview(predicate: Predicate, found: Found) -> bytes:
    """The page, with a line above it that nobody has signed it."""
    return document(view_of(predicate, found), is_preview=True)


def view_of(predicate: Predicate, found: Found) -> ReportView:
    """What the page shows."""
    result = found.result
    candidates = {one.candidate.shape_key: one.candidate for one in result.judged}
    shapes = tuple(_shape(said, candidates[said.shape_key], result) for said in predicate.shapes)
    declared = predicate.declared
    return ReportView(
        plan=predicate.plan,
        verdict=predicate.verdict,
        sentence=predicate.sentence,
        shapes=shapes,
        thresholds=declared.thresholds,
        declared_at=declared.declared_at,
        first_measured_at=declared.first_measured_at,
        reruns=said_of_reruns(declared.follows, declared.thresholds),
        workload={
            k: v for k, v in predicate.workload.items() if k != "anatomy" and not _are_names(k, v)
        },
        regions=predicate.regions,
        blocks=next((kept.blocks for kept in result.references.values()), ()),
        study_id=predicate.study.id,
        plan_hash=predicate.plan_hash,
        spec_hash=predicate.study.spec_hash,
        settings=found.asked.model_dump(mode="json", exclude=_ELSEWHERE),
        environment=predicate.environment,
        rollback=Rollback(
            predicate.rollback.words,
            predicate.rollback.code,
            tuple(proof.sentence for proof in predicate.rollback.proof),
        ),
        second_use=predicate.second_use,
        not_claimed=predicate.not_claimed,
        not_recorded=predicate.not_recorded,
        files=tuple(_signed(name, data) for name, data in sorted(found.files.items())),
    )


def _are_names(key: str, value: Any) -> bool:
    """Of somebody's own model: its blocks by name, which the page shows in other places."""
    return key == "blocks" and not isinstance(value, int)


def _shape(said: ShapeDecision, candidate: Candidate, result: StudyResult) -> ShapeView:
    return ShapeView(
        shape_key=said.shape_key,
        shape=said.shape,
        verdict=said.verdict,
        gates=said.gates,
        parity=candidate.parity,
        canary=candidate.canary,
        memory=candidate.memory,
        timing=candidate.timing,
        reference=result.references.get(said.shape_key),
        legality=candidate.legality or (),
        troubles=said.troubles,
    )


def _signed(name: str, data: bytes) -> SignedFile:
    return SignedFile(f"evidence/{name}", len(data), hashlib.sha256(data).hexdigest())
