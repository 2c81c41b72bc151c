"""Which study the demo shows, and the one candidate in it that the demo tells of."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from recompute_core.results import Judged, Measured, Memory, Proven, Refused, StudyResult, Timing
from recompute_core.spec import parse_spec
from recompute_core.studies.flow import PLAIN
from recompute_core.studies.store import Cell, Event, Store

from . import demo_words
from .data import Snapshot, snapshot

DEMO = parse_spec(
    {
        "workload": {"name": "gpt", "blocks": 8, "width": 96, "heads": 4, "seq_len": 512, "batch": 6},
        "threads": 1,  # the browser has the other cores
        "plans": ["every-block", "all-but-last", "every-2nd-block"],
        "timing": {"min_pairs": 9, "max_pairs": 21, "budget_s": 5},
    }
)
"""A study made for the demo: a narrow model with long sequences, whose peak is nearly all activations.
Of the sizes that fit a minute on two cores (4 to 16 blocks, 64 to 256 wide, 256 to 1024 tokens) its
saw-tooth is the easiest to see: 14 times fewer saved bytes, a peak 3.9 times lower."""
_LOOKED_AT = 20
"""So many of the newest studies are looked at for one that can be shown."""


@dataclass(frozen=True)
class Chosen:
    """The study to show, and why it is not the one that was asked for."""

    found: Snapshot
    note: str = ""


def choose(store: Store, asked: str | None) -> Chosen | None:
    """The study asked for when it runs or has a timeline to show, else the newest that has one, else
    whatever runs or was asked for. None: there is nothing to show."""
    mine = snapshot(store, asked) if asked is not None else None
    if mine is not None and (not mine.row.ended or has_timelines(mine.result)):
        return Chosen(mine)
    for row in store.studies(limit=_LOOKED_AT):
        other = snapshot(store, row.id)
        if has_timelines(other.result):
            if mine is None:
                return Chosen(other)
            candidates = [one.candidate for one in mine.result.judged]
            return Chosen(other, demo_words.unfit(mine.row.status, candidates))
    if mine is not None:
        return Chosen(mine)
    live = store.live()
    return Chosen(snapshot(store, live[-1].id)) if live else None


def has_timelines(result: StudyResult) -> bool:
    """Whether some candidate's memory is known over time, and plain's with it."""
    return any(_drawn(one) for one in result.judged)


def _drawn(one: Judged) -> bool:
    pair = one.candidate.memory
    return pair is not None and None not in (pair.plain.timeline, pair.candidate.timeline)


# --- the one candidate ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """The candidate that the demo tells of, with what is known of it so far."""

    judged: Judged
    blocks: tuple[str, ...]
    """FQNs of the model's blocks; empty before the reference is there."""
    plain: Memory | None
    own: Memory | None
    timing: Timing | None
    pairs: tuple[tuple[float, float], ...]
    """Plain and recomputed seconds, in the order they were timed."""
    replays: demo_words.Replays
    work: float | None
    """Floating-point operations of its update, as a multiple of plain's."""
    failed: str | None
    """Why plain's own memory could not be measured."""

    @property
    def plan(self) -> str:
        return self.judged.candidate.plan

    @property
    def shape_key(self) -> str:
        return self.judged.candidate.shape_key

    @property
    def whole(self) -> bool:
        """Whether the plan recomputes whole blocks and keeps nothing inside them."""
        regions = self.judged.candidate.regions
        modules = {name for region in regions for name in region.modules}
        return not any(region.keep for region in regions) and modules <= {*self.blocks}

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(own / plain for plain, own in self.pairs)


def told(result: StudyResult, cells: Sequence[Cell], events: Sequence[Event]) -> Told:
    """The candidate with the most recomputed blocks, and among these the lowest peak, at the largest
    shape; of those that have come furthest."""
    judged = _subject(result.judged)
    candidate = judged.candidate
    reference = result.references.get(candidate.shape_key)
    parity = candidate.parity
    plain = candidate.memory.plain if candidate.memory else _plain_memory(cells, candidate.shape_key)
    timing = candidate.timing
    pairs = (
        tuple((pair.plain_s, pair.candidate_s) for pair in timing.samples)
        if timing
        else _pairs_so_far(events, candidate.shape_key, candidate.plan)
    )
    calls = (reference.block_calls, parity.block_calls) if reference and parity else ({}, {})
    work = parity.flops / reference.flops if reference and parity and reference.flops else None
    return Told(
        judged,
        reference.blocks if reference else (),
        plain,
        candidate.memory.candidate if candidate.memory else None,
        timing,
        pairs,
        demo_words.replays(*calls),
        work,
        _plain_failure(cells, candidate.shape_key),
    )


def _subject(judged: Sequence[Judged]) -> Judged:
    drawn = [one for one in judged if _drawn(one)]
    weighed = [one for one in judged if one.candidate.memory]
    proven = [one for one in judged if isinstance(one.candidate, Measured | Proven)]
    still = [
        one
        for one in judged
        if isinstance(one.candidate, Refused) and one.candidate.stopped_by == "pending"
    ]
    return min(drawn or weighed or proven or still or judged, key=_rank)


def _rank(one: Judged) -> tuple[float, float, float]:
    candidate = one.candidate
    peak = candidate.memory.ratio if candidate.memory else None
    return -prod(candidate.shape.values()), -len(candidate.blocks), 1.0 if peak is None else peak


def _plain_cell(cells: Sequence[Cell], shape: str) -> Cell | None:
    wanted = (shape, PLAIN, "memory")
    return next((c for c in cells if (c.shape_key, c.plan, c.phase) == wanted), None)


def _plain_memory(cells: Sequence[Cell], shape: str) -> Memory | None:
    """Plain's memory, which is known before that of the first candidate."""
    cell = _plain_cell(cells, shape)
    done = cell is not None and cell.state == "done" and cell.payload is not None
    return Memory.model_validate(cell.payload) if cell is not None and done else None


def _plain_failure(cells: Sequence[Cell], shape: str) -> str | None:
    cell = _plain_cell(cells, shape)
    if cell is None or cell.state != "failed":
        return None
    return f"plain's memory could not be completed: {str(cell.reason).rstrip('.')}"


def _pairs_so_far(events: Sequence[Event], shape: str, plan: str) -> tuple[tuple[float, float], ...]:
    """The pairs of a timing that is under way; those of an earlier run that was stopped do not count."""
    pairs: list[tuple[float, float]] = []
    for event in events:
        if (event.shape_key, event.plan, event.phase) != (shape, plan, "time"):
            continue
        if event.kind == "start":
            pairs = []
        elif event.kind == "pair":
            pairs.append((float(event.data["plain_s"]), float(event.data["candidate_s"])))
    return tuple(pairs)


# --- pairs once more -----------------------------------------------------------------------------------

_LONGEST_S = 12.0
"""A replay of pairs takes at most so long; longer ones are played faster."""


def speed_up(pairs: Sequence[tuple[float, float]]) -> float:
    """How many times as fast as they were timed the pairs are played; 1 when they are short."""
    return max(1.0, sum(map(sum, pairs)) / _LONGEST_S)


def arrived(pairs: Sequence[tuple[float, float]], seconds: float) -> int:
    """How many pairs have arrived so many seconds into their replay."""
    spent, factor = 0.0, speed_up(pairs)
    for number, pair in enumerate(pairs):
        spent += sum(pair) / factor
        if spent > seconds:
            return number
    return len(pairs)
