"""Update time of plain and candidate: whole updates, interleaved in one process on one model.

CPU and MPS: the clock on the wall. CUDA and XPU: the device's own, by an event before and one behind
what an update queues. Nothing waits for the device in between; where it waits for Python, that counts.
"""

import gc
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch

from ..intervals import median_interval
from ..plans.apply import Applied
from ..results import INTERLEAVED, Pair, ParityPassed, Timing
from ..spec import TimingSettings
from ..together import ALONE, Together
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
    together: Together = ALONE,
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

    return measure_pairs(whole_update, whole_update, applied, job.device, settings, tell, together)


def measure_pairs(
    plain_update: Callable[[], object],
    candidate_update: Callable[[], object],
    applied: Applied,
    device: torch.device,
    settings: TimingSettings,
    tell: Callable[[Pair], None],
    together: Together = ALONE,
    plain_applied: Applied = nullcontext,
) -> Timing:
    """Pairs of two ways to do an update, the second under the plan, after one of each that is not
    counted. Putting the plan on and taking it off is not timed; nor is what plain needs around it.
    Processes that train together begin each update at once, and the time that counts is the slowest
    one's.
    """

    def seconds(work: Callable[[], object]) -> float:
        together.wait()
        return together.slowest(_seconds(work, device))

    def plain() -> float:
        with plain_applied():
            return seconds(plain_update)

    def candidate() -> float:
        with applied():
            return seconds(candidate_update)

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
            stopped = together.decided(_why_stop(samples, time.perf_counter() - started, settings))
            if stopped:
                return Timing(samples=tuple(samples), stopped=stopped, **_clock(device))
    finally:
        if collecting:
            gc.enable()


_WITH_EVENTS = ("cuda", "xpu")


def _clock(device: torch.device) -> dict[str, str]:
    """How the record names its source where that is not the clock on the wall."""
    if device.type not in _WITH_EVENTS:
        return {}
    return {"source": f"{INTERLEAVED}, timed by events on the device"}


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    if device.type in _WITH_EVENTS:
        event = torch.get_device_module(device).Event
        begun, ended = event(enable_timing=True), event(enable_timing=True)
        begun.record()
        work()
        ended.record()
        synchronize(device)
        return float(begun.elapsed_time(ended)) / 1e3  # ms
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
