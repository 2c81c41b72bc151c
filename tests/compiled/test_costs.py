"""Memory and time of compiled updates, and what compiling may not do to them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recompute_core.compiled.costs import compiled_memory, compiled_time
from recompute_core.compiled.job import CompiledJob, compiled, hearing_compiler
from recompute_core.meters import memory, timing
from recompute_core.plans.names import Regions
from recompute_core.results import Gap, Memory, ParityPassed
from recompute_core.spec import Compile, TimingSettings
from recompute_core.workloads.job import Job
from recompute_core.workloads.update import make_optimizer
from tests.compiled.toys import spec_of
from tests.core.toys import BATCH, WIDTH, each, mlps, tower

EAGER = Compile(backend="aot_eager")
PROOF = ParityPassed(
    gaps=(Gap(part="loss", name="", absolute=0.0, relative=0.0),),
    noise_floor=0.0,
    block_calls={},
    flops=1,
)
TENSOR = BATCH * WIDTH * 4
"""Bytes of one activation."""
FOUR_PAIRS = TimingSettings(min_pairs=4, max_pairs=4)


def memory_of(regions: Regions) -> Memory:
    torch._dynamo.reset()
    job = mlps()
    optimizer = make_optimizer(job.model, spec_of().optimizer)
    return compiled_memory(compiled(job, EAGER, regions), optimizer, PROOF, None)


def test_saved_bytes_and_peak_of_compiled_updates() -> None:
    """Plain keeps what goes into GELU and into the second layer, of each block, and what goes into the
    second block; what the last block gave is the model's output. Recomputed, what enters the blocks."""
    plain, own = memory_of(()), memory_of(each("blocks.0", "blocks.1"))
    assert plain.saved_bytes == 6 * TENSOR
    assert own.saved_bytes == TENSOR
    for found in (plain, own):
        assert found.peak_at is None
        assert found.process_peak_bytes is None
        assert {"peak_at", "timeline.back", "process_peak_bytes"} <= found.not_measured.keys()
        assert found.timeline is not None
        assert found.timeline.back is None
        assert found.timeline.kept is not None
        assert max(found.timeline.kept) == found.saved_bytes
        assert "exact" not in found.source


def test_pairs_compile_nothing_though_the_plan_goes_on_and_off() -> None:
    torch._dynamo.reset()
    job = mlps()
    plain, candidate = compiled(job, EAGER), compiled(job, EAGER, each("blocks.0", "blocks.1"))
    heard: list[int] = []
    with hearing_compiler(heard.append):
        found = timed(plain, candidate)
    assert len(found.samples) == 4
    assert (plain.graphs.compiled, candidate.graphs.compiled) == (1, 1)
    assert heard == [33, 67] * 2
    assert plain.graphs.recomputed_blocks == {}
    assert candidate.graphs.recomputed_blocks.keys() == {"blocks.0", "blocks.1"}
    assert not any({"_call_impl", "forward"} & vars(module).keys() for module in job.model.modules())


def test_the_clock_of_a_device_stays_said(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    by_events = timing._clock(torch.device("cuda"))
    monkeypatch.setattr(timing, "_clock", lambda device: by_events)
    job = mlps()
    assert timed(compiled(job, EAGER), compiled(job, EAGER)).source == (
        "interleaved whole updates, both compiled, one process, timed by events on the device"
    )


@pytest.mark.parametrize(("device", "said"), [("cpu", False), ("cuda", True)])
def test_what_is_not_recorded_of_a_compiled_update_is_said(device: str, said: bool) -> None:
    found: dict[str, Any] = {"source": "counters, exact", "not_measured": {}}
    memory._unsee(found, torch.device(device))
    assert ("history" in found["not_measured"]) == said


def timed(plain: CompiledJob, candidate: CompiledJob) -> Any:
    optimizer = make_optimizer(plain.job.model, spec_of().optimizer)
    return compiled_time(plain, candidate, optimizer, FOUR_PAIRS, PROOF)


class Counting(nn.Linear):
    """Its count stands in the graph, so that each update needs another."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * self.calls


def test_what_compiles_anew_is_not_timed() -> None:
    torch._dynamo.reset()

    def counting() -> Job:
        torch.manual_seed(0)
        return tower(Counting(WIDTH, WIDTH))

    job = counting()
    with pytest.raises(RuntimeError, match=r"the update was compiled \d times while it was measured"):
        timed(compiled(job, EAGER), compiled(job, EAGER))


def test_nothing_is_measured_without_parity() -> None:
    job = mlps()
    failed = PROOF.model_copy(update={"passed": False})
    optimizer = make_optimizer(job.model, spec_of().optimizer)
    plain = compiled(job, EAGER)
    with pytest.raises(RuntimeError, match="only after parity"):
        compiled_time(plain, plain, optimizer, FOUR_PAIRS, failed)
    with pytest.raises(RuntimeError, match="only after parity"):
        compiled_memory(plain, optimizer, failed, None)
