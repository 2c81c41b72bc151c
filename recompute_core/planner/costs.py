"""What each op of an update costs on this machine, from updates that are timed op by op.

A stack of equal blocks is timed at two blocks: 96 take no longer and need no more memory. An update's
seconds are those of its ops added up, so that what a replay adds and what it is added to come from the
same moments of the machine.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..meters.estimate import Ops, Signature, signature
from ..plans.apply import recompute
from ..spec import CheckpointSettings, OptimizerSettings
from ..workloads.job import Job
from ..workloads.update import allocate_state, make_optimizer, update

_ROUNDS, _FEWEST, _PATIENCE_S = 3, 2, 2.0
"""Updates that are timed: three, or two where these have taken that long."""


class Replayed(Protocol):
    """What is known of the replays in a run on fake tensors."""

    @property
    def replayed(self) -> Ops: ...
    @property
    def replays(self) -> int: ...
    @property
    def judged(self) -> int: ...


@dataclass(frozen=True)
class Costs:
    """Seconds of each op of a plain update, and of what checkpointing itself takes beside ops."""

    ops: dict[Signature, float]
    region_s: float = 0.0
    """For every call of a region that is run again."""
    judged_s: float = 0.0
    """For every op of a selective region: its policy in forward, its cache in the replay."""

    def of(self, ops: Mapping[Signature, int]) -> float:
        """Seconds of so many of these ops; one that a plain update does not have counts as nothing."""
        return sum(count * self.ops.get(op, 0.0) for op, count in ops.items())

    def of_replays(self, run: Replayed) -> float:
        """Seconds that a run's replays take."""
        return self.of(run.replayed) + run.replays * self.region_s + run.judged * self.judged_s


def measure_costs(job: Job, optimizer: OptimizerSettings, checkpoint: CheckpointSettings) -> Costs:
    """Time the ops of a job on the CPU, and checkpointing itself; the job's weights move."""
    adamw = make_optimizer(job.model, optimizer)
    allocate_state(adamw)
    update(job, adamw)
    timer, rounds, started = _Timer(), 0, time.perf_counter()
    while rounds < (_ROUNDS if time.perf_counter() - started < _PATIENCE_S else _FEWEST):
        gc.collect()
        with timer:
            update(job, adamw)
        rounds += 1
    ops = {op: median(spent) for op, spent in timer.spent.items()}
    return Costs(ops, *_checkpointing(checkpoint))


# --- what checkpointing takes beside ops ------------------------------------------------------------

_CHAIN, _REPEATS = 32, 31


def _checkpointing(settings: CheckpointSettings) -> tuple[float, float]:
    """Seconds of a region that is run again, and of an op in a selective one, on tiny tensors.

    A chain of sines is run plain, recomputed, and recomputed under a policy that keeps none of them.
    """
    x = torch.ones(8, requires_grad=True)

    def chain(start: Tensor) -> Tensor:
        for _ in range(_CHAIN):
            start = start.sin()
        return start

    forward = _least_s(lambda: chain(x))
    plain = _least_s(lambda: _backward(chain(x)))
    whole = _least_s(lambda: _backward(recompute(settings)(chain)(x)))
    selective = _least_s(lambda: _backward(recompute(settings, _NEVER)(chain)(x)))
    return max(0.0, whole - plain - forward), max(0.0, (selective - whole) / _CHAIN)


_NEVER = ("aten.mm.default",)


def _backward(output: Tensor) -> None:
    output.sum().backward()  # type: ignore[no-untyped-call]


def _least_s(work: Callable[[], object]) -> float:
    """The quickest of several runs: what is done in it is always the same, and others only add."""
    spent = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return min(spent)


class _Timer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, times every op."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.spent: dict[Signature, list[float]] = defaultdict(list)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        started = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        self.spent[signature(func, args, kwargs)].append(time.perf_counter() - started)
        return result
