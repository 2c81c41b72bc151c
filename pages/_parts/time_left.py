"""How long a study has been measured and how long it may still take. Pure.

What was estimated is scaled by what the study has shown so far: the seconds of its finished phases over
those that were estimated for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from recompute_core.studies.flow import CellKey
from recompute_core.studies.forecast import Forecast
from recompute_core.studies.store import Cell, Event

from .progress import GridCell
from .words import duration

_TRUST = 0.1
"""How much the forecast counts, as a share of its own seconds: after a tenth both count alike."""
_LATE_S = 1.0
"""A phase that is later than this is said to be late."""
_MUCH = 1.5
"""From how many times the first estimate on it is said that a study takes longer."""


@dataclass(frozen=True)
class TimeLeft:
    """An estimate at one moment."""

    seconds: float
    is_late: bool
    """Whether the phase that runs has taken all that was estimated for it."""
    promised_s: float | None
    """The whole study, as it was estimated at first; None where that is long enough or not known."""


def elapsed_s(events: Sequence[Event], now: float) -> float:
    """Seconds in which a study was measured: all its runs, without what lay between them.

    A run that was killed ends with the last that was heard of it.
    """
    total, begun, last = 0.0, None, now
    for event in events:
        if event.kind == "status":
            if begun is not None:
                ended = last if event.data.get("status") in ("queued", "running") else event.at
                total += ended - begun
            begun = event.at if event.data.get("status") == "running" else None
        last = event.at
    return max(0.0, total + (0.0 if begun is None else now - begun))


def time_left(
    expected: Forecast, board: Sequence[GridCell], cells: Sequence[Cell], spent_s: float, now: float
) -> TimeLeft | None:
    """What is left of a study that is being measured; None before there is anything to go by."""
    costs, running = expected.costs, [cell for cell in cells if cell.state == "running"]
    # A reference may have made the data of all studies to come, once: it tells nothing of the others.
    known = [cell for cell in cells if cell.seconds is not None and cell.phase != "reference"]
    took = sum(cell.seconds or 0.0 for cell in known)
    meant = sum(costs.get(_key(cell), 0.0) for cell in known)
    if expected.seconds is not None:
        took, meant = (part + _TRUST * expected.seconds for part in (took, meant))
    if not meant or not took:
        return None
    late = rest = 0.0
    for cell in running:
        passed, whole = max(0.0, now - cell.started_at), costs.get(_key(cell), 0.0) * took / meant
        rest += max(0.0, whole - passed)
        if passed > whole and cell.phase != "reference":  # as slow as it is at least
            took, meant = took + passed, meant + costs.get(_key(cell), 0.0)
        late = max(late, passed - whole)
    waiting = [
        costs.get((one.shape_key, one.plan, phase), 0.0)
        for one in board
        for phase, state in one.phases
        if state == "waiting"
    ]
    seconds = rest + sum(waiting) * took / meant
    promised = expected.seconds
    is_longer = promised is not None and spent_s + seconds > _MUCH * promised
    return TimeLeft(seconds, late > _LATE_S, promised if is_longer else None)


def _key(cell: Cell) -> CellKey:
    return cell.shape_key, cell.plan, cell.phase


def left_words(left: TimeLeft | None) -> str:
    """What goes on with `50 s so far`: how long it may still take, and whether that is longer than was
    estimated. Never a figure that stands still."""
    if left is None:
        return ""
    if left.is_late and left.seconds < 1:
        return ", longer than estimated"
    if left.is_late:
        least = f"at least {duration(left.seconds)} left (estimated)"
        return f", {least}; this phase takes longer than estimated"
    said = f", about {duration(left.seconds)} left (estimated)"
    if left.promised_s is not None:
        said += f"; longer than the {duration(left.promised_s)} estimated at first"
    return said
