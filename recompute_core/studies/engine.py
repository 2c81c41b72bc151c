"""The local engine: each task in a process forked from a server that has torch loaded already.

A task is a worker's `Assignment`: the module that declares it has `work`, which does it and says what
happens as JSON lines.

The child ends by itself when its driver dies. On Linux the kernel is told to pick the child first when
memory runs out, so that a measurement too large costs its own cell and nothing else.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ..processes import end_with_parent, fork_server
from ..workloads.registered import VARIABLE

_LONGEST_LINE = 64 << 20
_TICK_S = 0.2


class Garbled(Exception):
    """The worker said something that is not one of its lines."""


class LocalEngine:
    """Starts worker processes on this machine."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._context = fork_server()

    def start(self, assignment: BaseModel) -> "LocalWorker":
        """Begin a task; its lines arrive through the worker."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_child,
            args=(
                assignment.model_dump_json(),
                theirs,
                str(self._log),
                type(assignment).__module__,
                os.environ.get(VARIABLE),
            ),
            daemon=True,
        )
        process.start()
        theirs.close()
        return LocalWorker(process, ours)


class LocalWorker:
    """A running task: lines to read, a process to stop."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe
        self._rest = b""

    def lines(self, timeout_s: float) -> Iterator[bytes]:
        """The whole lines that arrived within `timeout_s`; EOFError once it has ended, or Garbled."""
        if not wait([self._pipe], timeout_s):
            return
        data = os.read(self._pipe.fileno(), 1 << 20)
        if not data:
            raise EOFError
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            raise Garbled(f"the worker wrote more than {_LONGEST_LINE >> 20} MiB without a line end")
        yield from lines

    def end(self) -> str:
        """Wait for the process, killing it if it lingers; returns why it ended, in words."""
        self._process.join(5)
        if self._process.is_alive():
            self.kill()
            self._pipe.close()
            return "the worker closed its pipe, did not end, and was stopped"
        code = self._process.exitcode or 0
        self._pipe.close()
        if code == -signal.SIGKILL:
            return "the worker was killed (signal 9; the kernel does so when memory runs out)"
        if code < 0:
            return f"the worker died of signal {-code} ({signal.Signals(-code).name})"
        return f"the worker ended with exit code {code} and no result"

    def kill(self) -> None:
        self._process.kill()
        self._process.join(10)


def follow(
    worker: LocalWorker,
    hear: Callable[[dict[str, Any]], None],
    silence_s: float,
    tick: Callable[[], None] = lambda: None,
) -> str:
    """Hear a worker out until it ends; returns why it ended. It is stopped after too long a silence, and
    when it says what is no JSON object or `hear` cannot make sense of.

    `tick` is called several times a second; what it raises, or `hear` of other kinds, stops the worker.
    """
    heard = time.monotonic()
    try:
        while True:
            try:
                for line in worker.lines(_TICK_S):
                    heard = time.monotonic()
                    _understood(line, hear)
            except EOFError:
                return worker.end()
            tick()
            if time.monotonic() - heard > silence_s:
                why = f"the worker said nothing for {silence_s:.0f} s and was stopped"
                break
    except Garbled as problem:
        why = str(problem)
    except BaseException:
        worker.kill()
        worker.end()
        raise
    worker.kill()
    worker.end()
    return why


def _understood(line: bytes, hear: Callable[[dict[str, Any]], None]) -> None:
    try:
        hear(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Garbled(f"the worker said something unreadable: {line[:80]!r}") from error


def _child(
    assignment: str, pipe: Connection, log: str, module: str, factories: str | None = None
) -> None:
    """`factories` are registered here too: the fork server has the environment it once started in."""
    end_with_parent()
    os.environ[VARIABLE] = factories or ""
    _be_the_first_to_go()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    worker = import_module(module)
    with os.fdopen(os.dup(pipe.fileno()), "w") as out:
        pipe.close()
        worker.work(worker.Assignment.model_validate_json(assignment), out)
    sys.stdout.flush()


def _be_the_first_to_go() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
