"""Ranks that die or hang: a reason that names them, and nobody left behind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recompute_core.spec import parse_spec
from recompute_core.studies.store import Store
from recompute_core.workloads.registered import VARIABLE
from tests.core.test_driver import ROOT, alive, eventually
from tests.ranks.conftest import Runs


def members() -> list[psutil.Process]:
    """The ranks that this process and those under it have started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "recompute_core.studies.rank_member" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("killed", "rank 1 of 2 was killed (signal 9; the kernel does so when memory runs out)"),
        ("raises", "rank 1 of 2: ValueError: this rank has had enough"),
        ("out_of_memory", "rank 1 of 2: out of memory: no more of it"),
        ("leaves", "rank 1 of 2 ended with exit code 3 and left no reason"),
    ],
    ids=["killed", "raises", "out of memory", "leaves"],
)
def test_a_rank_that_dies_is_named_with_its_reason(run: Runs, factory: str, reason: str) -> None:
    """The other one waits for it in a collective, and goes with it."""
    found = run(factory)
    assert found.reference is not None  # one process has no trouble
    assert found.failed == ("noise", reason)
    assert not members()


def test_a_rank_that_hangs_ends_with_the_patience_of_the_study(run: Runs) -> None:
    found = run("sleeps", silence_s=15)
    assert found.failed == ("noise", "the worker said nothing for 15 s and was stopped")
    assert eventually(lambda: not members(), 20)


# --- whoever started them dies ------------------------------------------------------------------


@pytest.fixture
def store(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv(VARIABLE, "sleeps=tests.ranks.factories:sleeps")
    found = Store(tmp_path / "home")
    yield found
    found.close()


DRIVE = """
import sys
from recompute_core.studies import driver, store
driver.drive(store.Store(), sys.argv[1])
"""


def hanging(store: Store) -> tuple[str, "subprocess.Popen[bytes]"]:
    """A study whose ranks hang, and its driver."""
    blocks = ["0", "1"]
    spec = parse_spec(
        {
            "workload": {"name": "own:sleeps", "blocks": blocks, "anatomy": {"names": blocks}},
            "ranks": {"count": 2},
            "device": "cpu",
            "threads": 1,
        }
    )
    study = store.create(spec)
    place = os.environ | {"RECOMPUTE_HOME": str(store.home), "PYTHONPATH": str(ROOT)}
    driver = subprocess.Popen([sys.executable, "-c", DRIVE, study], cwd=ROOT, env=place)
    assert eventually(lambda: len(members()) == 2)
    return study, driver


def listening(processes: list[psutil.Process]) -> list[str]:
    """The addresses at which these processes wait for others."""
    return [
        one.laddr.ip
        for process in processes
        for one in process.net_connections()
        if one.status == psutil.CONN_LISTEN
    ]


def test_a_killed_drivers_ranks_end(store: Store, machine: Path) -> None:
    """They would hang for ten minutes more."""
    _, driver = hanging(store)
    ranks = [one.pid for one in members()]
    driver.kill()
    driver.wait()
    assert eventually(lambda: not [pid for pid in ranks if alive(pid)], 20)
    assert eventually(lambda: not list(machine.glob("recompute-ranks-*")), 20)


def test_a_killed_workers_ranks_end_and_the_study_says_why(store: Store) -> None:
    study, driver = hanging(store)
    ranks = members()
    worker = ranks[0].parent()
    assert worker is not None
    assert eventually(lambda: len(listening([worker, *ranks])) >= 2)
    assert set(listening([worker, *ranks])) == {"127.0.0.1"}  # nobody elsewhere can speak to them
    worker.kill()
    assert eventually(lambda: not [one for one in ranks if alive(one.pid)], 20)
    assert driver.wait(60) == 0
    (failed,) = [cell for cell in store.cells(study) if cell.state == "failed"]
    assert failed.phase == "noise"
    assert (failed.reason or "").startswith("the worker was killed (signal 9")
