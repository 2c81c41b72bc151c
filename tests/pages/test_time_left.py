"""How long a study has been measured and how long it may still take."""

from dataclasses import replace

import pytest

from pages._parts import progress
from pages._parts.time_left import TimeLeft, elapsed_s, left_words, time_left
from pages._parts.words import duration
from recompute_core.studies.assemble import assemble
from recompute_core.studies.forecast import forecast
from recompute_core.studies.store import Cell, Event, Store
from tests.pages import studies

_NOW = 1_000_000.0


def _status(at: float, status: str) -> Event:
    return Event(0, at, "status", None, None, None, {"status": status})


def _other(at: float) -> Event:
    return Event(0, at, "done", "T=128", "none", "noise", {})


def test_the_clock_counts_every_run_and_nothing_between_them() -> None:
    cancelled = [_status(0, "queued"), _status(10, "running"), _status(40, "cancelled")]
    assert elapsed_s(cancelled, 500) == 30
    again = [*cancelled, _status(300, "queued"), _status(310, "running")]
    assert elapsed_s(again, 315) == 35, "resuming does not begin at 0 again"
    killed = [_status(10, "running"), _other(25), _status(300, "queued"), _status(310, "running")]
    assert elapsed_s(killed, 320) == 25, "a run that was killed ends with the last that was heard of it"
    assert elapsed_s([_status(0, "queued")], 100) == 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0.2, "1 s"), (85, "85 s"), (91, "91 s"), (119.4, "119 s"), (119.8, "2 min"), (121, "2 min")),
        *((5400, "90 min"), (7139, "119 min"), (7200, "2 h"), (8400, "2 h 20 min")),
    ],
)
def test_a_unit_ends_where_the_next_begins(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def _halfway(store: Store, pace: float) -> tuple[studies.Filled, list[Cell]]:
    """A study in its last phase, all others of which took `pace` times as long as was estimated."""
    study = studies.running(store)
    costs = forecast(study.spec, 1e12).costs
    cells = [
        replace(cell, seconds=pace * costs[cell.shape_key, cell.plan, cell.phase])
        if cell.state == "done"
        else replace(cell, started_at=_NOW)
        for cell in store.cells(study.id)
    ]
    return study, cells


def _left(study: studies.Filled, cells: list[Cell], store: Store, at: float) -> TimeLeft:
    board = progress.grid(assemble(store.study(study.id), store.cells(study.id)), cells, live=True)
    spent = sum(cell.seconds or 0 for cell in cells)
    found = time_left(forecast(study.spec, 1e12), board, cells, spent, at)
    assert found is not None
    return found


def test_it_learns_from_what_the_study_has_shown(store: Store) -> None:
    study, cells = _halfway(store, 4)
    last = forecast(study.spec, 1e12).costs["T=128 B=4", "every-2nd-block", "time"]
    left = _left(study, cells, store, _NOW)
    assert 3 * last < left.seconds < 4 * last
    assert left.promised_s is not None
    assert "longer than the" in left_words(left) and "estimated at first" in left_words(left)
    usual = _left(study, [replace(c, seconds=c.seconds and c.seconds / 4) for c in cells], store, _NOW)
    assert usual.seconds == pytest.approx(last)
    assert "longer" not in left_words(usual)


def test_it_counts_down_and_says_when_it_was_wrong(store: Store) -> None:
    study, cells = _halfway(store, 1)
    first = _left(study, cells, store, _NOW)
    then = _left(study, cells, store, _NOW + first.seconds / 2)
    assert then.seconds == pytest.approx(first.seconds / 2), "it does not stand still in a phase"
    late = _left(study, cells, store, _NOW + first.seconds + 20)
    assert late.is_late and left_words(late) == ", longer than estimated"


def test_a_phase_that_is_late_makes_the_others_longer(store: Store) -> None:
    study, cells = _halfway(store, 1)
    missing = [c for c in cells if (c.plan, c.phase) != ("every-block", "time")]
    first = _left(study, missing, store, _NOW)
    late = _left(study, missing, store, _NOW + first.seconds + 60)
    assert left_words(late).startswith(", at least") and late.seconds > first.seconds / 2
    assert "this phase takes longer than estimated" in left_words(late)


def test_without_anything_to_go_by_nothing_is_said(store: Store) -> None:
    study = studies.Filled(store, studies.spec_of())
    board = progress.grid(assemble(store.study(study.id), []), [], live=True)
    unknown = replace(forecast(study.spec, None), seconds=None)
    assert time_left(unknown, board, [], 0, _NOW) is None
    assert left_words(None) == ""
