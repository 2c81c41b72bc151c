"""How long the server takes to show a moved threshold, with 200 candidates in the study and with 2,000.

Whole AppTest reruns of the trade-off page: a slider that is set, and a line of the picture that is
dragged. A browser reruns only the fragment, so it waits for less. Nothing absolute is asserted.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

from recompute_core.studies.store import Store
from tests.pages import studies
from tests.pages.reading import components

FRAME = Path(__file__).parents[2] / "pages" / "_frame.py"


def timed(candidates: int, reruns: int = 15) -> tuple[float, list[float], list[float]]:
    """Seconds of the page's first showing, of each rerun after a slider's move, and after a drag."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["RECOMPUTE_HOME"] = home
        store = Store(Path(home))
        study = studies.many(store, candidates)
        app = AppTest.from_file(str(FRAME), default_timeout=120)
        app.query_params["study"] = study
        app.run()
        app.switch_page("tradeoff.py")
        first = _seconds(app.run)
        assert not app.exception, [error.value for error in app.exception]
        set_, dragged = [], []
        for number in range(reruns):
            app.slider(key="peak_ratio").set_value(0.4 + 0.02 * number)
            set_.append(_seconds(app.run))
            dragged.append(_seconds(_dragging(app, number + 1, 0.41 + 0.02 * number)))
            assert not app.exception
        store.close()
    return first, set_, dragged


def _dragging(app: AppTest, seq: int, peak: float) -> Callable[[], object]:
    """A rerun as the browser asks for it while a line is held."""
    (picture,) = components(app, "picture")
    states = app._tree.get_widget_states()
    state = states.widgets.add()
    said = {"seq": seq, "peak": round(peak, 2), "update": 1.35, "picked": []}
    state.id, state.json_value = picture.proto.id, json.dumps({"hand": said})
    return lambda: app._run(states)


def _seconds(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def main() -> None:
    """Print the times."""
    print("| candidates | first, ms | slider, median ms | worst | drag, median ms | worst |")
    print("|---|---|---|---|---|---|")
    for candidates in (40, 200, 2000):
        first, set_, dragged = timed(candidates)
        cells = [first, statistics.median(set_), max(set_), statistics.median(dragged), max(dragged)]
        print(f"| {candidates} | " + " | ".join(f"{seconds * 1e3:.0f}" for seconds in cells) + " |")
    print("\nAim: a rerun under 200 ms with 200 candidates, under 500 ms with 2,000.")


if __name__ == "__main__":
    main()
