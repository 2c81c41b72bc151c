"""Standard streams that are closed, full, or that nobody reads any more: never another exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recompute_core.studies.store import Store

COMMAND = f"{sys.executable} -m recompute_core"
TINY = (
    "--set 'workload={name: gpt, blocks: 2, width: 32, heads: 2, seq_len: 16, batch: 2}' "
    "--set 'shapes=[{}]' --set 'plans=[every-block]' "
    "--set 'timing={min_pairs: 3, max_pairs: 3, budget_s: 0}' "
    "--set 'thresholds={peak_ratio: 1.0, update_ratio: 50}'"
)
UNREAD = {
    "no reader": "{} | true; exit ${{PIPESTATUS[0]}}",
    "no reader of either": "{} 2>&1 | true; exit ${{PIPESTATUS[0]}}",
    "closed": "{} >&-",
    "all three closed": "{} <&- >&- 2>&-",
}


def shell(home: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "RECOMPUTE_HOME": str(home), "TMPDIR": str(home.parent)},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
@pytest.mark.parametrize("words", ["plans", "plans --json -", "keys list", "--help", "study --help"])
def test_a_list_that_nobody_reads_is_no_mistake(home: Path, unread: str, words: str) -> None:
    done = shell(home, unread.format(f"{COMMAND} {words}"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
def test_a_mistake_and_a_refusal_keep_their_codes(home: Path, unread: str) -> None:
    assert shell(home, unread.format(f"{COMMAND} dance")).returncode == 2
    assert shell(home, unread.format(f"{COMMAND} resume 20260101-000000-0000")).returncode == 2


@pytest.mark.parametrize("unread", [UNREAD["no reader of either"], UNREAD["all three closed"]])
def test_a_study_that_nobody_reads_runs_to_its_end(home: Path, unread: str) -> None:
    line = f"{COMMAND} study --preset quick {TINY} --json {home.parent}/result.json"
    done = shell(home, unread.format(line))
    store = Store(home)
    (row,) = store.studies()
    store.close()
    assert (row.status, row.verdict, done.returncode) == ("done", "adopt", 0)
    assert json.loads((home.parent / "result.json").read_text())["verdict"] == "adopt"


def test_what_is_refused_is_1_and_nothing_else_is(home: Path, tmp_path: Path) -> None:
    """`verify` of a folder that is no report: refused, read or not."""
    (tmp_path / "no report").mkdir()
    line = f"{COMMAND} verify '{tmp_path}/no report'"
    assert [shell(home, unread.format(line)).returncode for unread in UNREAD.values()] == [1] * 4


@pytest.mark.parametrize("words", ["plans", "plans --json -", "--help"])
def test_a_full_output_is_said_once(home: Path, words: str) -> None:
    done = shell(home, f"{COMMAND} {words} >/dev/full")
    assert done.returncode == 4
    assert done.stderr == "error: standard output: No space left on device\n"


def test_full_errors_change_no_code(home: Path) -> None:
    assert shell(home, f"{COMMAND} dance 2>/dev/full").returncode == 2
    assert shell(home, f"{COMMAND} plans >/dev/full 2>/dev/full").returncode == 4


def test_a_broken_pipe_elsewhere_is_no_verdict(home: Path) -> None:
    """Not of standard output, but of whatever a command speaks to."""
    code = (
        "import sys; from recompute_core import __main__ as ours\n"
        "def broken(): raise BrokenPipeError(32, 'Broken pipe')\n"
        "ours.cli.commands['plans'].callback = lambda json_file: broken()\n"
        "sys.argv = ['recompute_core', 'plans']; ours.main()"
    )
    done = shell(home, f'{sys.executable} -c "{code}"')
    assert (done.returncode, done.stderr) == (4, "error: Broken pipe\n")
