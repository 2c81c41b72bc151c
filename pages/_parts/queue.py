"""Who measures on this machine now, and who waits in which place. What the pages say of it is pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from recompute_core.studies.flow import total_cells
from recompute_core.studies.locks import machine_holder, machine_lock
from recompute_core.studies.searching import search_progress, searches
from recompute_core.studies.store import Store, StudyRow
from recompute_core.words import count

from .words import workload_label


@dataclass(frozen=True)
class Queue:
    """The device at one moment."""

    measuring: str | None
    """The study that is being measured and how far it is: `gpt, 4 of 12 cells`."""
    running: str | None
    """The id of that study."""
    searching: str | None
    """The shape of a search for plans that runs."""
    waiting: tuple[str, ...]
    """Studies that wait, the next one first."""
    also_waiting: int
    """Searches for plans that wait."""
    is_held: bool
    """Whether something is being measured on this machine, by whatever RECOMPUTE_HOME or command."""
    elsewhere: int = 0
    """Studies that a cluster measures; they take no place here."""
    held_for: str | None = None
    """What it is, where whoever holds the machine says so: `a check of the blocks of gpt`."""

    @property
    def holder(self) -> str:
        """What holds the machine, in a few words."""
        return self.held_for or "another study, search, check or second use"


def queue_of(store: Store, live: Sequence[StudyRow] | None = None) -> Queue:
    """The queue as it stands."""
    alive = store.live() if live is None else live
    rows = [row for row in alive if row.spec.engine == "local"]
    searching = searches(store)
    running = next((row for row in rows if row.status == "running"), None)
    measuring, shape, also = None, None, len(searching)
    if running is not None:
        what, done = workload_label(running.spec.workload.name), store.ended_cells(running.id)
        measuring = f"{what}, {done} of {total_cells(running.spec)} cells"
    elif searching and search_progress(store, *searching[0]) != "waiting":
        shape, also = searching[0][1], also - 1
    return Queue(
        measuring,
        running.id if running else None,
        shape,
        tuple(row.id for row in rows if row is not running),
        also,
        bool(measuring or shape) or machine_lock().is_held(),
        len(alive) - len(rows),
        machine_holder(),
    )


def device_words(queue: Queue, study: str | None) -> tuple[bool, str]:
    """Whether the device is busy, and with what, in a line; of a study that waits also its place."""
    waiting = len(queue.waiting) + queue.also_waiting
    if queue.measuring:
        text = f"Measuring {queue.measuring}"
    elif queue.searching:
        text = f"Searching for plans at {queue.searching}"
    elif queue.is_held:
        text = f"Device: busy with {queue.holder}"
    elif waiting:
        text = "Starting"
    else:
        return False, "Device: idle" + _elsewhere(queue)
    if waiting:
        text += f", {waiting} waiting"
    if study in queue.waiting:
        text += f"; this study is {_place(queue, study)}"
    return True, text + _elsewhere(queue)


def _elsewhere(queue: Queue) -> str:
    return (
        f"; {count(queue.elsewhere, 'study', 'studies')} on the Ray cluster" if queue.elsewhere else ""
    )


def waiting_words(queue: Queue, study: str, what: str) -> str:
    """How a study that waits stands, in a sentence."""
    if study not in queue.waiting:
        return f"Waiting: {what} is about to start."
    if queue.measuring:
        return f"Waiting: {_place(queue, study)} behind {queue.measuring}."
    if queue.searching:
        return f"Waiting: {_place(queue, study)} behind a search for plans at {queue.searching}."
    if queue.is_held:
        return f"Waiting: {_place(queue, study)}; the device is busy with {queue.holder}."
    if queue.waiting[0] != study:
        return f"Waiting: {_place(queue, study)}; the first is about to start."
    return f"Waiting: {what} is about to start."


def _place(queue: Queue, study: str | None) -> str:
    at = 1 + queue.waiting.index(study or "")
    return "next in line" if at == 1 else f"{ordinal(at)} in line"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if number % 100 in (11, 12, 13) else endings.get(number % 10, "th")
    return f"{number}{ending}"
