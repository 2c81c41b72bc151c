"""One rank: a fresh process that does its part of a task's phases, together with the other ranks.

`python -m recompute_core.studies.rank_member FOLDER PARENT`, started by `ranks.launch` with the elastic
launcher's variables. In the folder lie the task and what the ranks meet by; rank 0 says what is found. A
rank that fails leaves its reason there and ends; whoever launched it ends the others. No rank outlives
its parent.
"""

import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from .. import workloads
from ..checks import snapshot
from ..ranks import meeting
from ..ranks.costs import measure_rank_memory, measure_rank_time
from ..ranks.devices import use_device
from ..ranks.reference import rank_seed, view_of
from ..ranks.shards import shard
from ..ranks.team import Team
from ..ranks.wrapped import wrapped
from ..results import Record
from ..workloads.device import cast, move, pick_device, repeat_itself
from ..workloads.job import Job
from .environment import backend_for, check_same_environment, describe_environment
from .phases import check, pairs_to, plain_of, proof_of, ready, same_batch
from .store import Phase
from .worker import Assignment, reason_of, set_threads

_GRACE_S = 60.0
"""So much longer than the study's patience does a collective wait: the study's driver decides first."""


def main() -> None:
    """Do this rank's part, and leave a reason where it fails."""
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    rank = int(os.environ["RANK"])
    _end_with(parent, folder)
    try:
        _work(Assignment.model_validate_json(meeting.task(folder).read_text()), rank, folder)
    except BaseException as error:
        if os.getppid() != parent:
            _abandon(folder)
        meeting.reason(folder, rank).write_text(reason_of(error))
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the others are in the midst of a collective: no orderly end is to be had


def _end_with(parent: int, folder: Path) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        _abandon(folder)

    threading.Thread(target=watch, daemon=True).start()


def _abandon(folder: Path) -> NoReturn:
    """End now that the owner of the folder was killed: whichever rank is last leaves nothing of it."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _work(task: Assignment, rank: int, folder: Path) -> None:
    spec, ranks = task.spec, task.spec.ranks
    assert ranks is not None, "only a study over ranks launches them"
    set_threads(spec)
    device = pick_device(spec.device)
    use_device(device, rank)
    here = "lo0" if sys.platform == "darwin" else "lo"
    os.environ |= {"GLOO_SOCKET_IFNAME": here, "NCCL_SOCKET_IFNAME": here}  # nobody else may listen in
    meeting.started(folder, rank).touch()
    patience = timedelta(seconds=spec.silence_s + _GRACE_S)
    dist.init_process_group(
        backend_for(device),
        store=FileStore(str(meeting.store(folder)), ranks.count),
        rank=rank,
        world_size=ranks.count,
        timeout=patience,
        device_id=None if device.type == "cpu" else torch.device(device.type, rank),
    )
    team = Team(rank, ranks.count, patience)
    member = _Member(task, device, team)
    with meeting.said(folder).open("w") if rank == 0 else open(os.devnull, "w") as out:

        def say(kind: str, **data: Any) -> None:
            out.write(json.dumps({"kind": kind, **data}, allow_nan=False) + "\n")
            out.flush()

        for phase in task.phases:
            say("start", phase=phase)
            found = member.do(phase, partial(say, phase=phase))
            say("done", phase=phase, payload=found.model_dump(mode="json", by_alias=True))
    team.wait()
    dist.destroy_process_group()


class _Member:
    """A rank with what its phases share."""

    def __init__(self, task: Assignment, device: torch.device, team: Team) -> None:
        self._task, self._device, self._team = task, device, team
        self._spec = task.spec.model_copy(update={"seed": rank_seed(task.spec.seed, team.rank)})
        """The study's, with this rank's seed."""
        check_same_environment(task.environment, describe_environment(device, task.spec.ranks))

    def _build(self) -> Job:
        task, ranks = self._task, self._spec.ranks
        assert ranks is not None and task.plain is not None
        settings = task.spec.at(task.shape)
        job = cast(workloads.build(settings, task.spec.seed, task.home), task.spec.precision)
        share = shard(same_batch(job, task.plain), self._team.rank, ranks.count)
        return wrapped(move(share, self._device), ranks)

    def do(self, phase: Phase, say: Callable[..., None]) -> Record:
        if phase in ("memory", "time"):
            return self._cost(phase, say)
        if self._device.type != "cpu":
            repeat_itself()  # costs are measured in processes of their own
        plain = plain_of(phase, self._task)
        reference = view_of(snapshot.load(self._task.reference, plain.digest), self._team.rank)
        return check(phase, self._build, self._spec, self._task, reference, self._team)

    def _cost(self, phase: Phase, say: Callable[..., None]) -> Record:
        task, ranks = self._task, self._spec.ranks
        proof = proof_of(phase, task)
        assert ranks is not None
        job = self._build()
        optimizer, put_on = ready(job, task, self._spec.seed)
        if phase == "memory":
            return measure_rank_memory(job, optimizer, put_on, proof, self._team, task.trace)
        return measure_rank_time(
            job,
            optimizer,
            put_on,
            task.spec.timing,
            proof,
            self._team,
            ranks,
            pairs_to(say),
        )


if __name__ == "__main__":
    main()
