"""SIGTERM, as a service manager or `timeout` sends it, is Ctrl-C: one line, exit code 4, all kept."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recompute_core.reinvest.kept import runs
from recompute_core.studies.locks import machine_lock
from recompute_core.studies.store import Store
from tests.pages import studies


@pytest.mark.parametrize(("what", "ignored"), [("reinvest", False), ("study", True)])
def test_a_command_that_is_told_to_end_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, ignored: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store, machine = Store(tmp_path), machine_lock()
    study = studies.filled(store)
    command = ["reinvest", study] if what == "reinvest" else ["study", "--preset", "quick"]
    assert machine.acquire(), "so that it waits and trains nothing"
    running = subprocess.Popen(
        [sys.executable, "-m", "recompute_core", *command],
        env={**os.environ, "RECOMPUTE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )
    try:
        deadline = time.monotonic() + 60
        while not _waits(store, study, what):
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        running.terminate()
        _, said = running.communicate(timeout=30)
    finally:
        machine.release()
        running.kill()
    assert running.returncode == 4
    last = said.strip().splitlines()[-1]
    if what == "reinvest":
        assert last.startswith("error: reinvestment") and last.endswith("ask again to go on"), said
        assert runs(store, study)[0].status(False) == "cancelled"
    else:
        assert "was cancelled; 'resume " in last and last.endswith("' goes on"), said
        assert store.studies(limit=1)[0].status == "cancelled"
    store.close()


def _waits(store: Store, study: str, what: str) -> bool:
    if what == "study":
        return any(event.kind == "status" for row in store.live() for event in store.events(row.id))
    return any(kept.now() is not None for kept in runs(store, study))
