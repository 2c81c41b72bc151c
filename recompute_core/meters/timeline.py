"""Bytes alive over one update, from an allocator's events, and where the peak sits."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch._C._profiler import _EventType

from ..results import PeakAt, Timeline
from .kinds import Event, Kinds, Span, kinds
from .marks import BACK, BLOCK, END, PHASES, REGION, REGION_END, REPLAY

MARK = "recompute-studio:"
"""Prefix of the profiler ranges that mark phases and blocks."""


@dataclass(frozen=True)
class Trace:
    """Allocator events of one update in order, and the marks between them; times in ns."""

    times: tuple[int, ...]
    alive: tuple[int, ...]
    """Bytes alive after each event, above what was alive at the start."""
    marks: tuple[tuple[int, str], ...]
    kinds: Kinds | None = None
    """What the bytes alive are, where the meter can tell."""

    @classmethod
    def from_profiler(cls, profiler: Any, saved: Collection[int], device: str = "cpu") -> "Trace":
        """Read a finished `torch.profiler.profile(profile_memory=True)`.

        `saved` are the addresses of the storages that autograd kept in it; `device` is the kind of
        device whose allocator is asked for: an update on another allocates on the CPU too.
        """
        results = profiler.profiler.kineto_results
        tree = results.experimental_event_tree()
        memory = sorted(_allocations(tree, device), key=lambda event: event.at)
        marks = sorted(
            (event.start_ns(), event.name().removeprefix(MARK))
            for event in results.events()
            if event.name().startswith(MARK)
        )
        return cls(
            tuple(event.at for event in memory),
            tuple(accumulate(event.size for event in memory)),
            tuple(mark for mark in marks if mark[1] not in (REGION, REGION_END)),
            kinds(
                memory,
                backward=next((at for at, label in marks if label == "backward"), 0),
                replays=_replays(marks),
                saved=saved,
            ),
        )

    @property
    def peak(self) -> int:
        return max(self.alive, default=0)


def _replays(marks: Iterable[tuple[int, str]]) -> Iterator[Span]:
    """When each replay of a region begins and ends; one may lie in another."""
    begun: list[int] = []
    for at, label in marks:
        if label == REGION:
            begun.append(at)
        elif label == REGION_END:
            yield begun.pop(), at


def _allocations(tree: list[Any], device: str) -> Iterator[Event]:
    nodes = list(tree)
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.tag == _EventType.Allocation and node.typed[1].device.type == device:
            yield Event(node.start_time_ns, node.typed[1].ptr, node.typed[1].alloc_size)


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
    shown = [max(group, key=trace.alive.__getitem__) for group in _bins(trace, start, span, bins)]
    kinds = trace.kinds
    return Timeline(
        seconds=tuple(round((trace.times[one] - start) / per_second, 6) for one in shown),
        bytes=tuple(base_bytes + trace.alive[one] for one in shown),
        kept=kinds and tuple(kinds.kept[one] for one in shown),
        back=kinds and tuple(kinds.back[one] for one in shown),
        marks=tuple((round((at - start) / per_second, 6), label) for at, label in trace.marks),
    )


def _bins(trace: Trace, start: int, span: int, bins: int) -> Iterator[list[int]]:
    """The numbers of the events in each bin that has any."""
    group: list[int] = []
    number = 0
    for event, at in enumerate(trace.times):
        here = (at - start) * bins // span
        if here != number and group:
            yield group
            group = []
        number = here
        group.append(event)
    yield group
