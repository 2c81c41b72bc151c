"""How far a study has come: steps, grid, log. Pure functions of cells and events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from recompute_core.gates import is_open
from recompute_core.results import Judged, Measured, Proven, Refused, StudyResult, Verdict
from recompute_core.studies.findings import finding
from recompute_core.studies.flow import PLAIN
from recompute_core.studies.store import Cell, Event, Phase

from .words import plan_label

State = Literal["waiting", "running", "done", "failed", "skipped"]
PLAIN_PHASES: tuple[Phase, ...] = ("reference", "noise", "legality", "memory")
CANDIDATE_PHASES: tuple[Phase, ...] = ("canary", "parity", "memory", "time")
STEPS: tuple[Phase, ...] = (
    "reference",
    "noise",
    "legality",
    "canary",
    "parity",
    "memory",
    "time",
)


PHASE_MEANINGS: dict[str, str] = {
    "reference": "one plain update, whose gradients all others must meet",
    "noise": "plain against plain once more: what differs is noise",
    "legality": "whether a block may be replayed at all",
    "canary": "a replay broken on purpose, which parity must catch",
    "parity": "whether the recomputed update gives plain's gradients",
    "memory": "bytes kept for backward, and the peak",
    "time": "pairs of plain and recomputed updates, in turn",
    "gates": "figures against the thresholds that were declared before",
}


PHASES_NOTE = "\n".join(f"- {name}: {meaning}" for name, meaning in PHASE_MEANINGS.items())


@dataclass(frozen=True)
class GridCell:
    """One plan at one shape, phase by phase."""

    shape_key: str
    plan: str
    phases: tuple[tuple[Phase, State], ...]
    note: str
    verdict: Verdict | None = None
    why: str = ""
    """What went wrong in it, in a sentence; empty where nothing did."""

    def state(self, phase: Phase) -> State | None:
        return dict(self.phases).get(phase)


@dataclass(frozen=True)
class Step:
    """One phase over the whole study."""

    name: str
    done: int
    """Cells that came to an end with a finding."""
    failed: int
    total: int
    state: State


def grid(result: StudyResult, cells: Sequence[Cell], live: bool) -> list[GridCell]:
    """Every plan at every shape, plain first."""
    known = {(cell.shape_key, cell.plan, cell.phase): cell for cell in cells}
    failures = _failures(cells)
    rows: list[GridCell] = []
    by_shape: dict[str, list[Judged]] = {}
    for one in result.judged:
        by_shape.setdefault(one.candidate.shape_key, []).append(one)
    for shape, judged in by_shape.items():
        phases = tuple(
            (phase, _state(known.get((shape, PLAIN, phase)), live, False)) for phase in PLAIN_PHASES
        )
        why = failures.get((shape, PLAIN), "")
        rows.append(GridCell(shape, PLAIN, phases, _note(phases, live), why=why))
        rows += [
            _candidate_cell(one, known, failures.get((shape, one.candidate.plan), ""), live)
            for one in judged
        ]
    return rows


def _candidate_cell(
    one: Judged, known: dict[tuple[str, str, Phase], Cell], failure: str, live: bool
) -> GridCell:
    candidate = one.candidate
    stopped = isinstance(candidate, Refused) and candidate.stopped_by != "pending"
    phases = tuple(
        (phase, _state(known.get((candidate.shape_key, candidate.plan, phase)), live, stopped))
        for phase in CANDIDATE_PHASES
    )
    note, verdict = _note(phases, live), None
    if isinstance(candidate, Measured):
        note, verdict = "", one.verdict
    elif isinstance(candidate, Refused) and candidate.stopped_by == "failure":
        note = "failed"
    elif isinstance(candidate, Refused) and stopped:
        note = f"refused by {candidate.stopped_by}"
        verdict = "keep_original"
    elif isinstance(candidate, Proven) and candidate.failure:
        note = "failed"
    why = failure
    if not why and isinstance(candidate, Refused) and candidate.stopped_by not in ("pending", "failure"):
        why = candidate.troubles[0]
    return GridCell(candidate.shape_key, candidate.plan, phases, note, verdict, why)


def _failures(cells: Sequence[Cell]) -> dict[tuple[str, str], str]:
    """By shape and plan the reason of the phase that failed there; a worker's may be many lines long."""
    failed = [cell for cell in cells if cell.state == "failed"]
    return {(cell.shape_key, cell.plan): f"{cell.phase}: {cell.reason}" for cell in reversed(failed)}


def _state(cell: Cell | None, live: bool, stopped: bool) -> State:
    if cell is None:
        return "skipped" if stopped or not live else "waiting"
    if cell.state == "running":
        return "running" if live else "skipped"
    if cell.state == "failed":
        return "failed"
    payload = cell.payload or {}
    refused = payload.get("passed") is False or payload.get("caught") is False
    return "failed" if refused else "done"


def _note(phases: tuple[tuple[Phase, State], ...], live: bool) -> str:
    running = [phase for phase, state in phases if state == "running"]
    if running:
        return running[0]
    if any(state == "failed" for _, state in phases):
        return "failed"
    if any(state == "done" for _, state in phases):
        return ""
    return "waiting" if live else "not run"


def steps(result: StudyResult, board: Sequence[GridCell]) -> list[Step]:
    """The phases in their order, with how many cells of each are settled; gates last."""
    found: list[Step] = []
    for phase in STEPS:
        states = [state for one in board if (state := one.state(phase)) is not None]
        settled = sum(state in ("done", "failed", "skipped") for state in states)
        now: State = "waiting"
        if "running" in states:
            now = "running"
        elif settled == len(states):
            now = "skipped" if "skipped" in states else "done"
        done, failed = states.count("done"), states.count("failed")
        found.append(Step(phase, done, failed, len(states), "failed" if failed else now))
    judged = [one for one in result.judged if not is_open(one)]
    total = len(result.judged)
    to_come = any(state in ("waiting", "running") for one in board for _, state in one.phases)
    ended: State = "done" if len(judged) == total else "waiting" if to_come else "skipped"
    found.append(Step("gates", len(judged), 0, total, ended))
    return found


def settled(board: Sequence[GridCell]) -> tuple[int, int]:
    """How many of a study's cells are settled, and of how many."""
    states = [state for one in board for _, state in one.phases]
    return sum(state in ("done", "failed", "skipped") for state in states), len(states)


def log_lines(events: Sequence[Event], cells: Sequence[Cell]) -> list[tuple[float, str]]:
    """What happened, oldest first: when, and what in a sentence."""
    payloads = {(c.shape_key, c.plan, c.phase): c.payload for c in cells if c.payload}
    lines = []
    for event in events:
        text = _line(event, payloads)
        if text:
            lines.append((event.at, text))
    return lines


def _line(event: Event, payloads: dict[tuple[str, str, Phase], dict[str, object]]) -> str | None:
    key = (event.shape_key, event.plan, event.phase)
    if event.kind == "status":
        return f"study {event.data.get('status')}"
    if event.kind == "done" and key in payloads:
        return finding(*key, payloads[key])
    if event.kind == "failed":
        who = f"{plan_label(str(event.plan))} at {event.shape_key}"
        return f"{event.phase}: failed for {who}: {event.data.get('reason')}"
    if event.kind == "placed":
        gpus = [str(gpu) for gpu in event.data.get("gpus", [])]
        on = f", GPU {', '.join(gpus)}" if gpus else ""
        where = f"node {event.data.get('node')}{on}"
        return f"{event.phase}: {plan_label(str(event.plan))} at {event.shape_key} goes to {where}"
    return None


def preparing(events: Sequence[Event]) -> str | None:
    """What is being made before anything can be measured, if that is what happens now."""
    newest = events[-1] if events else None
    if newest is None or newest.kind != "progress":
        return None
    return f"{newest.data['what']}: {newest.data['percent']} %"


def newest_finding(events: Sequence[Event], cells: Sequence[Cell]) -> str | None:
    """The newest finding in a sentence."""
    payloads = {(c.shape_key, c.plan, c.phase): c.payload for c in cells if c.payload}
    for event in reversed(events):
        if event.kind in ("done", "failed") and (text := _line(event, payloads)):
            return text
    return None


def present_pairs(events: Sequence[Event]) -> tuple[str, str, list[tuple[float, float]]] | None:
    """Shape, plan and pairs (plain s, recomputed s) of the newest timing, as far as they have come."""
    newest = next((e for e in reversed(events) if e.kind == "pair"), None)
    if newest is None:
        return None
    begun = max(
        (
            e.seq
            for e in events
            if e.kind == "start"
            and (e.shape_key, e.plan, e.phase) == (newest.shape_key, newest.plan, "time")
        ),
        default=0,
    )
    pairs = [
        (float(e.data["plain_s"]), float(e.data["candidate_s"]))
        for e in events
        if e.kind == "pair"
        and e.seq > begun
        and (e.shape_key, e.plan) == (newest.shape_key, newest.plan)
    ]
    return str(newest.shape_key), str(newest.plan), pairs
