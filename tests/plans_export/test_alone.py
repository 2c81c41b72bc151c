"""An exported plan, alone with torch, does to the byte what our own does."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from recompute_core.meters.memory import measure_memory
from recompute_core.plans.apply import applied
from recompute_core.plans.export.to_torch import to_torch
from recompute_core.plans.names import Regions
from recompute_core.spec import CheckpointSettings, OptimizerSettings
from recompute_core.workloads import gpt
from recompute_core.workloads.update import make_optimizer
from tests.core import records as make

from .plans import CUSTOM, GPT, PLANS, source

OTHER_SETTINGS = {
    "forward": CheckpointSettings(variant="forward"),
    "to the end": CheckpointSettings(early_stop=False),
    "no random state": CheckpointSettings(rng="ignore"),
}
CASES: dict[str, tuple[Regions, CheckpointSettings]] = {
    **{name: (regions, CheckpointSettings()) for name, regions in PLANS.items()},
    **{
        f"{plan}, {words}": (PLANS[plan], settings)
        for words, settings in OTHER_SETTINGS.items()
        for plan in ("nested", *CUSTOM)
    },
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each exported plan does in a process that has torch and not us."""
    folder = tmp_path_factory.mktemp("alone")
    without_us = re.sub(r"(?m)^from \..*\n", "", inspect.getsource(gpt))
    names = "from types import SimpleNamespace as GptSettings, SimpleNamespace as Job\n"
    (folder / "gpt.py").write_text(without_us.replace("import torch\n", f"{names}import torch\n", 1))
    (folder / "settings.json").write_text(GPT.model_dump_json())
    for number, (regions, settings) in enumerate(CASES.values()):
        exported = to_torch(source(regions, checkpoint=settings))
        (folder / f"plan_{number:02}.py").write_text(exported.text)
    script = Path(__file__).with_name("alone.py")
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {name: found[f"plan_{number:02}"] for number, name in enumerate(CASES)}


@pytest.fixture
def one_thread() -> Iterator[None]:
    """What kernels take for themselves depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_same_bytes_and_climbs_as_high(alone: dict[str, Any], case: str) -> None:
    regions, settings = CASES[case]
    job = gpt.build(GPT, seed=0)
    optimizer = make_optimizer(job.model, OptimizerSettings())
    ours = measure_memory(job, optimizer, partial(applied, job.model, regions, settings), make.passed())
    found = alone[case]
    assert (found["saved"], found["peak"]) == (ours.saved_bytes, ours.peak_above_state_bytes)
    assert found["gradients are plain's"]
    assert found["plain again"]


def test_the_plans_differ(alone: dict[str, Any]) -> None:
    """So that equal figures say something."""
    figures = {(found["saved"], found["peak"]) for found in alone.values()}
    assert len(figures) > len(CASES) / 2
