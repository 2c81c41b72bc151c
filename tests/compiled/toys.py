"""Small models that dynamo takes whole."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from recompute_core.checks.parity import check_parity, plain_update
from recompute_core.checks.snapshot import Observed
from recompute_core.plans.names import Regions
from recompute_core.results import Parity
from recompute_core.spec import StudySpec
from recompute_core.workloads.job import Job
from tests.core.toys import Tower


def spec_of(backend: str = "aot_eager") -> StudySpec:
    return StudySpec.model_validate({"compile": {"backend": backend}})


class Wide(nn.Module):
    """A residual MLP with dropout, whose activations are large enough for a budget to matter."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm(x)))))


def wide(dropout: float, blocks: int = 4) -> Job:
    torch.manual_seed(0)
    model = Tower(Wide(dropout) for _ in range(blocks))
    batch = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    names = tuple(f"blocks.{number}" for number in range(blocks))
    return Job(model=model, batch=(batch,), blocks=names, tokens=64)


def parity_of(
    build: Callable[[], Job], spec: StudySpec, regions: Regions = (), budget: int | None = None
) -> tuple[Observed, Parity]:
    """Plain's update and the plan's parity with it."""
    plain = plain_update(build(), spec)
    assert plain.graphs is not None
    found = check_parity(
        build,
        spec,
        plain.tensors,
        regions,
        0.0,
        plain.block_calls,
        budget=budget,
        plain_replays=plain.graphs.replayed,
    )
    return plain, found
