"""The search in the background: a real process, killed, failing, asked twice."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recompute_core.errors import InputError, StoreError
from recompute_core.results import PlanResult
from recompute_core.spec import GptSettings, StudySpec
from recompute_core.studies.locks import machine_lock
from recompute_core.studies.searching import (
    Failed,
    SearchState,
    keep_answer,
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


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store, and a machine that no other test measures on."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened = Store(tmp_path)
    yield opened
    opened.close()


def settled(store: Store, study: str, shape: str) -> SearchState:
    deadline = time.monotonic() + 120
    while (state := search_state(store, study, shape)) == "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return state


def searches() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if "recompute_core.studies.searching" in child.cmdline()
    ]


def test_a_killed_search_leaves_no_trace_and_the_next_one_answers(store: Store) -> None:
    study = store.create(TINY)
    assert search_state(store, study, SECOND) == "none"
    machine = machine_lock()
    assert machine.acquire()  # a study is being measured: the search waits
    start_search(store, study, SECOND)
    start_search(store, study, SECOND)  # no second one
    assert search_state(store, study, SECOND) == "running"
    assert search_state(store, study, FIRST) == "none"
    (first,) = searches()
    os.kill(first.pid, signal.SIGKILL)
    assert settled(store, study, SECOND) == "none"
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


def test_an_answer_is_read_back_as_it_was_kept(store: Store) -> None:
    study = store.create(TINY)
    answer = make.plan_answer(make.plan_point("best-2mb", 2_000_000, "blocks.0"))
    keep_answer(store, study, answer)
    assert search_state(store, study, answer.shape_key) == answer


def test_an_answer_of_another_version_is_none(store: Store) -> None:
    study = store.create(TINY)
    store.folder(study).mkdir(parents=True, exist_ok=True)
    (store.folder(study) / f"plans {FIRST}.json").write_text('{"schema": "recompute-plan/0"}')
    assert search_state(store, study, FIRST) == "none"


def test_an_answer_that_cannot_be_kept_is_a_store_error(store: Store) -> None:
    (store.home / "studies").mkdir(exist_ok=True)
    store.folder("a-file").touch()
    with pytest.raises(StoreError, match="File exists"):
        keep_answer(store, "a-file", make.plan_answer(make.plan_point("a", 2_000_000, "blocks.0")))
