"""Updates and single blocks run on fake tensors, shared with helping processes where there are many."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cached_property
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
        helpers: int = 0,
        starting: Future[None] | None = None,
    ) -> None:
        self.update = FakeUpdate(build, optimizer)
        self._helpers, self._starting = helpers, starting
        self._checkpoint, self._pool = checkpoint, pool
        self._blocks: dict[str, Alone] = {}

    @cached_property
    def plain(self) -> Run:
        """The update without any plan."""
        return _whole(self, ())

    def settle(self) -> Run:
        """Run plain while the helpers come up, then wait until they answer: ops are timed alone."""
        plain = self.plain
        if self._starting:
            self._starting.exception()
        return plain

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
        if self._pool is None or len(asked) < 2:
            return [answer(self, one) for one in asked]
        try:
            return self._shared(answer, asked)
        except BrokenProcessPool:  # killed, out of memory: slower, and no less
            self._pool = None
            return self._each(answer, asked)

    def _shared(self, answer: Callable[["Runs", Q], A], asked: list[Q]) -> list[A]:
        """The helpers begin at one end, each with one more in its hands; this process at the other."""
        assert self._pool is not None
        left, given, found = deque(range(len(asked))), dict[Future[A], int](), dict[int, A]()
        while left or given:
            while left and len(given) < 2 * self._helpers:
                number = left.popleft()
                given[self._pool.submit(_there, answer, asked[number])] = number
            if left:
                number = left.pop()
                found[number] = answer(self, asked[number])
            for done in wait(given, timeout=0 if left else None, return_when=FIRST_COMPLETED).done:
                found[given.pop(done)] = done.result()
        return [found[number] for number in range(len(asked))]


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
    """Runs that a process for every other core helps with; `build` is pickled."""
    made = (build, optimizer, checkpoint)
    count = min(os.cpu_count() or 1, _MOST_PROCESSES) - 1
    if count == 0:
        yield Runs(*made)
        return
    pool = ProcessPoolExecutor(count, fork_server(), initializer=_prepare, initargs=made)

    def start() -> None:
        for helper in [pool.submit(os.getpid) for _ in range(count)]:
            helper.result()

    try:
        with ThreadPoolExecutor(1) as beside:  # a fork server keeps its first caller waiting
            yield Runs(*made, pool, count, beside.submit(start))
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
