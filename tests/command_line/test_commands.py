"""The commands as a user types them: what they print, what they write, how they exit."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
import torch

from recompute_core.errors import StoreError
from recompute_core.spec import StudySpec
from recompute_core.studies.store import Store

TINY = (
    "workload={name: gpt, blocks: 2, width: 32, heads: 2, seq_len: 16, batch: 2}",
    "shapes=[{seq_len: 8}, {seq_len: 16}]",
    "plans=[every-block]",
    "timing={min_pairs: 3, max_pairs: 3, budget_s: 0}",
)


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "recompute_core", *words],
        capture_output=True,
        text=True,
        env={"RECOMPUTE_HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": str(home.parent)},
        timeout=240,
    )


def study(home: Path, *more: str) -> subprocess.CompletedProcess[str]:
    sets = [word for text in (*TINY, *more) for word in ("--set", text)]
    return run(home, "study", "--preset", "quick", *sets, "--json", "-")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


GOOD = {
    "plain": {"peak_allocated_mb": 2140, "median_update_ms": 38.2, "largest_gradient_gap": 0},
    "candidate": {"peak_allocated_mb": 1600, "median_update_ms": 55.4, "largest_gradient_gap": 3e-5},
}


def test_gate_names_the_one_gate_that_fails(home: Path, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(GOOD))
    done = run(home, "gate", str(tmp_path / "m.json"), "--json", "-")
    found = json.loads(done.stdout)
    assert (done.returncode, found["failures"], found["kind"]) == (1, ["update latency"], "supplied")
    loose = run(home, "gate", str(tmp_path / "m.json"), "--set", "thresholds.update_ratio=1.5")
    assert loose.returncode == 0
    assert "Adopt" in loose.stdout


@pytest.mark.parametrize("missing", ["NaN", "null"])
def test_gate_fails_on_a_gap_that_is_missing(home: Path, tmp_path: Path, missing: str) -> None:
    (tmp_path / "m.json").write_text(json.dumps(GOOD).replace("3e-05", missing))
    done = run(home, "gate", str(tmp_path / "m.json"), "--json", "-")
    assert done.returncode == 1
    assert json.loads(done.stdout)["failures"] == ["gradient parity", "update latency"]
    assert json.loads(done.stdout)["gates"][0]["observed"] is None


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ('{"peak_allocated_mb": 1e999, "median_update_ms": 1, "largest_gradient_gap": 0}', "finite"),
        ('{"peak_allocated_mb": 0, "median_update_ms": 1, "largest_gradient_gap": 0}', "greater than 0"),
        ('{"peak_allocated_mb": 1, "median_update_ms": 1}', "largest_gradient_gap"),
    ],
)
def test_gate_takes_no_figure_that_cannot_be(
    home: Path, tmp_path: Path, figures: str, says: str
) -> None:
    (tmp_path / "m.json").write_text(f'{{"plain": {figures}, "candidate": {figures}}}')
    done = run(home, "gate", str(tmp_path / "m.json"))
    assert (done.returncode, says in done.stderr) == (2, True)


def test_a_full_output_is_said_and_is_no_verdict(home: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "recompute_core", "plans"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={"RECOMPUTE_HOME": str(home), "PATH": "/usr/bin:/bin"},
        )
    assert done.returncode == 4
    assert done.stderr == "error: standard output: No space left on device\n"


def test_a_study_of_another_version_hides_no_other(home: Path) -> None:
    first, second = Store(home), Store(home)
    kept, strange = first.create(StudySpec()), first.create(StudySpec())
    spoil = sqlite3.connect(home / "recompute.sqlite3")
    spoil.execute("UPDATE studies SET spec = json_set(spec, '$.newer', 1) WHERE id = ?", (strange,))
    spoil.commit()
    spoil.close()
    assert [row.id for row in second.studies()] == [kept]
    damaged = f"study {strange} is damaged or was written by another version"
    with pytest.raises(StoreError, match=damaged):
        second.study(strange)
    first.close()
    second.close()


QUICK = ("study", "--preset", "quick")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["study", "--preset", "slow"], 2, "unknown preset 'slow'"),
        (["study"], 2, "give --preset NAME, a file SPEC.yaml or --workload"),
        (["study", "--preset", "quick", "--set", "workload.batch=0"], 2, "workload.batch"),
        (["study", "--preset", "quick", "--set", "workload.seq_len=99999999"], 2, "this machine has"),
        (["study", "--preset", "quick", "--set", "plans=[blocks:9]"], 2, "the blocks are 0 to 5"),
        (
            ["study", "--preset", "quick", "--set", "custom_plans={mine: [{modules: [norm]}]}"],
            2,
            "custom_plans.mine: plans does not name it",
        ),
        (
            [
                *QUICK,
                "--set",
                "plans=[own]",
                "--set",
                "custom_plans={own: [{modules: [blocks.0.gone]}]}",
            ],
            2,
            "custom_plans.own: no module 'blocks.0.gone'",
        ),
        (["study", "--preset", "quick", "--set", "precision=float16"], 2, "'float32' or 'bfloat16'"),
        (["study", "--preset", "quick", "--json", "/nowhere/x.json"], 2, "cannot be written"),
        (["study", "--preset", "quick", "--wrong"], 2, "No such option"),
        (["resume", "20260101-000000-0000"], 2, "no study '20260101-000000-0000'"),
        (["legality", "unheard-of"], 2, "unknown workload 'unheard-of'"),
        (
            ["legality", "gpt", "--block", "blocks.9", "--set", "workload.seq_len=8"],
            2,
            "no block 'blocks.9'",
        ),
        (["gate", "/nowhere.json"], 2, "cannot be read"),
        (["dance"], 2, "No such command 'dance'"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error(
    home: Path, words: list[str], code: int, says: str
) -> None:
    done = run(home, *words)
    assert done.returncode == code
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_a_store_that_is_not_ours_is_refused_and_left_alone(home: Path) -> None:
    home.mkdir()
    other = sqlite3.connect(home / "recompute.sqlite3")
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    before = (home / "recompute.sqlite3").read_bytes()
    done = run(home, "studies")
    assert done.returncode == 4
    assert "not a store of Recompute Studio" in done.stderr
    assert (home / "recompute.sqlite3").read_bytes() == before


def test_lists_need_no_store_and_no_torch(home: Path) -> None:
    assert "every-2nd-block" in run(home, "plans").stdout
    assert json.loads(run(home, "workloads", "--json", "-").stdout)["gpt"]["seq_len"]["default"] == 512
    for command in ("study", "resume", "studies", "workloads", "plans", "legality", "gate"):
        done = run(home, command, "--help")
        assert done.returncode == 0
        assert "Example: python -m recompute_core" in done.stdout


def test_a_study_from_the_command_line(home: Path) -> None:
    done = study(home)
    document = json.loads(done.stdout)
    assert done.returncode == {"adopt": 0, "keep_original": 1, "undecided": 3}[document["verdict"]]
    assert document["schema"] == "recompute-study/1"
    assert datetime.fromisoformat(document["thresholds"]["declared_at"]).tzinfo is not None
    for candidate in document["candidates"]:
        assert candidate["parity"]["bitwise"]
        assert set(candidate["block_calls"]["plain"].values()) == {1}
        assert set(candidate["block_calls"]["candidate"].values()) == {2}
        assert candidate["timing"]["pairs"] == 3
        assert [gate["id"] for gate in candidate["gates"]] == [
            "gradient_parity",
            "memory_saving",
            "update_latency",
        ]
        plain, own = candidate["memory"]["plain"], candidate["memory"]["candidate"]
        assert own["saved_bytes"] < plain["saved_bytes"]
        assert plain["peak_bytes"] == plain["state_bytes"] + plain["peak_above_state_bytes"]
        assert plain["peak_reserved_bytes"] is None
        assert "no caching allocator" in plain["not_measured"]["peak_reserved_bytes"]
    again = run(home, "resume", document["study_id"])
    assert (again.returncode, "is done" in again.stderr) == (2, True)
    assert document["study_id"] in run(home, "studies").stdout


def test_a_missed_canary_stops_the_study(home: Path) -> None:
    done = study(home, "thresholds={gradient_gap: 1000.0, relative_gap: 0.99}")
    document = json.loads(done.stdout)
    assert done.returncode == 4
    assert document["status"] == "incomplete"
    assert "canary was missed" in document["sentence"]
    assert all(candidate["memory"] is None for candidate in document["candidates"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_gpu_that_is_not_here_is_bad_input_and_no_study(home: Path) -> None:
    done = study(home, "device=cuda")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: device: no cuda on this machine (accelerator here: ")
    assert done.stderr.count("\n") == 1
    assert Store(home).studies() == []


def test_studies_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept, bad = store.create(StudySpec()), store.create(StudySpec())
    store.close()
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE studies SET environment = '[]' WHERE id = ?", (bad,))
    said = run(tmp_path, "studies")
    assert kept in said.stdout
    line = "cannot be read: damaged, or of another version\n"
    assert (said.returncode, said.stderr) == (0, f"{store.path}: 1 study {line}")
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE studies SET environment = '[]'")
    said = run(tmp_path, "studies")
    assert (said.stdout, said.stderr) == ("", f"{store.path}: 2 studies {line}")
