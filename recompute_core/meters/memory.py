"""Peak and saved bytes of one whole update, in the process that calls it, which should be fresh.

CPU: the running sum of the profiler's allocator events. It misses nothing that a dispatch mode
misses (random states, scratch inside kernels); there is no caching allocator, so nothing is reserved.
CUDA and XPU: the allocator's own peak counters, reset before every update. The profiler hears of that
allocator too, block by block as it counts them itself: one update more under it gives the timeline. (The
history that torch keeps for its viewer would not do: it has the bytes asked for, not those given.)
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import _disable_current_modes

from ..plans.apply import Applied
from ..results import TRACED_WITHIN, Memory, ParityPassed
from ..workloads.device import one_line, synchronize
from ..workloads.job import Job, own_share
from ..workloads.update import Mark, allocate_state, state_parts, unmarked, update
from . import counters
from .chrome import TraceNotKept, keep_trace
from .history import keep_history
from .marks import marked_blocks, marked_replays
from .saved import SavedBytes
from .timeline import MARK, Trace, peak_at, thin

Profiled = tuple[profile, Trace]
KeepTrace = Callable[[Path], dict[str, Any]]
"""Writes the events of an update that was measured, gzipped; gives what its record then says of them."""


def measure_memory(
    job: Job,
    optimizer: torch.optim.Optimizer,
    applied: Applied,
    proof: ParityPassed,
    trace: Path | None = None,
    history: Path | None = None,
) -> Memory:
    """One update of `job` under the plan that `applied` puts on; some more on an accelerator.

    `proof` is the parity that allows a figure to exist: the candidate's own, or for plain that of any
    candidate it is compared with. `trace` is where the profiler's events are kept, gzipped; `history`
    where a CUDA allocator's history is, for PyTorch's viewer.
    """
    found, keep = memory_and_trace(job, optimizer, applied, proof, history)
    return found if trace is None else with_trace(found, keep(trace))


def with_trace(found: Memory, kept: dict[str, Any]) -> Memory:
    """The record of an update whose events have been written."""
    return found.model_copy(update={**kept, "not_measured": found.not_measured | kept["not_measured"]})


def memory_and_trace(
    job: Job,
    optimizer: torch.optim.Optimizer,
    applied: Applied,
    proof: ParityPassed,
    history: Path | None = None,
    collected: Sequence[Tensor] = (),
    buckets_bytes: int = 0,
) -> tuple[Memory, KeepTrace]:
    """`measure_memory`, with the trace left to be written.

    `collected` are parameters in other storages than the model's own, which backward does not keep
    either, and `buckets_bytes` second copies of the gradients: what a wrapper around the model holds.
    """
    if not proof.passed:
        raise RuntimeError("memory may be measured only after parity has passed")
    device = job.device
    allocate_state(optimizer)
    state = state_parts(job, optimizer)
    state = state.model_copy(update={"gradients": state.gradients + buckets_bytes})
    meter = SavedBytes([*map(own_share, job.model.parameters()), *collected, *job.inputs])

    def run(mark: Mark) -> None:
        with ExitStack() as forward_only:

            def metered(phase: str) -> None:
                forward_only.close()
                mark(phase)
                if phase == "forward":
                    forward_only.enter_context(meter)

            update(job, optimizer, metered)
        synchronize(device)

    def marked() -> None:
        # Blocks first, so that a plan of the variant `forward` wraps their marks and replays show.
        blocks = marked_blocks(job, _mark) if job.compiled is None else nullcontext()
        with blocks, applied(), marked_replays(_mark):
            run(_mark)

    def profiled() -> Profiled:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            marked()
        return profiler, Trace.from_profiler(profiler, meter.addresses, device.type)

    if job.compiled is not None:
        with applied():
            run(unmarked)  # the graphs are compiled here, with every meter on
    seen: Profiled | None = None
    if device.type == "cpu":
        seen = profiled()
        found = _of_cpu(seen[1], state.total) | _saved(meter)
    elif device.type == "mps":
        with applied():
            found = counters.mps(lambda: run(unmarked)) | _saved(meter)
    else:
        with applied():
            found = counters.counted(lambda: run(unmarked), device) | _saved(meter)
        _add(found, counters.process_share(device))
        seen = _traced(profiled, state.total, found)
    if job.compiled is not None:
        _unsee(found, device)
    # Last, since writing them takes memory that the process's peak must not show.
    if history is not None and device.type == "cuda":
        _add(found, _kept_history(marked, history))
    measured = Memory(state_bytes=state.total, state_parts=state, **found)
    without = measured.not_measured.get("timeline")
    return measured, lambda path: _kept_trace(seen, state.total, path, without)


def _saved(meter: SavedBytes) -> dict[str, int]:
    """What the last forward has kept."""
    return {"saved_bytes": meter.distinct, "naive_saved_bytes": meter.naive}


def _unsee(found: dict[str, Any], device: torch.device) -> None:
    """Take out what meters do not see of a compiled update: its blocks, what kernels take by themselves,
    and how large the process was apart from the compiler."""
    compiled_too = (
        "the process compiled too: what the driver counts holds what that left on the device, such as "
        "kernels and what tuning them took"
        if device.type == "cuda"
        else "the process compiled too, and its peak is the compiler's"
    )
    no_blocks = "a compiled graph has no blocks and no replays that could be marked"
    timeline = found.get("timeline")
    found |= {
        "source": found["source"].removesuffix(", exact"),
        "peak_at": None,
        "timeline": timeline and timeline.model_copy(update={"back": None}),
        "process_peak_bytes": None,
    }
    found["not_measured"] = {
        "peak_at": no_blocks,
        "timeline.back": no_blocks,
        "process_peak_bytes": compiled_too,
        **found["not_measured"],
    }
    if device.type == "cuda":
        found["not_measured"]["history"] = "the allocator's history is not recorded of compiled updates"


def _add(found: dict[str, Any], more: dict[str, Any]) -> None:
    """Take in further figures, and why others are not measured."""
    found["not_measured"] |= more.pop("not_measured", {})
    found |= more


def _of_cpu(trace: Trace, state_bytes: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source": "running sum of the CPU allocator's events (torch.profiler), exact",
        "peak_samples": (trace.peak,),
        "peak_at": peak_at(trace),
        "timeline": thin(trace, state_bytes),
        "process_peak_bytes": process_peak_bytes(),
        "not_measured": {"peak_reserved_bytes": "the CPU has no caching allocator"},
    }
    if found["process_peak_bytes"] is None:
        found["not_measured"]["process_peak_bytes"] = "this system does not tell"
    return found


def _traced(
    profiled: Callable[[], Profiled], state_bytes: int, found: dict[str, Any]
) -> Profiled | None:
    """One update beside those that were counted: whatever becomes of it, their figures stand."""
    try:
        seen = profiled()
    except Exception as error:
        why = f"the update under the profiler failed: {one_line(error)}"
    else:
        trace, counted = seen[1], found["peak_samples"]
        off = min(abs(trace.peak - sample) for sample in counted)
        if off <= TRACED_WITHIN * (state_bytes + max(counted)):
            found |= {"peak_at": peak_at(trace), "timeline": thin(trace, state_bytes)}
            return seen
        why = (
            f"the update under the profiler climbed {trace.peak} bytes above the state, those that were "
            f"counted {max(counted)}"
        )
    found["not_measured"] |= dict.fromkeys(("peak_at", "timeline"), why)
    return None


def _kept_trace(
    seen: Profiled | None, state_bytes: int, path: Path, without: str | None
) -> dict[str, Any]:
    """The trace's file and digest, or why there is none."""
    if seen is None:
        return {"not_measured": {"trace": without or "no update was run under the profiler"}}
    try:
        digest = keep_trace(*seen, state_bytes, path)
        return {"trace": path.name, "trace_digest": digest, "not_measured": {}}
    except TraceNotKept as why:
        return {"not_measured": {"trace": str(why)}}


def _kept_history(marked: Callable[[], None], path: Path) -> dict[str, Any]:
    """The history's file and digest, or why there is none; it too is beside what was counted."""
    try:
        return {"history": path.name, "history_digest": keep_history(marked, path)}
    except TraceNotKept as why:
        return {"not_measured": {"history": str(why)}}
    except Exception as error:
        return {"not_measured": {"history": f"it could not be recorded: {one_line(error)}"}}


def _mark(label: str) -> None:
    """A range of the profiler, which the modes of a selective region do not see: they would take it for
    an op that its forward has not run."""
    with _disable_current_modes(), record_function(MARK + label):
        pass


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
