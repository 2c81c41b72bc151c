"""How long the server takes to list a history of 1,000 studies, with 12 and with 200 cells in each.

Whole AppTest runs of the page *Studies*: a first showing, reruns, and a search. The studies are copies
of a made-up one. Nothing absolute is asserted.
"""

import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

from recompute_core.spec import StudySpec
from recompute_core.studies.store import Store
from tests.pages import studies

FRAME = Path(__file__).parents[2] / "pages" / "_frame.py"
STUDIES = 1000
Spent = tuple[float, float]
"""Seconds that passed, and seconds that a processor was busy."""


def spec_with(cells: int) -> StudySpec:
    """A study of so many cells: 12 at one shape, or 40 at each of several."""
    if cells == 12:
        return studies.spec_of(shapes=[{"seq_len": 128}])
    plans = [f"blocks:{i},{j}" for i in range(6) for j in range(i + 1, 6)][:9]
    return studies.spec_of(shapes=[{"seq_len": 64 * n} for n in range(1, cells // 40 + 1)], plans=plans)


def fill(store: Store, cells: int) -> None:
    """A thousand studies of so many cells each; all but the newest two, which are compared, lack what
    their cells found, which no list reads."""
    study = studies.filled(store, spec_with(cells))
    assert len(store.cells(study)) == cells
    columns = "created_at, declared_at, spec, spec_hash, status, environment, verdict, sentence, cancel"
    of_cell = "shape_key, plan, phase, state, started_at, seconds"
    of_event = "at, kind, shape_key, plan, phase, data"
    database = sqlite3.connect(store.path)
    for number in range(1, STUDIES):
        found = ", payload" if number == STUDIES - 1 else ""
        for table, key, names in (
            ("studies", "id", columns),
            ("cells", "study", of_cell + found),
            ("events", "study", of_event),
        ):
            database.execute(
                f"INSERT INTO {table} ({key}, {names}) SELECT ?, {names} FROM {table} WHERE {key} = ?",
                (f"1-{number:04}", study),
            )
    database.execute(
        "UPDATE studies SET created_at = '2001' || substr(created_at, 5) WHERE id != ?", (study,)
    )
    database.commit()
    database.close()


def timed(cells: int, reruns: int = 7) -> list[list[Spent]]:
    """What the first showing, every rerun and every search took."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["RECOMPUTE_HOME"] = home
        store = Store(Path(home))
        fill(store, cells)
        app = AppTest.from_file(str(FRAME), default_timeout=120)
        app.run()
        app.switch_page("studies.py")
        first = [_spent(app.run)]
        again = [_spent(app.run) for _ in range(reruns)]
        searched = []
        for number in range(1, reruns + 1):
            app.text_input(key="q").set_value(f"1-{number:04}")
            searched.append(_spent(app.run))
        assert not app.exception, [error.value for error in app.exception]
        store.close()
    return [first, again, searched]


def _spent(do: Callable[[], object]) -> Spent:
    started, busy = time.perf_counter(), time.process_time()
    do()
    return time.perf_counter() - started, time.process_time() - busy


def main() -> None:
    """Print the times."""
    print("| studies | cells each | of | median, ms | of it processor, ms |")
    print("|---|---|---|---|---|")
    for cells in (12, 200):
        for what, spent in zip(("first showing", "rerun", "search"), timed(cells), strict=True):
            wall, busy = (statistics.median(times) * 1e3 for times in zip(*spent, strict=True))
            print(f"| {STUDIES} | {cells} | {what} | {wall:.0f} | {busy:.0f} |")
    print("\nAim: under 1 s.")


if __name__ == "__main__":
    main()
