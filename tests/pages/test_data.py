"""One study for many browsers: read once for each change, and not more often than it is worth."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from pages._parts import data
from recompute_core.results import StudyResult
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store

from . import studies

_MANY = 8


def _at_once(ask: Callable[[], object]) -> list[object]:
    """What as many threads were given who asked at the same moment."""
    together = threading.Barrier(_MANY)

    def one(_: int) -> object:
        together.wait(10)
        return ask()

    with ThreadPoolExecutor(_MANY) as threads:
        return list(threads.map(one, range(_MANY)))


def test_many_at_once_are_one_reading_and_one_making(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, made = [], []

    def slowly(*given: Any) -> StudyResult:
        read.append(1)
        time.sleep(0.02)
        return assemble(*given)

    def drawn() -> str:
        made.append(1)
        time.sleep(0.02)
        return "drawn"

    monkeypatch.setattr(data, "assemble", slowly)
    study = studies.running(store).id
    found = _at_once(lambda: data.snapshot(store, study).once("picture", drawn))
    assert found == ["drawn"] * _MANY
    assert (len(read), len(made)) == (1, 1)


def test_a_study_that_changes_is_left_alone_for_ten_times_what_reading_it_took(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]

    def within_50_ms(*given: Any) -> StudyResult:
        clock[0] += 0.05
        return assemble(*given)

    monkeypatch.setattr(data, "assemble", within_50_ms)
    monkeypatch.setattr(data, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    study = studies.running(store)
    first = data.snapshot(store, study.id)
    store.begin_cell(study.id, study.shapes[0], "every-block", "memory")
    for clock[0], is_same in ((100.54, True), (100.56, False)):
        assert (data.snapshot(store, study.id) is first) == is_same
    assert len(data.snapshot(store, study.id).events) == len(first.events) + 1


def test_how_a_study_stands_is_known_at_once(store: Store) -> None:
    study = studies.running(store).id
    before = data.snapshot(store, study)
    store.ask_cancel(study)
    assert not before.row.cancel
    assert data.snapshot(store, study).row.cancel
