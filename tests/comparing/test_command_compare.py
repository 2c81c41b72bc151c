"""`compare` as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store
from tests.pages import studies


def run(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "recompute_core", "compare", *words],
        capture_output=True,
        text=True,
        env={"RECOMPUTE_HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": str(home)},
        timeout=240,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def test_a_study_here_and_one_from_a_file(home: Path) -> None:
    store = Store(home)
    here = studies.filled(store)
    there = studies.filled(store, ratios=[ratio + 0.25 for ratio in studies.NARROW])
    file = home / "other.json"
    file.write_text(json.dumps(assemble(store.study(there), store.cells(there)).document()))
    done = run(home, here, str(file), "--json", str(home / "out.json"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Update ratio of every-block at T=128 B=4 rose from 1.20 to 1.45" in done.stdout
    assert "aim at 95 %.\n" in done.stdout
    document = json.loads((home / "out.json").read_text())
    assert document["schema"] == "recompute-comparison/1"
    assert document["b"]["kind"] == "supplied"
    assert len(document["pairings"]) == 4
    store.close()


def test_few_pairs_promise_no_95_percent(home: Path) -> None:
    store = Store(home)
    few, many = studies.filled(store, ratios=studies.NARROW[:3]), studies.filled(store)
    done = run(home, few, many)
    assert "with their intervals." in done.stdout
    assert (
        "A median of 3 pairs, as here, has an interval that covers 75 %, and a difference is promised "
        "no more.\n"
    ) in done.stdout
    store.close()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nobody", "nobody"), "no study 'nobody'"),
        (("missing.json", "missing.json"), "missing.json: cannot be read"),
        (("one",), "Missing argument 'B'"),
    ],
)
def test_a_bad_id_is_one_line(home: Path, words: tuple[str, ...], says: str) -> None:
    done = run(home, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
