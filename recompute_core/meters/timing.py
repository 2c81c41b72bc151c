"""Update time of plain and candidate: whole updates, interleaved in one process on one model."""

import gc
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch

from ..intervals import median_interval
from ..plans.apply import Applied
from ..results import Pair, ParityPassed, Timing
from ..spec import TimingSettings
from ..workloads.device import synchronize
from ..workloads.job import Job
from ..workloads.update import allocate_state, update


def measure_time(
    job: Job,
    optimizer: torch.optim.Optimizer,
    applied: Applied,
    settings: TimingSettings,
    proof: ParityPassed,
    tell: Callable[[Pair], None] = lambda pair: None,
) -> Timing:
    """Pairs of plain and recomputed updates until their ratio is known well enough.

    Which of the two goes first alternates, so that a drifting machine favours neither. Nothing is
    sampled before the optimizer's state exists and each path has run once. `tell` hears every pair.
    """
    if not proof.passed:
        raise RuntimeError("time may be measured only after parity has passed")
    allocate_state(optimizer)

    def whole_update() -> object:
        return update(job, optimizer)

    return measure_pairs(whole_update, whole_update, applied, job.device, settings, tell)


def measure_pairs(
    plain_update: Callable[[], object],
    candidate_update: Callable[[], object],
    applied: Applied,
    device: torch.device,
    settings: TimingSettings,
    tell: Callable[[Pair], None],
    plain_applied: Applied = nullcontext,
) -> Timing:
    """Pairs of two ways to do an update, the second under the plan, after one of each that is not
    counted. Putting the plan on and taking it off is not timed; nor is what plain needs around it.
    """

    def plain() -> float:
        with plain_applied():
            return _seconds(plain_update, device)

    def candidate() -> float:
        with applied():
            return _seconds(candidate_update, device)

    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        plain(), candidate()
        samples: list[Pair] = []
        started = time.perf_counter()
        while True:
            if len(samples) % 2:
                second, first = candidate(), plain()
            else:
                first, second = plain(), candidate()
            samples.append(Pair(plain_s=first, candidate_s=second))
            tell(samples[-1])
            stopped = _why_stop(samples, time.perf_counter() - started, settings)
            if stopped:
                return Timing(samples=tuple(samples), stopped=stopped)
    finally:
        if collecting:
            gc.enable()


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    started = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - started


def _why_stop(samples: list[Pair], elapsed_s: float, settings: TimingSettings) -> str | None:
    if len(samples) < settings.min_pairs:
        return None
    low, high = median_interval([pair.candidate_s / pair.plain_s for pair in samples])
    if high - low <= settings.width:
        return "narrow enough"
    if len(samples) >= settings.max_pairs:
        return "all pairs taken"
    return "budget spent" if elapsed_s >= settings.budget_s else None
