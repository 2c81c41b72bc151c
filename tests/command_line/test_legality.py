"""`legality` as a user types it: which models it takes, what it prints and writes, how it exits."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

GPT = (
    "--set",
    "workload={name: gpt, blocks: 2, width: 32, heads: 2, seq_len: 16, batch: 2}",
)
FACTORIES = "tests.workloads.factories"
AUTOCAST_BYTES = 1280
"""Of a block in `tests.workloads.test_own`, under bfloat16."""


def command(*words: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "recompute_core", "legality", *words]


def legality(home: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*words, "--set", "threads=1"),
        capture_output=True,
        text=True,
        env={"RECOMPUTE_HOME": str(home), "PATH": "/usr/bin:/bin", **more},
        timeout=240,
    )


def test_a_workload_of_ours_names_block_and_activation(tmp_path: Path) -> None:
    done = legality(tmp_path, "gpt", *GPT, "--block", "blocks.1")
    assert done.returncode == 0
    assert ["blocks.1" in done.stdout, "blocks.0" in done.stdout] == [True, False]
    assert "activation MB" in done.stdout
    assert "training steps; largest relative gap 0, plain against plain 0" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_factory_given_at_start_up(tmp_path: Path) -> None:
    done = legality(tmp_path, "--workload", f"{FACTORIES}:with_norm", "--json", "-")
    first, second = json.loads(done.stdout)
    assert done.returncode == 1
    assert [first["block"], first["verdict"]] == ["layers.0", "illegal"]
    assert first["reasons"][0]["code"] == "running_statistics"
    assert second["verdict"] in ("legal", "no_saving")
    assert first["activation_bytes"] > second["activation_bytes"] > 0
    assert first["check"]["steps"] > 0
    assert "free of running statistics: layers.1" in first["check"]["notes"]


def test_a_registered_name_and_its_precision(tmp_path: Path) -> None:
    names = {"RECOMPUTE_WORKLOADS": f"mine={FACTORIES}:least"}
    done = legality(tmp_path, "mine", "--set", "precision=bfloat16", "--json", "-", **names)
    assert done.returncode == 0
    assert json.loads(done.stdout)[0]["activation_bytes"] == AUTOCAST_BYTES


def test_a_plain_step_that_raises_is_no_verdict(tmp_path: Path) -> None:
    done = legality(tmp_path, "--workload", f"{FACTORIES}:cannot_run")
    assert done.returncode == 4
    assert "the plain step itself raises RuntimeError" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--workload", f"{FACTORIES}:fails"], "raised RuntimeError: no such file"),
        (["--workload", f"{FACTORIES}:least", "--block", "gone"], "no block 'gone'"),
        (["--workload", f"{FACTORIES}:least", "--set", "workload.batch=2"], "has no such size"),
        (["gpt", "--workload", f"{FACTORIES}:least"], "give either"),
        (["timm:test_vit?num_classes=0"], "num_classes: expected a whole number above 0"),
        (["--workload", "hf:make"], "hf cannot be imported: ModuleNotFoundError"),
        (["hf:NoConfig"], "no configuration 'NoConfig'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: list[str], says: str) -> None:
    done = legality(tmp_path, *words)
    assert (done.returncode, done.stdout.strip(), says in done.stderr) == (2, "", True)
    assert len(done.stderr.strip().splitlines()) == 1


def test_stopped_by_hand_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    written = tmp_path / "found.json"
    busy = subprocess.Popen(
        command("gpt", "--set", "workload.batch=64", "--json", str(written)),
        stderr=subprocess.PIPE,
        text=True,
        env={"RECOMPUTE_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
    )
    time.sleep(20)
    busy.send_signal(signal.SIGINT)
    _, said = busy.communicate(timeout=60)
    assert busy.returncode == 4
    assert said.strip().endswith("error: stopped")
    assert not written.exists()
