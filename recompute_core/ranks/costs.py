"""Memory and time of training over ranks: each rank measures its own, and the worst one counts.

Gloo's own buffers lie outside torch's allocator and are counted nowhere; NCCL's neither.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from ..meters.memory import measure_memory
from ..meters.timing import measure_time
from ..plans.apply import Applied
from ..results import Memory, Pair, ParityPassed, RankMemory, Timing
from ..spec import Ranks, TimingSettings
from ..workloads.job import Job
from ..workloads.update import allocate_state, update
from .team import Team
from .wrapped import UPDATES_BEFORE, buckets_bytes, collected_parameters


def measure_rank_memory(
    job: Job,
    optimizer: torch.optim.Optimizer,
    put_on: Applied,
    proof: ParityPassed,
    team: Team,
    trace: Path | None,
    folder: Path,
) -> Memory:
    """Every rank's peak over the same update; the record is that of the rank with the highest.

    `folder` is where each rank lays its trace, of which the worst one's is kept as `trace`.
    """
    allocate_state(optimizer)
    with put_on():
        for _ in range(UPDATES_BEFORE):
            update(job, optimizer)
    own_trace = None if trace is None else folder / f"rank-{team.rank}" / trace.name
    if own_trace is not None:
        own_trace.parent.mkdir()
    own = measure_memory(
        job,
        optimizer,
        put_on,
        proof,
        own_trace,
        collected=collected_parameters(job),
        buckets_bytes=buckets_bytes(job),
    )
    found = worst_of(team.all_say(own))
    if trace and own_trace and found.trace and team.rank == _worst(found.ranks).rank:
        partial = trace.with_name(f"{trace.name}.partial")
        shutil.move(own_trace, partial)  # from another file system, perhaps
        partial.replace(trace)
    team.wait()
    return found


def worst_of(by_rank: list[Memory]) -> Memory:
    """The record of the rank with the highest peak, with every rank's figures beside it."""
    ranks = tuple(
        RankMemory(
            rank=rank,
            saved_bytes=own.saved_bytes,
            state_bytes=own.state_bytes,
            peak_bytes=own.peak_bytes,
        )
        for rank, own in enumerate(by_rank)
    )
    worst = _worst(ranks)
    own = by_rank[worst.rank]
    return own.model_copy(
        update={
            "ranks": ranks,
            "source": f"{own.source}; rank {worst.rank}, the worst of {len(ranks)}",
        }
    )


def _worst(ranks: tuple[RankMemory, ...]) -> RankMemory:
    return max(ranks, key=lambda one: (one.peak_bytes or 0, one.saved_bytes, -one.rank))


def measure_rank_time(
    job: Job,
    optimizer: torch.optim.Optimizer,
    put_on: Applied,
    settings: TimingSettings,
    proof: ParityPassed,
    team: Team,
    ranks: Ranks,
    tell: Callable[[Pair], None],
) -> Timing:
    """Pairs of updates of all ranks in step; each time is the slowest rank's."""
    found = measure_time(job, optimizer, put_on, settings, proof, tell, team)
    source = (
        f"interleaved whole updates, plan put on and taken off, {ranks.count} ranks in step "
        f"({ranks.kind}); the slowest rank's time"
    )
    return found.model_copy(update={"source": source, "ranks": ranks.count})
