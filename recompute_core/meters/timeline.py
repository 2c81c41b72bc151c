"""Bytes alive over one update, from the CPU allocator's events, and where the peak sits."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ..results import PeakAt, Timeline
from .marks import BACK, BLOCK, END, PHASES, REPLAY

MARK = "recompute-studio:"
"""Prefix of the profiler ranges that mark phases and blocks."""


@dataclass(frozen=True)
class Trace:
    """Allocator events of one update in order, and the marks between them; times in ns."""

    times: tuple[int, ...]
    alive: tuple[int, ...]
    """Bytes alive after each event, above what was alive at the start."""
    marks: tuple[tuple[int, str], ...]

    @classmethod
    def from_profiler(cls, profiler: Any) -> "Trace":
        """Read a finished `torch.profiler.profile(profile_memory=True)`."""
        events = sorted(profiler.profiler.kineto_results.events(), key=lambda e: e.start_ns())
        memory = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
        marks = [(e.start_ns(), e.name()) for e in events if e.name().startswith(MARK)]
        return cls(
            tuple(at for at, _ in memory),
            tuple(accumulate(count for _, count in memory)),
            tuple((at, name.removeprefix(MARK)) for at, name in marks),
        )

    @property
    def peak(self) -> int:
        return max(self.alive, default=0)


def peak_at(trace: Trace) -> PeakAt | None:
    """The phase and block that were running when the peak was reached."""
    if not trace.alive:
        return None
    moment = trace.times[trace.alive.index(trace.peak)]
    phase, module, replaying = "zero_grad", None, False
    replayed: set[str] = set()
    for at, label in trace.marks:
        if at > moment:
            break
        if label in PHASES:
            phase, module, replaying = label, None, False
        elif label.startswith(REPLAY):
            module, replaying = label.removeprefix(REPLAY), True
            replayed.add(module)
        elif label.startswith(BACK):
            module = label.removeprefix(BACK)
            replaying = module in replayed  # blocks that are one come back together
        elif label.startswith(END):
            module = None
        else:
            module = label.removeprefix(BLOCK)
    return PeakAt(phase=phase, module=module, replaying=replaying)


def thin(trace: Trace, base_bytes: int, bins: int = 400, per_second: float = 1e9) -> Timeline | None:
    """At most about `bins` points that keep the highest moment of each bin; `base_bytes` are added.

    `per_second` is the unit of the trace's times: nanoseconds, or 1 to leave them as they are.
    """
    if not trace.times:
        return None
    start = min([trace.times[0], *(at for at, _ in trace.marks)])
    span = max(trace.times[-1] - start, 1)
    kept = [max(group, key=lambda point: point[1]) for group in _bins(trace, start, span, bins)]
    return Timeline(
        seconds=tuple(round((at - start) / per_second, 6) for at, _ in kept),
        bytes=tuple(base_bytes + alive for _, alive in kept),
        marks=tuple((round((at - start) / per_second, 6), label) for at, label in trace.marks),
    )


def _bins(trace: Trace, start: int, span: int, bins: int) -> Iterator[list[tuple[int, int]]]:
    group: list[tuple[int, int]] = []
    number = 0
    for at, alive in zip(trace.times, trace.alive, strict=True):
        here = (at - start) * bins // span
        if here != number and group:
            yield group
            group = []
        number = here
        group.append((at, alive))
    yield group
