"""What a decision rests on: a study, for one plan, as files. Written from a store, read from strangers.

`study.json` holds what was asked, when and on what; `cells.json` what every phase of plain and of the
plan found, at every shape; `revisions.json` which sources ran; `timeline SHAPE.json` the bytes alive
over an update; a trace is the profiler's (Chrome's format, gzipped, which Perfetto opens);
`reinvestments.json` holds finished second uses of the saved memory. Only what
was found is in them: medians, ratios, gates and whatever else follows from it is left out, so that no
file can say something else than its samples.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import __version__
from ..errors import InputError
from ..plans.custom import check_custom_plans
from ..plans.names import regions_of
from ..reinvest.found import Findings
from ..results import (
    Canary,
    Legality,
    Memory,
    Noise,
    ParityFailed,
    ParityPassed,
    Record,
    Reference,
    StudyResult,
    Timing,
)
from ..settings import shape_key
from ..spec import StudySpec, Thresholds, digest_of, explain
from ..studies.artifacts import trace_name
from ..studies.assemble import assemble
from ..studies.flow import PLAIN
from ..studies.store import Cell, Phase, Store, StudyRow
from ..words import utc_moment
from . import second_use
from .refusal import Untrusted, quoted
from .strict_json import canonical, parse

Evidence = Mapping[str, bytes]
"""File contents by name, without the folder they lie in."""

MADE_BY = f"recompute_core {__version__}"
"""Who writes evidence: this version."""

STUDY, CELLS, REVISIONS = "study.json", "cells.json", "revisions.json"
REINVESTED = "reinvestments.json"
MOST_BYTES = 18_000_000
"""Bytes of all evidence together, at most; traces that would exceed it are left out, and it is said."""
MOST_PAIRS = 1000
_NOT_KEPT = "the study has kept none"
_NONE_FINISHED = "no reinvestment of this plan was finished"

_RECORDS: dict[Phase, type[Record]] = {
    "reference": Reference,
    "noise": Noise,
    "legality": Legality,
    "canary": Canary,
    "memory": Memory,
    "time": Timing,
}


@dataclass(frozen=True)
class Found:
    """Evidence as a study's own records."""

    row: StudyRow
    """The study; its specification names the reported plan alone."""
    asked: StudySpec
    """The specification as it was declared, with all its plans."""
    asked_hash: str
    """SHA-256 of that specification as it is written in the evidence."""
    cells: list[Cell]
    plan: str
    revisions: dict[str, Any] | None
    not_recorded: dict[str, str]
    """What could be here and is not: why."""
    made_by: str
    """Which version wrote the evidence."""
    files: Evidence
    """What all of this was read from."""
    reinvested: tuple[Findings, ...] = ()
    """What second uses of the saved memory found."""

    @cached_property
    def result(self) -> StudyResult:
        """The plan, judged by the declared thresholds."""
        return assemble(self.row, self.cells)

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shape keys, in the order in which they were asked for."""
        return tuple(shape_key(self.asked.at(shape)) for shape in self.asked.shapes)

    @property
    def declared_at(self) -> datetime:
        """When the thresholds were declared."""
        return _moment(self.row.declared_at)

    @property
    def first_measured_at(self) -> datetime:
        """When the first phase of plain or of this plan began."""
        return datetime.fromtimestamp(min(cell.started_at for cell in self.cells), UTC)


def timeline_name(shape: str) -> str:
    """The file that holds plain's and the plan's timeline at a shape."""
    return f"timeline {shape}.json"


def _names_at(shape: str, plan: str) -> tuple[str, str, str]:
    """The files of a shape, each of which is here or said not to be recorded."""
    return timeline_name(shape), trace_name(shape, PLAIN), trace_name(shape, plan)


# --- writing ---------------------------------------------------------------------------------


def gather(store: Store, study: str, plan: str) -> dict[str, bytes]:
    """The evidence for a plan of a finished study.

    Raises InputError for a study or plan that is not there, that is not finished, or whose records this
    version cannot read.
    """
    row, cells = store.study(study), store.cells(study)
    check_finished(row, cells, plan)
    traces, missing = _traces(store, row, cells, plan)
    try:
        reinvested = second_use.finished(store, study, plan)
        return evidence_of(row, cells, plan, traces, missing, reinvested)
    except (ValidationError, KeyError):
        raise InputError(f"study {study} was measured by another version; run it again") from None


def check_finished(row: StudyRow, cells: Sequence[Cell], plan: str) -> None:
    """InputError in one line when nothing can be said about this plan yet, or ever."""
    if plan not in row.spec.plans:
        raise InputError(
            f"study {row.id} has no candidate {plan[:80]!r}; it has {', '.join(row.spec.plans)}"
        )
    if row.spec.digest() != row.spec_hash:
        raise InputError(f"study {row.id} was declared by another version; run it again")
    if row.status not in ("done", "incomplete"):
        raise InputError(f"study {row.id} is {row.status}; a report is made of a finished study")
    if not any(cell.plan == plan or cell.phase == "reference" for cell in cells):
        raise InputError(f"study {row.id} has measured nothing of {plan}; 'resume {row.id}' goes on")
    for cell in cells:
        missed = cell.phase == "canary" and cell.payload is not None and not cell.payload["caught"]
        if missed and cell.plan != plan:
            raise InputError(
                f"study {row.id} proves nothing: the canary of {cell.plan} at {cell.shape_key} was "
                "missed; run it again with a tighter relative_gap"
            )


def evidence_of(
    row: StudyRow,
    cells: Sequence[Cell],
    plan: str,
    traces: Evidence | None = None,
    not_recorded: Mapping[str, str] | None = None,
    reinvested: Sequence[Findings] = (),
) -> dict[str, bytes]:
    """The files of a study for one plan; `traces` come by the names they shall have. Pure."""
    kept = [cell for cell in cells if cell.plan in (PLAIN, plan) and cell.state != "running"]
    missing = dict(not_recorded or {})
    rows, timelines = [], dict[str, dict[str, Any]]()
    for cell in kept:
        payload = None if cell.payload is None else raw_payload(cell.phase, cell.payload)
        if payload is not None and cell.phase == "memory":
            side = "plain" if cell.plan == PLAIN else "candidate"
            sides = timelines.setdefault(cell.shape_key, {"plain": None, "candidate": None})
            sides[side] = payload.pop("timeline")
        rows.append(
            {
                "shape_key": cell.shape_key,
                "plan": cell.plan,
                "phase": cell.phase,
                "state": cell.state,
                "payload": payload,
                "reason": cell.reason,
                "started_at": cell.started_at,
                "seconds": cell.seconds,
            }
        )
    files = {CELLS: canonical(rows)}
    for shape in _shapes(row.spec):
        sides = timelines.get(shape, {})
        if any(sides.values()):
            files[timeline_name(shape)] = canonical(sides)
        else:
            missing[timeline_name(shape)] = _no_timeline(rows, shape)
    files[REVISIONS] = canonical(_revisions(row, rows))
    if reinvested:
        files[REINVESTED] = canonical(second_use.written(reinvested))
    else:
        missing[REINVESTED] = _NONE_FINISHED
    left = MOST_BYTES - sum(map(len, files.values()))
    for name, data in sorted((traces or {}).items(), key=lambda item: len(item[1])):
        if len(data) > left:
            missing[name] = f"{len(data)} bytes, which is too large for a report"
        else:
            files[name] = data
            left -= len(data)
    for name in (one for shape in _shapes(row.spec) for one in _names_at(shape, plan)):
        if name not in files:
            missing.setdefault(name, _NOT_KEPT)
    files[STUDY] = canonical(
        {
            "schema": "recompute-evidence/1",
            "made_by": MADE_BY,
            "id": row.id,
            "candidate": plan,
            "created_at": row.created_at,
            "declared_at": row.declared_at,
            "status": row.status,
            "spec": row.spec.model_dump(mode="json"),
            "spec_hash": row.spec_hash,
            "environment": row.environment,
            "not_recorded": missing,
        }
    )
    return files


def _no_timeline(rows: Sequence[Mapping[str, Any]], shape: str) -> str:
    memory = [row["payload"] for row in rows if (row["shape_key"], row["phase"]) == (shape, "memory")]
    why = [found["not_measured"].get("timeline", "none was kept") for found in memory if found]
    return why[0] if why else "no memory was measured at this shape"


def raw_payload(phase: Phase, payload: dict[str, Any]) -> dict[str, Any]:
    """What a phase found, without what follows from it. Raises ValidationError, KeyError."""
    record = _record(phase, payload).model_validate(payload)
    return record.model_dump(mode="json", by_alias=True, exclude_computed_fields=True)


def _record(phase: Phase, payload: dict[str, Any]) -> type[Record]:
    if phase == "parity":
        return ParityPassed if payload["passed"] is True else ParityFailed
    return _RECORDS[phase]


def _revisions(row: StudyRow, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Which sources ran: the git commit, and at each shape what the reference phase has noted."""
    noted = {
        cell["shape_key"]: cell["payload"]["revisions"]
        for cell in rows
        if cell["phase"] == "reference" and (cell["payload"] or {}).get("revisions") is not None
    }
    return {"git_commit": row.environment.get("git_commit"), "sources": noted}


def _traces(
    store: Store, row: StudyRow, cells: Sequence[Cell], plan: str
) -> tuple[dict[str, bytes], dict[str, str]]:
    """The profiler's traces of plain's and the plan's updates, and why others are missing."""
    memory = {(cell.shape_key, cell.plan): cell.payload for cell in cells if cell.phase == "memory"}
    found: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    for shape in _shapes(row.spec):
        for whose in (PLAIN, plan):
            kept, name = memory.get((shape, whose)), trace_name(shape, whose)
            if kept is None:
                missing[name] = "no memory was measured"
            elif kept.get("trace") != name:
                missing[name] = kept["not_measured"].get("trace", _NOT_KEPT)
            else:
                try:
                    data = (store.folder(row.id) / name).read_bytes()
                except OSError:
                    missing[name] = "it is no longer in the study's folder"
                    continue
                if _digest(data) == kept.get("trace_digest"):
                    found[name] = data
                else:
                    missing[name] = "the file in the study's folder is not the one that was kept"
    return found, missing


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


# --- reading ---------------------------------------------------------------------------------


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
            _moment(moment)
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
    if canonical(revisions) != canonical(_revisions(row, listed)):
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


def _shapes(spec: StudySpec) -> tuple[str, ...]:
    return tuple(shape_key(spec.at(sizes)) for sizes in spec.shapes)


def _check_names(evidence: Evidence, missing: Mapping[str, str], spec: StudySpec, plan: str) -> None:
    """That every file of a study is here, or else is said to be missing, and no other is."""
    needed = (STUDY, CELLS, REVISIONS)
    optional = [name for shape in _shapes(spec) for name in _names_at(shape, plan)] + [REINVESTED]
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
    timelines = {shape: _timelines(evidence, shape) for shape in _shapes(spec)}
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
    for shape in _shapes(spec):
        for whose in (PLAIN, plan):
            name, kept = trace_name(shape, whose), memory.get((shape, whose)) or {}
            if name in evidence and (
                kept.get("trace") != name or kept.get("trace_digest") != _digest(evidence[name])
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


def _moment(text: str) -> datetime:
    """A time as the store writes it, UTC."""
    return utc_moment(text)
