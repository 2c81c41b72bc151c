"""How long the server takes to show a moved threshold, with 200 cells in the study and with more.

Whole AppTest reruns of the trade-off page, each with another threshold. A browser reruns only the
fragment, so it waits for less. Nothing absolute is asserted.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

from streamlit.testing.v1 import AppTest

from recompute_core.studies.store import Store
from tests.pages import studies

FRAME = Path(__file__).parents[2] / "pages" / "_frame.py"


def timed(candidates: int, reruns: int = 15) -> tuple[int, float, list[float]]:
    """Cells of a study; seconds of the page's first showing, and of each rerun after a change."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["RECOMPUTE_HOME"] = home
        store = Store(Path(home))
        study = studies.many(store, candidates)
        app = AppTest.from_file(str(FRAME), default_timeout=60)
        app.query_params["study"] = study
        app.run()
        app.switch_page("tradeoff.py")
        first = _seconds(app.run)
        assert not app.exception, [error.value for error in app.exception]
        spent = []
        for number in range(reruns):
            app.slider(key="peak_ratio").set_value(0.4 + 0.02 * number)
            spent.append(_seconds(app.run))
            assert not app.exception
        cells = len(store.cells(study))
        store.close()
    return cells, first, spent


def _seconds(do: object) -> float:
    started = time.perf_counter()
    do()  # type: ignore[operator]
    return time.perf_counter() - started


def main() -> None:
    """Print the times."""
    print("| cells | first showing, ms | rerun median, ms | rerun worst, ms |")
    print("|---|---|---|---|")
    for candidates in (40, 200, 300):
        cells, first, spent = timed(candidates)
        median, worst = statistics.median(spent) * 1e3, max(spent) * 1e3
        print(f"| {cells} | {first * 1e3:.0f} | {median:.0f} | {worst:.0f} |")
    print("\nAim: a rerun under 200 ms with 200 cells.")


if __name__ == "__main__":
    main()
