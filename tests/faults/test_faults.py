"""Each kind of fault that is no kill, once; and that the counts themselves can fail."""

import random
import shutil

import pytest

from recompute_core.studies.store import Store

from . import aftermath
from .__main__ import faults, left_out
from .ledger import Count, table
from .scene import PHASES, ROOT, Key, Known, ended, scene
from .test_kills import _KINDS as KILLS

_KINDS = (
    *("worker says half a line", "worker says 100 MB", "store corrupted", "stopped while signing"),
    *("disk full", "store read-only"),
)
_ELSEWHERE = {
    "worker says garbage": "tests/core/test_driver.py",
    "worker says nothing for ever": "tests/core/test_driver.py",
    "clock put back": "tests/core/test_store.py",
    "estimator": "tests/core/test_estimator.py",
    "Ray node": "tests/cluster/test_ray.py",
}
"""What another test does already in every run; `make test-faults` does it again."""


def test_every_kind_is_tried() -> None:
    assert {*faults(), *left_out()} == {*_KINDS, *KILLS, *_ELSEWHERE}
    assert not faults().keys() & left_out().keys()
    assert all((ROOT / file).is_file() for file in _ELSEWHERE.values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_is_lost_doubled_or_left(kind: str) -> None:
    if kind in left_out():
        pytest.skip(left_out()[kind])
    found = faults()[kind](random.Random(1))  # breaks a store at its first page
    assert found.is_clean, found


@pytest.mark.timeout(300)
def test_what_is_lost_doubled_left_or_broken_is_counted() -> None:
    """A ruined aftermath: a finished phase gone, another finished twice, a process left, no key word."""
    with scene() as here:
        said = ended(here.start_study())
        before, study = here.known(), here.study()
        assert study is not None
        clean = Count("clean", runs=1, injected=1)
        aftermath.look(here, clean, before, said)
        assert clean.is_clean
        with here.store() as store:
            assert isinstance(store, Store)
            store.forget_cell(study, *_of(before, "time")[1:])
            store.finish_cell(study, *_of(before, "noise")[1:], {"other": 1})
        left = here.start(program=("-c", "import time; time.sleep(600)"), quiet=True)
        ruined = Count("ruined", runs=1, injected=1)
        aftermath.look(here, ruined, before, said)
        left.wait(10)
        shutil.rmtree(here.home)
        here.home.mkdir()
        gone = Count("gone", runs=1, injected=1)
        aftermath.look(here, gone, before, said)
    assert (ruined.lost, ruined.doubled, ruined.orphans) == (2, 1, 1)
    assert gone.lost == len(PHASES) == 8
    assert not ruined.is_clean
    assert not Count("nothing met", runs=1).is_clean
    assert table([clean, ruined]).splitlines()[-1] == "| all | 2 | 2 | 2 | 1 | 1 | 0 | 0 |"


def _of(before: Known, phase: str) -> Key:
    return next(key for key in before.cells if key[3] == phase)
