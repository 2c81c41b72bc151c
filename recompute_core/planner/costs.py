"""What each op of an update costs on this machine, from steps that are timed op by op.

A stack of equal blocks is timed at one and at two blocks and drawn on from there, so that 96 blocks take
no longer than 2 and need no more memory.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..meters.estimate import Signature, signature
from ..spec import OptimizerSettings
from ..workloads.device import synchronize
from ..workloads.job import Job
from ..workloads.update import allocate_state, make_optimizer, update

_ROUNDS = 3


@dataclass(frozen=True)
class Costs:
    """Seconds of a plain update, and of each op in it."""

    plain_s: float
    ops: dict[Signature, float]

    def of(self, ops: Iterable[Signature]) -> float:
        """Seconds of these ops; one that a plain update does not have counts as nothing."""
        return sum(self.ops.get(op, 0.0) for op in ops)


def measure_costs(build: Callable[[int], Job], blocks: int, optimizer: OptimizerSettings) -> Costs:
    """Costs of a model of `blocks` equal blocks; `build(n)` makes the job with n of them."""
    counts = (blocks,) if blocks <= 2 else (1, 2)
    stacks = [_Stack(build(count), optimizer) for count in counts]
    for _ in range(_ROUNDS):
        for stack in stacks:
            stack.whole_s.append(stack.seconds())
    largest = stacks[-1]
    timer = _Timer(largest.device)
    with timer:
        largest.seconds()
    plain_s = [median(stack.whole_s) for stack in stacks]
    one_block_s = max(0.0, plain_s[-1] - plain_s[0])
    return Costs(
        plain_s=plain_s[-1] + (blocks - counts[-1]) * one_block_s,
        ops={key: median(spent) for key, spent in timer.spent.items()},
    )


class _Stack:
    """A job that has been warmed up, and the seconds of its updates."""

    def __init__(self, job: Job, optimizer: OptimizerSettings) -> None:
        self.device = job.batch[0].device
        self.whole_s: list[float] = []
        self._job, self._optimizer = job, make_optimizer(job.model, optimizer)
        allocate_state(self._optimizer)
        self.seconds()

    def seconds(self) -> float:
        synchronize(self.device)
        started = time.perf_counter()
        update(self._job, self._optimizer)
        synchronize(self.device)
        return time.perf_counter() - started


class _Timer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, times every op until the device has finished it."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.spent: dict[Signature, list[float]] = defaultdict(list)
        self._device = device

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        started = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)):
            synchronize(self._device)
        self.spent[signature(func, args, kwargs)].append(time.perf_counter() - started)
        return result
