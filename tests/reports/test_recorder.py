"""The recorder, pasted into a script in a process where recompute_core cannot be imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recompute_core.command_gate import recorder_source
from recompute_core.reports.measurements import Measurements, read_measurements
from recompute_core.supplied import judge_supplied

SCRIPT = """
import importlib.util, sys
from torch import nn
from torch.utils.checkpoint import checkpoint

assert importlib.util.find_spec("recompute_core") is None
torch.set_num_threads(1)

class Model(nn.Module):
    def __init__(self, keywords):
        super().__init__()
        block = lambda: nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 32))
        self.blocks, self.on, self.keywords = nn.ModuleList(block() for _ in range(4)), False, keywords

    def forward(self, x):
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False, **self.keywords) if self.on else block(x))
        return x.square().mean()

def train(path, after=lambda model: None, dtype=torch.float32, **keywords):
    torch.manual_seed(1)
    model, x = Model(keywords).to(dtype), torch.randn(512, 32, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters())

    def update():
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
        after(model)

    def switch(on):
        model.on = on

    name = "Ada" if path == "honest" else None
    record(update, switch, model, optimizer, path, "small", "every-block", {"batch": 512}, 3, name)

def spoil(model):
    if model.on:
        model.blocks[2][0].weight.grad.fill_(float("nan"))

train("honest")
train("dropout", preserve_rng_state=False)
train("float64", dtype=torch.float64, preserve_rng_state=False)
train("bfloat16", dtype=torch.bfloat16, preserve_rng_state=False)
train("spoiled", spoil)
try:
    train("zeroed", lambda model: model.zero_grad())
except AssertionError as error:
    print(error)

# A model whose highest moment is known: a parameter of 1000 floats, and a scratch of so many.
small, size = nn.Linear(1000, 1, bias=False), 100_000
optimizer = torch.optim.SGD(small.parameters())

def update():
    optimizer.zero_grad()
    torch.empty(size)
    small(torch.ones(1000)).backward()
    optimizer.step()

def switch(on):
    global size
    size = 50_000 if on else 100_000

record(update, switch, small, optimizer, "exact", "scratch", "half", {"size": 1000}, pairs=3)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that the script wrote into, and what it printed."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(recorder_source() + SCRIPT)
    done = subprocess.run([sys.executable, "-I", "train.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def _given(recorded: tuple[Path, str], name: str) -> Measurements:
    return read_measurements((recorded[0] / name).read_bytes(), name)


def _judged(recorded: tuple[Path, str], name: str) -> dict[str, Any]:
    return judge_supplied(_given(recorded, name))


def test_it_has_at_most_40_lines_and_needs_torch_alone() -> None:
    source = recorder_source()
    assert len(source.splitlines()) <= 40
    assert max(map(len, source.splitlines())) <= 105
    assert "recompute_core" not in source


def test_what_it_writes_is_gated(recorded: tuple[Path, str]) -> None:
    found, given = _judged(recorded, "honest"), _given(recorded, "honest")
    parity, saving, latency = found["gates"]
    assert (parity["outcome"], parity["observed"]) == ("pass", 0)
    assert (given.supplied_by, _given(recorded, "exact").supplied_by) == ("Ada", None)
    assert parity["sentence"] == "Every compared gradient is equal."
    assert saving["outcome"] == "pass"
    assert saving["observed"] < 0.82
    assert latency["ci95"] is not None
    assert given.update_s is not None
    assert len(given.update_s.pairs or ()) == 3
    assert given.provenance["device"] == "cpu"


def test_its_peaks_are_exact(recorded: tuple[Path, str]) -> None:
    peaks = _given(recorded, "exact").peak_allocated_bytes
    assert peaks is not None
    assert (peaks.plain, peaks.candidate) == ((4 * 101_000,), (4 * 51_000,))


@pytest.mark.parametrize("name", ["dropout", "float64", "bfloat16"])
def test_a_replay_with_other_dropout_fails_parity(recorded: tuple[Path, str], name: str) -> None:
    found = _judged(recorded, name)
    assert found["verdict"] == "keep_original"
    assert found["failures"][0] == "gradient parity"


def test_gradients_that_are_not_finite_are_named(recorded: tuple[Path, str]) -> None:
    gradients = _given(recorded, "spoiled").gradients
    assert gradients is not None
    assert gradients.not_comparable == ("blocks.2.0.weight",)
    assert _judged(recorded, "spoiled")["failures"][0] == "gradient parity"


def test_an_update_that_leaves_no_gradient_is_refused(recorded: tuple[Path, str]) -> None:
    assert recorded[1].strip() == "update() must leave the gradients where they are"
    assert not (recorded[0] / "zeroed").exists()
    assert json.loads((recorded[0] / "honest").read_text())["schema"] == "recompute-measurements/1"
