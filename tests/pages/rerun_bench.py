"""How long the server takes to show a moved threshold: `python -m tests.pages.rerun_bench`.

Builds a study of 200 candidates (20 shapes x 10 plans, 880 cells) and times whole AppTest reruns of
the result page, each with another threshold. A browser reruns only the fragment, so it waits for less.
Nothing absolute is asserted.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from streamlit.testing.v1 import AppTest

from recompute_core.studies.store import Store

from . import studies

FRAME = Path(__file__).parents[2] / "pages" / "_frame.py"


def timed(candidates: int, reruns: int = 15) -> tuple[float, list[float]]:
    """Seconds of the first showing of the result page, and of each rerun with another threshold."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["RECOMPUTE_HOME"] = home
        store = Store(Path(home))
        study = studies.many(store, candidates)
        app = AppTest.from_file(str(FRAME), default_timeout=60)
        app.query_params["study"] = study
        app.run()
        app.switch_page("result.py")
        first = _seconds(app.run)
        assert not app.exception, [error.value for error in app.exception]
        spent = []
        for number in range(reruns):
            app.slider(key="peak_ratio").set_value(0.4 + 0.02 * number)
            spent.append(_seconds(app.run))
            assert not app.exception
        store.close()
    return first, spent


def _seconds(do: object) -> float:
    started = time.perf_counter()
    do()  # type: ignore[operator]
    return time.perf_counter() - started


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200)
    asked = parser.parse_args()
    first, spent = timed(asked.candidates)
    print(
        f"{asked.candidates} candidates: first {first * 1e3:.0f} ms; rerun median "
        f"{statistics.median(spent) * 1e3:.0f} ms, worst {max(spent) * 1e3:.0f} ms"
    )


if __name__ == "__main__":
    main()
