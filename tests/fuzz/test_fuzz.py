"""A few inputs of every kind, always the same; `python -m tests.fuzz` tries many, others each time."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from recompute_core.errors import InputError

from .__main__ import _death, fuzzed, table
from .guard import Watch, bound_memory
from .kinds import KINDS
from .run import Kind, try_kind

INPUTS = 15
_PAGES = ("addresses", "fields of an address", "pages of a damaged store")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", [tuple(name for name in KINDS if name not in _PAGES), _PAGES])
def test_no_input_ends_in_a_traceback_a_hang_or_somebody_elses_file(names: tuple[str, ...]) -> None:
    found = fuzzed(names, INPUTS, seed=0)
    assert [one.kind for one in found] == list(names)
    assert all(one.good for one in found), table(found)


@pytest.mark.parametrize(
    ("out", "err", "kind", "column"),
    [
        ("", "Killed", "keys", "deaths"),
        ('{"kind": "keys"}\n', "Timeout (0:01:00)!\nThread", "signers", "hangs"),
        ('{"kind": "keys"}\n{"kind": "signers"}\n', "Fatal", "after the last kind", "deaths"),
    ],
)
def test_what_a_dead_process_counts_as(out: str, err: str, kind: str, column: str) -> None:
    done = subprocess.CompletedProcess([], -9, out, err)
    (found,) = _death(["keys", "signers"], done, "keys 'x'")
    assert found.kind == kind and not found.good
    assert [name for name in ("hangs", "deaths") if getattr(found, name)] == [column]
    assert _death(["keys"], subprocess.CompletedProcess([], 0, out, err), "") == []


def _nothing(name: str, folder: Path) -> None:
    pass


def _inside(name: str, folder: Path) -> None:
    (folder / "inside").write_text("x")


def _leads_out(name: str, folder: Path) -> None:
    (folder / name).read_text()


def _link(name: str, folder: Path) -> None:
    (folder / "link").read_text()


def _opened_link(name: str, folder: Path) -> None:
    with open(folder / "link", opener=os.open):
        pass


def _link_refused(name: str, folder: Path) -> None:
    with suppress(OSError), open(folder / "link", opener=lambda one, f: os.open(one, f | os.O_NOFOLLOW)):
        pass


def _writes(name: str, folder: Path) -> None:
    (folder / "../new").write_text("x")


def _makes(name: str, folder: Path) -> None:
    (folder / "../new-folder").mkdir()


def _etc(name: str, folder: Path) -> None:
    with open("/etc/passwd"):
        pass


def _lists(name: str, folder: Path) -> None:
    os.listdir("/")


def _starts(name: str, folder: Path) -> None:
    subprocess.run(["true"])


def _fails(name: str, folder: Path) -> None:
    raise KeyError(name)


def _refuses(name: str, folder: Path) -> None:
    raise InputError("no\nsuch thing " + 1000 * name)


def _hangs(name: str, folder: Path) -> None:
    while True:
        pass


def _hoards(name: str, folder: Path) -> None:
    bytes(4 << 30)


NOTICED = {
    _nothing: None,
    _inside: None,
    _link_refused: None,
    _refuses: None,
    _leads_out: "outside",
    _link: "outside",
    _opened_link: "outside",
    _writes: "outside",
    _makes: "outside",
    _etc: "outside",
    _lists: "outside",
    _starts: "outside",
    _fails: "tracebacks",
    _hangs: "hangs",
    _hoards: "memory",
}


def _lay(name: str, folder: Path) -> None:
    if not (folder / "link").is_symlink():
        (folder / "link").symlink_to("../secret")


def noticed() -> None:
    """In a process of its own: what is noticed of each, a line of JSON."""
    bound_memory()
    watch, found = Watch(), {}
    for read in NOTICED:

        def reads(name: str, folder: Path, read: Any = read) -> list[str]:
            read(name, folder)
            return []

        one = try_kind(Kind(read.__name__, lambda: st.just("../secret"), reads, _lay), 1, 0, watch)
        columns = {
            name for name in ("tracebacks", "hangs", "outside", "memory", "lines") if getattr(one, name)
        }
        found[read.__name__] = [sorted(columns), list(one.faults)]
    print(json.dumps(found))


def test_what_the_fuzzing_would_notice() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "from tests.fuzz.test_fuzz import noticed; noticed()"],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert not done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout)
    for read, column in NOTICED.items():
        assert found[read.__name__][0] == ([column] if column else []), (read.__name__, found)
