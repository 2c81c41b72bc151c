"""Studies of tiny models that are measured for the tests of rechecks, and what is changed afterwards."""

import multiprocessing.forkserver
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest

from recompute_core.reports.bundle import Bundle
from recompute_core.reports.evidence import gather
from recompute_core.reports.release import release
from recompute_core.spec import parse_spec
from recompute_core.studies.admission import admit
from recompute_core.studies.driver import drive
from recompute_core.studies.store import Store
from recompute_core.workloads.registered import VARIABLE
from tests.reports.signing import ANN

QUICK: dict[str, Any] = {
    "plans": ["every-block"],
    "thresholds": {"peak_ratio": 1, "update_ratio": 100},
    "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
    "device": "cpu",
    "threads": 1,
}
GPT: dict[str, Any] = {
    "workload": {"blocks": 2, "width": 32, "heads": 2, "vocab": 17, "seq_len": 16, "batch": 2},
    "shapes": [{"seq_len": 16}, {"seq_len": 32}],
}
SOMEBODYS = '''"""A model of somebody's own."""

import torch
from torch import nn


def scaled(x):
    """Drifts with the number of threads, as a library's sum may."""
    return x * (1 + 1e-5 * (torch.get_num_threads() - 1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(scaled(self.up(x)).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def make():
    return Net(), torch.randn(16, 8)
'''


@contextmanager
def machine(folder: Path, **environment: str) -> Iterator[pytest.MonkeyPatch]:
    """A machine of our own, on which somebody's models can be imported from `folder`.

    The fork server is started anew, as its processes have the environment that it began with.
    """
    server: Any = multiprocessing.forkserver._forkserver
    util.get_temp_dir()  # multiprocessing keeps its sockets where they were
    apart = tempfile.mkdtemp(prefix="rs-")  # short: a socket's path has at most 107 characters
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", apart)
        patch.setattr(tempfile, "tempdir", apart)
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{Path(__file__).parents[2]}")
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a source edited within a second is another
        patch.syspath_prepend(str(folder))
        for name, value in environment.items():
            patch.setenv(name, value)
        server._stop()
        yield patch
        server._stop()
    shutil.rmtree(apart, ignore_errors=True)


def somebodys(folder: Path, text: str = SOMEBODYS) -> dict[str, str]:
    """Write their module; the environment that registers its factory."""
    (folder / "somebody.py").write_text(text)
    sys.modules.pop("somebody", None)
    return {VARIABLE: "theirs=somebody:make"}


def reported(home: Path, **changes: Any) -> Bundle:
    """Run a study and sign the decision on its first plan."""
    store = Store(home)
    try:
        spec = admit(parse_spec(QUICK | changes), home)
        study = store.create(spec)
        drive(store, study)
        return release(gather(store, study, spec.plans[0]), ANN).bundle
    finally:
        store.close()
