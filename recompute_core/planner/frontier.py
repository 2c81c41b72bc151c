"""The best plan for a budget, and the frontier between plain and the least memory that can be reached.

A chain's schedule is found with added-up figures; every plan that is offered has been run on fake
tensors as a whole, and its peak and its overhead are those of that run. What it truly costs, a study
measures.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import inf, isfinite

import numpy as np

from ..meters.estimate import FakeUpdate, Run
from ..meters.marks import BACK, END
from ..plans.names import Regions
from ..results import Estimate, Legality
from ..spec import Region
from .chain import Chain, Group, Schedule, Single, Solution
from .costs import Costs
from .menu import Menu
from .runs import Runs

_TRIES = 6
"""How often a budget is lowered when the whole run climbs higher than the chain promised."""
LARGEST_OVERHEAD = 1.5
"""Plans that take longer than this share of a plain update on top of it are not offered unless asked
for: groups inside groups reach ever lower peaks at a cost that grows with the square of the blocks."""


@dataclass(frozen=True)
class Point:
    """A plan with its estimate."""

    regions: Regions
    estimate: Estimate
    overhead: float
    """Seconds of replay as a share of a plain update, estimated."""

    @property
    def peak(self) -> int:
        """Highest moment of the update, state included, in bytes."""
        return self.estimate.peak_bytes


class Planner:
    """Plans for one workload at one shape."""

    def __init__(
        self,
        runs: Runs,
        costs: Costs,
        legality: Legality | None = None,
        largest_overhead: float = LARGEST_OVERHEAD,
    ) -> None:
        self._runs, self._costs, self._legality = runs, costs, legality
        self._points: dict[Regions, Point] = {}
        self.plain_s = costs.of(runs.plain.ops)
        self.plain = self._kept((), runs.plain)
        menu = Menu(runs, runs.update.job.blocks[0], costs, legality)
        ways = [_Way(runs.update, menu, (), runs.plain, 0.0)]
        for point, run in self._worthwhile_outside():
            ways.append(_Way(runs.update, menu, point.regions, run, point.overhead * self.plain_s))
        for way in ways:
            way.limit(largest_overhead * self.plain_s)
        self._ways = [way for way in ways if way.reaches_anything]
        self.has_choice = len(menu.treatments) > 1 or len(ways) > 1
        """Whether anything may be recomputed at all."""

    def points(self, plans: Sequence[Regions]) -> list[Point]:
        """Any plans, run on fake tensors."""
        self._run([regions for regions in dict.fromkeys(plans) if regions not in self._points])
        return [self._points[regions] for regions in plans]

    def floor(self) -> Point:
        """The plan of the lowest peak that is found within the largest overhead."""
        self.points(self._lowest())
        return min(self._points.values(), key=lambda point: (point.peak, point.overhead))

    def expect(self, peaks: Iterable[int]) -> None:
        """Run what `within` tries first at each of these peaks, several at a time."""
        self.points(self._first_tries(peaks))

    def within(self, peak: int) -> Point | None:
        """The plan of the least overhead found whose peak is at most `peak` bytes, or None.

        Every plan that was run before counts, so that more questions can only better an answer.
        """
        self._search(peak, _TRIES)
        fitting = [point for point in self._points.values() if point.peak <= peak]
        return min(fitting, key=lambda point: (point.overhead, point.peak), default=None)

    def cheaper(self, overhead: float) -> Point:
        """The plan of the lowest peak whose overhead is at most this share of a plain update."""
        for way in self._ways:
            for level in way.levels_within(overhead * self.plain_s)[:_TRIES]:
                if self.points([way.regions(level)])[0].overhead <= overhead:
                    break
        fitting = [point for point in self._points.values() if point.overhead <= overhead]
        return min(fitting, key=lambda point: (point.peak, point.overhead))

    def frontier(self) -> list[Point]:
        """Plans that none of those run so far beats, from plain to the lowest peak, evenly spread."""
        most = 12 if len(self._runs.update.job.blocks) <= 24 else 7
        # A promise spares a round of runs, but leaves out the replay of modules outside the blocks.
        floor = self._ways[0].promised if len(self._ways) == 1 else self.floor().peak
        state = self.plain.estimate.state_bytes
        spans = np.geomspace(floor - state, self.plain.peak - state, most)[1:-1]
        peaks = [state + int(span) for span in spans]
        self.points([*self._lowest(), *self._first_tries(peaks)])
        for peak in peaks:
            self._search(peak, 1)
        return undominated(self._points.values())

    def _lowest(self) -> list[Regions]:
        return [way.regions(way.lowest) for way in self._ways]

    def _first_tries(self, peaks: Iterable[int]) -> list[Regions]:
        return [regions for peak in peaks for regions in islice(self._tries(peak, 1), 1)]

    def _run(self, plans: Sequence[Regions]) -> list[tuple[Point, Run]]:
        runs = self._runs.whole(plans)
        return [(self._kept(regions, run), run) for regions, run in zip(plans, runs, strict=True)]

    def _kept(self, regions: Regions, run: Run) -> Point:
        """A plan that has been run, among the points."""
        point = Point(regions, run.estimate, self._costs.of_replays(run) / self.plain_s)
        return self._points.setdefault(regions, point)

    def _search(self, peak: int, tries: int) -> None:
        """Leave the plan of the least overhead for a budget among the points."""
        for regions in self._tries(peak, tries):
            if self.points([regions])[0].peak <= peak:
                return

    def _tries(self, peak: int, tries: int) -> Iterator[Regions]:
        """Plans that a chain promises within a peak, each after the one before was run and missed it."""
        for way in sorted(self._ways, key=lambda way: way.seconds(way.level(peak))):
            level = way.level(peak)
            for _ in range(tries):
                if not isfinite(way.seconds(level)):
                    break
                yield (regions := way.regions(way.cheapest(level)))
                level -= max(1, -(-(self._points[regions].peak - peak) // way.step))

    def _worthwhile_outside(self) -> Iterator[tuple[Point, Run]]:
        """Modules outside the blocks that keep at least 1 % of plain's saved bytes, in combinations."""
        legal = [
            name
            for name in self._runs.update.job.outside
            if self._legality is None or self._legality.of(name).verdict == "legal"
        ]
        alone = self._run([(Region(modules=(name,)),) for name in legal])
        most = 0.99 * self.plain.estimate.saved_bytes
        found = [(point, run) for point, run in alone if point.estimate.saved_bytes < most]
        yield from found
        worthwhile = [region for point, _ in found for region in point.regions]
        yield from self._run(
            [
                chosen
                for size in range(2, len(worthwhile) + 1)
                for chosen in combinations(worthwhile, size)
            ]
        )


class _Way:
    """Schedules of the blocks, with certain modules outside them recomputed."""

    def __init__(
        self, fake: FakeUpdate, menu: Menu, outside: Regions, run: Run, outside_s: float
    ) -> None:
        self._blocks, self._menu = fake.job.blocks, menu
        self._outside, self._outside_s = outside, outside_s
        plain = next(treatment for treatment in menu.treatments if not treatment.regions)
        kept = plain.option.stored + menu.input_bytes
        around, tail = _around_blocks(run, self._blocks, kept, menu.input_bytes)
        self._base = fake.state_bytes + around + menu.input_bytes
        chain = Chain(
            blocks=len(self._blocks),
            options=tuple(treatment.option for treatment in menu.treatments),
            input_bytes=menu.input_bytes,
            forward_s=menu.forward_s,
            tail_bytes=tail,
            groups=menu.whole_is_legal,
        )
        self._solution = Solution(chain, run.estimate.peak_above_state_bytes)
        self._costs = np.minimum.accumulate(self._solution.costs())
        self.step = self._solution.step

    def limit(self, seconds: float) -> None:
        """Offer no schedule that takes longer than this."""
        self._costs = np.where(self._costs + self._outside_s <= seconds, self._costs, inf)

    @property
    def reaches_anything(self) -> bool:
        """Whether any schedule is left."""
        return bool(np.isfinite(self._costs).any())

    @property
    def lowest(self) -> int:
        """The lowest level that any schedule reaches."""
        return int(np.flatnonzero(np.isfinite(self._costs))[0])

    @property
    def promised(self) -> int:
        """The lowest peak of the whole update, as the chain adds it up."""
        return self._base + self.lowest * self.step

    def level(self, peak: int) -> int:
        """The budget of the blocks, in steps, when the whole update may reach `peak` bytes."""
        return min((peak - self._base) // self.step, len(self._costs) - 1)

    def seconds(self, level: int) -> float:
        """Replay of the cheapest schedule at a level; infinite where there is none."""
        return inf if level < 0 else float(self._costs[level]) + self._outside_s

    def cheapest(self, level: int) -> int:
        """The lowest level whose schedule costs no more than this level's."""
        return int(np.argmax(self._costs <= self._costs[level]))

    def levels_within(self, seconds: float) -> list[int]:
        """Levels whose schedules cost at most so much, lowest peak first."""
        fits = np.flatnonzero(self._costs + self._outside_s <= seconds)
        return list(dict.fromkeys(self.cheapest(int(level)) for level in fits))

    def regions(self, level: int) -> Regions:
        """The cheapest schedule at a level as regions, outer before inner."""
        return (*self._outside, *self._placed(self._solution.schedule(level), iter(self._blocks)))

    def _placed(self, schedule: Schedule, blocks: Iterator[str]) -> Iterator[Region]:
        for part in schedule:
            if isinstance(part, Single):
                yield from self._menu.treatments[part.option].on(next(blocks))
            else:
                yield from self._group(part, blocks)

    def _group(self, group: Group, blocks: Iterator[str]) -> Iterator[Region]:
        names = tuple(next(blocks) for _ in range(group.length))
        yield Region(modules=names)
        yield from self._placed(group.inner, iter(names))


def _around_blocks(run: Run, blocks: tuple[str, ...], kept: int, arriving: int) -> tuple[int, int]:
    """Bytes alive outside the blocks while these run backward, and the highest moment between their
    forward and their backward, counted above what the blocks and their surroundings keep.

    `kept` is what one block keeps in a plain update, its input included; `arriving` the gradient that
    its backward begins with.
    """
    at = {label: number for number, label in run.trace.marks}
    ends, returns = at[f"{END}{blocks[-1]}"], at[f"{BACK}{blocks[-1]}"]
    outside = run.trace.alive[returns - 1] - len(blocks) * kept - arriving
    tail = max(run.trace.alive[ends:returns]) - len(blocks) * kept - outside
    return max(outside, 0), tail


def undominated(points: Iterable[Point]) -> list[Point]:
    """Those that no other beats in both peak and overhead, highest peak first."""
    best: float = inf
    kept = []
    for point in sorted(points, key=lambda p: (p.overhead, p.peak)):
        if point.peak < best:
            best = point.peak
            kept.append(point)
    return kept
