"""A stand-in for a CUDA device: the CPU's updates, with answers as torch's CUDA interfaces give them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recompute_core.meters import memory
from recompute_core.meters.timeline import Trace
from recompute_core.workloads.job import Job

DEVICE = torch.device("cuda", 0)
KEPT = 4096
"""Bytes that the first update makes and that stay, as cuBLAS's workspace does."""


class Cuda:
    """Counters of an allocator in which every update climbs by the next of `peaks`, and its history."""

    def __init__(self, *peaks: int, reserved: tuple[int, ...] = (0,)) -> None:
        self._peaks, self._reserved = iter(peaks), iter(reserved)
        self._held = 1000
        self._peak = self._now_reserved = 0
        self.said: list[str] = []
        self.snapshot: Callable[[Path], object] = lambda path: path.write_bytes(b"a pickle")

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Make every job's device this one, and torch's answers about it these."""
        patch.setattr(Job, "device", property(lambda job: DEVICE))
        for name in ("empty_cache", "reset_peak_memory_stats", "synchronize"):
            patch.setattr(torch.accelerator, name, getattr(self, name))
        for name in ("memory_allocated", "max_memory_allocated", "max_memory_reserved"):
            patch.setattr(torch.accelerator, name, getattr(self, name))
        patch.setattr(torch.cuda.memory, "_record_memory_history", self.record)
        patch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: self.snapshot(Path(path)))
        properties = SimpleNamespace(uuid="1-2-3", total_memory=10**11, major=9, minor=0)
        patch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        heard, real = memory.Trace, Trace.from_profiler  # the CPU's allocator is what there is to hear
        patch.setattr(heard, "from_profiler", lambda seen, saved, device: real(seen, saved))

    def empty_cache(self) -> None:
        self.said.append("empty")

    def reset_peak_memory_stats(self, device: Any) -> None:
        self.said.append("reset")

    def synchronize(self, device: Any) -> None:
        self.said.append("wait")

    def record(self, **asked: Any) -> None:
        self.said.append("history off" if asked == {"enabled": None} else "history on")

    def memory_allocated(self, device: Any) -> int:
        return self._held

    def max_memory_allocated(self, device: Any) -> int:
        return self._held + next(self._peaks)

    def max_memory_reserved(self, device: Any) -> int:
        self._now_reserved = next(self._reserved, self._now_reserved)
        return self._now_reserved


def own_environment() -> Iterator[None]:
    """What checks set for a whole process, put back."""
    was = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(False)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    if was is not None:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = was
