"""A store whose file is damaged: it is set aside whole, and what can be read of it is brought over.

SQLite finds damage where it meets it, so whoever meets it leaves a mark, and who opens the store next
looks at all of it. A figure that was altered in place, with the file's structure intact, is not found
so: only a signed report vouches for figures.
"""

import filecmp
import json
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..words import count
from .leaves import PAGE, rows_on_leaves

_BESIDE = ("", "-wal", "-shm")
_ASIDE = ".damaged-"
_COPY = "recompute.salvage-"
_TABLES = ("studies", "cells", "events")


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
    """Nothing is wrong with the store at `path`; where its folder cannot be written, it is looked at
    again."""
    with suppress(OSError):
        _mark(path).unlink(missing_ok=True)


def is_emptied(path: Path) -> bool:
    """Whether all that is left of a store is its write-ahead log, which SQLite would remove."""
    try:
        return path.stat().st_size == 0 < Path(f"{path}-wal").stat().st_size
    except OSError:
        return False


def says_application(path: Path, number: int) -> bool:
    """Whether a file's head names the application, at offset 68."""
    try:
        with path.open("rb") as file:
            return file.read(72)[68:] == number.to_bytes(4, "big")
    except OSError:
        return False


def write_out(db: sqlite3.Connection) -> None:
    """All of a new store into its file: its log does not come along."""
    if db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        raise sqlite3.OperationalError("database is locked")


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
    """Put the finished store `fresh` in the place of the damaged one; returns that one's new name.

    Whenever it is killed, the next one finds all of the damaged store: where it stood, or under the name
    that the mark says.
    """
    aside = _begun(path)
    if aside is None:
        aside = path.with_name(f"{path.name}{_ASIDE}{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
        for tail in _BESIDE[:2]:
            with suppress(FileNotFoundError):
                _link(Path(f"{path}{tail}"), Path(f"{aside}{tail}"))
        _mark(path).write_text(aside.name)
    for tail in _BESIDE[1:]:  # before the new one comes: SQLite would put them into it
        Path(f"{path}{tail}").unlink(missing_ok=True)
    fresh.replace(path)
    take_mark(path)
    return aside


def _begun(path: Path) -> Path | None:
    """The name under which a damaged store was being set aside by somebody who was killed."""
    name = _mark(path).read_text() if is_marked(path) else ""
    aside = path.with_name(name or path.name)
    is_one = name.startswith(f"{path.name}{_ASIDE}") and aside.is_file()
    is_this = is_one and (aside.samefile(path) or filecmp.cmp(aside, path, shallow=False))
    return aside if is_this else None


def _link(there: Path, name: Path) -> None:
    try:
        os.link(there, name)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        shutil.copyfile(there, name)


def were_set_aside(path: Path) -> list[Path]:
    """The damaged stores that once stood at `path`, oldest first."""
    found = path.parent.glob(f"{path.name}{_ASIDE}*")
    return sorted(each for each in found if not each.name.endswith(_BESIDE[1:]))


def bring_over(path: Path, db: sqlite3.Connection) -> Kept:
    """Put into the new, empty store `db` all rows of the damaged one at `path` that can be read, but not
    a study whose specification cannot, nor a phase that says no JSON or is of no study.

    Raises sqlite3.Error or OSError where something else than damage is in the way, as a full disk is.
    """
    for left in path.parent.glob(f"{_COPY}*"):  # by one that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_COPY) as folder:
        studies, cells, events = _read(_copied(_begun(path) or path, Path(folder)), db)
    taken = {row[0] for row in studies if _is_json(row[3]) and _put(db, "studies", row)}
    finished = [_put(db, "cells", row) for row in cells if row[0] in taken and _is_cell(row)]
    for row in events:
        if row[1] in taken and _is_json(row[7]):
            _put(db, "events", row)
    return Kept(len(taken), sum(finished))


Rows = dict[int, tuple[Any, ...]]
"""By their rowid."""


def _copied(damaged: Path, folder: Path) -> Path:
    """A copy to work on, so that the damaged store stays as it is."""
    copy = folder / damaged.name
    for tail in _BESIDE[:2]:
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{damaged}{tail}", f"{copy}{tail}")
    return copy


def _read(copy: Path, db: sqlite3.Connection) -> tuple[list[tuple[Any, ...]], ...]:
    """The rows of the three tables, each in their order.

    Where not even the tables can be found, the copy is made to begin as every store does: with the first
    page of the new one, as their tables begin on the same pages. Which pages are free is not known then,
    and no leaf is read by itself: it may hold what was deleted.
    """
    begins = copy.stat().st_size >= PAGE and _has_tables(copy)
    if not begins:
        with copy.open("r+b") as file:
            file.write(_first_page(db))
    with closing(connect(copy)) as old:
        old.execute("PRAGMA writable_schema = ON")  # one bad line of the schema hides no other table
        found: dict[str, Rows] = {table: {} for table in _TABLES}
        broken = [table for table, rows in found.items() if not _follow(old, table, rows)]
        if broken:
            with suppress(*TROUBLE):
                old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if broken and begins:
        tables = {_columns(db, table): found[table] for table in broken}  # no two have as many
        for rowid, values in rows_on_leaves(copy):
            tables.get(len(values), {}).setdefault(rowid, values)
    # A number that is the rowid itself is on its leaf as NULL.
    found["events"] = {seq: (seq, *row[1:]) for seq, row in found["events"].items()}
    return tuple([rows[rowid] for rowid in sorted(rows)] for rows in found.values())


def _has_tables(copy: Path) -> bool:
    with closing(connect(copy)) as old:
        try:
            old.execute("PRAGMA writable_schema = ON")
            return bool(old.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])
        except TROUBLE as error:
            if is_damage(error):
                return False
            raise


def _first_page(db: sqlite3.Connection) -> bytes:
    """Of the new store, but for how many pages there are and which of them are free (offsets 28 to 40 of
    the header, https://www.sqlite.org/fileformat.html): SQLite then counts them itself."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (path,) = (row[2] for row in db.execute("PRAGMA database_list") if row[1] == "main")
    with Path(path).open("rb") as file:
        page = bytearray(file.read(PAGE))
    page[28:40] = bytes(12)
    return bytes(page)


def _follow(db: sqlite3.Connection, table: str, found: Rows) -> bool:
    """Put into `found` the rows that the table's tree leads to, from the first until one cannot be read,
    and from the last until one cannot. Whether these are all."""
    for order in ("ASC", "DESC"):
        try:
            for number, *row in db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid {order}"):
                if number in found:
                    break
                found[number] = tuple(row)
            else:
                return True
        except (*TROUBLE, OverflowError) as error:
            if not (is_damage(error) or isinstance(error, OverflowError) or _is_missing(error)):
                raise
    return False


def _columns(db: sqlite3.Connection, table: str) -> int:
    return len(db.execute(f"SELECT * FROM {table} LIMIT 0").description)


def _is_missing(error: Exception) -> bool:
    return str(error).startswith("no such table")


def _is_cell(row: tuple[object, ...]) -> bool:
    """Finished, with a payload that is one; what ran or failed is done again."""
    return row[4] == "done" and _is_json(row[5])


def _is_json(text: object) -> bool:
    try:
        return isinstance(json.loads(text), dict)  # type: ignore[arg-type]
    except (ValueError, TypeError, RecursionError):
        return False


def _put(db: sqlite3.Connection, table: str, row: tuple[object, ...]) -> bool:
    """Whether the row had a place: of the right types, and the first of its key."""
    try:
        put = db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        return False
    return put.rowcount == 1


def _mark(path: Path) -> Path:
    return path.with_name("recompute.damaged")
