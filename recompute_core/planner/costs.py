"""What each op of an update costs on this machine, from updates that are timed op by op.

A stack of equal blocks is timed at two blocks: 96 take no longer and need no more memory. An update's
seconds are those of its ops added up, so that what a replay adds and what it is added to come from the
same moments of the machine.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ..meters.estimate import Signature, signature
from ..spec import OptimizerSettings
from ..workloads.job import Job
from ..workloads.update import allocate_state, make_optimizer, update

_ROUNDS, _FEWEST, _PATIENCE_S = 3, 2, 2.0
"""Updates that are timed: three, or two where these have taken that long."""


@dataclass(frozen=True)
class Costs:
    """Seconds of each op of a plain update."""

    ops: dict[Signature, float]

    def of(self, ops: Mapping[Signature, int]) -> float:
        """Seconds of so many of these ops; one that a plain update does not have counts as nothing."""
        return sum(count * self.ops.get(op, 0.0) for op, count in ops.items())


def measure_costs(job: Job, optimizer: OptimizerSettings) -> Costs:
    """Time the ops of a job on the CPU; its weights move."""
    adamw = make_optimizer(job.model, optimizer)
    allocate_state(adamw)
    update(job, adamw)
    timer, rounds, started = _Timer(), 0, time.perf_counter()
    while rounds < (_ROUNDS if time.perf_counter() - started < _PATIENCE_S else _FEWEST):
        gc.collect()
        with timer:
            update(job, adamw)
        rounds += 1
    return Costs({op: median(spent) for op, spent in timer.spent.items()})


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
