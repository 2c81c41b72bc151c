"""Memory and time of training over ranks: each rank measures its own, and the worst one counts.

What gloo and NCCL allocate for themselves lies outside torch's allocator and is counted nowhere. Gloo's
threads let go of tensors when they like, so that two equal updates climb differently high: on the CPU,
where one update alone is exact, several are measured, and a gate that their peaks straddle is undecided.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..meters.memory import memory_and_trace, with_trace
from ..meters.timing import measure_time
from ..plans.apply import Applied
from ..results import Memory, Pair, ParityPassed, RankMemory, Timing
from ..spec import Ranks, TimingSettings
from ..workloads.job import Job
from ..workloads.update import allocate_state, update
from .team import Team
from .wrapped import UPDATES_BEFORE, buckets_bytes, collected_parameters

UPDATES = 5
"""Measured on the CPU, an odd number, so that the median is one of them."""


def measure_rank_memory(
    job: Job,
    optimizer: torch.optim.Optimizer,
    put_on: Applied,
    proof: ParityPassed,
    team: Team,
    trace: Path | None,
) -> Memory:
    """Every rank's peak over the same updates; the record is that of the rank with the highest, whose
    trace alone is written."""
    allocate_state(optimizer)
    with put_on():
        for _ in range(UPDATES_BEFORE):
            update(job, optimizer)
    collected, buckets = collected_parameters(job), buckets_bytes(job)
    samples, keeps = [], []
    for _ in range(UPDATES if job.device.type == "cpu" else 1):
        own, keep = memory_and_trace(
            job, optimizer, put_on, proof, collected=collected, buckets_bytes=buckets
        )
        samples.append(own)
        keeps.append(keep)
    own, chosen = middle_of(samples)
    if trace and job.device.type == "cuda":
        without = {**own.not_measured, "history": "the allocator's history is not recorded on ranks"}
        own = own.model_copy(update={"not_measured": without})
    found = worst_of(team.all_say(own, Memory))
    if trace is None:
        return found
    worst = _worst(found.ranks).rank
    written = keeps[chosen](trace) if team.rank == worst else {}
    return with_trace(found, team.all_say(written, dict[str, Any])[worst])


def middle_of(samples: list[Memory]) -> tuple[Memory, int]:
    """One record of several updates that were measured one by one, and which of them it shows: the one
    in the middle. Of the others it has the peaks, and of the first how large the process was: later ones
    come while the profiler's events of earlier ones are held, which takes memory too."""
    if len(samples) == 1:
        return samples[0], 0
    peaks = tuple(peak for one in samples for peak in one.peak_samples)
    chosen = peaks.index(sorted(peaks)[len(peaks) // 2])
    changes = {
        "peak_samples": peaks,
        "source": f"{samples[chosen].source}; the median of {len(samples)} updates",
        "process_peak_bytes": samples[0].process_peak_bytes,
    }
    return samples[chosen].model_copy(update=changes), chosen


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
        f"{found.source}, on each of {ranks.count} ranks in step ({ranks.kind}); the slowest rank's time"
    )
    return found.model_copy(update={"source": source, "ranks": ranks.count})
