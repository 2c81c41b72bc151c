"""Kernels of inductor's own: the one backend that could undo what a plan asks for."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from recompute_core.checks.parity import check_canary, plain_update
from recompute_core.compiled.cache import cache_folder
from recompute_core.compiled.process import prepare_compiler
from tests.compiled.toys import parity_of, spec_of
from tests.core.toys import each, mlps

# torch's own, while inductor is loaded.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("inductor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""))
        facts = prepare_compiler("inductor", home)
        assert facts["cxx"]
        yield cache_folder(home)
    torch._dynamo.reset()


def test_recomputing_stands_in_inductors_graphs_and_is_proven(folder: Path) -> None:
    spec = spec_of("inductor")
    plain, found = parity_of(mlps, spec, each("blocks.0"))
    assert found.passed
    assert found.compiled is not None
    assert plain.graphs is not None
    assert found.compiled.recomputed_ops.keys() == {"blocks.0"}
    assert found.compiled.replayed_ops > plain.graphs.replayed
    assert any(folder.rglob("*.so"))


def test_a_broken_replay_is_caught_in_inductors_graph(folder: Path) -> None:
    spec = spec_of("inductor")
    assert check_canary(mlps, spec, plain_update(mlps(), spec).tensors, "blocks.0").caught
