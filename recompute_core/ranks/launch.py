"""Running a task's phases on ranks: torch's elastic launcher in this process, a fresh one for each rank.

Nothing listens outside this machine: ranks find each other through a file, and speak over the loopback
interface. No rank is started again: one that dies ends the launch.
"""

import json
import os
import select
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..processes import environment, how_ended
from . import meeting

Say = Callable[..., None]
_TICK_S = 0.2
"""How often is looked which ranks have started."""


class RankFailed(Exception):
    """A rank could not do its part; says which one and why, in one line."""


def run_ranks(module: str, task: str, count: int, say: Say, starting: Callable[[int], None]) -> None:
    """Do a task, as JSON, on so many ranks, each `python -m module` of ours; `say` hears what rank 0
    says, and before that `starting` how many ranks have started, again and again.

    Raises RankFailed. Everything has ended when this returns.
    """
    # Only here: it is heavy, and the worker of a study without ranks does not need it.
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # This process ends with the task, so what it is set to here is the ranks' alone.
    os.environ |= environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")  # else the launcher opens a port
    tempfile.tempdir = None  # the fork server may have begun with one that is gone by now
    with tempfile.TemporaryDirectory(prefix="recompute-ranks-") as name:
        folder = Path(name)
        meeting.task(folder).write_text(task)
        launcher = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id="study",
            rdzv_backend="c10d",
            rdzv_endpoint=str(folder / "rendezvous"),
            rdzv_configs={"store_type": "file"},
            max_restarts=0,
            monitor_interval=0.1,
            local_addr="127.0.0.1",
            logs_specs=DefaultLogsSpecs(log_dir=name),
            signals_to_handle="SIGTERM",
        )
        member = ("-m", module, name, str(os.getpid()))
        try:
            with _heard(folder, say, starting):
                elastic_launch(launcher, sys.executable)(*member)
        except ChildFailedError as error:
            codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
            raise RankFailed(why_failed(ended(folder, codes), count)) from None


@contextmanager
def _heard(folder: Path, say: Say, starting: Callable[[int], None]) -> Iterator[None]:
    """Within the context, `say` is told each line that rank 0 writes; all of them at its end.

    The end is an empty line of our own: a process that rank 0 forked may keep the pipe open for ever.
    """
    pipe = meeting.said(folder)
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # nobody writes yet
    writing = os.open(pipe, os.O_WRONLY)  # so that it has no end before ours
    os.set_blocking(reading, True)

    def hear(lines: IO[str]) -> None:
        while not select.select([lines], [], [], _TICK_S)[0]:
            starting(sum(1 for _ in folder.glob("started-*")))
        _tell(lines, say)

    with os.fdopen(reading) as lines:
        thread = threading.Thread(target=hear, args=(lines,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            if thread.is_alive():
                os.write(writing, b"\n\n")  # the first ends a line that rank 0 died in the middle of
            os.close(writing)
            thread.join()


def _tell(lines: IO[str], say: Say) -> None:
    while line := lines.readline().strip():
        try:
            said: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:  # rank 0 died in the middle of it
            continue
        say(said.pop("kind"), **said)


# --- why ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a rank ended that did not do its part."""

    rank: int
    exit_code: int
    """Negative: the signal that ended it."""
    reason: str | None
    """What it left as its reason."""
    reason_at: int = 0
    """When, in ns."""


def ended(folder: Path, exit_codes: Mapping[int, int]) -> list[Ended]:
    """The ranks that left a reason, or that the launcher found failed."""
    found = []
    for rank in sorted({*exit_codes, *_with_reason(folder)}):
        left = meeting.reason(folder, rank)
        there = left.exists()
        found.append(
            Ended(
                rank=rank,
                exit_code=exit_codes.get(rank, 1),
                reason=left.read_text() if there else None,
                reason_at=left.stat().st_mtime_ns if there else 0,
            )
        )
    return found


def _with_reason(folder: Path) -> Iterator[int]:
    for path in folder.glob("reason-*"):
        yield int(path.name.removeprefix("reason-"))


_LOST = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "remote process exited or there was a network error",
    "ncclRemoteError",
    "NCCL communicator was aborted",
)
"""In what a rank says whose neighbour went away, over gloo and over NCCL."""


def why_failed(ranks: list[Ended], count: int) -> str:
    """Which rank failed first, and why: what others say of its going away is no reason.

    The launcher ends the ranks that are left with SIGTERM.
    """
    own = [one for one in ranks if one.reason and not any(mark in one.reason for mark in _LOST)]
    killed = [one for one in ranks if one.exit_code < 0 and one.exit_code != -signal.SIGTERM]
    silent = [one for one in ranks if one.exit_code > 0 and one.reason is None]
    own.sort(key=lambda one: one.reason_at)
    first = [*own, *killed, *silent, *ranks][0]
    return f"rank {first.rank} of {count}{_how(first)}"


def _how(one: Ended) -> str:
    if one.reason is not None:
        return f": {one.reason}"
    return f" {how_ended(one.exit_code)}" + (" and left no reason" if one.exit_code >= 0 else "")
