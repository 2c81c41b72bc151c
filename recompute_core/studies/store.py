"""The store: one SQLite file (WAL) under RECOMPUTE_HOME for studies, their cells and their events.

A cell is one phase of one plan at one shape. Each is written in a transaction of its own as soon as
it is finished, so that a killed process loses at most the one it was working on.
"""

import json
import os
import re
import secrets
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from ..errors import InputError, StoreError, StudyError
from ..results import Verdict
from ..spec import StudySpec
from ..words import count, in_utc
from . import salvage
from .locks import Lock

Phase = Literal["reference", "noise", "legality", "canary", "parity", "memory", "time"]
PHASES: tuple[Phase, ...] = get_args(Phase)
Status = Literal["queued", "running", "done", "incomplete", "cancelled", "interrupted"]
CellState = Literal["running", "done", "failed"]
_Read = TypeVar("_Read")

_APPLICATION_ID = 0x52435354  # "RCST"
_VERSION = 1
_SCHEMA = """
CREATE TABLE studies (
    id TEXT PRIMARY KEY,
    created_at TEXT NOT NULL,
    declared_at TEXT NOT NULL,
    spec TEXT NOT NULL,
    spec_hash TEXT NOT NULL,
    status TEXT NOT NULL,
    environment TEXT NOT NULL DEFAULT '{}',
    verdict TEXT,
    sentence TEXT NOT NULL DEFAULT '',
    cancel INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE cells (
    study TEXT NOT NULL REFERENCES studies(id),
    shape_key TEXT NOT NULL,
    plan TEXT NOT NULL,
    phase TEXT NOT NULL,
    state TEXT NOT NULL,
    payload TEXT,
    reason TEXT,
    started_at REAL NOT NULL,
    seconds REAL,
    PRIMARY KEY (study, shape_key, plan, phase)
) STRICT;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL REFERENCES studies(id),
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    shape_key TEXT,
    plan TEXT,
    phase TEXT,
    data TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_study ON events (study, seq);
"""


def home_folder() -> Path:
    """RECOMPUTE_HOME, or `.recompute` in the working directory."""
    return Path(os.environ.get("RECOMPUTE_HOME") or ".recompute").absolute()


def now() -> str:
    """The present moment, UTC, ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class StudyRow:
    """A study as the store knows it."""

    id: str
    created_at: str
    declared_at: str
    spec: StudySpec
    spec_hash: str
    status: Status
    """`interrupted` when it should be running and no driver holds it."""
    environment: dict[str, Any]
    verdict: str | None
    sentence: str
    cancel: bool

    @property
    def ended(self) -> bool:
        return self.status not in ("queued", "running")


@dataclass(frozen=True)
class Cell:
    """One phase of one plan at one shape."""

    shape_key: str
    plan: str
    """`none` for plain."""
    phase: Phase
    state: CellState
    payload: dict[str, Any] | None
    reason: str | None
    started_at: float
    seconds: float | None


@dataclass(frozen=True)
class Event:
    """One line of a study's history."""

    seq: int
    at: float
    kind: str
    """`status`, `start`, `progress`, `pair`, `done` or `failed`."""
    shape_key: str | None
    plan: str | None
    phase: str | None
    data: dict[str, Any]


class Store:
    """Studies, cells and events under one RECOMPUTE_HOME. Every method may raise StoreError."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or home_folder()
        self.path = self.home / "recompute.sqlite3"
        self._guard = threading.RLock()
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.home}: cannot make the folder: {error.strerror}") from None
        with self._speaking_plainly():
            self._prepare()

    def close(self) -> None:
        self._db.close()

    # --- studies -------------------------------------------------------------------------------

    def create(self, spec: StudySpec) -> str:
        """A new study, queued, its thresholds declared now; returns its id."""
        moment = now()
        study = f"{moment[:10].replace('-', '')}-{moment[11:19].replace(':', '')}-{secrets.token_hex(2)}"
        self._make_folder(study)
        with self._transaction() as db:
            db.execute(
                "INSERT INTO studies (id, created_at, declared_at, spec, spec_hash, status) "
                "VALUES (?, ?, ?, ?, ?, 'queued')",
                (study, moment, moment, spec.model_dump_json(), spec.digest()),
            )
        return study

    def studies(self, limit: int = 1000) -> list[StudyRow]:
        """The newest studies first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT * FROM studies ORDER BY created_at DESC, rowid DESC LIMIT ?", (limit,)
            ).fetchall()
        return self._readable(rows)

    def count(self) -> int:
        """How many studies there are, those that cannot be read among them."""
        with self._transaction() as db:
            return int(db.execute("SELECT COUNT(*) FROM studies").fetchone()[0])

    def spans(self) -> dict[str, float]:
        """Seconds from a study's first event to its last, pauses of a resumed one included; two look-ups
        in an index a study, as no cell is read."""
        ends = "SELECT at FROM events WHERE study = studies.id ORDER BY seq {} LIMIT 1"
        query = f"SELECT id, ({ends.format('')}) AS first, ({ends.format('DESC')}) AS last FROM studies"
        with self._transaction() as db:
            rows = db.execute(query).fetchall()
        return {
            row["id"]: max(0.0, row["last"] - row["first"])
            for row in rows
            if _is_number(row["first"]) and _is_number(row["last"])
        }

    def study(self, study: str) -> StudyRow:
        """One study; raises InputError when there is none of that id."""
        row = None
        if study.isascii():
            with self._transaction() as db:
                row = db.execute("SELECT * FROM studies WHERE id = ?", (study,)).fetchone()
        if row is None:
            raise InputError(f"no study {study!r} in {self.home}; 'studies' lists them")
        return self._study(row)

    def live(self) -> list[StudyRow]:
        """The studies that are queued or running now, oldest first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT * FROM studies WHERE status IN ('queued', 'running') ORDER BY created_at, rowid"
            ).fetchall()
        return [row for row in self._readable(rows) if not row.ended]

    def set_status(self, study: str, status: Status) -> None:
        with self._transaction() as db:
            db.execute("UPDATE studies SET status = ? WHERE id = ?", (status, study))
        self.add_event(study, "status", status=status)

    def conclude(self, study: str, status: Status, verdict: str | None, sentence: str) -> None:
        """Write how a study ended."""
        with self._transaction() as db:
            db.execute(
                "UPDATE studies SET status = ?, verdict = ?, sentence = ? WHERE id = ?",
                (status, verdict, sentence, study),
            )
        self.add_event(study, "status", status=status, sentence=sentence)

    def set_environment(self, study: str, environment: dict[str, Any]) -> None:
        with self._transaction() as db:
            db.execute(
                "UPDATE studies SET environment = ? WHERE id = ?",
                (json.dumps(environment, allow_nan=False), study),
            )

    def ask_cancel(self, study: str, cancel: bool = True) -> None:
        """Ask the driver of a study to stop; it does so within a second."""
        with self._transaction() as db:
            db.execute("UPDATE studies SET cancel = ? WHERE id = ?", (int(cancel), study))

    def cancel_asked(self, study: str) -> bool:
        with self._transaction() as db:
            row = db.execute("SELECT cancel FROM studies WHERE id = ?", (study,)).fetchone()
        return bool(row and row["cancel"])

    # --- cells and events ------------------------------------------------------------------------

    def cells(self, study: str) -> list[Cell]:
        """Every cell of a study, in the order they were begun."""
        with self._transaction():
            rows = self._cell_rows(study)
        return [self._sound(study, _cell_of, row) for row in rows]

    def _cell_rows(self, study: str) -> list[sqlite3.Row]:
        query = "SELECT * FROM cells WHERE study = ? ORDER BY rowid"
        return self._db.execute(query, (study,)).fetchall()

    def ended_cells(self, study: str) -> int:
        """How many cells of a study came to an end."""
        with self._transaction() as db:
            query = "SELECT count(*) FROM cells WHERE study = ? AND state != 'running'"
            return int(db.execute(query, (study,)).fetchone()[0])

    def timed(self, shape_key: str) -> list[tuple[str, str]]:
        """Study and plan of whatever was timed at a shape, the newest study first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT study, plan FROM cells WHERE shape_key = ? AND phase = 'time' "
                "AND state = 'done' ORDER BY study DESC, plan",
                (shape_key,),
            ).fetchall()
        return [(row["study"], row["plan"]) for row in rows]

    def begin_cell(self, study: str, shape_key: str, plan: str, phase: Phase) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO cells (study, shape_key, plan, phase, state, started_at) "
                "VALUES (?, ?, ?, ?, 'running', ?)",
                (study, shape_key, plan, phase, time.time()),
            )
            _insert_event(db, study, "start", (shape_key, plan, phase), {})

    def finish_cell(
        self, study: str, shape_key: str, plan: str, phase: Phase, payload: dict[str, Any]
    ) -> None:
        """Keep what a phase found; it is never lost again."""
        self._end_cell(study, (shape_key, plan, phase), "done", payload, None)

    def fail_cell(self, study: str, shape_key: str, plan: str, phase: Phase, reason: str) -> None:
        self._end_cell(study, (shape_key, plan, phase), "failed", None, reason)

    def _end_cell(
        self,
        study: str,
        key: tuple[str, str, str],
        state: CellState,
        payload: dict[str, Any] | None,
        reason: str | None,
    ) -> None:
        text = None if payload is None else json.dumps(payload, allow_nan=False)
        with self._transaction() as db:
            db.execute(
                "INSERT INTO cells "
                "(study, shape_key, plan, phase, state, payload, reason, started_at, seconds) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO UPDATE SET "
                "state = excluded.state, payload = excluded.payload, reason = excluded.reason, "
                "seconds = MAX(0, excluded.started_at - cells.started_at)",  # a clock may be put back
                (study, *key, state, text, reason, time.time()),
            )
            _insert_event(db, study, state, key, {"reason": reason} if reason else {})

    def forget_unfinished(self, study: str) -> None:
        """Drop cells that were running or failed, so that a resumed study does them again."""
        with self._transaction() as db:
            db.execute("DELETE FROM cells WHERE study = ? AND state != 'done'", (study,))

    def forget_cell(self, study: str, shape_key: str, plan: str, phase: Phase) -> None:
        """Drop one cell, whatever its state, so that it is done again."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM cells WHERE study = ? AND shape_key = ? AND plan = ? AND phase = ?",
                (study, shape_key, plan, phase),
            )

    def add_event(
        self, study: str, kind: str, key: tuple[str, str, str] | None = None, **data: Any
    ) -> None:
        """Add a line to a study's history; `key` is (shape key, plan, phase)."""
        with self._transaction() as db:
            _insert_event(db, study, kind, key, data)

    def events(self, study: str, after: int = 0, limit: int = 10_000) -> list[Event]:
        """The events of a study that follow number `after`, oldest first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT * FROM events WHERE study = ? AND seq > ? ORDER BY seq LIMIT ?",
                (study, after, limit),
            ).fetchall()
        return [self._sound(study, _event_of, row) for row in rows]

    def last_seq(self, study: str) -> int:
        """Number of a study's newest event: two equal answers mean that nothing has changed."""
        with self._transaction() as db:
            row = db.execute("SELECT MAX(seq) FROM events WHERE study = ?", (study,)).fetchone()
        return int(row[0] or 0)

    # --- folders and locks -------------------------------------------------------------------------

    def folder(self, study: str) -> Path:
        """Where a study's artifacts are kept."""
        return self.home / "studies" / study

    def driver_lock(self, study: str) -> Lock:
        """Held by the one process that drives a study."""
        self._make_folder(study)
        return self._lock(study)

    def claim(self, study: str) -> Lock:
        """The driver lock of a study, taken; raises InputError when another process has it."""
        lock = self.driver_lock(study)
        if not lock.acquire(patience_s=1.0):
            raise InputError(f"study {study} is being driven by another process; wait or cancel it")
        return lock

    def _lock(self, study: str) -> Lock:
        return Lock(self.folder(study) / "driver.lock")

    def _make_folder(self, study: str) -> None:
        try:
            self.folder(study).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.folder(study)}: {error.strerror}") from None

    # --- inside ----------------------------------------------------------------------------------

    def _readable(self, rows: list[sqlite3.Row]) -> list[StudyRow]:
        """The rows that this version can read; one that it cannot must not hide the others."""
        found = []
        for row in rows:
            with suppress(StoreError):
                found.append(self._study(row))
        return found

    def _sound(self, study: Any, read: Callable[[sqlite3.Row], _Read], row: sqlite3.Row) -> _Read:
        """What a row says; a store that came from elsewhere may say anything."""
        try:
            return read(row)
        except (ValueError, TypeError, RecursionError, IndexError):
            raise StudyError(
                f"{self.path}: study {study} is damaged or was written by another version"
            ) from None

    def _study(self, row: sqlite3.Row) -> StudyRow:
        spec, environment = self._sound(row["id"], _facts_of, row)
        status: Status = row["status"]
        if status in ("queued", "running") and not self._lock(row["id"]).is_held():
            status = "interrupted"
        return StudyRow(
            row["id"],
            row["created_at"],
            row["declared_at"],
            spec,
            row["spec_hash"],
            status,
            environment,
            row["verdict"],
            row["sentence"],
            bool(row["cancel"]),
        )

    def _prepare(self) -> None:
        # One opener at a time, from before the file is open: SQLite does not wait when another process
        # switches to WAL, and would put pages of a file that was set aside into the new one's log.
        opening = Lock(self.home / "recompute.lock")
        if not opening.acquire(patience_s=10):
            raise StoreError(f"{self.path}: another process is opening it and does not end")
        try:
            if salvage.is_emptied(self.path):
                self._begin_anew()
            else:
                self._connect(self.path)
                if self._is_damaged():
                    self._db.close()
                    self._begin_anew()
                elif not self._is_ours():
                    self._make()
                    self._say_if_it_was_there()
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self.file = file_at(self.path)
        finally:
            opening.release()

    def _connect(self, path: Path) -> None:
        self._db = salvage.connect(path)
        self._db.row_factory = sqlite3.Row

    def _is_damaged(self) -> bool:
        """Whether the file was found broken by whoever used it last, and is; or is no database, where
        there is a sign that it was ours."""
        if salvage.is_marked(self.path):
            if not salvage.is_whole(self._db):
                return True
            salvage.take_mark(self.path)
        try:
            return self._is_ours() and not self._has_all_tables()
        except salvage.TROUBLE as error:
            if salvage.is_damage(error) and self._was_ours():
                return True
            raise

    def _has_all_tables(self) -> bool:
        """Whether each of our tables is there; raises StoreError where one has other columns."""
        for table, columns in _columns().items():
            there = self._db.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall()
            if there and tuple(row["name"] for row in there) != columns:
                raise StoreError(
                    f"{self.path}: table {table} has other columns: made by another version"
                )
            if not there:
                return False
        return True

    def _say_if_it_was_there(self) -> None:
        """A new store beside the folders of studies: another's file, or one that was lost."""
        left = sum(1 for _ in (self.home / "studies").glob("*/driver.lock"))
        if left:
            those = f"the folders of {count(left, 'study', 'studies')} stand beside it"
            said = f"{self.path}: is new, though {those}; was the file lost, or emptied?"
            print(said, file=sys.stderr, flush=True)

    def _was_ours(self) -> bool:
        return (self.home / "studies").is_dir() or salvage.says_application(self.path, _APPLICATION_ID)

    def _begin_anew(self) -> None:
        """Set the damaged file aside, with a new one in its place that has what can be read of it."""
        for lock in sorted((self.home / "studies").glob("*/driver.lock")):
            if Lock(lock).is_held():
                raise StoreError(
                    f"{self.path}: is damaged; study {lock.parent.name} is still being driven: once "
                    "that has ended, the next command sets the damaged file aside"
                )
        try:
            fresh = salvage.place_for_new(self.path)
            self._connect(fresh)
            try:
                self._make()
                with self._db:
                    kept = salvage.bring_over(self.path, self._db)
                reopened = self._take_verdicts_back()
                salvage.write_out(self._db)
            finally:
                self._db.close()
            aside = salvage.set_aside(self.path, fresh)
        except OSError as error:
            said = f"is damaged, and could not be set aside: {error.strerror} ({error.filename})"
            raise StoreError(f"{self.path}: {said}") from None
        self._connect(self.path)
        said = f"it is kept as {aside.name}, and what could be read goes on: {kept}"
        if reopened:
            said += f"; {count(reopened, 'study', 'studies')} lost others, which 'resume' does again"
        print(f"{self.path}: was damaged; {said}", file=sys.stderr, flush=True)

    def _take_verdicts_back(self) -> int:
        """A study that lost a phase has no verdict until `resume` has done it again; how many did."""
        from .flow import Book, next_task  # which reads our cells

        taken = 0
        for row in self._readable(self._db.execute("SELECT * FROM studies").fetchall()):
            is_missing = False
            with suppress(ValueError, StudyError):  # whoever reads the study says so
                cells = [_cell_of(cell) for cell in self._cell_rows(row.id)]
                is_missing = next_task(row.spec, Book.of(cells)) is not None
            if row.status == "done" and is_missing:
                changes = "status = 'running', verdict = NULL, sentence = ''"
                with self._db:
                    self._db.execute(f"UPDATE studies SET {changes} WHERE id = ?", (row.id,))
                taken += 1
        return taken

    def _make(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        with self._db as db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {_VERSION}")

    def _is_ours(self) -> bool:
        """Whether the file holds our tables; False when it is new. Raises StoreError otherwise."""
        query = "SELECT application_id, user_version, (SELECT COUNT(*) FROM sqlite_master) "
        query += "FROM pragma_application_id, pragma_user_version"
        application, version, tables = self._db.execute(query).fetchone()
        if application not in (0, _APPLICATION_ID) or (tables and not application):
            raise StoreError(f"{self.path}: not a store of Recompute Studio; set RECOMPUTE_HOME")
        if tables and version != _VERSION:
            raise StoreError(f"{self.path}: made by another version (store {version}, not {_VERSION})")
        return bool(tables)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guard, self._speaking_plainly():
            with self._db:
                yield self._db
            self._check_place()

    def _check_place(self) -> None:
        """What a file says that is no longer there is of no store: nobody else reads or keeps it."""
        there = file_at(self.path)
        if there is None:
            raise StoreError(f"{self.path}: is gone; put it back, and start again")
        if there != self.file:
            raise StoreError(f"{self.path}: is another file than it was; start again")

    @contextmanager
    def _speaking_plainly(self) -> Iterator[None]:
        """Turn what SQLite says into one line with the file's path."""
        try:
            yield
        except salvage.TROUBLE as error:
            said = _PLAIN_WORDS.get(str(error), str(error))
            if salvage.is_damage(error) and self._was_ours():
                salvage.leave_mark(self.path)
                said = "is damaged; the next command sets it aside and keeps what can be read of it"
            raise StoreError(f"{self.path}: {said}") from None


def file_at(path: Path) -> tuple[int, int] | None:
    """Which file it is; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@lru_cache(maxsize=1)
def _columns() -> dict[str, tuple[str, ...]]:
    """The columns of each of our tables."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_SCHEMA)
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%STRICT'")
        ]
        return {
            table: tuple(row[0] for row in db.execute(f"SELECT name FROM pragma_table_info('{table}')"))
            for table in tables
        }


def seconds_apart_from_time(cells: Iterable[Cell]) -> float:
    """What all phases of a study but the timing took, as far as they ended."""
    return sum(cell.seconds for cell in cells if cell.phase != "time" and cell.seconds is not None)


_ID = re.compile(r"[\w-][\w.-]{0,99}", re.ASCII)
"""Of a study: it names a folder, and a store from elsewhere shall not choose which."""


def _facts_of(row: sqlite3.Row) -> tuple[StudySpec, dict[str, Any]]:
    """What a study asks and where it ran. Raises as `_sound` expects."""
    environment = json.loads(row["environment"])
    in_utc(row["created_at"]), in_utc(row["declared_at"])
    _check(isinstance(environment, dict) and row["status"] in get_args(Status))
    _check(row["verdict"] in (None, *get_args(Verdict)))
    _check(isinstance(row["spec_hash"], str) and isinstance(row["sentence"], str))
    _check(isinstance(row["spec"], str) and _ID.fullmatch(row["id"]) is not None)
    return _spec_of(row["spec"]), environment


def _cell_of(row: sqlite3.Row) -> Cell:
    payload = json.loads(row["payload"]) if row["payload"] else None
    _check(isinstance(payload, dict | None) and isinstance(row["reason"], str | None))
    _check(isinstance(row["shape_key"], str) and isinstance(row["plan"], str))
    _check(row["phase"] in PHASES and row["state"] in get_args(CellState))
    _check(_is_number(row["started_at"]) and (row["seconds"] is None or _is_number(row["seconds"])))
    return Cell(
        row["shape_key"],
        row["plan"],
        row["phase"],
        row["state"],
        payload,
        row["reason"],
        row["started_at"],
        row["seconds"],
    )


def _event_of(row: sqlite3.Row) -> Event:
    data = json.loads(row["data"])
    _check(isinstance(data, dict) and _is_number(row["at"]) and isinstance(row["kind"], str))
    _check(all(isinstance(row[name], str | None) for name in ("shape_key", "plan", "phase")))
    return Event(row["seq"], row["at"], row["kind"], row["shape_key"], row["plan"], row["phase"], data)


def _is_number(value: Any) -> bool:
    """A finite one, as times are."""
    return isinstance(value, int | float) and abs(value) < 1e15


def _check(is_sound: bool) -> None:
    if not is_sound:
        raise ValueError


@lru_cache(maxsize=4096)
def _spec_of(text: str) -> StudySpec:
    """A specification from the store; many studies have the same, and it never changes."""
    return StudySpec.model_validate_json(text)


_PLAIN_WORDS = {
    "file is not a database": "not a store of Recompute Studio; set RECOMPUTE_HOME",
    "database is locked": "locked by another process for more than 10 seconds",
    "attempt to write a readonly database": "read-only; make it writable or set RECOMPUTE_HOME",
    "database or disk is full": "the disk is full; what was finished is kept",
    "disk I/O error": "cannot be read or written; is the disk full or failing?",
    "unable to open database file": "cannot be opened; is the folder writable?",
}


def _insert_event(
    db: sqlite3.Connection,
    study: str,
    kind: str,
    key: tuple[str, str, str] | None,
    data: dict[str, Any],
) -> None:
    db.execute(
        "INSERT INTO events (study, at, kind, shape_key, plan, phase, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (study, time.time(), kind, *(key or (None, None, None)), json.dumps(data, allow_nan=False)),
    )
