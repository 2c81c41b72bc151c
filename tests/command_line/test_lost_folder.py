"""A study whose folder goes, or whose log is no file: one line, and it stops; `resume` completes it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import BaseModel

from recompute_core.errors import EngineError
from recompute_core.studies.local_engine import LocalEngine
from recompute_core.studies.store import Store

QUICK = [
    "study",
    "--preset",
    "quick",
    *("--set", "workload={name: gpt, blocks: 2, width: 32, heads: 2, seq_len: 16, batch: 2}"),
    *("--set", "shapes=[{}]"),
    *("--set", "timing={min_pairs: 3, max_pairs: 3, budget_s: 0}"),
]


class Task(BaseModel):
    """What no worker begins."""


def begin(home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "recompute_core", *words],
        env={**os.environ, "RECOMPUTE_HOME": str(home), "TMPDIR": str(home.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_folder_that_goes_meanwhile_stops_the_study(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = Store(home)
    running = begin(home, *QUICK)
    try:
        deadline = time.monotonic() + 120
        while not any(cell.phase == "legality" for row in store.live() for cell in store.cells(row.id)):
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        (home / "studies").rename(home / "gone")
        _, said = running.communicate(timeout=120)
    finally:
        running.kill()
    (row,) = store.studies()
    log = store.folder(row.id) / "worker.log"
    last = f"error: {log}: cannot be written: No such file or directory"
    assert (running.returncode, said.splitlines()[-1]) == (4, last)
    assert "Traceback" not in said
    assert (row.status, row.sentence) == ("incomplete", last.removeprefix("error: "))
    again = begin(home, "resume", row.id)
    again.communicate(timeout=240)
    assert store.study(row.id).status == "done"
    assert again.returncode != 4
    store.close()


@pytest.mark.parametrize(("is_pipe", "why"), [(True, "not a regular file"), (False, "No such file")])
def test_no_task_begins_where_its_log_cannot_be_written(tmp_path: Path, is_pipe: bool, why: str) -> None:
    log = tmp_path / "gone" / "worker.log"
    if is_pipe:
        log.parent.mkdir()
        os.mkfifo(log)
    with pytest.raises(EngineError, match=rf"worker\.log: cannot be written: {why}"):
        LocalEngine(log).start(Task())


def test_a_pipe_that_somebody_reads_is_no_log_either(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(EngineError, match="not a regular file"):
            LocalEngine(log).start(Task())
    finally:
        os.close(reader)
