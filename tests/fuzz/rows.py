"""A home folder that is not as we wrote it: junk in the store's columns and in the files beside it."""

import copy
import json
import shutil
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from recompute_core.comparing.compare import compare
from recompute_core.errors import InputError, StoreError
from recompute_core.exporting import export
from recompute_core.reinvest.kept import runs
from recompute_core.reports.evidence import gather
from recompute_core.reports.predicate import derive
from recompute_core.reports.refusal import Untrusted
from recompute_core.rerun import longer
from recompute_core.studies import checking, searching
from recompute_core.studies.assemble import assemble
from recompute_core.studies.flow import Book, next_task
from recompute_core.studies.store import Store, seconds_apart_from_time
from recompute_core.terminal import reasons, rerun_lines, studies_table, study_table
from recompute_core.words import printable
from tests.pages import studies

from .inputs import as_json, mutated, mutated_bytes, scalars, texts, values
from .run import Kind

Change = tuple[str, str, int, Any]
"""Table, column, which of its rows, what is written into it."""
_JSON = {"studies": ("spec", "environment"), "cells": ("payload",), "events": ("data",)}
_TEXTS = {
    "studies": ("id", "created_at", "declared_at", "spec_hash", "status", "verdict", "sentence"),
    "cells": ("study", "shape_key", "plan", "phase", "state", "reason", "started_at", "seconds"),
    "events": ("at", "kind", "shape_key", "plan", "phase"),
}
_WORDS = ("", "done", "failed", "running", "queued", "cancelled", "adopt", "none", "every-block", "time")


def make_home(folder: Path) -> str:
    """A home with one finished study, its tables without SQLite's own check of types."""
    store = Store(folder)
    study = studies.filled(store)
    store.close()
    db = sqlite3.connect(folder / "recompute.sqlite3")
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, ') STRICT', ')') WHERE type = 'table'")
    db.commit()
    db.close()
    return study


@cache
def _originals() -> dict[tuple[str, str], tuple[Any, ...]]:
    """Of each JSON column the values it has."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        make_home(Path(place))
        db = sqlite3.connect(Path(place) / "recompute.sqlite3")
        found = {
            (table, column): tuple(
                json.loads(row[0]) for row in db.execute(f"SELECT {column} FROM {table} ORDER BY rowid")
            )
            for table, columns in _JSON.items()
            for column in columns
        }
        db.close()
    return found


def changes() -> st.SearchStrategy[list[Change]]:
    def one_of_column(place: tuple[str, str]) -> st.SearchStrategy[Change]:
        table, column = place
        kept = _originals()[place]

        def of_row(row: int) -> st.SearchStrategy[Change]:
            junk = st.one_of(
                mutated(lambda: copy.deepcopy(kept[row])).map(_text),
                mutated(lambda: copy.deepcopy(kept[row])).map(_text),
                values.map(_text),
                mutated_bytes(lambda: as_json(kept[row])),
                scalars,
            )
            return st.tuples(st.just(table), st.just(column), st.just(row), junk)

        return st.integers(0, len(kept) - 1).flatmap(of_row)

    texts_of = [(table, column) for table, columns in _TEXTS.items() for column in columns]
    plain = st.tuples(
        st.sampled_from(texts_of),
        st.integers(0, 20),
        st.one_of(st.sampled_from(_WORDS), texts, scalars, st.binary(max_size=4)),
    ).map(lambda one: (*one[0], one[1], one[2]))
    one = st.one_of(st.sampled_from(sorted(_originals())).flatmap(one_of_column), plain)
    return st.lists(one, min_size=1, max_size=3)


def _text(value: Any) -> str:
    return as_json(value).decode()


@cache
def home_bytes() -> tuple[str, bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        study = make_home(Path(place))
        db = sqlite3.connect(Path(place) / "recompute.sqlite3")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        return study, (Path(place) / "recompute.sqlite3").read_bytes()


def lay_home(made: list[Change], folder: Path) -> None:
    """A fresh home with these changes."""
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    study, data = home_bytes()
    (home / "studies" / study).mkdir(parents=True)
    (home / "recompute.sqlite3").write_bytes(data)
    db = sqlite3.connect(home / "recompute.sqlite3")
    db.execute("PRAGMA foreign_keys = OFF")
    for table, column, row, value in made:
        try:
            db.execute(
                f"UPDATE {table} SET {column} = ? WHERE rowid = "
                f"(SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET ?)",
                (value, row),
            )
        except (sqlite3.Error, OverflowError, ValueError):
            continue  # what SQLite itself cannot hold
    db.commit()
    db.close()


def _read(made: list[Change], folder: Path) -> list[str]:
    store = Store(folder / "home")
    try:
        return _all_of(store)
    finally:
        store.close()


def _all_of(store: Store) -> list[str]:
    said: list[str] = []

    def heard(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (InputError, StoreError, Untrusted) as error:
            said.append(str(error))
            return None

    rows = heard(store.studies) or []
    heard(lambda: studies_table(rows))
    heard(store.live), heard(store.spans), heard(store.count)
    for row in rows:
        cells = heard(lambda row=row: store.cells(row.id))
        heard(lambda row=row: store.events(row.id))
        heard(lambda row=row: [store.timed(shape) for shape in ("T=128 B=4",)])
        heard(lambda row=row: runs(store, row.id))
        if cells is None:
            continue
        result = heard(lambda row=row, cells=cells: assemble(row, cells))
        heard(lambda row=row, cells=cells: next_task(row.spec, Book.of(cells)))
        for plan in row.spec.plans[:2]:
            evidence = heard(lambda row=row, plan=plan: gather(store, row.id, plan))
            if evidence is not None:
                heard(lambda evidence=evidence: derive(evidence))
            heard(lambda row=row, plan=plan: export(row, plan, "torch", None))
        if result is None:
            continue
        heard(lambda result=result: json.dumps(result.document(), allow_nan=False))
        heard(lambda result=result: study_table(result))
        said += map(printable, heard(lambda result=result: list(reasons(result))) or [])
        said += map(printable, heard(lambda result=result: list(rerun_lines(result))) or [])
        heard(lambda result=result: compare(result, result, (False, False)))
        seconds = heard(lambda cells=cells: seconds_apart_from_time(cells)) or 0.0
        heard(lambda result=result, seconds=seconds: longer(result, result.judged, seconds))
    return said


# --- files beside the store ------------------------------------------------------------------

_FILES = (
    "studies/{}/plans T=128 B=4.json",
    "studies/{}/plans T=128 B=4.failed",
    "checks/x.json",
    "studies/{}/reinvest/x/asked.json",
    "studies/{}/driver.lock",
    "recompute.lock",
    "recompute.sqlite3",
    "recompute.sqlite3-wal",
    "signers.json",
    "recompute-studio.lock.json",
)


def _files() -> st.SearchStrategy[list[tuple[str, str, bytes]]]:
    content = st.one_of(
        values.map(as_json),
        st.binary(max_size=200),
        mutated_bytes(lambda: home_bytes()[1]),
        st.just(b"SQLite format 3\0" + bytes(100)),
    )
    kinds = st.sampled_from(("file", "file", "file", "folder"))
    return st.lists(st.tuples(kinds, st.sampled_from(_FILES), content), min_size=1, max_size=2)


def _lay_files(made: list[tuple[str, str, bytes]], folder: Path) -> None:
    lay_home([], folder)
    study = home_bytes()[0]
    for kind, name, data in made:
        path = folder / "home" / name.format(study)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if kind == "folder":
            path.mkdir()
        else:
            path.write_bytes(data)


def _read_files(made: list[tuple[str, str, bytes]], folder: Path) -> list[str]:
    said = _read([], folder)
    store = Store(folder / "home")
    try:
        for row in store.studies():
            searching.search_state(store, row.id, "T=128 B=4")
            checking.check_state(store, row.spec)
    finally:
        store.close()
    return said


KINDS = (
    Kind("rows of the store", changes, _read, lay_home, usual=[]),
    Kind("files beside the store", _files, _read_files, _lay_files, usual=[], weight=0.5),
)
