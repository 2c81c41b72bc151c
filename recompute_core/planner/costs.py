"""What each op of an update costs on this machine, from steps that are timed op by op.

A stack of equal blocks is timed at one and at two blocks, one model after the other, and drawn on from
there: 96 blocks take no longer than 2 and need no more memory.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ..meters.estimate import Signature, signature
from ..spec import OptimizerSettings
from ..workloads.job import Job
from ..workloads.update import allocate_state, make_optimizer, update

_ROUNDS, _FEWEST, _PATIENCE_S = 3, 2, 2.0
"""Updates timed of one kind: three, or two where these have taken that long."""


@dataclass(frozen=True)
class Costs:
    """Seconds of a plain update, and of each op in it."""

    plain_s: float
    ops: dict[Signature, float]

    def of(self, ops: Iterable[Signature]) -> float:
        """Seconds of these ops; one that a plain update does not have counts as nothing."""
        return sum(self.ops.get(op, 0.0) for op in ops)


def measure_costs(build: Callable[[int], Job], blocks: int, optimizer: OptimizerSettings) -> Costs:
    """Costs of a model of `blocks` equal blocks on the CPU; `build(n)` makes the job with n of them."""
    plain_s = []
    for count in (blocks,) if blocks <= 2 else (1, 2):
        stack = _Stack(build(count), optimizer)
        plain_s.append(median(stack.rounds()))
    timer = _Timer()
    with timer:
        stack.rounds()
    one_block_s = max(0.0, plain_s[-1] - plain_s[0])
    return Costs(
        plain_s=plain_s[-1] + max(0, blocks - 2) * one_block_s,
        ops={key: median(spent) for key, spent in timer.spent.items()},
    )


class _Stack:
    """A job that has been warmed up."""

    def __init__(self, job: Job, optimizer: OptimizerSettings) -> None:
        self._job, self._optimizer = job, make_optimizer(job.model, optimizer)
        allocate_state(self._optimizer)
        self.seconds()

    def rounds(self) -> list[float]:
        """Seconds of several updates."""
        taken: list[float] = []
        while len(taken) < (_ROUNDS if sum(taken) < _PATIENCE_S else _FEWEST):
            taken.append(self.seconds())
        return taken

    def seconds(self) -> float:
        """Of one update."""
        gc.collect()
        started = time.perf_counter()
        update(self._job, self._optimizer)
        return time.perf_counter() - started


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
