"""Updates and single blocks run on fake tensors, shared out among processes where there are many."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from ..meters.estimate import FakeUpdate, Run
from ..plans.names import Regions
from ..processes import end_with_parent, fork_server
from ..spec import CheckpointSettings, OptimizerSettings
from ..workloads.job import Job
from .alone import Alone, AloneRun, Relative

Q = TypeVar("Q")
A = TypeVar("A")

_MOST_PROCESSES = 8


class Runs:
    """Runs of one job; equal questions asked of processes of `pool` get equal answers."""

    def __init__(
        self,
        build: Callable[[], Job],
        optimizer: OptimizerSettings,
        checkpoint: CheckpointSettings,
        pool: Executor | None = None,
    ) -> None:
        self.update = FakeUpdate(build, optimizer)
        self._checkpoint, self._pool = checkpoint, pool
        self._blocks: dict[str, Alone] = {}

    def whole(self, plans: Iterable[Regions]) -> list[Run]:
        """An update under each of the plans."""
        return self._each(_whole, plans)

    def alone(self, block: str, treatments: Iterable[Relative]) -> list[AloneRun]:
        """A block by itself under each of the treatments."""
        return self._each(_alone, ((block, regions) for regions in treatments))

    def block(self, name: str) -> Alone:
        """A block cut out of the job; raises LookupError when it is never called."""
        if name not in self._blocks:
            with self.update.mode:
                self._blocks[name] = Alone(self.update.job, name, self._checkpoint)
        return self._blocks[name]

    def _each(self, answer: Callable[["Runs", Q], A], questions: Iterable[Q]) -> list[A]:
        asked = list(questions)
        if self._pool and len(asked) > 1:
            try:
                return list(self._pool.map(partial(_there, answer), asked))
            except BrokenProcessPool:  # killed, out of memory: slower, and no less
                self._pool = None
        return [answer(self, one) for one in asked]


def _whole(runs: Runs, plan: Regions) -> Run:
    return runs.update.run(plan, runs._checkpoint)


def _alone(runs: Runs, asked: tuple[str, Relative]) -> AloneRun:
    block = runs.block(asked[0])
    with runs.update.mode:
        return block.run(asked[1])


# --- several processes ----------------------------------------------------------------------------


@contextmanager
def shared_runs(
    build: Callable[[], Job], optimizer: OptimizerSettings, checkpoint: CheckpointSettings
) -> Iterator[Runs]:
    """Runs with a process for every core, all of them ready; `build` must be picklable."""
    count = min(os.cpu_count() or 1, _MOST_PROCESSES)
    made = (build, optimizer, checkpoint)
    pool = ProcessPoolExecutor(count, fork_server(), initializer=_prepare, initargs=made)
    try:
        ready = [pool.submit(os.getpid) for _ in range(count)]
        runs = Runs(*made, pool)
        for each in ready:
            each.exception()
        yield runs
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_mine: Runs
"""A process's own, made when it starts."""


def _prepare(
    build: Callable[[], Job], optimizer: OptimizerSettings, checkpoint: CheckpointSettings
) -> None:
    global _mine
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked decides
    _mine = Runs(build, optimizer, checkpoint)


def _there(answer: Callable[[Runs, Q], A], question: Q) -> A:
    return answer(_mine, question)
