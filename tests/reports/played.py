"""Decisions on studies that were played through and not measured, each phase ending as one likes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from recompute_core.reports.evidence import Evidence, evidence_of
from recompute_core.reports.predicate import Predicate, derive
from recompute_core.results import (
    BatchTensor,
    Comparison,
    Gap,
    Memory,
    OptimizerUsed,
    ParityFailed,
    PeakAt,
    Revisions,
    RngUsed,
    SourceRevision,
    Timeline,
)
from recompute_core.spec import StudySpec
from recompute_core.studies.flow import PLAIN, CellKey, block_names
from recompute_core.studies.store import Cell
from tests.core import cells, records

Worker = Callable[[CellKey], Cell | None]
_AFTER = 1_800_000_000.0
"""Seconds since 1970 at which these studies were measured: after they were declared."""


def decided(
    spec: StudySpec = cells.SPEC, plan: str = "every-block", *workers: Worker, **environment: Any
) -> tuple[Predicate, Evidence]:
    """The decision on a plan; a phase ends as the first worker says that knows it, or else well."""

    def worker(key: CellKey) -> Cell | None:
        found = (one(key) for one in (*workers, with_timelines, with_sources))
        return next((cell for cell in found if cell is not None), None)

    _, found = cells.play(worker, spec)
    here = {"device": "cpu", "threads": 2, **environment}
    row = replace(cells.row(spec, "done"), environment=here)
    evidence = evidence_of(row, agreeing(found, spec, plan), plan)
    return derive(evidence), evidence


def agreeing(found: Mapping[CellKey, Cell], spec: StudySpec, plan: str) -> list[Cell]:
    """Cells of one study, measured after it was declared: what the plan's parity compared at each shape
    is what plain's update left there, and blocks were called as the plan has it."""
    return [_agreeing(cell, found, spec, plan) for cell in found.values()]


def _agreeing(cell: Cell, found: Mapping[CellKey, Cell], spec: StudySpec, plan: str) -> Cell:
    parity = found.get((cell.shape_key, plan, "parity"))
    payload = cell.payload
    if payload is not None and cell.phase == "time":
        pairs = payload["samples"]
        payload = payload | {"samples": pairs * -(-spec.timing.min_pairs // len(pairs))}
    if payload is not None and parity is not None and parity.payload is not None:
        gaps = parity.payload["gaps"]
        if cell.phase == "reference":
            payload = payload | {"tensors": len(gaps)}
        if cell.phase == "noise" and not payload["largest_relative_gap"]:
            same = {"absolute": 0.0, "relative": 0.0, "problem": None}
            payload = payload | {"gaps": [gap | same for gap in gaps]}
    if payload is not None and cell.phase == "parity":
        touched = block_names(spec, cell.plan)
        calls = {name: 1 + (name in touched) for name in cells.BLOCKS}
        payload = payload | {"block_calls": calls}
        if payload["rollback"] is not None:
            rollback = {"compared": len(payload["gaps"]), "replays_before": len(touched)}
            payload |= {"rollback": payload["rollback"] | rollback}
    return replace(cell, payload=payload, started_at=_AFTER)


def with_timelines(key: CellKey) -> Cell | None:
    """Memory with time lines, its peak in the backward."""
    if key[2] != "memory":
        return None
    return memory(key, 4_000_000 if key[1] == PLAIN else 2_000_000)


def with_sources(key: CellKey) -> Cell | None:
    """A reference that knows which code and which batch it ran on."""
    if key[2] != "reference":
        return None
    sources = (
        SourceRevision(name="nets.Block", file="nets.py", sha256="b" * 64),
        SourceRevision(
            name="torch.nn.Linear",
            file=None,
            sha256=None,
            no_source="built in",
            library="torch",
            version="2",
        ),
    )
    found = {
        "revisions": Revisions(model="nets.Net", sources=sources, git_commit="c" * 40, git_changed=True),
        "optimizer": OptimizerUsed(name="AdamW", settings={"lr": 0.001}, state_digest="sha256:3"),
        "rng": RngUsed(policy="preserve", seed=0),
        "batch": (BatchTensor(name="0", shape=(2, 16), dtype="int64"),),
    }
    return cells.cell(key, cells.reference().model_copy(update=found))


def memory(key: CellKey, *peaks: int) -> Cell:
    """Memory with these peaks, in bytes."""
    found: Memory = records.memory(*peaks)
    at = PeakAt(phase="backward", module="blocks.1", replaying=key[1] != PLAIN)
    whole = found.state_bytes + max(found.peak_samples)
    return cells.cell(key, found.model_copy(update={"peak_at": at, "timeline": _timeline(whole)}))


def _timeline(peak: int) -> Timeline:
    """A quarter of a second up to the peak and down again, every phase begun once."""
    return Timeline(
        seconds=(0.0, 0.1, 0.125, 0.25),
        bytes=(1_000_000, peak - 100_000, peak, 1_000_000),
        marks=((0.0, "zero_grad"), (0.01, "forward"), (0.1, "backward"), (0.22, "optimizer")),
    )


def parity_fails(key: CellKey, *gaps: Gap) -> Cell:
    """A parity that found these gaps."""
    failed = Comparison(gaps=gaps).failures(cells.SPEC.thresholds)
    return cells.cell(
        key, ParityFailed(gaps=gaps, failed=failed, noise_floor=0.0, block_calls={}, flops=40)
    )
