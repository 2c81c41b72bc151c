"""Stores that have grown: a thousand studies of 200 cells, and a study that has run for a week."""

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass

from recompute_core.studies.store import Store
from tests.bench.history_speed import fill
from tests.faults.scene import scene
from tests.faults.servers import running_server
from tests.pages import studies

from .visitor import PAGES, Visitor

_WEEK_S, _PAIR_S = 7 * 86_400, 10


@dataclass(frozen=True)
class Shown:
    """How long one page took."""

    page: str
    first_s: float
    """As a browser comes to it."""
    again_s: float
    """The slowest of three redraws."""
    troubles: tuple[str, ...]


def thousand_studies() -> list[Shown]:
    """Every page of a store of 1,000 studies of 200 cells each, of the newest study."""
    with scene() as here:
        with here.store() as store:
            fill(store, 200)
            newest = store.studies(limit=1)[0].id
        with running_server(here) as (address, _):
            return _every_page(address, newest)


def week_of_events(events: int = _WEEK_S // _PAIR_S) -> list[Shown]:
    """Every page of a study of 200 candidates that has run for a week, a pair of updates every ten
    seconds."""
    with scene() as here:
        with here.store() as store:
            study = studies.many(store)
            _spread(store, study, events)
        with running_server(here) as (address, _):
            return _every_page(address, study)


def _spread(store: Store, study: str, pairs: int) -> None:
    """The pairs of a week, one timing after the other."""
    timed = [cell for cell in store.cells(study) if cell.phase == "time"]
    begun, data = time.time() - _WEEK_S, '{"plain_s": 4.0, "candidate_s": 4.5}'
    rows = (
        (study, begun + _PAIR_S * n, cell.shape_key, cell.plan, data)
        for n, cell in enumerate(timed[n * len(timed) // pairs] for n in range(pairs))
    )
    insert = "INSERT INTO events (study, at, kind, shape_key, plan, phase, data) "
    with closing(sqlite3.connect(store.path)) as database, database:
        database.executemany(f"{insert} VALUES (?, ?, 'pair', ?, ?, 'time', ?)", rows)


def _every_page(address: str, study: str) -> list[Shown]:
    found = []
    with Visitor(address) as first:  # a server loads its modules once
        first.open()
    for page in PAGES:
        with Visitor(address, page, {"study": study}) as visitor:
            for _ in range(4):
                visitor.open()
            first, *again = visitor.latencies_s
            found.append(Shown(page or "home", first, max(again), tuple(visitor.troubles)))
    return found
