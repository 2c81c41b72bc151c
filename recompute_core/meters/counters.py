"""What an accelerator's allocator and driver count themselves.

CUDA and XPU: peak counters of the caching allocator. MPS has none. XPU and MPS have not been tried.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

from ..workloads.device import synchronize
from . import nvml

UNTRIED = ("xpu", "mps")
"""Kinds of device that this project has never run on."""
_SHARE = (
    "what the measuring process held on the device once its updates had ended, no peak, "
    "by the driver's count (NVML)"
)


def counted(run: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """Three updates after a warm one, peak counters reset before each.

    What making the model and its state has left in the allocator's cache is given back before, or it
    would count as reserved. After that nothing is: what a training job reserves is what its updates have
    come to reserve, the warm one included, and no other path ever ran in this process.
    """
    synchronize(device)
    torch.accelerator.empty_cache()
    samples, reserved = [], 0
    for number in range(1 + 3):  # a warm one, and three that count
        synchronize(device)
        torch.accelerator.reset_peak_memory_stats(device)
        before = torch.accelerator.memory_allocated(device)
        run()
        synchronize(device)
        reserved = max(reserved, torch.accelerator.max_memory_reserved(device))
        if number:  # the first also makes what its kernels keep from then on, such as cuBLAS's workspace
            samples.append(torch.accelerator.max_memory_allocated(device) - before)
    untried = " (never tried on such a device)" if device.type in UNTRIED else ""
    return {
        "source": f"the allocator's peak counters, reset before each update{untried}",
        "peak_samples": tuple(samples),
        "peak_reserved_bytes": reserved,
        "not_measured": {},
    }


def process_share(device: torch.device) -> dict[str, Any]:
    """The memory that this process holds on a CUDA device, by the driver's count, or why it is not told.

    Asked once, after the updates, so no peak: the allocator keeps what it has been given, except that it
    returns what it has cached, and tries again, where the device has no more to give.
    """
    try:
        if device.type != "cuda":
            raise nvml.NotTold(f"no meter of a process's share of {device.type} memory is known")
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        held = nvml.process_bytes(nvml.load(), uuid, os.getpid())
    except nvml.NotTold as why:
        return {"process_peak_source": _SHARE, "not_measured": {"process_peak_bytes": str(why)}}
    return {"process_peak_source": _SHARE, "process_peak_bytes": held}


def mps(run: Callable[[], object]) -> dict[str, Any]:
    """One update, of which MPS tells no peak."""
    run()
    current = torch.mps.current_allocated_memory()
    why = f"MPS has no peak counter; allocated after the update: {current} bytes"
    return {
        "source": "none: MPS has no peak counter (never tried on such a device)",
        "peak_samples": (),
        "not_measured": dict.fromkeys(("peak_bytes", "peak_reserved_bytes", "peak_at", "timeline"), why),
    }
