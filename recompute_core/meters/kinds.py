"""What the bytes are that an update makes: kept for backward, brought back, or passing. Pure.

Kept: storages that autograd keeps (its saved-tensor hooks saw them) and that are there when backward
begins; at that moment their sum is the saved bytes, less those of buffers that were there before.
Brought back: what a replay of a recomputed region made and what was still there when it ended. Passing:
all else, as intermediate results, outputs, and gradients on their way.
"""

from bisect import bisect
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Event:
    """One allocation, or a release where `size` is negative; `at` in ns, `address` of the storage."""

    at: int
    address: int
    size: int


@dataclass(frozen=True)
class Kinds:
    """Bytes alive after each event, of those that the update has made."""

    kept: tuple[int, ...]
    back: tuple[int, ...]


Span = tuple[int, int]
"""When something begins and when it ends, in ns."""


def kinds(
    events: Sequence[Event], backward: int, replays: Iterable[Span], saved: Collection[int]
) -> Kinds:
    """Tell the events apart, which are in order of time.

    `backward` is when backward begins; one replay may lie in another; `saved` are the addresses of the
    storages that autograd keeps.
    """
    times = [event.at for event in events]
    ends = _ends(events)
    forward = range(bisect(times, backward))
    kept = {one for one in forward if ends.get(one, 0) >= len(forward) and events[one].address in saved}
    back = set[int]()
    for begin, end in replays:
        after = bisect(times, end)
        back.update(one for one in range(bisect(times, begin), after) if ends.get(one, 0) >= after)
    return Kinds(_alive(events, ends, kept), _alive(events, ends, back - kept))


def _ends(events: Sequence[Event]) -> dict[int, int]:
    """The number of each allocation's event, and of its release: past the last where there is none."""
    ends: dict[int, int] = {}
    at: dict[int, int] = {}
    for number, event in enumerate(events):
        if event.size > 0:
            ends[number] = len(events)
            at[event.address] = number
        elif event.address in at:  # else it was there before the first event
            ends[at.pop(event.address)] = number
    return ends


def _alive(events: Sequence[Event], ends: dict[int, int], chosen: Collection[int]) -> tuple[int, ...]:
    changes = [0] * (len(events) + 1)
    for number in chosen:
        changes[number] += events[number].size
        changes[ends[number]] -= events[number].size
    return tuple(accumulate(changes[:-1]))
