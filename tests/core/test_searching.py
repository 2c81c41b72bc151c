"""The search in the background: a real process, killed, failing, asked twice."""

import errno
import os
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest

from recompute_core.errors import InputError, StoreError
from recompute_core.results import PlanResult
from recompute_core.settings import GptSettings
from recompute_core.spec import StudySpec
from recompute_core.studies.locks import Lock, machine_lock
from recompute_core.studies.searching import (
    INTERRUPTED,
    Failed,
    SearchState,
    keep_answer,
    search,
    search_progress,
    search_state,
    start_search,
)
from recompute_core.studies.store import Store
from tests.core import records as make

TINY = StudySpec(
    workload=GptSettings(blocks=1, width=32, heads=2, vocab=17, batch=1),
    shapes=({"seq_len": 16}, {"seq_len": 24}),
    threads=1,
)
FIRST, SECOND = "T=16 B=1", "T=24 B=1"


def settled(store: Store, study: str, shape: str) -> SearchState:
    deadline = time.monotonic() + 120
    while (state := search_state(store, study, shape)) in ("running", "waiting"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return state


def searches() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if "recompute_core.studies.searching" in child.cmdline()
    ]


def test_a_killed_search_is_not_forgotten_and_the_next_one_answers(store: Store) -> None:
    study = store.create(TINY)
    assert search_state(store, study, SECOND) == "none"
    machine = machine_lock()
    assert machine.acquire()  # a study is being measured: the search waits
    start_search(store, study, SECOND)
    start_search(store, study, SECOND)  # no second one
    assert search_state(store, study, SECOND) == "waiting"
    assert search_state(store, study, FIRST) == "none"
    (first,) = searches()
    os.kill(first.pid, signal.SIGKILL)
    assert settled(store, study, SECOND) == Failed(INTERRUPTED)
    start_search(store, study, SECOND)
    machine.release()
    found = settled(store, study, SECOND)
    assert isinstance(found, PlanResult)
    assert found.shape_key == SECOND
    assert found.workload["seq_len"] == 24
    assert found.plain.peak_bytes >= found.floor.peak_bytes
    assert not list(store.folder(study).glob("*.part"))


def test_why_a_search_failed_is_one_line(store: Store) -> None:
    beyond = TINY.workload.model_copy(update={"batch": 1_000_000})
    study = store.create(TINY.model_copy(update={"workload": beyond}))
    start_search(store, study, "T=16 B=1000000")
    failed = settled(store, study, "T=16 B=1000000")
    assert isinstance(failed, Failed)
    assert failed.why.startswith("shapes[0] (T=16 B=1000000): plain needs about ")
    assert "\n" not in failed.why


def test_only_a_shape_of_the_study_is_searched(store: Store) -> None:
    study = store.create(TINY)
    with pytest.raises(InputError, match=r"no shape 'T=1' in this study; it has T=16 B=1, T=24 B=1"):
        start_search(store, study, "T=1")
    assert not searches()


def answer() -> PlanResult:
    given = make.plan_answer(make.plan_point("best-2mb", 2_000_000, "blocks.0"))
    return given.model_copy(update={"shape_key": FIRST})


def test_an_answer_is_read_back_as_it_was_kept(store: Store) -> None:
    study = store.create(TINY)
    keep_answer(store, study, answer())
    assert search_state(store, study, FIRST) == answer()


def test_an_answer_of_another_version_is_none(store: Store) -> None:
    study = store.create(TINY)
    store.folder(study).mkdir(parents=True, exist_ok=True)
    (store.folder(study) / f"plans {FIRST}.json").write_text('{"schema": "recompute-plan/0"}')
    assert search_state(store, study, FIRST) == "none"


PLAN = make.plan_point("best-2mb", 2_000_000, "blocks.0")


@pytest.mark.parametrize(
    "damage",
    [
        {"plain": make.plan_point("none", 0)},
        {"shape_key": SECOND},
        {"points": (PLAN, PLAN)},
        {"points": (make.plan_point("best-2mb", 2_000_000, "blocks.7"),)},
        {"points": (make.plan_point("best-2mb", -5, "blocks.0"),)},
        {"points": (make.plan_point("best-2mb", 10**400, "blocks.0"),)},
    ],
)
def test_a_damaged_answer_is_none(store: Store, damage: dict[str, object]) -> None:
    study = store.create(TINY)
    text = answer().model_copy(update=damage).model_dump_json(by_alias=True)
    (store.folder(study) / f"plans {FIRST}.json").write_text(text)
    assert search_state(store, study, FIRST) == "none"


def test_what_is_not_text_takes_nothing_down(store: Store) -> None:
    study = store.create(TINY)
    (store.folder(study) / f"plans {FIRST}.json").write_bytes(b"\xff\xfe")
    assert search_state(store, study, FIRST) == "none"
    failed = store.folder(study) / f"plans {FIRST}.failed"
    failed.write_bytes(b"no\xff room\n")
    assert search_state(store, study, FIRST) == Failed("no\ufffd room")
    failed.unlink()
    failed.mkdir()
    assert search_state(store, study, FIRST) == Failed(f"{failed}: Is a directory")


def test_a_failed_search_does_not_hide_an_earlier_answer(store: Store) -> None:
    study = store.create(TINY)
    keep_answer(store, study, answer())
    (store.folder(study) / f"plans {FIRST}.failed").write_text("")
    assert search_state(store, study, FIRST) == Failed(INTERRUPTED, answer())


def test_an_answer_that_cannot_be_kept_is_a_store_error(store: Store) -> None:
    (store.home / "studies").mkdir(exist_ok=True)
    store.folder("a-file").touch()
    with pytest.raises(StoreError, match="Not a directory"):
        keep_answer(store, "a-file", answer())


@pytest.fixture
def found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search in this process that need not search."""
    monkeypatch.setattr("recompute_core.planning.plan", lambda *_: answer())


@pytest.mark.usefixtures("found_at_once")
def test_a_search_whose_answer_cannot_be_written_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, _: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    study = store.create(TINY)
    monkeypatch.setattr("recompute_core.studies.searching.write_whole", full)
    failed = store.folder(study) / f"plans {FIRST}.failed"
    failed.write_text(INTERRUPTED)
    search(store, study, FIRST)
    state = search_state(store, study, FIRST)
    assert isinstance(state, Failed)
    assert state.why.endswith(f"plans {FIRST}.json: Read-only file system")
    # Nor can the reason be written: the mark that was made at the start stays.
    failed.write_text(INTERRUPTED)
    monkeypatch.setattr(Path, "write_text", full)
    search(store, study, FIRST)
    assert search_state(store, study, FIRST) == Failed(INTERRUPTED)
    assert f"{failed}: Read-only file system" in capsys.readouterr().err


@pytest.mark.usefixtures("found_at_once")
def test_a_search_that_ends_well_leaves_its_answer_alone(store: Store) -> None:
    study = store.create(TINY)
    (store.folder(study) / f"plans {FIRST}.failed").write_text(INTERRUPTED)
    search(store, study, FIRST)
    assert search_state(store, study, FIRST) == answer()
    assert not machine_lock().is_held()


def test_a_search_does_not_start_where_it_could_not_keep_its_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("recompute_core.studies.searching.check_writable", refuse)
    study = store.create(TINY)
    with pytest.raises(StoreError, match="Read-only file system"):
        start_search(store, study, FIRST)
    assert not searches()
    assert search_state(store, study, FIRST) == "none"


def test_a_study_that_was_deleted_is_not_made_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = store.create(TINY)

    def meanwhile(*_: object) -> PlanResult:
        shutil.rmtree(store.folder(study))
        return answer()

    monkeypatch.setattr("recompute_core.planning.plan", meanwhile)
    for _ in range(2):  # deleted in the middle of a search, and before it has its turn
        search(store, study, FIRST)
        assert not store.folder(study).exists()
    assert not machine_lock().is_held()


def test_whether_it_waits_is_asked_of_the_machine(store: Store) -> None:
    study = store.create(TINY)
    assert search_progress(store, study, FIRST) is None
    held = Lock(store.folder(study) / f"plans {FIRST}.lock")
    turn = Lock(store.folder(study) / f"plans {FIRST}.turn")
    machine = machine_lock()
    assert held.acquire()
    assert search_progress(store, study, FIRST) == "running"  # about to take the machine
    assert machine.acquire()  # by whatever: no study of this store is live
    assert search_progress(store, study, FIRST) == "waiting"
    assert turn.acquire()
    assert search_progress(store, study, FIRST) == "running"
    for lock in (turn, machine, held):
        lock.release()
    assert search_progress(store, study, FIRST) is None
