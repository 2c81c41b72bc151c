"""Evidence that strangers handed over, as a study's own records: checked file by file, believed nowhere.

Whether the records agree with each other, `agreement` looks.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import InputError
from ..plans.custom import check_custom_plans
from ..plans.names import regions_of
from ..reinvest.found import Findings
from ..results import ParityFailed
from ..spec import StudySpec, Thresholds, digest_of, explain
from ..studies.artifacts import trace_name
from ..studies.flow import PLAIN
from ..studies.store import Cell, Phase, StudyRow
from ..words import utc_moment
from . import second_use
from .evidence import (
    CELLS,
    MOST_BYTES,
    MOST_PAIRS,
    REINVESTED,
    REVISIONS,
    STUDY,
    Evidence,
    Found,
    file_digest,
    names_at,
    noted_revisions,
    raw_payload,
    shapes_of,
    timeline_name,
)
from .refusal import Untrusted, quoted
from .strict_json import canonical, parse


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


_Any = TypeVar("_Any", bound=_Form)


class _StudyFile(_Form):
    schema_name: Literal["recompute-evidence/1"] = Field(alias="schema")
    made_by: str
    id: str
    candidate: str
    created_at: str
    declared_at: str
    status: Literal["done", "incomplete"]
    spec: dict[str, Any]
    spec_hash: str
    environment: dict[str, Any]
    not_recorded: dict[str, str]


class _CellRow(_Form):
    shape_key: str
    plan: str
    phase: Phase
    state: Literal["done", "failed"]
    payload: dict[str, Any] | None
    reason: str | None
    started_at: float
    seconds: float | None


def read_evidence(evidence: Evidence) -> Found:
    """The records in evidence whose digests were verified; whether they agree, `agreement` looks.

    Raises Untrusted: evidence-missing, evidence-form, and as `parse`.
    """
    about = _form(_StudyFile, _json(evidence, STUDY), STUDY)
    spec = _spec(about.spec)
    if about.candidate not in spec.plans:
        raise _odd(STUDY, f"the candidate {quoted(about.candidate)} is not a plan of the study")
    for name, moment in (("created_at", about.created_at), ("declared_at", about.declared_at)):
        try:
            utc_moment(moment)
        except (ValueError, OverflowError):
            raise _odd(STUDY, f"{name} {quoted(moment)} is no time") from None
    row = StudyRow(
        id=about.id,
        created_at=about.created_at,
        declared_at=about.declared_at,
        spec=spec.model_copy(update={"plans": (about.candidate,)}),
        spec_hash=about.spec_hash,
        status=about.status,
        environment=about.environment,
        verdict=None,
        sentence="",
        cancel=False,
    )
    _check_names(evidence, about.not_recorded, spec, about.candidate)
    listed = _json(evidence, CELLS)
    cells = _cells(listed, evidence, spec, about.candidate)
    _check_traces(evidence, cells, spec, about.candidate)
    revisions = _json(evidence, REVISIONS)
    if canonical(revisions) != canonical(noted_revisions(row, listed)):
        raise _odd(REVISIONS, "is not what the reference phases have noted")
    return Found(
        row=row,
        asked=spec,
        asked_hash=digest_of(about.spec),
        cells=cells,
        plan=about.candidate,
        revisions=revisions,
        not_recorded=about.not_recorded,
        made_by=about.made_by,
        files=evidence,
        reinvested=_reinvested(evidence),
    )


def _reinvested(evidence: Evidence) -> tuple[Findings, ...]:
    if REINVESTED not in evidence:
        return ()
    listed = _json(evidence, REINVESTED)
    try:
        found = second_use.read(listed)
    except ValueError as error:
        raise _odd(REINVESTED, quoted(str(error))) from None
    if not says_no_more(listed, second_use.written(found)):
        raise _odd(REINVESTED, "holds something that is no finding of this version")
    return found


def _check_names(evidence: Evidence, missing: Mapping[str, str], spec: StudySpec, plan: str) -> None:
    """That every file of a study is here, or else is said to be missing, and no other is."""
    needed = (STUDY, CELLS, REVISIONS)
    optional = [name for shape in shapes_of(spec) for name in names_at(shape, plan)] + [REINVESTED]
    for name in needed + tuple(one for one in optional if one not in missing):
        if name not in evidence:
            raise Untrusted("evidence-missing", f"evidence/{name}: is missing, and nothing says why")
    for name in missing:
        if name not in optional:
            raise _odd(STUDY, f"not_recorded: {quoted(name)} is no file of this study")
        if name in evidence:
            raise _odd(STUDY, f"not_recorded: {name} is here")
    for name in evidence:
        if name not in needed and name not in optional:
            raise _odd(name, "is no file of this study")


def _spec(raw: dict[str, Any]) -> StudySpec:
    try:
        spec = StudySpec.model_validate(raw)
    except ValidationError as error:
        raise _odd(STUDY, f"spec: {quoted(explain(error))}") from None
    if not says_no_more(raw, spec.model_dump(mode="json")):
        raise _odd(STUDY, "spec: holds something that is no setting of this version")
    try:
        check_custom_plans(spec)
        for plan in spec.plans:
            regions_of(spec, plan)
    except InputError as error:
        raise _odd(STUDY, f"spec: {quoted(str(error))}") from None
    return spec


def _cells(listed: Any, evidence: Evidence, spec: StudySpec, plan: str) -> list[Cell]:
    if not isinstance(listed, list) or not listed:
        raise _odd(CELLS, "expected a list of what the phases found")
    timelines = {shape: _timelines(evidence, shape) for shape in shapes_of(spec)}
    cells: dict[tuple[str, str, Phase], Cell] = {}
    for number, raw in enumerate(listed):
        row = _form(_CellRow, raw, f"{CELLS}[{number}]")
        where = f"{row.phase} of {quoted(row.plan)} at {quoted(row.shape_key)}"
        if row.shape_key not in timelines or row.plan not in (PLAIN, plan):
            raise _odd(CELLS, f"{where}: is no part of this report")
        if (row.shape_key, row.plan, row.phase) in cells:
            raise _odd(CELLS, f"{where}: stands twice")
        if (row.state == "done") == (row.payload is None) or (row.state == "failed") == (not row.reason):
            raise _odd(CELLS, f"{where}: expected a finding or else a reason")
        if not 0 <= row.started_at < 1e11:
            raise _odd(CELLS, f"{where}: began at no time")
        payload = row.payload
        if payload is not None:
            side = "plain" if row.plan == PLAIN else "candidate"
            timeline = timelines[row.shape_key].pop(side, None) if row.phase == "memory" else None
            payload = _payload(row.phase, payload, timeline, where)
            if row.phase == "parity" and not payload["passed"]:
                _check_failure(payload, spec.thresholds, where)
        cells[row.shape_key, row.plan, row.phase] = Cell(
            row.shape_key,
            row.plan,
            row.phase,
            row.state,
            payload,
            row.reason,
            row.started_at,
            row.seconds,
        )
    for shape, left in timelines.items():
        if any(timeline is not None for timeline in left.values()):
            raise _odd(timeline_name(shape), "is of an update that no record is of")
    return list(cells.values())


def _payload(phase: Phase, payload: dict[str, Any], timeline: Any, where: str) -> dict[str, Any]:
    """A phase's finding as the store holds it, if it says no more than this version understands."""
    if phase == "memory":
        if "timeline" in payload:
            raise _odd(CELLS, f"{where}: the timeline belongs in a file of its own")
        payload = {**payload, "timeline": timeline}
    try:
        understood = raw_payload(phase, payload)
    except ValidationError as error:
        raise _odd(CELLS, f"{where}: {quoted(explain(error))}") from None
    except KeyError as error:
        raise _odd(CELLS, f"{where}: {error.args[0]} is missing") from None
    if not says_no_more(payload, understood):
        raise _odd(CELLS, f"{where}: holds something that is no finding of this version")
    if len(payload.get("samples", ())) > MOST_PAIRS:
        raise _odd(CELLS, f"{where}: more than {MOST_PAIRS} pairs")
    if understood.get("kind", "measured") != "measured":
        raise _odd(CELLS, f"{where}: a study measures; it holds no figure that is {understood['kind']}")
    return understood


def _check_traces(evidence: Evidence, cells: list[Cell], spec: StudySpec, plan: str) -> None:
    """That each trace that is here is the one that was kept when memory was measured."""
    memory = {(cell.shape_key, cell.plan): cell.payload for cell in cells if cell.phase == "memory"}
    for shape in shapes_of(spec):
        for whose in (PLAIN, plan):
            name, kept = trace_name(shape, whose), memory.get((shape, whose)) or {}
            if name in evidence and (
                kept.get("trace") != name or kept.get("trace_digest") != file_digest(evidence[name])
            ):
                raise _odd(name, "is not the trace that was kept")


def _check_failure(payload: dict[str, Any], thresholds: Thresholds, where: str) -> None:
    """That a parity which failed names just the tensors that are off."""
    parity = ParityFailed.model_validate(payload)
    if parity.failed != parity.failures(thresholds):
        raise _odd(CELLS, f"{where}: the tensors that it says are off are not those whose gaps are")


def _timelines(evidence: Evidence, shape: str) -> dict[str, Any]:
    name = timeline_name(shape)
    if name not in evidence:
        return {}
    sides = _json(evidence, name)
    if not isinstance(sides, dict) or set(sides) != {"plain", "candidate"}:
        raise _odd(name, "expected the timelines of plain and candidate")
    return sides


def says_no_more(given: Any, understood: Any) -> bool:
    """Whether all that is given was taken for just what it is: nothing left over, nothing converted.

    What is understood may have more, settings and findings that came with a later version.
    """
    return canonical(given) == canonical(understood) or _is_within(given, understood)


def _is_within(given: Any, understood: Any) -> bool:
    if isinstance(given, dict):
        return isinstance(understood, dict) and all(
            name in understood and _is_within(value, understood[name]) for name, value in given.items()
        )
    if isinstance(given, list):
        return (
            isinstance(understood, list)
            and len(given) == len(understood)
            and all(map(_is_within, given, understood))
        )
    return isinstance(given, bool) == isinstance(understood, bool) and bool(given == understood)


def _json(evidence: Evidence, name: str) -> Any:
    if name not in evidence:
        raise Untrusted("evidence-missing", f"evidence/{name}: is missing")
    return parse(evidence[name], most_bytes=MOST_BYTES, what=f"evidence/{name}")


def _form(kind: type[_Any], raw: Any, where: str) -> _Any:
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise _odd(where, quoted(explain(error))) from None


def _odd(where: str, sentence: str) -> Untrusted:
    return Untrusted("evidence-form", f"evidence/{where}: {sentence}")
