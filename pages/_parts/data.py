"""What the pages read: the store, and one study as it stands, re-read only when it changed.

A study's cells are read and parsed once for each change of them; every page, tab and browser of this
server shares the parsed records, which never change.
"""

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import streamlit as st

from recompute_core.errors import InputError, StoreError
from recompute_core.plans.names import plan_hash, regions_of
from recompute_core.results import StudyResult
from recompute_core.settings import OwnSettings
from recompute_core.spec import StudySpec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.forecast import forecast, measured_speed
from recompute_core.studies.salvage import is_marked
from recompute_core.studies.searching import at_shape
from recompute_core.studies.store import Cell, Event, Status, Store, StudyRow, file_at, home_folder

from .progress import GridCell, grid
from .time_left import elapsed_s, left_words, time_left

T = TypeVar("T")


def get_store() -> Store:
    """The store of this server's RECOMPUTE_HOME; raises StoreError when it cannot be used."""
    return _open(home_folder())


def _open(home: Path) -> Store:
    return _kept(home).store()


@st.cache_resource(show_spinner=False)
def _kept(home: Path) -> "_Kept":
    return _Kept(home)


class _Kept:
    """A store that is open for as long as its file stays where it is.

    A tab that is left open asks on while a drive is away or a backup is put back. What has gone is said,
    and no empty store is made in its place; what comes back is opened again, also where it is another.
    """

    def __init__(self, home: Path) -> None:
        self._store = Store(home)
        self._guard = threading.Lock()

    def store(self) -> Store:
        with self._guard:
            there = file_at(self._store.path)
            if there is None:
                raise StoreError(f"{self._store.path}: is gone; put it back, or start the server again")
            if there != self._store.file or is_marked(self._store.path):
                self._store = Store(self._store.home)
            return self._store


@dataclass(frozen=True)
class _Memo:
    """What was made of a study's cells; many browsers that ask at once wait for one that makes it."""

    made: dict[Hashable, Any] = field(default_factory=dict)
    guard: threading.RLock = field(default_factory=threading.RLock)


@dataclass(frozen=True)
class Snapshot:
    """A study at one moment."""

    row: StudyRow
    cells: list[Cell]
    events: list[Event]
    result: StudyResult
    """Judged by the declared thresholds."""
    memo: _Memo = field(default_factory=_Memo)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once for as long as the study's cells stay as they are."""
        with self.memo.guard:
            if key not in self.memo.made:
                self.memo.made[key] = make()
            made: T = self.memo.made[key]
        return made


_REST, _REST_MOST_S = 10, 1.0
"""A study that changes all the time is read for at most a tenth of it, and at least every second."""


@dataclass
class _Feed:
    """One study's events so far, and its result at its last change."""

    seq: int = 0
    cells_seq: int = 0
    """The newest event that changed a cell; pairs and progress do not."""
    events: list[Event] = field(default_factory=list)
    read: tuple[int, Status] | None = None
    last: Snapshot | None = None
    rest_until: float = 0.0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def refresh(self, store: Store, study: str) -> Snapshot:
        with self.guard:
            row = store.study(study)
            begun = time.monotonic()
            if self.last is not None and row == self.last.row and begun < self.rest_until:
                return self.last
            while fresh := store.events(study, self.seq):
                self.events += fresh
                self.seq = fresh[-1].seq
                changes = [e.seq for e in fresh if e.kind not in ("pair", "progress")]
                self.cells_seq = changes[-1] if changes else self.cells_seq
            if self.last is None or self.read != (self.cells_seq, row.status):
                cells, memo = store.cells(study), _Memo()
                result = assemble(row, cells)
                self.read = (self.cells_seq, row.status)
            else:
                cells, result, memo = self.last.cells, self.last.result, self.last.memo
            self.last = Snapshot(row, cells, list(self.events), result, memo)
            now = time.monotonic()
            self.rest_until = now + min(_REST * (now - begun), _REST_MOST_S)
            return self.last


_FEEDS: WeakKeyDictionary[Store, Callable[[str], _Feed]] = WeakKeyDictionary()
"""By store the feeds of its studies; they go with it where another is opened in its place."""


def _feed(store: Store, study: str) -> _Feed:
    return _FEEDS.setdefault(store, lru_cache(maxsize=32)(lambda _: _Feed()))(study)


def snapshot(store: Store, study: str) -> Snapshot:
    """A study as it stands now; raises InputError when there is none of that id."""
    return _feed(store, study).refresh(store, study)


@st.cache_data(show_spinner=False, max_entries=64, ttl=600)
def _speed(home: Path, workload: str, newest: str) -> float | None:
    return measured_speed(_open(home), workload)


def speed(store: Store, workload: str) -> float | None:
    """This machine's measured speed on a workload, looked up once for each new study."""
    newest = store.studies(limit=1)
    stamp = f"{newest[0].id} {newest[0].status}" if newest else ""
    return _speed(store.home, workload, stamp)


def board_of(found: Snapshot) -> list[GridCell]:
    """Every plan at every shape of a study, phase by phase."""
    return found.once("board", lambda: grid(found.result, found.cells, not found.row.ended))


def spent_and_left(found: Snapshot) -> tuple[float, str]:
    """How many seconds a study has been measured, and in words how long it may still take."""
    spec, now = found.row.spec, time.time()
    known = speed(get_store(), spec.workload.name)
    expected = found.once(("forecast", known), lambda: forecast(spec, known))
    spent = elapsed_s(found.events, now)
    return spent, left_words(time_left(expected, board_of(found), found.cells, spent, now))


def measured_in(row: StudyRow, shape: str) -> dict[str, str]:
    """By a plan's hash the newest other study that has measured it, of the same job at this shape."""
    if isinstance(row.spec.workload, OwnSettings):
        return {}  # its code may be another by now
    store = get_store()
    timed = tuple(one for one in store.timed(shape) if one[0] != row.id)
    return _measured_in(store.home, row.id, shape, timed)


@st.cache_data(show_spinner=False, max_entries=64)
def _measured_in(
    home: Path, study: str, shape: str, timed: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    store = _open(home)
    own = _job(store.study(study).spec, shape)
    found: dict[str, str] = {}
    for other, plans in groupby(timed, key=lambda one: one[0]):
        with suppress(InputError, StoreError):  # of another version
            spec = store.study(other).spec
            if _job(spec, shape) == own:
                for _, plan in plans:
                    found.setdefault(plan_hash(regions_of(spec, plan), spec.checkpoint), other)
    return found


def _job(spec: StudySpec, shape: str) -> dict[str, Any]:
    """All of a specification that a plan's figures at a shape depend on."""
    apart = {"plans", "custom_plans", "thresholds", "timing", "checkpoint", "seed", "silence_s"}
    here = at_shape(spec, shape)
    settings = here.at(here.shapes[0]).model_dump()
    return here.model_dump(exclude=apart | {"workload", "shapes", "follows"}) | settings


# --- which study the address names -----------------------------------------------------------------


def wanted_study() -> str | None:
    """The id in the address, or the one this session looked at last."""
    asked = st.query_params.get("study")
    if asked:
        st.session_state["study"] = asked
    return st.session_state.get("study")


def want_study(study: str | None) -> None:
    """Make a study the one every page shows, and say so in the address."""
    if study is None:
        st.session_state.pop("study", None)
        st.query_params.pop("study", None)
    else:
        st.session_state["study"] = study
        st.query_params["study"] = study
