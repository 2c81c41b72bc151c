"""`estimate` as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_commands import run

TINY = ("--set", "workload={name: gpt, blocks: 2, width: 32, heads: 2, seq_len: 16, batch: 2}")


def test_the_table_says_plain_first_and_its_kind(tmp_path: Path) -> None:
    done = run(tmp_path, "estimate", "gpt", *TINY, "--plan", "every-block", "--fit-gb", "0.1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    plain, every = (line for line in lines if line.count("estimated") and "backward" in line)
    assert "plain" in plain
    assert "every-block" in every
    assert "backward, blocks.1 recomputed" in every
    assert "longest sequence in 0.1 GB" in done.stdout
    assert "MB = 10^6 bytes. Estimated: fake tensors" in done.stdout


def test_a_search_that_stopped_says_at_least(tmp_path: Path) -> None:
    file = tmp_path / "new.json"
    words = ("--set", "workload.blocks=1", "--plan", "none", "--fit-gb", "900000", "--json", str(file))
    done = run(tmp_path, "estimate", "receipts", *words)
    assert "at least 65,536 (the search stops there)" in done.stdout
    (row,) = json.loads(file.read_text())["fit"]["plans"]
    assert (row["largest"], row["at_limit"]) == (65_536, True)


def test_a_command_that_fails_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "new.json"
    done = run(tmp_path, "estimate", "gpt", *TINY, "--plan", "blocks:7", "--json", str(file))
    assert done.returncode == 2
    assert not file.exists()


def test_the_json_holds_every_plan_the_advice_and_the_fit(tmp_path: Path) -> None:
    words = ("--plan", "every-block", "--plan", "nested", "--fit-gb", "0.1", "--json", "-")
    done = run(tmp_path, "estimate", "gpt", *TINY, *words)
    found = json.loads(done.stdout)
    assert (done.returncode, found["schema"]) == (0, "recompute-estimate/1")
    assert found["shape"] == {"seq_len": 16, "batch": 2}
    assert [one["plan"] for one in found["estimates"]] == ["none", "every-block", "nested"]
    assert {one["kind"] for one in found["estimates"]} == {"estimated"}
    assert len({one["plan_hash"] for one in found["estimates"]}) == 3
    peaks = [one["peak_bytes"] for one in found["estimates"]]
    assert peaks == [one["parts"]["state"] + one["peak_above_state_bytes"] for one in found["estimates"]]
    assert found["advice"][0].startswith("67 % of plain's peak of 0.646 MB is state")
    lengths = [one["largest"] for one in found["fit"]["plans"]]
    assert found["fit"]["field"] == "seq_len"
    assert lengths[0] < lengths[1]
    assert all(one["peak_bytes"] <= 10**8 for one in found["fit"]["plans"])


def test_receipts_fit_by_batch_and_plain_alone_is_fine(tmp_path: Path) -> None:
    words = ("--set", "workload.blocks=1", "--plan", "none", "--fit-gb", "0.05", "--json", "-")
    found = json.loads(run(tmp_path, "estimate", "receipts", *words).stdout)
    assert [one["plan"] for one in found["estimates"]] == ["none"]
    assert found["fit"]["field"] == "batch"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gpt",), "Missing option '--plan'"),
        (("bert", "--plan", "none"), "unknown workload 'bert'; known: gpt, receipts"),
        (("gpt", "--plan", "sideways"), "unknown plan 'sideways'"),
        (("gpt", "--plan", "nested", "--plan", "nested"), "each plan may be named once"),
        (("gpt", "--plan", "none", "--fit-gb", "nan"), "--fit-gb: expected a number above 0, got nan"),
        (("gpt", "--plan", "none", "--set", "workload.heads=3"), "width 256 must be a multiple of 6"),
        (("gpt", "--plan", "none", "--set", "shapes=[{batch: 1}, {batch: 2}]"), "is of one shape"),
        (("gpt", "--plan", "none", "--json", "/nowhere/x.json"), "cannot be written"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = run(tmp_path, "estimate", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


_MEMORY = """
import resource
from recompute_core.meters.memory import process_peak_bytes
from recompute_core.estimating import estimates
from recompute_core.settings import GptSettings
from recompute_core.spec import StudySpec
big = GptSettings(blocks=32, width=4096, heads=32, seq_len=4096, batch=1)
plain, every = estimates(StudySpec(workload=big), {}, ("none", "every-block"))
print(plain.state_bytes, plain.saved_bytes, every.saved_bytes)
print(process_peak_bytes() // 1024)  # ru_maxrss would begin with that of who started this process
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_a_model_of_six_billion_parameters_takes_less_than_a_gigabyte(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY], capture_output=True, text=True, timeout=240, check=True
    )
    state, plain, every, *kilobytes = map(int, done.stdout.split())
    assert (state, plain, every) == (103_087_768_720, 44_604_358_660, 2_349_891_588)
    assert all(most < 1_000_000 for most in kilobytes)
