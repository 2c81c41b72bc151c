"""What an engine is: where tasks are done. This machine is one (`local_engine`), a Ray cluster another.

A task is a worker's `Assignment`: the module that declares it has `work`, which does it and says what
happens as JSON lines. Another scheduler is one more file with these two classes.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..processes import how_ended
from .worker import Assignment

TICK_S = 0.2
"""How long a look at a worker waits for something to be said."""

LONGEST_LINE = 64 << 20
"""Bytes that a worker may say without a line end."""


class Garbled(Exception):
    """The worker said something that is not one of its lines."""


class Worker(Protocol):
    """A task that was begun: lines to read, a way to stop it."""

    @property
    def waiting(self) -> bool:
        """Whether it still waits for its place; silence counts from when it has one."""

    def lines(self, timeout_s: float) -> Iterator[bytes]:
        """The whole lines that arrived within `timeout_s`; EOFError once it has ended, or Garbled."""

    def end(self) -> str:
        """Wait until it is gone; returns why it ended, in words."""

    def kill(self) -> None:
        """Stop it, whatever it does."""


class Engine(Protocol):
    """Starts workers."""

    @property
    def places(self) -> int:
        """How many tasks may run at once without disturbing each other's measurements."""

    def start(self, assignment: Assignment) -> Worker | None:
        """Begin a task; its lines arrive through the worker. None where no place is free after all."""

    def close(self) -> None:
        """Let go of what was opened; no worker is running."""


Hear = Callable[[dict[str, Any]], None]


class Following:
    """Hears a worker out. It is stopped after too long a silence, and when it says what is no JSON
    object or `hear` cannot make sense of."""

    def __init__(self, worker: Worker, hear: Hear, silence_s: float) -> None:
        self._worker = worker
        self._hear = hear
        self._silence_s = silence_s
        self._heard = time.monotonic()

    def step(self, timeout_s: float) -> str | None:
        """Hear what has come within `timeout_s`; why the worker ended, or None while it goes on."""
        try:
            for line in self._worker.lines(timeout_s):
                self._heard = time.monotonic()
                _understood(line, self._hear)
        except EOFError:
            return self._worker.end()
        except Garbled as problem:
            self.stop()
            return str(problem)
        if self._worker.waiting:
            self._heard = time.monotonic()
        if time.monotonic() - self._heard > self._silence_s:
            self.stop()
            return f"the worker said nothing for {self._silence_s:.0f} s and was stopped"
        return None

    def stop(self) -> None:
        self._worker.kill()
        self._worker.end()


def follow(worker: Worker, hear: Hear, silence_s: float, tick: Callable[[], None] = lambda: None) -> str:
    """Hear one worker out until it ends; returns why it ended.

    `tick` is called several times a second; what it raises, or `hear` of other kinds, stops the worker.
    """
    following = Following(worker, hear, silence_s)
    try:
        while (why := following.step(TICK_S)) is None:
            tick()
    except BaseException:
        following.stop()
        raise
    return why


def _understood(line: bytes, hear: Hear) -> None:
    try:
        hear(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Garbled(f"the worker said something unreadable: {line[:80]!r}") from error


def why_ended(code: int) -> str:
    """Why a worker's process ended that owes a result, from its exit code."""
    return f"the worker {how_ended(code)}" + (" and no result" if code >= 0 else "")
