"""The local engine: each task in a process forked from a server that has torch loaded already.

The child ends by itself when its driver dies. On Linux the kernel is told to pick the child first when
memory runs out, so that a measurement too large costs its own cell and nothing else.
"""

import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from pydantic import BaseModel

from ..errors import EngineError
from ..processes import be_the_first_to_go, end_with_parent, fork_server
from ..workloads.registered import VARIABLE
from ..writing import open_log
from .engine import LONGEST_LINE, Garbled, why_ended


class LocalEngine:
    """Starts worker processes on this machine, which measures one thing at a time."""

    places = 1

    def __init__(self, log: Path) -> None:
        self._log = log
        self._context = fork_server()

    def start(self, assignment: BaseModel) -> "LocalWorker":
        """Begin a task; its lines arrive through the worker. Raises EngineError where its log cannot be
        written: no task would come further."""
        try:
            os.close(open_log(self._log))
        except OSError as error:
            raise EngineError(f"{self._log}: cannot be written: {error.strerror}") from None
        for _ in range(2):
            ours, theirs = self._context.Pipe(duplex=False)
            process = self._process(assignment, theirs)
            try:
                process.start()
            except (
                EOFError,
                ConnectionError,
            ):  # the fork server was killed just now; another is started
                ours.close()
            else:
                return LocalWorker(process, ours)
            finally:
                theirs.close()
        raise EngineError("the process that starts workers ended twice, while it started one")

    def _process(self, assignment: BaseModel, pipe: Connection) -> BaseProcess:
        return self._context.Process(
            target=_child,
            args=(
                assignment.model_dump_json(),
                pipe,
                str(self._log),
                type(assignment).__module__,
                os.environ.get(VARIABLE),
            ),
            daemon=True,
        )

    def close(self) -> None:
        """The fork server ends with this process."""


class LocalWorker:
    """A running task: lines to read, a process to stop."""

    waiting = False

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
        if len(self._rest) > LONGEST_LINE:
            raise Garbled(f"the worker wrote more than {LONGEST_LINE >> 20} MiB without a line end")
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
        return why_ended(code)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(10)


def _child(
    assignment: str, pipe: Connection, log: str, module: str, factories: str | None = None
) -> None:
    """`factories` are registered here too: the fork server has the environment it once started in."""
    end_with_parent()
    os.environ[VARIABLE] = factories or ""
    be_the_first_to_go()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    try:
        descriptor = open_log(Path(log))
    except OSError as error:  # it went since the driver looked, who says so at the next task
        sys.exit(f"{log}: cannot be written: {error.strerror}")
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    worker = import_module(module)
    try:
        with os.fdopen(os.dup(pipe.fileno()), "w") as out:
            pipe.close()
            worker.work(worker.Assignment.model_validate_json(assignment), out)
    except BrokenPipeError:
        sys.exit("the driver has ended")
    sys.stdout.flush()
