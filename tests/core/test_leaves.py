"""Rows read from leaf pages are those that SQLite reads, and no broken page hides another."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recompute_core.studies.leaves import PAGE, rows_on_leaves

Filled = tuple[Path, dict[int, tuple[Any, Any]]]
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
_LONG = st.integers(0, 20_000).map(lambda size: "x" * size)
_VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), _TEXT, _LONG,
    st.binary(max_size=9000),
)  # fmt: skip
_ROWS = st.dictionaries(
    st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50), st.tuples(_VALUES, _VALUES), max_size=30
)


def _filled(path: Path, rows: dict[int, tuple[Any, Any]], without: set[int]) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b)")
        db.executemany("INSERT INTO t VALUES (?, ?, ?)", ((n, *row) for n, row in rows.items()))
        db.commit()
        db.executemany("DELETE FROM t WHERE id = ?", ((n,) for n in without))


def _found(path: Path) -> dict[int, tuple[Any, Any]]:
    """Rows of the table, which have three values; those of SQLite's own have five."""
    return {rowid: values[1:] for rowid, values in rows_on_leaves(path) if len(values) == 3}  # type: ignore[misc]


@settings(max_examples=150, deadline=None)
@given(_ROWS, st.data())
def test_they_are_what_sqlite_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[int, tuple[Any, Any]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("leaves") / "db"
    without = set(data.draw(st.lists(st.sampled_from(sorted(rows) or [0]))))
    _filled(path, rows, without)
    assert _found(path) == {n: row for n, row in rows.items() if n not in without}


@pytest.fixture
def large(tmp_path: Path) -> Filled:
    """Many leaves, and rows of several pages among them."""
    chance = random.Random(0)
    rows = {n: (n, "y" * (9000 if n % 7 == 0 else chance.randrange(300))) for n in range(1, 400)}
    _filled(tmp_path / "db", rows, set())
    return tmp_path / "db", rows


def _kinds(path: Path) -> dict[int, int]:
    whole = path.read_bytes()
    return {n: whole[n * PAGE] for n in range(1, len(whole) // PAGE)}


def test_the_pages_above_the_leaves_are_not_needed(
    large: Filled,
) -> None:
    path, rows = large
    inner = [n for n, kind in _kinds(path).items() if kind == 0x05]
    assert inner
    _break(path, [0, *inner])
    with pytest.raises(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as db:
        db.execute("SELECT count(*) FROM t").fetchone()
    assert _found(path) == rows


@pytest.mark.parametrize("seed", range(10))
def test_a_page_that_is_broken_hides_no_row_of_another(large: Filled, seed: int) -> None:
    path, rows = large
    chance = random.Random(seed)
    pages = chance.sample(sorted(_kinds(path)), 3)
    _break(path, pages, chance)
    found = _found(path)
    assert {n: row for n, row in found.items() if len(row[1]) < 300}.items() <= rows.items()
    short = [n for n, row in rows.items() if len(row[1]) < 300]
    assert len(short) * 0.7 < sum(n in found for n in short) <= len(short)


def _break(path: Path, pages: list[int], chance: random.Random | None = None) -> None:
    with path.open("r+b") as file:
        for page in pages:
            file.seek(page * PAGE)
            file.write(chance.randbytes(PAGE) if chance else bytes(PAGE))
