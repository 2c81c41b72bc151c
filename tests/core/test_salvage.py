"""A damaged store: noticed, set aside whole, told in one line, and what can be read goes on."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recompute_core.errors import StoreError, StudyError
from recompute_core.settings import shape_key
from recompute_core.spec import StudySpec
from recompute_core.studies import salvage
from recompute_core.studies.salvage import were_set_aside
from recompute_core.studies.store import Cell, Store

_PAGE = 4096
_PHASES = ("canary", "parity", "memory", "time")


def _filled(home: Path, studies: int = 3, plans: int = 20) -> dict[str, list[Cell]]:
    """A store with finished phases of a kilobyte each, closed; what is in it."""
    store = Store(home)
    for _ in range(studies):
        study = store.create(StudySpec())
        for plan in range(plans):
            for phase in _PHASES:
                key = ("T=1 B=1", f"blocks:{plan}", phase)
                store.begin_cell(study, *key)
                store.finish_cell(study, *key, {"figures": [plan] * 300})
        store.conclude(study, "done", "adopt", "Adopt.")
    found = {row.id: store.cells(row.id) for row in store.studies()}
    store.close()
    return found


def _overwrite(path: Path, first_page: int, pages: int, junk: bytes = b"\xa5") -> bytes:
    data = bytearray(path.read_bytes())
    data[first_page * _PAGE : (first_page + pages) * _PAGE] = junk * (pages * _PAGE)
    path.write_bytes(data)
    return bytes(data)


def _read_all(store: Store) -> None:
    for row in store.studies():
        with suppress(StudyError):  # a row that says no JSON costs its study, in one line
            store.cells(row.id)
            store.events(row.id)


def test_a_broken_page_costs_what_it_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _filled(tmp_path)
    path = tmp_path / "recompute.sqlite3"
    broken = _overwrite(path, path.stat().st_size // _PAGE // 2, 2)
    store = Store(tmp_path)  # nothing has met the damage yet
    with pytest.raises(
        StoreError, match="is damaged; the next command sets it aside and keeps what can"
    ):
        _read_all(store)
    store.close()

    store = Store(tmp_path)
    said = capsys.readouterr().err
    (aside,) = were_set_aside(path)
    assert aside.read_bytes() == broken
    assert said.count("\n") == 1
    assert f"{path}: was damaged; it is kept as {aside.name}, and what could be read goes on: " in said
    after = {row.id: store.cells(row.id) for row in store.studies()}
    assert after.keys() == before.keys()
    assert all(cell in before[study] for study, cells in after.items() for cell in cells)
    kept = sum(map(len, after.values()))
    assert 0.8 * 3 * 80 < kept < 3 * 80, "two pages of a hundred"
    assert f"3 studies and {kept} finished phases" in said
    study = store.create(StudySpec())
    store.close()

    store = Store(tmp_path)  # and it is a store like any other
    assert capsys.readouterr().err == ""
    assert [row.id for row in store.studies()] == [study, *after]
    assert [found.name for found in were_set_aside(path)] == [aside.name]
    store.close()


@pytest.mark.parametrize("length", [1, 50, _PAGE - 1, _PAGE])
def test_a_file_without_its_beginning(
    tmp_path: Path, length: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _filled(tmp_path, studies=2, plans=20)
    path = tmp_path / "recompute.sqlite3"
    path.write_bytes(b"\xa5" * length + path.read_bytes()[length:])
    store = Store(tmp_path)
    assert "what could be read goes on: 2 studies and 160 finished phases" in capsys.readouterr().err
    assert {row.id: store.cells(row.id) for row in store.studies()} == before
    store.create(StudySpec())
    store.close()
    assert not list(tmp_path.glob("recompute.salvage-*"))
    assert [each.name for each in tmp_path.glob("*.new*")] == []


def test_a_store_that_was_emptied_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study,) = _filled(tmp_path, studies=1, plans=1)
    store = Store(tmp_path)
    store.claim(study).release()  # a study that was driven has left its lock
    store.close()
    assert capsys.readouterr().err == ""
    (tmp_path / "recompute.sqlite3").write_bytes(b"")
    store = Store(tmp_path)
    said = "is new, though the folders of 1 study stand beside it; was the file lost, or emptied?\n"
    assert capsys.readouterr().err == f"{tmp_path / 'recompute.sqlite3'}: {said}"
    assert store.studies() == []
    store.close()


def test_not_while_a_study_is_driven_into_it(tmp_path: Path) -> None:
    (study,) = _filled(tmp_path, studies=1, plans=2)
    store = Store(tmp_path)
    lock = store.claim(study)
    store.close()
    path = tmp_path / "recompute.sqlite3"
    broken = _overwrite(path, 0, 1)
    with pytest.raises(StoreError, match=f"is damaged; study {study} is still being driven"):
        Store(tmp_path)
    assert path.read_bytes() == broken
    lock.release()
    Store(tmp_path).close()
    assert len(were_set_aside(path)) == 1


def test_a_mark_on_a_store_that_is_whole_is_taken_off(tmp_path: Path) -> None:
    before = _filled(tmp_path, studies=1, plans=2)
    (tmp_path / "recompute.damaged").touch()
    store = Store(tmp_path)
    assert {row.id: store.cells(row.id) for row in store.studies()} == before
    assert not (tmp_path / "recompute.damaged").exists()
    assert were_set_aside(store.path) == []
    store.close()


def test_what_is_no_json_or_of_no_study_is_not_brought_over(tmp_path: Path) -> None:
    (study,) = _filled(tmp_path, studies=1, plans=2)
    path = tmp_path / "recompute.sqlite3"
    db = sqlite3.connect(path)
    db.execute("UPDATE cells SET payload = '{' WHERE plan = 'blocks:0' AND phase = 'time'")
    db.execute("UPDATE cells SET study = 'nobody' WHERE plan = 'blocks:1' AND phase = 'time'")
    db.execute("UPDATE cells SET state = 'running' WHERE plan = 'blocks:1' AND phase = 'memory'")
    db.commit()
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET rootpage = 9999 WHERE name = 'events_of_study'")
    db.commit()
    db.close()
    (tmp_path / "recompute.damaged").touch()
    store = Store(tmp_path)
    assert [(cell.plan, cell.phase) for cell in store.cells(study)] == [
        *(("blocks:0", phase) for phase in ("canary", "parity", "memory")),
        *(("blocks:1", phase) for phase in ("canary", "parity")),
    ]
    (row,) = store.studies()
    assert (row.status, row.verdict, row.sentence) == ("interrupted", None, ""), "resume does the rest"
    store.close()


@pytest.mark.parametrize("change", ["phase = 'none of ours'", "payload = '{}'"])
def test_a_record_that_says_nothing_keeps_no_store_from_being_mended(
    tmp_path: Path, change: str
) -> None:
    store = Store(tmp_path)
    spec = StudySpec()
    study, shape = store.create(spec), shape_key(spec.at(spec.shapes[0]))
    for phase in ("reference", "noise", "legality"):
        store.begin_cell(study, shape, "none", phase)
        store.finish_cell(study, shape, "none", phase, {})
    store.conclude(study, "done", "adopt", "Adopt.")
    store.close()
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute(f"UPDATE cells SET {change} WHERE phase = 'legality'")
    _overwrite(store.path, 0, 1)
    store = Store(tmp_path)
    assert len(were_set_aside(store.path)) == 1
    assert [row.id for row in store.studies()] == [study]
    store.close()


def test_a_command_goes_on_and_says_what_happened(tmp_path: Path) -> None:
    _filled(tmp_path, studies=1, plans=2)
    _overwrite(tmp_path / "recompute.sqlite3", 0, 1)
    command = [sys.executable, "-m", "recompute_core", "studies", "--json", "-"]
    first, second = (
        subprocess.run(command, env={"RECOMPUTE_HOME": str(tmp_path)}, capture_output=True, text=True)
        for _ in range(2)
    )
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stderr.count("\n") == 1 and "was damaged; it is kept as" in first.stderr
    assert second.stderr == ""
    assert json.loads(first.stdout) == json.loads(second.stdout)


def _kept(home: Path) -> dict[str, list[Cell]]:
    store = Store(home)
    try:
        return {row.id: store.cells(row.id) for row in store.studies()}
    finally:
        store.close()


@pytest.mark.parametrize("table", ["studies", "cells", "events"])
def test_a_tables_root_is_not_needed(tmp_path: Path, table: str) -> None:
    before = _filled(tmp_path)
    path = tmp_path / "recompute.sqlite3"
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        events = db.execute("SELECT * FROM events ORDER BY seq").fetchall()
    inner = path.read_bytes()[(root - 1) * _PAGE] == 0x05
    _overwrite(path, root - 1, 1)
    (tmp_path / "recompute.damaged").touch()
    assert _kept(tmp_path) == (before if inner or table == "events" else {})
    with closing(sqlite3.connect(path)) as db:
        after = db.execute("SELECT * FROM events ORDER BY seq").fetchall()
    assert after == ([] if table == "studies" and not inner else events)


_STEPS = ("salvage._link", "Path.unlink", "Path.replace", "Path.write_text", "shutil.copyfile")
_KILLED = """
import os, shutil, sys
from pathlib import Path
from recompute_core.studies import salvage
from recompute_core.studies.store import Store
whose, name = sys.argv[2].split(".")
owner = {"salvage": salvage, "Path": Path, "shutil": shutil}[whose]
step, left = getattr(owner, name), [int(sys.argv[3])]
def one_more(*given, **more):
    if not left[0]:
        os._exit(9)
    left[0] -= 1
    return step(*given, **more)
setattr(owner, name, one_more)
Store(Path(sys.argv[1])).close()
"""


@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("times", range(4))
def test_killed_while_it_is_set_aside_nothing_of_it_is_lost(
    tmp_path: Path, step: str, times: int
) -> None:
    """Also what only the log holds, as the newest phases of a study that was killed do."""
    writer = (
        "import os, sys; from pathlib import Path; from tests.core.test_salvage import _filled, Store;"
        "home = Path(sys.argv[1]); _filled(home, 2, 10); store = Store(home);"
        "key = ('T=1 B=1', 'newest', 'memory'); study = store.studies()[0].id;"
        "store.begin_cell(study, *key); store.finish_cell(study, *key, {'figures': [1]}); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", writer, str(tmp_path)], check=True)
    path = tmp_path / "recompute.sqlite3"
    assert (tmp_path / "recompute.sqlite3-wal").stat().st_size
    _overwrite(path, 0, 1)
    (tmp_path / "recompute.damaged").touch()
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), step, str(times)])
    assert killed.returncode == 9 or (killed.returncode == 0 < times), "there are fewer such steps"
    found = _kept(tmp_path)
    assert sum(map(len, found.values())) == 2 * 40 + 1
    assert not list(tmp_path.glob("recompute.salvage-*"))


def test_two_that_open_it_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    before = _filled(tmp_path)
    path = tmp_path / "recompute.sqlite3"
    _overwrite(path, path.stat().st_size // _PAGE // 2, 2)
    (tmp_path / "recompute.damaged").touch()
    slowly = (
        "import sys, time; from pathlib import Path; from recompute_core.studies import salvage;"
        "from recompute_core.studies.store import Store; from recompute_core.spec import StudySpec;"
        "real = salvage.set_aside;"
        "salvage.set_aside = lambda *given: (print('now', flush=True), time.sleep(1), real(*given))[-1];"
        "store = Store(Path(sys.argv[1])); store.create(StudySpec()); store.close()"
    )
    command = [sys.executable, "-c", slowly, str(tmp_path)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "now\n"
    second = subprocess.run(command, capture_output=True, text=True)
    _, errors = first.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0), errors + second.stderr
    assert second.stdout + second.stderr == "", "it met a store that was whole"
    assert _kept(tmp_path).keys() > before.keys()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("said", ["disk I/O error", "database or disk is full", "database is locked"])
def test_what_is_no_damage_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    before = _filled(tmp_path)
    path = tmp_path / "recompute.sqlite3"
    broken = _overwrite(path, 0, 1)

    def fails(*_: object) -> bool:
        raise sqlite3.OperationalError(said)

    with monkeypatch.context() as patch:
        patch.setattr(salvage, "_follow", fails)
        with pytest.raises(StoreError, match=r"recompute\.sqlite3: "):
            Store(tmp_path)
    assert path.read_bytes() == broken
    assert were_set_aside(path) == []
    assert _kept(tmp_path) == before


def test_no_room_for_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _filled(tmp_path)
    path = tmp_path / "recompute.sqlite3"
    broken = _overwrite(path, 0, 1)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device", "there")

    monkeypatch.setattr(salvage.shutil, "copyfile", fails)
    with pytest.raises(StoreError, match=r"could not be set aside: No space left on device \(there\)$"):
        Store(tmp_path)
    assert path.read_bytes() == broken


def test_where_files_cannot_be_linked_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _filled(tmp_path)
    broken = _overwrite(tmp_path / "recompute.sqlite3", 0, 1)

    def fails(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(salvage.os, "link", fails)
    assert _kept(tmp_path) == before
    (aside,) = were_set_aside(tmp_path / "recompute.sqlite3")
    assert aside.read_bytes() == broken


def test_a_table_that_was_dropped_costs_that_table(tmp_path: Path) -> None:
    before = _filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / "recompute.sqlite3")) as db:
        db.execute("DROP TABLE cells")
    assert _kept(tmp_path) == {study: [] for study in before}
    assert len(were_set_aside(tmp_path / "recompute.sqlite3")) == 1


def test_a_table_of_another_version_is_one_line_and_left_alone(tmp_path: Path) -> None:
    _filled(tmp_path)
    path = tmp_path / "recompute.sqlite3"
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE studies DROP COLUMN environment")
    for _ in range(2):
        with pytest.raises(StoreError, match="table studies has other columns: made by another version"):
            Store(tmp_path)
    assert were_set_aside(path) == []


@pytest.mark.parametrize("put", [False, True])
def test_a_file_that_goes_while_it_is_open_is_told(tmp_path: Path, put: bool) -> None:
    store = Store(tmp_path / "home")
    for tail in ("", "-wal", "-shm"):
        Path(f"{store.path}{tail}").unlink()
    if put:
        Store(tmp_path / "home").close()
    for _ in range(2):
        with pytest.raises(StoreError, match="is another file than it was" if put else "is gone"):
            store.create(StudySpec())
    assert store.path.exists() == put
    store.close()


def test_what_only_the_log_holds_of_an_emptied_file_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (study,) = [store.create(StudySpec())]
    (tmp_path / "recompute.sqlite3").write_bytes(b"")
    left = (tmp_path / "recompute.sqlite3-wal").read_bytes()
    store.close()
    (tmp_path / "recompute.sqlite3").write_bytes(b"")
    (tmp_path / "recompute.sqlite3-wal").write_bytes(left)
    assert list(_kept(tmp_path)) == [study]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store's file."""
    home = tmp_path_factory.mktemp("made")
    _filled(home, studies=2, plans=4)
    return (home / "recompute.sqlite3").read_bytes()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_is_broken_it_is_one_line_and_then_a_store(
    made: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    home, content = tmp_path_factory.mktemp("home"), bytearray(made)
    (home / "studies").mkdir()
    path, size = home / "recompute.sqlite3", len(made)
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = size * data.draw(st.integers(0, 999)) // 1000, data.draw(st.integers(1, 3 * _PAGE))
        content[at : at + length] = bytes([data.draw(st.integers(0, 255))]) * min(length, size - at)
    broken = bytes(content[: size * data.draw(st.sampled_from([2, 2, 1])) // 2])
    path.write_bytes(broken)
    said = []
    for _ in range(3):
        try:
            store = Store(home)
        except StoreError as error:
            said.append(str(error))
            continue
        try:
            _read_all(store)
            store.create(StudySpec())
            break
        except StoreError as error:
            said.append(str(error))
        finally:
            store.close()
    assert not any("\n" in line for line in said)
    if len(said) == 3:  # the mark of whose it is was hit: then it is nobody's to set aside
        assert "not a store of Recompute Studio" in said[-1] or "made by another version" in said[-1]
        assert path.read_bytes() == broken
    else:
        assert len(said) < 2
