"""Worker processes that come to grief in one phase; the rest of their work they do as ever.

Each stands in for `local_engine._child` in a real forked process.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from recompute_core.studies import local_engine, worker


def _sabotaged(trouble: Callable[[], Any], *phases: str) -> Callable[..., None]:
    """A worker in which `trouble` happens when one of `phases` begins for a plan other than plain."""

    def child(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
        honest = worker._do

        def do(phase: Any, task: Any, *more: Any) -> Any:
            if phase in phases and task.regions:
                trouble()
            return honest(phase, task, *more)

        worker._do = do
        local_engine._child(assignment, pipe, log, *rest)

    return child


def _signal_myself(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _run_out_of_memory() -> None:
    raise MemoryError("no more of it")


def killed_in_memory(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    _sabotaged(_signal_myself(signal.SIGKILL), "memory")(assignment, pipe, log, *rest)


def terminated_in_time(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    _sabotaged(_signal_myself(signal.SIGTERM), "time")(assignment, pipe, log, *rest)


def killed_in_parity(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    _sabotaged(_signal_myself(signal.SIGKILL), "parity")(assignment, pipe, log, *rest)


def stops_in_time(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    _sabotaged(_signal_myself(signal.SIGSTOP), "time")(assignment, pipe, log, *rest)


def sleeps_in_canary(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    _sabotaged(lambda: time.sleep(600), "canary")(assignment, pipe, log, *rest)


def out_of_memory_in_memory(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    _sabotaged(_run_out_of_memory, "memory")(assignment, pipe, log, *rest)


def leaves_in_canary(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    _sabotaged(lambda: sys.exit(3), "canary")(assignment, pipe, log, *rest)


def babbles(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    os.write(pipe.fileno(), b"\xff{not json\n")
    local_engine._child(assignment, pipe, log, *rest)


def dies_at_once(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    os._exit(7)


def says_another_environment_at_32(
    assignment: str, pipe: Connection, log: str, *rest: str | None
) -> None:
    honest, describe = worker._do, worker.describe_environment

    def do(phase: Any, task: Any, *more: Any) -> Any:
        if task.shape["seq_len"] == 32:
            worker.describe_environment = lambda *of: describe(*of) | {"torch": "another"}
        return honest(phase, task, *more)

    worker._do = do
    local_engine._child(assignment, pipe, log, *rest)


def says_a_record_that_is_none(assignment: str, pipe: Connection, log: str, *rest: str | None) -> None:
    os.write(pipe.fileno(), b'{"kind": "start", "phase": "reference"}\n')
    os.write(pipe.fileno(), b'{"kind": "done", "phase": "reference", "payload": {"loss": 1}}\n')
