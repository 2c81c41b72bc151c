"""Peak and saved bytes of one whole update, in the process that calls it, which should be fresh.

CPU: the running sum of the profiler's allocator events. It misses nothing that a dispatch mode
misses (random states, scratch inside kernels); there is no caching allocator, so nothing is reserved.
CUDA and XPU: the allocator's own peak counters, reset before every update. MPS has no peak counter.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import _disable_current_modes

from ..plans.apply import Applied
from ..results import Memory, ParityPassed
from ..workloads.device import synchronize
from ..workloads.job import Job
from ..workloads.update import Mark, allocate_state, state_parts, unmarked, update
from .chrome import TraceNotKept, keep_trace
from .marks import marked_blocks, marked_replays
from .saved import SavedBytes
from .timeline import MARK, Trace, peak_at, thin

Run = Callable[[Mark], object]


def measure_memory(
    job: Job,
    optimizer: torch.optim.Optimizer,
    applied: Applied,
    proof: ParityPassed,
    trace: Path | None = None,
) -> Memory:
    """One update of `job` under the plan that `applied` puts on.

    `proof` is the parity that allows a figure to exist: the candidate's own, or for plain that of any
    candidate it is compared with. `trace` is where the profiler's events are kept, gzipped.
    """
    if not proof.passed:
        raise RuntimeError("memory may be measured only after parity has passed")
    device = job.device
    allocate_state(optimizer)
    state = state_parts(job, optimizer)
    meter = SavedBytes([*job.model.parameters(), *job.inputs])

    def run(mark: Mark) -> None:
        with ExitStack() as forward_only:

            def metered(phase: str) -> None:
                forward_only.close()
                mark(phase)
                if phase == "forward":
                    forward_only.enter_context(meter)

            update(job, optimizer, metered)

    profiled: tuple[profile, Trace] | None = None
    marking = device.type == "cpu" and job.compiled is None
    # Blocks are marked first, so that a plan of the variant `forward` wraps the marks and replays show.
    with marked_blocks(job, _mark) if marking else nullcontext(), applied():
        if job.compiled is not None:
            run(unmarked)  # the graphs are compiled here, with every meter on
        if device.type == "cpu":
            profiled = _cpu(run, meter)
            found = _of_cpu(profiled[1], state.total)
        elif device.type == "mps":
            found = _mps(run)
        else:
            found = _accelerator(run, device)
    process_peak = None
    if job.compiled is not None:
        found |= _unseen(found)
    elif device.type == "cpu":
        process_peak = process_peak_bytes()
    if process_peak is None:
        found["not_measured"]["process_peak_bytes"] = _no_process_peak(job)
    # Last, since writing it takes memory that the process's peak must not show.
    if trace is not None:
        found |= _kept_trace(profiled, state.total, trace, found["not_measured"])
    return Memory(
        saved_bytes=meter.distinct,
        naive_saved_bytes=meter.naive,
        state_bytes=state.total,
        state_parts=state,
        process_peak_bytes=process_peak,
        **found,
    )


def _no_process_peak(job: Job) -> str:
    if job.compiled is not None:
        return "the process compiled too, and its peak is the compiler's"
    return (
        "this system does not tell" if job.device.type == "cpu" else "the device's share is not read yet"
    )


def _unseen(found: dict[str, Any]) -> dict[str, Any]:
    """What meters do not see of a compiled update: its blocks, and what kernels take by themselves."""
    why = "a compiled graph has no blocks and no replays that could be marked"
    timeline = found.get("timeline")
    return {
        "source": found["source"].removesuffix(", exact"),
        "peak_at": None,
        "timeline": timeline and timeline.model_copy(update={"back": None}),
        "not_measured": {"peak_at": why, "timeline.back": why} | found["not_measured"],
    }


# --- CPU -----------------------------------------------------------------------------------------


def _cpu(run: Run, meter: SavedBytes) -> tuple[profile, Trace]:
    with (
        marked_replays(_mark),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        run(_mark)
    return profiler, Trace.from_profiler(profiler, meter.addresses)


def _of_cpu(trace: Trace, state_bytes: int) -> dict[str, Any]:
    return {
        "source": "running sum of the CPU allocator's events (torch.profiler), exact",
        "peak_samples": (trace.peak,),
        "peak_at": peak_at(trace),
        "timeline": thin(trace, state_bytes),
        "not_measured": {"peak_reserved_bytes": "the CPU has no caching allocator"},
    }


def _kept_trace(
    profiled: tuple[profile, Trace] | None, state_bytes: int, path: Path, not_measured: dict[str, str]
) -> dict[str, str]:
    """The trace's file and digest; none and a reason in `not_measured` where it cannot be kept."""
    if profiled is None:
        not_measured["trace"] = "the profiler runs on the CPU alone"
        return {}
    try:
        return {"trace": path.name, "trace_digest": keep_trace(*profiled, state_bytes, path)}
    except TraceNotKept as why:
        not_measured["trace"] = str(why)
        return {}


def _mark(label: str) -> None:
    """A range of the profiler, which the modes of a selective region do not see: they would take it for
    an op that its forward has not run."""
    with _disable_current_modes(), record_function(MARK + label):
        pass


# --- accelerators --------------------------------------------------------------------------------


def _accelerator(run: Run, device: torch.device, updates: int = 3) -> dict[str, Any]:
    """CUDA and XPU: three updates after a warm one, peak counters reset before each."""
    samples, reserved = [], 0
    for number in range(updates + 1):
        synchronize(device)
        torch.accelerator.reset_peak_memory_stats(device)
        before = torch.accelerator.memory_allocated(device)
        run(unmarked)
        synchronize(device)
        if number:
            samples.append(torch.accelerator.max_memory_allocated(device) - before)
            reserved = max(reserved, torch.accelerator.max_memory_reserved(device))
    return {
        "source": "torch.accelerator peak counters, reset before each update",
        "peak_samples": tuple(samples),
        "peak_reserved_bytes": reserved,
        "not_measured": {
            "peak_at": "the peak counters do not tell when",
            "timeline": "the peak counters do not tell when",
        },
    }


def _mps(run: Run) -> dict[str, Any]:
    run(unmarked)
    current = torch.mps.current_allocated_memory()
    why = f"MPS has no peak counter; allocated after the update: {current} bytes"
    return {
        "source": "none: MPS has no peak counter",
        "peak_samples": (),
        "not_measured": dict.fromkeys(("peak_bytes", "peak_reserved_bytes", "peak_at", "timeline"), why),
    }


def process_peak_bytes() -> int | None:
    """Largest resident set of this process, from the kernel."""
    try:
        with open("/proc/self/status") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        if sys.platform == "darwin":
            import resource

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return None
