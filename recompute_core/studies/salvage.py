"""A store whose file is damaged: it is set aside whole, and what can be read of it is brought over.

SQLite finds damage where it meets it, so whoever meets it leaves a mark, and who opens the store next
looks at all of it. A figure that was altered in place, with the file's structure intact, is not found
so: only a signed report vouches for figures.
"""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..words import count

_BESIDE = ("", "-wal", "-shm")
_ASIDE = ".damaged-"
_PAGE = 4096
"""Bytes of a page of every store."""


@dataclass(frozen=True)
class Kept:
    """What was brought over from a damaged store."""

    studies: int
    cells: int

    def __str__(self) -> str:
        return f"{count(self.studies, 'study', 'studies')} and {count(self.cells, 'finished phase')}"


TROUBLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a store may raise: of what is broken SQLite also speaks in words that are no text."""


def is_damage(error: Exception) -> bool:
    """Whether it says that the file itself is broken."""
    code = getattr(error, "sqlite_errorcode", None)
    broken = code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return broken or isinstance(error, UnicodeDecodeError)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that reads whatever is there: bytes that are no text become marks (U+FFFD)."""
    db = sqlite3.connect(path, timeout=10, check_same_thread=False)
    db.text_factory = lambda data: data.decode(errors="replace")
    return db


def leave_mark(path: Path) -> None:
    """Have whoever opens the store at `path` next look at all of it."""
    with suppress(OSError):
        _mark(path).touch()


def is_marked(path: Path) -> bool:
    return _mark(path).exists()


def take_mark(path: Path) -> None:
    _mark(path).unlink(missing_ok=True)


def is_whole(db: sqlite3.Connection) -> bool:
    """Whether a database's structure is intact; reads all of it."""
    try:
        return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except TROUBLE as error:
        if is_damage(error):
            return False
        raise


def place_for_new(path: Path) -> Path:
    """Where the store that takes the damaged one's place is made; whatever was begun there is gone."""
    fresh = path.with_name(f"{path.name}.new")
    for tail in _BESIDE:
        fresh.with_name(fresh.name + tail).unlink(missing_ok=True)
    return fresh


def set_aside(path: Path, fresh: Path) -> Path:
    """Put the finished store `fresh` in the place of the damaged one; returns that one's new name."""
    aside = path.with_name(f"{path.name}{_ASIDE}{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    aside.hardlink_to(path)  # at no moment is there no store
    for tail in _BESIDE[1:]:
        with suppress(FileNotFoundError):
            path.with_name(path.name + tail).rename(aside.with_name(aside.name + tail))
    fresh.replace(path)
    take_mark(path)
    return aside


def were_set_aside(path: Path) -> list[Path]:
    """The damaged stores that once stood at `path`, oldest first."""
    found = path.parent.glob(f"{path.name}{_ASIDE}*")
    return sorted(each for each in found if not each.name.endswith(_BESIDE[1:]))


def bring_over(damaged: Path, db: sqlite3.Connection) -> Kept:
    """Put into the new, empty store `db` all rows of the damaged one that can be read, but not a study
    whose specification cannot, nor a phase that says no JSON or is of no study."""
    with _readable(damaged, db) as old:
        studies = {row[0]: row for row in _rows(old, "studies") if _is_json(row[3])}
        cells = [row for row in _rows(old, "cells") if row[0] in studies and _is_cell(row)]
        events = [row for row in _rows(old, "events") if row[1] in studies and _is_json(row[7])]
    taken = [_put(db, "studies", row) for row in studies.values()]
    finished = [_put(db, "cells", row) for row in cells]
    for row in events:
        _put(db, "events", row)
    return Kept(sum(taken), sum(finished))


@contextmanager
def _readable(damaged: Path, db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """The damaged store, or where not even its tables can be found, a copy that begins as every store
    does: with the first page of the new one, as their tables begin on the same pages."""
    with closing(connect(damaged)) as old:
        if _has_tables(old):
            yield old
            return
    with tempfile.TemporaryDirectory(dir=damaged.parent, prefix="recompute.salvage-") as folder:
        copy = Path(folder) / damaged.name
        for tail in _BESIDE[:2]:
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{damaged}{tail}", f"{copy}{tail}")
        with copy.open("r+b") as file:
            file.write(_first_page(db))
        with closing(connect(copy)) as old:
            _has_tables(old)
            yield old


def _has_tables(db: sqlite3.Connection) -> bool:
    try:
        db.execute("PRAGMA writable_schema = ON")  # one bad line of the schema hides no other table
        return bool(db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])
    except TROUBLE:
        return False


def _first_page(db: sqlite3.Connection) -> bytes:
    """Of the new store, but for how many pages there are and which of them are free (offsets 28 to 40 of
    the header, https://www.sqlite.org/fileformat.html): SQLite then counts them itself."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (path,) = (row[2] for row in db.execute("PRAGMA database_list") if row[1] == "main")
    with Path(path).open("rb") as file:
        page = bytearray(file.read(_PAGE))
    page[28:40] = bytes(12)
    return bytes(page)


def _rows(db: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    """In their order, what can be read: rows from the first until one cannot be read, and from the last
    until one cannot."""
    found: dict[int, tuple[object, ...]] = {}
    for order in ("ASC", "DESC"):
        with suppress(*TROUBLE, OverflowError):
            for number, *row in db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid {order}"):
                if number in found:
                    break
                found[number] = tuple(row)
    return [row for _, row in sorted(found.items())]


def _is_cell(row: tuple[object, ...]) -> bool:
    """Finished, with a payload that is one; what ran or failed is done again."""
    return row[4] == "done" and _is_json(row[5])


def _is_json(text: object) -> bool:
    try:
        return isinstance(json.loads(text), dict)  # type: ignore[arg-type]
    except (ValueError, TypeError, RecursionError):
        return False


def _put(db: sqlite3.Connection, table: str, row: tuple[object, ...]) -> bool:
    """Whether the row had a place: of the right types, and of a study that is there."""
    try:
        db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        return False
    return True


def _mark(path: Path) -> Path:
    return path.with_name("recompute.damaged")
