"""What a decision rests on: a study, for one plan, as files. Written here; `read_evidence` reads them.

`study.json` holds what was asked, when and on what; `cells.json` what every phase of plain and of the
plan found, at every shape; `revisions.json` which sources ran; `timeline SHAPE.json` the bytes alive
over an update; a trace is the profiler's (Chrome's format, gzipped, which Perfetto opens);
`reinvestments.json` holds finished second uses of the saved memory. Only what was found is in them:
medians, ratios, gates and whatever else follows from it is left out, so that no file can say something
else than its samples.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from .. import __version__
from ..errors import InputError
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
from ..spec import StudySpec
from ..studies.artifacts import trace_name
from ..studies.assemble import assemble
from ..studies.flow import PLAIN
from ..studies.store import Cell, Phase, Store, StudyRow
from ..words import utc_moment
from . import second_use
from .strict_json import canonical

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
        return shapes_of(self.asked)

    @property
    def declared_at(self) -> datetime:
        """When the thresholds were declared."""
        return utc_moment(self.row.declared_at)

    @property
    def first_measured_at(self) -> datetime:
        """When the first phase of plain or of this plan began."""
        return datetime.fromtimestamp(min(cell.started_at for cell in self.cells), UTC)


def timeline_name(shape: str) -> str:
    """The file that holds plain's and the plan's timeline at a shape."""
    return f"timeline {shape}.json"


def names_at(shape: str, plan: str) -> tuple[str, str, str]:
    """The files of a shape, each of which is here or said not to be recorded."""
    return timeline_name(shape), trace_name(shape, PLAIN), trace_name(shape, plan)


def shapes_of(spec: StudySpec) -> tuple[str, ...]:
    """The keys of a study's shapes, in the order in which they were asked for."""
    return tuple(shape_key(spec.at(sizes)) for sizes in spec.shapes)


# --- writing ---------------------------------------------------------------------------------


def gather(store: Store, study: str, plan: str) -> dict[str, bytes]:
    """The evidence for a plan of a finished study.

    Raises InputError for a study or plan that is not there, that is not finished, or whose records this
    version cannot read.
    """
    row, cells = store.study(study), store.cells(study)
    check_finished(row, cells, plan)
    try:
        traces, missing = _traces(store, row, cells, plan)
        reinvested = second_use.finished(store, study, plan)
        return evidence_of(row, cells, plan, traces, missing, reinvested)
    except InputError:
        raise
    except (ValueError, KeyError, AttributeError):
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
        missed = cell.phase == "canary" and cell.payload is not None and not cell.payload.get("caught")
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
    for shape in shapes_of(row.spec):
        sides = timelines.get(shape, {})
        if any(sides.values()):
            files[timeline_name(shape)] = canonical(sides)
        else:
            missing[timeline_name(shape)] = _no_timeline(rows, shape)
    files[REVISIONS] = canonical(noted_revisions(row, rows))
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
    for name in (one for shape in shapes_of(row.spec) for one in names_at(shape, plan)):
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


def noted_revisions(row: StudyRow, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
    for shape in shapes_of(row.spec):
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
                if file_digest(data) == kept.get("trace_digest"):
                    found[name] = data
                else:
                    missing[name] = "the file in the study's folder is not the one that was kept"
    return found, missing


def file_digest(data: bytes) -> str:
    """`sha256:` of a file's bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
