"""What the launching process hears of ranks: of rank 0, and of all while they start."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from recompute_core.ranks import launch, meeting
from recompute_core.ranks.starting import Starting
from recompute_core.spec import parse_spec
from recompute_core.studies.store import Store
from recompute_core.workloads.registered import VARIABLE
from tests.core.test_driver import ROOT, eventually


def test_who_keeps_rank_0s_pipe_open_keeps_nobody_waiting(tmp_path: Path) -> None:
    """As a process does that rank 0 forked. Of a line that it died in the middle of nothing is said."""
    heard: list[tuple[str, dict[str, Any]]] = []
    with launch._heard(tmp_path, lambda kind, **data: heard.append((kind, data)), lambda _: None):
        kept = os.open(meeting.said(tmp_path), os.O_WRONLY)
        os.write(kept, b'{"kind": "start", "phase": "noise"}\n{"kind": "do')
    os.close(kept)
    assert heard == [("start", {"phase": "noise"})]


def test_how_many_ranks_have_started_is_heard_until_rank_0_speaks(tmp_path: Path) -> None:
    started: list[int] = []
    with launch._heard(tmp_path, lambda *_, **__: None, started.append):
        eventually(lambda: 0 in started)
        meeting.started(tmp_path, 1).touch()
        eventually(lambda: 1 in started)
        with meeting.said(tmp_path).open("w") as pipe:
            pipe.write('{"kind": "start", "phase": "noise"}\n')
        time.sleep(0.5)
        told = len(started)
        time.sleep(0.5)
        assert len(started) == told
    assert started == sorted(started)


def test_what_starts_slowly_is_said_now_and_then_but_not_for_ever() -> None:
    clock: list[float] = [0]
    said: list[tuple[float, int]] = []
    starting = Starting(2, 8, lambda number: said.append((clock[0], number)), lambda: clock[0])
    for at, number in (
        (0.0, 0),
        (1.0, 0),
        (2.0, 0),
        (2.5, 1),
        (4.0, 1),
        (4.5, 1),
        (599.0, 1),
        (602.0, 1),
        (603.0, 2),
    ):
        clock[0] = at
        starting.heard(number)
    assert said == [(0, 0), (2, 0), (2.5, 1), (4.5, 1), (599, 1), (603, 2)]


def test_once_all_have_started_silence_is_silence() -> None:
    clock, said = [0.0], []
    starting = Starting(2, 8, said.append, lambda: clock[0])
    for at, number in ((0.0, 0), (2.5, 2), (5.0, 2), (9.0, 2), (60.0, 2)):
        clock[0] = at
        starting.heard(number)
    assert said == [0, 2]


SLOW = """
import os, time
if "RANK" in os.environ:
    time.sleep(22)
"""
DRIVE = """
import sys
from recompute_core.studies import driver, store
driver.drive(store.Store(), sys.argv[1])
"""


def test_ranks_that_start_longer_than_a_worker_may_be_silent(machine: Path, tmp_path: Path) -> None:
    """Noise is all that ranks are needed for, as no block is legal."""
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    store = Store(tmp_path / "home")
    blocks = ["0", "1"]
    spec = {
        "workload": {"name": "own:illegal", "blocks": blocks, "anatomy": {"names": blocks}},
        "ranks": {"count": 2},
        "device": "cpu",
        "threads": 1,
        "silence_s": 15,
    }
    study = store.create(parse_spec(spec))
    place = os.environ | {
        "RECOMPUTE_HOME": str(store.home),
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
        VARIABLE: "illegal=tests.ranks.factories:illegal",
    }
    subprocess.run([sys.executable, "-c", DRIVE, study], cwd=ROOT, env=place, check=True, timeout=200)
    cells = {cell.phase: cell for cell in store.cells(study)}
    assert (cells["noise"].state, cells["noise"].reason) == ("done", None)
    said = [event.data for event in store.events(study) if event.kind == "progress"]
    assert {one["what"] for one in said} == {"starting 2 ranks"}
    assert len(said) > 3
    assert said[0]["percent"] == 0
    store.close()
