"""The store: what is written is read back, by whoever, and what is not ours is said so."""

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recompute_core.errors import InputError, StoreError
from recompute_core.spec import StudySpec, Thresholds
from recompute_core.studies import store as module
from recompute_core.studies.store import PHASES, Cell, Event, Store, home_folder

ROOT = Path(__file__).parents[2]
KEY = ("T=16 B=2", "every-block", "memory")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "home")
    yield found
    found.close()


@pytest.fixture
def study(store: Store) -> str:
    return store.create(StudySpec())


def refusal(home: Path) -> str:
    """The one line with which a store in `home` is refused, after the path of its file."""
    with pytest.raises(StoreError) as caught:
        Store(home)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(str(home))
    return message


# --- studies --------------------------------------------------------------------------------------


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "there"))
    assert home_folder() == tmp_path / "there"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOMPUTE_HOME", "")
    assert home_folder() == tmp_path / ".recompute"
    monkeypatch.delenv("RECOMPUTE_HOME")
    assert home_folder() == tmp_path / ".recompute"


def test_a_new_study(store: Store) -> None:
    spec = StudySpec(thresholds=Thresholds(peak_ratio=0.5), seed=3)
    row = store.study(store.create(spec))
    assert row.spec == spec
    assert row.spec_hash == spec.digest()
    assert row.declared_at == row.created_at
    assert row.declared_at.endswith("Z")
    assert (row.environment, row.verdict, row.sentence, row.cancel) == ({}, None, "", False)
    assert store.folder(row.id).is_dir()
    assert store.cells(row.id) == []
    assert store.events(row.id) == []
    assert store.last_seq(row.id) == 0


def test_every_study_has_a_name_of_its_own_and_the_newest_comes_first(store: Store) -> None:
    names = [store.create(StudySpec()) for _ in range(20)]
    assert len(set(names)) == 20
    rows = store.studies()
    assert {row.id for row in rows} == set(names)
    assert [row.created_at for row in rows] == sorted((row.created_at for row in rows), reverse=True)
    assert [row.id for row in store.studies(limit=3)] == [row.id for row in rows[:3]]


def test_an_unknown_study(store: Store) -> None:
    with pytest.raises(InputError, match=r"no study 'nobody' in .*; 'studies' lists them") as caught:
        store.study("nobody")
    assert "\n" not in str(caught.value)


def test_a_study_without_a_driver_is_interrupted(store: Store, study: str) -> None:
    assert store.study(study).status == "interrupted"
    assert store.live() == []
    lock = store.driver_lock(study)
    assert lock.acquire()
    assert store.study(study).status == "queued"
    store.set_status(study, "running")
    assert store.study(study).status == "running"
    assert [row.id for row in store.live()] == [study]
    lock.release()
    assert store.study(study).status == "interrupted"
    assert store.study(study).ended


def test_live_studies_come_oldest_first(store: Store) -> None:
    names = [store.create(StudySpec()) for _ in range(4)]
    locks = [store.driver_lock(name) for name in names]
    for lock in locks:
        lock.acquire()
    store.conclude(names[1], "done", None, "")
    waiting = [row.id for row in store.live()]
    moments = [store.study(name).created_at for name in waiting]
    assert sorted(waiting) == sorted([names[0], names[2], names[3]])
    assert moments == sorted(moments)
    for lock in locks:
        lock.release()


def test_conclude(store: Store, study: str) -> None:
    store.conclude(study, "done", "adopt", "Adopt it.")
    row = store.study(study)
    assert (row.status, row.verdict, row.sentence, row.ended) == ("done", "adopt", "Adopt it.", True)
    (event,) = store.events(study)
    assert (event.kind, event.data) == ("status", {"status": "done", "sentence": "Adopt it."})


def test_cancel_and_environment(store: Store, study: str) -> None:
    assert not store.cancel_asked(study)
    store.ask_cancel(study)
    assert store.cancel_asked(study)
    assert store.study(study).cancel
    store.ask_cancel(study, False)
    assert not store.cancel_asked(study)
    assert not store.cancel_asked("nobody")
    store.set_environment(study, {"torch": "2", "threads": 2})
    assert store.study(study).environment == {"torch": "2", "threads": 2}


# --- cells ----------------------------------------------------------------------------------------


def test_the_life_of_a_cell(store: Store, study: str) -> None:
    store.begin_cell(study, *KEY)
    (cell,) = store.cells(study)
    assert (cell.shape_key, cell.plan, cell.phase) == KEY
    assert (cell.state, cell.payload, cell.reason, cell.seconds) == ("running", None, None, None)
    store.finish_cell(study, *KEY, {"figure": 0.1, "none": None, "text": "ü\n"})
    (cell,) = store.cells(study)
    assert (cell.state, cell.reason) == ("done", None)
    assert cell.payload == {"figure": 0.1, "none": None, "text": "ü\n"}
    assert cell.seconds is not None
    assert cell.seconds >= 0
    assert [(e.kind, e.shape_key, e.plan, e.phase, e.data) for e in store.events(study)] == [
        ("start", *KEY, {}),
        ("done", *KEY, {}),
    ]


def test_a_failed_cell_has_a_reason_and_no_payload(store: Store, study: str) -> None:
    store.begin_cell(study, *KEY)
    store.fail_cell(study, *KEY, "it died")
    (cell,) = store.cells(study)
    assert (cell.state, cell.payload, cell.reason) == ("failed", None, "it died")
    assert store.events(study)[-1].data == {"reason": "it died"}


def test_a_cell_that_is_begun_again_starts_empty(store: Store, study: str) -> None:
    store.begin_cell(study, *KEY)
    store.fail_cell(study, *KEY, "it died")
    store.begin_cell(study, *KEY)
    (cell,) = store.cells(study)
    assert (cell.state, cell.reason, cell.seconds) == ("running", None, None)


def test_a_clock_that_is_put_back_changes_no_order_and_no_cell_takes_less_than_nothing(
    store: Store, study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour, phase in enumerate(("canary", "parity", "memory")):
        monkeypatch.setattr(module.time, "time", lambda hour=hour: 1e9 - 3600 * hour)
        store.begin_cell(study, "T=1 B=1", "every-block", phase)
        monkeypatch.setattr(module.time, "time", lambda hour=hour: 1e9 - 3600 * hour - 1800)
        store.finish_cell(study, "T=1 B=1", "every-block", phase, {})
    found = [(cell.phase, cell.seconds) for cell in store.cells(study)]
    assert found == [("canary", 0), ("parity", 0), ("memory", 0)]


def test_cells_come_in_the_order_they_were_begun(store: Store, study: str) -> None:
    for phase in PHASES:
        store.begin_cell(study, "T=16 B=2", "none", phase)
    for phase in reversed(PHASES):
        store.finish_cell(study, "T=16 B=2", "none", phase, {})
    assert [cell.phase for cell in store.cells(study)] == list(PHASES)


def test_resuming_forgets_what_was_not_finished_and_nothing_else(store: Store, study: str) -> None:
    other = store.create(StudySpec())
    for name in (study, other):
        for phase in ("reference", "noise", "legality"):
            store.begin_cell(name, "T=16 B=2", "none", phase)
        store.finish_cell(name, "T=16 B=2", "none", "reference", {"a": 1})
        store.fail_cell(name, "T=16 B=2", "none", "noise", "it died")
    before = store.cells(study)
    store.forget_unfinished(study)
    assert store.cells(study) == before[:1]
    assert len(store.cells(other)) == 3
    assert len(store.events(study)) == 5  # history stays


def test_a_finding_without_a_beginning_is_not_lost(store: Store, study: str) -> None:
    store.finish_cell(study, *KEY, {"figure": 1})
    assert [cell.payload for cell in store.cells(study)] == [{"figure": 1}]


def test_what_json_lacks_is_not_written(store: Store, study: str) -> None:
    store.begin_cell(study, *KEY)
    with pytest.raises(ValueError):
        store.finish_cell(study, *KEY, {"figure": math.nan})
    with pytest.raises(ValueError):
        store.add_event(study, "pair", figure=math.inf)
    (cell,) = store.cells(study)
    assert (cell.state, len(store.events(study))) == ("running", 1)


def test_a_cell_of_no_study_is_refused(store: Store) -> None:
    with pytest.raises(StoreError):
        store.begin_cell("nobody", *KEY)


# --- events ---------------------------------------------------------------------------------------


def test_events_after_a_number(store: Store, study: str) -> None:
    other = store.create(StudySpec())
    for number in range(10):
        store.add_event(study if number % 2 else other, "pair", KEY, number=number)
    everything = store.events(study)
    assert [event.data["number"] for event in everything] == [1, 3, 5, 7, 9]
    assert store.events(study, after=everything[2].seq) == everything[3:]
    assert store.events(study, after=store.last_seq(study)) == []
    assert store.events(study, limit=2) == everything[:2]
    assert store.last_seq(study) == everything[-1].seq


def test_two_stores_on_one_file_see_each_other(store: Store, study: str) -> None:
    other = Store(store.home)
    other.begin_cell(study, *KEY)
    assert [cell.state for cell in store.cells(study)] == ["running"]
    store.finish_cell(study, *KEY, {"a": 1})
    assert other.cells(study) == store.cells(study)
    assert other.events(study) == store.events(study)
    assert other.study(study) == store.study(study)
    other.close()


Log = list[tuple[str, Any]]
KEYS = st.tuples(
    st.sampled_from(["T=16 B=2", "T=32 B=2"]),
    st.sampled_from(["none", "every-block"]),
    st.sampled_from(PHASES),
)
DATA = st.dictionaries(
    st.sampled_from(["figure", "note"]),
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
)
WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.none() | KEYS, DATA),
        st.tuples(st.sampled_from(["begin", "finish", "fail"]), KEYS, DATA),
        st.tuples(st.sampled_from(["reopen", "other"]), st.none(), st.just({})),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(WRITES, st.integers(1, 7))
def test_whatever_is_written_is_read_back_in_order(writes: list[Any], page: int) -> None:
    """None lost, none doubled, across two writers and reopening, in pages of any size."""
    with tempfile.TemporaryDirectory() as folder:
        stores = [Store(Path(folder)), Store(Path(folder))]
        study, quiet = stores[0].create(StudySpec()), stores[0].create(StudySpec())
        expected: list[tuple[Any, ...]] = []
        cells: dict[Any, tuple[str, Any, Any]] = {}
        for kind, key, data in writes:
            store = stores[0]
            if kind == "reopen":
                store.close()
                stores[0] = Store(Path(folder))
            elif kind == "other":
                stores.reverse()
            elif kind == "event":
                store.add_event(study, "note", key, **data)
                expected.append(("note", *(key or (None,) * 3), data))
            elif kind == "begin":
                store.begin_cell(study, *key)
                expected.append(("start", *key, {}))
                cells.pop(key, None)
                cells[key] = ("running", None, None)
            elif key in cells and kind == "finish":
                store.finish_cell(study, *key, data)
                expected.append(("done", *key, {}))
                cells[key] = ("done", data, None)
            elif key in cells:
                store.fail_cell(study, *key, "it died")
                expected.append(("failed", *key, {"reason": "it died"}))
                cells[key] = ("failed", None, "it died")
        for store in (*stores, Store(Path(folder))):
            read: list[Event] = []
            while more := store.events(study, after=read[-1].seq if read else 0, limit=page):
                read += more
            assert [(e.kind, e.shape_key, e.plan, e.phase, e.data) for e in read] == expected
            assert [e.seq for e in read] == sorted({e.seq for e in read})
            assert store.last_seq(study) == (read[-1].seq if read else 0)
            assert store.events(quiet) == []
            found: list[Cell] = store.cells(study)
            assert {
                (c.shape_key, c.plan, c.phase): (c.state, c.payload, c.reason) for c in found
            } == cells
            assert len(found) == len(cells)
            store.close()


def test_threads_lose_nothing(store: Store, study: str) -> None:
    other = Store(store.home)

    def write(of: Store, writer: int) -> None:
        for number in range(25):
            of.add_event(study, "note", writer=writer, number=number)

    threads = [
        threading.Thread(target=write, args=(of, writer))
        for writer, of in enumerate((store, store, other, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = [(event.data["writer"], event.data["number"]) for event in store.events(study)]
    assert sorted(read) == [(writer, number) for writer in range(4) for number in range(25)]
    for writer in range(4):
        assert [number for who, number in read if who == writer] == list(range(25))
    other.close()


WRITE = """
import sys
from pathlib import Path
from recompute_core.studies.store import Store
store = Store(Path(sys.argv[1]))
for number in range(10**6):
    store.add_event(sys.argv[2], "note", number=number)
    print(number, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_had_written(store: Store, study: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE, str(store.home), study],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        last = [int(line) for line in writer.stdout.read().splitlines() if line]
    numbers = [event.data["number"] for event in store.events(study)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > max([19, *last[:-1]])
    store.add_event(study, "note")  # and the file is as good as before


# --- what is not ours, or cannot be used ----------------------------------------------------------


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "recompute.sqlite3").write_text("not a database, and long enough to be looked at\n" * 99)
    before = (tmp_path / "recompute.sqlite3").read_bytes()
    assert "not a store of Recompute Studio; set RECOMPUTE_HOME" in refusal(tmp_path)
    assert (tmp_path / "recompute.sqlite3").read_bytes() == before


def foreign(home: Path, *statements: str) -> bytes:
    home.mkdir(exist_ok=True)
    db = sqlite3.connect(home / "recompute.sqlite3")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()
    return (home / "recompute.sqlite3").read_bytes()


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE studies (id TEXT)",),
        ("PRAGMA application_id = 7", "CREATE TABLE t (a)"),
        ("PRAGMA application_id = 7",),  # another program's, still empty
    ],
    ids=["unmarked", "marked", "marked and empty"],
)
def test_another_programs_database(tmp_path: Path, statements: tuple[str, ...]) -> None:
    before = foreign(tmp_path, *statements)
    assert "not a store of Recompute Studio" in refusal(tmp_path)
    assert (tmp_path / "recompute.sqlite3").read_bytes() == before


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "recompute.sqlite3").touch()
    found = Store(tmp_path)
    assert found.studies() == []
    found.close()


def test_another_versions_store(store: Store) -> None:
    store.close()
    foreign(store.home, "PRAGMA user_version = 99")
    assert "made by another version (store 99, not 1)" in refusal(store.home)


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "recompute.sqlite3").mkdir()
    assert "cannot be opened" in refusal(tmp_path)


@pytest.mark.parametrize("home", ["file", "file/below"])
def test_a_file_in_the_place_of_the_folder(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("a file")
    assert "cannot make the folder" in refusal(tmp_path / home)
    assert (tmp_path / "file").read_text() == "a file"


def test_no_place_for_a_studys_folder(store: Store) -> None:
    (store.home / "studies").write_text("a file")
    with pytest.raises(StoreError, match="studies"):
        store.create(StudySpec())
    assert store.studies() == []


def test_read_only(store: Store, study: str) -> None:
    """As root no file is read-only, so the connection is made so."""
    store._db.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="read-only; make it writable or set RECOMPUTE_HOME"):
        store.create(StudySpec())
    assert [row.id for row in store.studies()] == [study]


def test_a_full_disk_keeps_what_was_finished(store: Store, study: str) -> None:
    store.begin_cell(study, *KEY)
    store.finish_cell(study, *KEY, {"figure": 1})
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="the disk is full; what was finished is kept"):
        store.add_event(study, "note", text="x" * 100_000)
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert [cell.payload for cell in store.cells(study)] == [{"figure": 1}]
    assert len(store.events(study)) == 2
    store.add_event(study, "note")


def test_locked(store: Store, study: str) -> None:
    store._db.execute("PRAGMA busy_timeout = 50")
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked by another process"):
        store.add_event(study, "note")
    assert store.study(study).id == study  # whoever only reads is not kept waiting
    holder.execute("ROLLBACK")
    holder.close()
    store.add_event(study, "note")
    assert len(store.events(study)) == 1


def test_a_writer_waits_for_another(store: Store, study: str) -> None:
    holder = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.2, holder.execute, ["COMMIT"])
    timer.start()
    store.add_event(study, "note")
    timer.join()
    holder.close()
    assert len(store.events(study)) == 1


def test_a_closed_store_is_said_so(store: Store, study: str) -> None:
    store.close()
    with pytest.raises(StoreError, match=str(store.path)):
        store.study(study)


@pytest.mark.parametrize("moment", range(12))
def test_a_store_that_another_process_is_just_making(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Between any two questions to a new file its tables may have come to be."""
    errors: list[StoreError] = []

    def make() -> None:
        try:
            Store(tmp_path).close()
        except StoreError as error:
            errors.append(error)

    other = threading.Thread(target=make)

    class Interrupted(sqlite3.Connection):
        asked = 0

        def execute(self, statement: str, *rest: Any) -> sqlite3.Cursor:
            self.asked += 1
            if self.asked == moment + 1 and other.ident is None:
                monkeypatch.setattr(module.sqlite3, "connect", connect)
                other.start()
                other.join(0.25)  # it is done by then, or waits for a lock that we hold
            return super().execute(statement, *rest)

    connect = sqlite3.connect
    monkeypatch.setattr(module.sqlite3, "connect", partial(connect, factory=Interrupted))
    first = Store(tmp_path)
    if other.ident is not None:
        other.join()
    assert errors == []
    study = first.create(StudySpec())
    assert [row.id for row in first.studies()] == [study]
    first.close()


MAKE = """
import sys, time
from pathlib import Path
from recompute_core.spec import StudySpec
from recompute_core.studies.store import Store
folder, moment = Path(sys.argv[1]), float(sys.argv[2])
for number in range(20):
    while time.time() < moment + number / 20:
        pass
    print(Store(folder / str(number)).create(StudySpec()), flush=True)
"""


def test_several_processes_make_one_store_together(tmp_path: Path) -> None:
    """Twenty times over, as closely together as they can."""
    moment = str(time.time() + 1.5)
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE, str(tmp_path), moment],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(4)
    ]
    answers = [maker.communicate(timeout=60) for maker in makers]
    assert [error for _, error in answers] == [""] * 4
    names = [output.split() for output, _ in answers]
    for number in range(20):
        found = Store(tmp_path / str(number))
        assert sorted(row.id for row in found.studies()) == sorted(own[number] for own in names)
        found.close()


def test_the_specification_is_kept_as_it_was_given(store: Store) -> None:
    spec = StudySpec(shapes=({"seq_len": 64}, {"seq_len": 32}), plans=("blocks:0", "every-block"))
    study = store.create(spec)
    other = sqlite3.connect(store.path)
    (text,) = other.execute("SELECT spec FROM studies WHERE id = ?", (study,)).fetchone()
    other.close()
    assert json.loads(text) == spec.model_dump(mode="json")
