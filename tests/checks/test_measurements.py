"""Ways in which checkpointing is measured wrongly, each with the figure that is right."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from recompute_core.meters.memory import measure_memory
from recompute_core.meters.saved import SavedBytes
from recompute_core.plans.apply import applied
from recompute_core.spec import CheckpointSettings, OptimizerSettings, Region
from recompute_core.workloads.job import Job
from recompute_core.workloads.update import make_optimizer, update
from tests.checks.models import assert_found, check
from tests.core.records import passed

FLOAT = 4
ROWS, WIDE = 256, 64


# --- counting references instead of storages ----------------------------------------------------------


class Repeats(nn.Module):
    """One activation saved by three ops, its view saved too, and a weight transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDE, WIDE))

    def forward(self, x: Tensor) -> Tensor:
        h = x.tanh()  # saves its result, h
        squared = h * h  # h twice
        turned = h.view(WIDE, ROWS).sin()  # h again, as a view
        return squared.sum() + turned.sum() + (h @ self.weight.t()).sum()


def test_one_storage_counts_once_whoever_saves_it() -> None:
    model, x = Repeats(), torch.ones(ROWS, WIDE, requires_grad=True)
    meter = SavedBytes([model.weight, x])
    with meter:
        kept = model(x)
    assert meter.distinct == ROWS * WIDE * FLOAT  # h
    assert meter.naive == (ROWS * WIDE + WIDE * WIDE) * FLOAT  # h and the weight, once a pointer each
    del kept


# --- the optimizer's first step -----------------------------------------------------------------------


def _stack(width: int, rows: int, head: int) -> Job:
    torch.manual_seed(0)

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                for _ in range(4)
            )
            self.head = nn.Linear(width, head)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)
            out: Tensor = self.head(x)
            return out

    blocks = tuple(f"blocks.{number}" for number in range(4))
    return Job(
        Stack(), torch.randn(rows, width), blocks, rows, loss=lambda y: torch.logsumexp(y, -1).mean()
    )


def test_the_optimizers_first_step_is_no_activation() -> None:
    peaks = []
    for steps_before in (0, 2):
        job = _stack(32, 16, 32)
        optimizer = make_optimizer(job.model, OptimizerSettings())
        for _ in range(steps_before):
            update(job, optimizer)
        plain = partial(applied, job.model, (), CheckpointSettings())
        peaks.append(measure_memory(job, optimizer, plain, passed()).peak_bytes)
    assert peaks[0] == peaks[1]


# --- where the peak is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "phase", "falls"),
    [
        ((512, 8, 512), "optimizer", False),  # large weights, small batch
        ((64, 4096, 64), "backward", True),  # small weights, large batch
        ((64, 1024, 8192), "backward", False),  # a wide head
    ],
)
def test_a_lower_count_of_saved_bytes_is_no_lower_peak(
    sizes: tuple[int, int, int], phase: str, falls: bool
) -> None:
    found = []
    for blocks in ((), ("blocks.0", "blocks.1", "blocks.2", "blocks.3")):
        job = _stack(*sizes)
        optimizer = make_optimizer(job.model, OptimizerSettings())
        regions = tuple(Region(modules=(name,)) for name in blocks)
        put_on = partial(applied, job.model, regions, CheckpointSettings())
        found.append(measure_memory(job, optimizer, put_on, passed()))
    plain, recomputed = found
    assert recomputed.saved_bytes < plain.saved_bytes / 2 or sizes[2] > 1000
    assert plain.peak_bytes is not None
    assert recomputed.peak_bytes is not None
    assert (recomputed.peak_bytes < 0.9 * plain.peak_bytes) == falls
    assert plain.peak_at is not None
    assert plain.peak_at.phase == phase


# --- what a helper really recomputes ------------------------------------------------------------------


class Segments(nn.Module):
    """Nine equal layers under `checkpoint_sequential`, which never recomputes the last segment."""

    def __init__(self, segments: int) -> None:
        super().__init__()
        self.segments = segments
        self.block = nn.Sequential(
            *(nn.Sequential(nn.Linear(WIDE, 256), nn.GELU(), nn.Linear(256, WIDE)) for _ in range(9))
        )

    def forward(self, x: Tensor) -> Tensor:
        if not self.segments:
            out: Tensor = self.block(x)
            return out
        return checkpoint_sequential(self.block, self.segments, x, use_reentrant=False)


def test_more_segments_may_keep_more() -> None:
    def report(segments: int) -> int:
        x = torch.randn(ROWS, WIDE, generator=torch.Generator().manual_seed(0)).requires_grad_()
        found = check(lambda: Segments(0), (x,), candidate=lambda: Segments(segments), blocks=["block"])
        assert found.verdict in ("legal", "no_saving")
        assert found.saving is not None
        return found.saving.recomputed_held_bytes

    layer = ROWS * (256 + 256 + WIDE) * FLOAT  # what GELU and both layers save in one of the nine
    held = {segments: report(segments) for segments in (4, 5)}
    # 9 // 4 = 2: three segments of two come back, three layers stay; 9 // 5 = 1: five stay.
    assert held[5] - held[4] > layer
    x = torch.randn(ROWS, WIDE).requires_grad_()
    failed = check(lambda: Segments(0), (x,), candidate=lambda: Segments(12), blocks=["block"])
    assert_found(failed, "error", "too_many_segments", "more segments than there are layers")
