"""Peaks to the last byte: by hand, against a bare profiler, and against the published table."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from recompute_core.meters.memory import measure_memory
from recompute_core.meters.timeline import Trace
from recompute_core.plans.apply import applied
from recompute_core.results import Memory, PeakAt
from recompute_core.settings import GptSettings
from recompute_core.spec import CheckpointSettings, OptimizerSettings
from recompute_core.workloads import gpt
from recompute_core.workloads.job import Job
from recompute_core.workloads.sizes import sizes_of
from recompute_core.workloads.update import (
    allocate_state,
    make_optimizer,
    state_tensors,
    storage_bytes,
    update,
)
from tests.core import records as make
from tests.core.toys import SMALL, each, mlps, small_gpt

COUNT = 100_000
UNIT = 4 * COUNT
"""Bytes of the one large tensor of the toy below."""


class TwoExponentials(nn.Module):
    """Keeps each exponential's result, a unit each."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(COUNT))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * x).exp().exp()


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = TwoExponentials()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        loss = self.block(x).sum()
        return loss.detach(), loss


def toy() -> Job:
    return Job(model=Toy(), batch=(torch.ones(1),), blocks=("block",), tokens=1)


def measured(job: Job, blocks: tuple[str, ...] = (), rng: str = "preserve") -> Memory:
    optimizer = make_optimizer(job.model, OptimizerSettings())
    put_on = partial(applied, job.model, each(*blocks), CheckpointSettings(rng=rng))
    return measure_memory(job, optimizer, put_on, make.passed())


# --- by hand --------------------------------------------------------------------------------------


def test_peak_of_a_toy_counted_by_hand() -> None:
    """Forward keeps two exponentials and a four-byte loss; backward, seeded with four bytes more,
    makes the gradient of the outer one before it lets that one go."""
    found = measured(toy())
    assert found.saved_bytes == 2 * UNIT
    assert found.naive_saved_bytes == 2 * UNIT + 4  # the input of the product, one number
    assert found.peak_samples == (3 * UNIT + 8,)
    assert found.peak_at == PeakAt(phase="backward", module="block", replaying=False)


def test_recomputed_the_toy_keeps_nothing_and_peaks_as_high() -> None:
    """A block's own activations come back whole: recomputing a single block saves no peak."""
    found = measured(toy(), ("block",), rng="ignore")
    assert found.saved_bytes == 0
    assert found.peak_samples == (3 * UNIT + 8,)
    assert found.peak_at == PeakAt(phase="backward", module="block", replaying=True)


def test_preserving_the_random_state_costs_its_bytes() -> None:
    state = torch.get_rng_state().nbytes
    assert measured(toy(), ("block",)).peak_samples == (3 * UNIT + 8 + state,)


def test_state_of_the_toy() -> None:
    """Weight, gradient, two moments, AdamW's step count and the input."""
    assert measured(toy()).state_bytes == 4 * UNIT + 4 + 4


def test_state_of_gpt() -> None:
    job = small_gpt()
    sizes = [p.numel() for p in job.model.parameters()]
    rope = 2 * 4 * SMALL.seq_len * (SMALL.width // SMALL.heads)
    ids = 2 * 8 * SMALL.batch * SMALL.seq_len
    expected = 16 * sum(sizes) + 4 * len(sizes) + rope + ids
    assert measured(job).state_bytes == expected
    assert sizes_of(SMALL).state_bytes == 16 * sum(sizes)


def test_a_storage_shared_by_two_counts_once() -> None:
    whole = torch.zeros(10)
    assert storage_bytes([whole, whole[2:4], torch.zeros(3)]) == 40 + 12


# --- the meter does not disturb -------------------------------------------------------------------


def bare_peak(job: Job, blocks: tuple[str, ...]) -> int:
    """The peak of one update under a profiler alone: no saved-tensor hooks, no marks."""
    optimizer = make_optimizer(job.model, OptimizerSettings())
    allocate_state(optimizer)
    with (
        applied(job.model, each(*blocks), CheckpointSettings()),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        update(job, optimizer)
    return Trace.from_profiler(profiler, ()).peak


@pytest.mark.parametrize("blocks", [(), ("blocks.0",), ("blocks.0", "blocks.1")], ids=str)
@pytest.mark.parametrize("build", [small_gpt, mlps])
def test_meters_and_marks_do_not_change_the_peak(build: partial[Job], blocks: tuple[str, ...]) -> None:
    job = build()
    peak = bare_peak(job, blocks)
    found = measured(build(), blocks)
    assert found.peak_samples == (peak,)
    assert peak > 0


def test_measured_again_it_is_the_same() -> None:
    job = small_gpt()
    first, second = measured(job, job.blocks), measured(job, job.blocks)
    assert first.peak_samples == second.peak_samples
    assert (first.saved_bytes, first.naive_saved_bytes) == (
        second.saved_bytes,
        second.naive_saved_bytes,
    )


def test_nothing_is_left_on_the_model() -> None:
    job = small_gpt()
    before = {name: set(vars(module)) for name, module in job.model.named_modules()}
    measured(job, job.blocks)
    assert {name: set(vars(module)) for name, module in job.model.named_modules()} == before


def test_making_the_state_moves_no_weight() -> None:
    job = small_gpt()
    weights = {name: p.clone() for name, p in job.model.named_parameters()}
    optimizer = make_optimizer(job.model, OptimizerSettings(lr=0.5, weight_decay=0.5))
    allocate_state(optimizer)
    assert all(torch.equal(weights[name], p) for name, p in job.model.named_parameters())
    assert [group["lr"] for group in optimizer.param_groups] == [0.5]
    assert all(torch.count_nonzero(p.grad) == 0 for p in job.model.parameters())  # type: ignore[arg-type]
    before = storage_bytes(state_tensors(job, optimizer))
    update(job, optimizer)
    assert storage_bytes(state_tensors(job, optimizer)) == before


# --- gpt ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [2, 4])
def test_every_block_peaks_in_the_backward_of_the_last(blocks: int) -> None:
    job = small_gpt(blocks=blocks)
    last = f"blocks.{blocks - 1}"
    plain, own = measured(job), measured(job, job.blocks)
    assert plain.peak_at == PeakAt(phase="backward", module=last, replaying=False)
    assert own.peak_at == PeakAt(phase="backward", module=last, replaying=True)
    assert own.peak_samples < plain.peak_samples


def test_the_variant_forward_is_measured_alike() -> None:
    job = small_gpt()
    optimizer = make_optimizer(job.model, OptimizerSettings())
    put_on = partial(applied, job.model, each(*job.blocks), CheckpointSettings(variant="forward"))
    found = measure_memory(job, optimizer, put_on, make.passed())
    call = measured(small_gpt(), job.blocks)
    assert (found.saved_bytes, found.peak_samples) == (call.saved_bytes, call.peak_samples)
    assert found.peak_at == PeakAt(phase="backward", module="blocks.1", replaying=True)


def test_leaving_out_the_last_block_saves_the_same_peak() -> None:
    job = small_gpt(blocks=4)
    # Less what recomputing the last would cost besides: the random state kept for its replay.
    every, but_last = measured(job, job.blocks), measured(job, job.blocks[:-1])
    assert every.peak_samples[0] - but_last.peak_samples[0] <= 2 * torch.get_rng_state().nbytes
    assert but_last.peak_samples[0] <= every.peak_samples[0]


def test_saved_bytes_are_the_closed_forms() -> None:
    job = small_gpt(blocks=3)
    assert measured(job).saved_bytes == sizes_of(SMALL.model_copy(update={"blocks": 3})).saved_bytes


def test_timeline() -> None:
    job = small_gpt()
    found = measured(job, job.blocks)
    assert found.timeline is not None
    assert max(found.timeline.bytes) == found.peak_bytes
    assert found.peak_bytes == found.state_bytes + found.peak_samples[0]
    assert [label for _, label in found.timeline.marks] == [
        "zero_grad",
        "forward",
        "block blocks.0",
        "end of blocks.0",
        "block blocks.1",
        "end of blocks.1",
        "backward",
        "backward of blocks.1",
        "replay blocks.1",
        "backward of blocks.0",
        "replay blocks.0",
        "optimizer",
    ]
    moments = [at for at, _ in found.timeline.marks]
    assert moments == sorted(moments)
    assert list(found.timeline.seconds) == sorted(found.timeline.seconds)


def test_what_a_cpu_lacks_is_said() -> None:
    found = measured(toy())
    assert found.peak_reserved_bytes is None
    assert found.not_measured == {"peak_reserved_bytes": "the CPU has no caching allocator"}
    assert found.process_peak_bytes is not None
    assert found.process_peak_bytes > found.peak_bytes
    assert found.kind == "measured"


def test_without_a_passed_parity_nothing_is_measured() -> None:
    job = toy()
    optimizer = make_optimizer(job.model, OptimizerSettings())
    put_on = partial(applied, job.model, (), CheckpointSettings())
    with pytest.raises(RuntimeError, match="parity"):
        measure_memory(job, optimizer, put_on, make.failed())  # type: ignore[arg-type]
    assert not optimizer.state


@pytest.mark.parametrize(
    ("recomputed", "saved", "naive", "peak_mb"),
    [(False, 133_652_484, 152_610_820, 137.2), (True, 9_707_524, 9_791_492, 34.0)],
)
def test_the_published_table_at_its_shortest(
    recomputed: bool, saved: int, naive: int, peak_mb: float
) -> None:
    """6 blocks of width 256, T = 128, batch 8; peaks within 0.5 % of the printed figure."""
    job = gpt.build(GptSettings(seq_len=128), seed=0)
    found = measured(job, job.blocks if recomputed else ())
    assert (found.saved_bytes, found.naive_saved_bytes) == (saved, naive)
    assert found.peak_above_state_bytes == pytest.approx(peak_mb * 1e6, rel=0.005)
