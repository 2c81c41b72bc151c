"""`python -m tests.faults.saboteur KIND study …`: the command line, whose workers come to grief.

The trouble comes in the workers' parity phase for plans other than plain; all else is done as ever.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from recompute_core.studies import local_engine, worker

_BABBLE = b"\xff\x00{not json]\x1b[2J\n" * 100
_HUNDRED_MB = 100 << 20


def _half_a_line(pipe: int) -> None:
    os.write(pipe, b'{"kind": "done", "phase": "parity", "payl')
    os.kill(os.getpid(), signal.SIGKILL)


def _garbage(pipe: int) -> None:
    os.write(pipe, _BABBLE)


def _a_hundred_mb(pipe: int) -> None:
    part = b"x" * (1 << 20)
    for _ in range(_HUNDRED_MB // len(part)):
        _write(pipe, part)


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


def _nothing(pipe: int) -> None:
    time.sleep(600)


KINDS: dict[str, Callable[[int], None]] = {
    "half a line": _half_a_line,
    "garbage": _garbage,
    "100 MB": _a_hundred_mb,
    "nothing for ever": _nothing,
}


def _child(kind: str, assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    honest = worker._do

    def do(phase: Any, task: Any, *more: Any) -> Any:
        if phase == "parity" and task.regions:
            KINDS[kind](pipe_of_its_own)
        return honest(phase, task, *more)

    pipe_of_its_own = os.dup(pipe.fileno())
    worker._do = do
    local_engine._child(assignment, pipe, log, *rest)


def main() -> None:
    """Run the command line with this trouble in it."""
    from recompute_core.__main__ import main as command_line
    from tests.faults import saboteur  # a worker imports it by this name

    kind, *arguments = sys.argv[1:]
    local_engine._child = partial(saboteur._child, kind)
    sys.argv = ["recompute_core", *arguments]
    command_line()


if __name__ == "__main__":
    main()
