"""The planner's recursion against every schedule there is, on chains small enough to try them all."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import inf, isfinite

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recompute_core.planner.chain import Chain, Group, Option, Schedule, Single, Solution

UNIT = 1000
"""Bytes of a step: every size below is a multiple of it, so that rounding plays no part."""
STEPS = 40


class Walk:
    """Runs a schedule forward and backward, one allocation after the other."""

    def __init__(self, chain: Chain, schedule: Schedule) -> None:
        self.chain = chain
        self.alive = self.highest = 0
        self.seconds = 0.0
        self.forward(schedule)
        self.see(self.alive + chain.tail_bytes)
        self.backward(schedule)
        assert self.alive == 0

    def see(self, moment: int) -> None:
        self.highest = max(self.highest, moment)

    def forward(self, schedule: Schedule) -> None:
        for number, part in enumerate(schedule):
            if number:
                self.alive += self.chain.input_bytes
            if isinstance(part, Single):
                self.alive += self.chain.options[part.option].stored
            self.see(self.alive)

    def backward(self, schedule: Schedule) -> None:
        for number, part in reversed(list(enumerate(schedule))):
            if isinstance(part, Single):
                option = self.chain.options[part.option]
                self.alive -= option.stored
                self.see(self.alive + option.peak)
                self.seconds += option.cost_s
            else:
                self.seconds += blocks_of(part) * self.chain.forward_s
                self.forward(part.inner)
                self.backward(part.inner)
            if number:
                self.alive -= self.chain.input_bytes


def blocks_of(part: Single | Group) -> int:
    return 1 if isinstance(part, Single) else sum(map(blocks_of, part.inner))


def selective_in_groups(chain: Chain, schedule: Schedule, inside: bool = False) -> bool:
    return any(
        inside and not chain.options[part.option].nests
        if isinstance(part, Single)
        else selective_in_groups(chain, part.inner, True)
        for part in schedule
    )


def every_schedule(chain: Chain) -> list[Schedule]:
    """All of them; a group of nothing but one group, which may go on for ever, is left out."""
    anywhere = [Single(n) for n in range(len(chain.options))]
    nesting = [one for one in anywhere if chain.options[one.option].nests]

    @cache
    def schedules(length: int, inside: bool, longest: int) -> tuple[Schedule, ...]:
        """Those whose first part is of at most `longest` blocks."""
        if not length:
            return ((),)
        return tuple(
            (first, *rest)
            for size in range(1, min(length, longest) + 1)
            for first, rest in product(
                firsts(size, inside), schedules(length - size, inside, length - size)
            )
        )

    def firsts(size: int, inside: bool) -> Iterator[Single | Group]:
        if size == 1:
            yield from nesting if inside else anywhere
        else:
            yield from map(Group, schedules(size, True, size - 1))

    return list(schedules(chain.blocks, False, chain.blocks))


def units(most: int, least: int = 0) -> st.SearchStrategy[int]:
    return st.integers(least, most).map(lambda count: count * UNIT)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    blocks = draw(st.integers(1, 4))
    options = draw(
        st.lists(
            st.builds(
                Option,
                stored=units(8),
                peak=units(14, 1),
                cost_s=st.integers(0, 12).map(float),
                nests=st.booleans(),
            ),
            min_size=1,
            max_size=3 if blocks < 4 else 2,
        )
    )
    return Chain(
        blocks=blocks,
        options=tuple(options),
        input_bytes=draw(units(4)),
        forward_s=float(draw(st.integers(1, 8))),
        tail_bytes=draw(units(12)),
    )


def solved(chain: Chain) -> Solution:
    return Solution(chain, STEPS * UNIT, STEPS)


def test_all_schedules_of_two_blocks() -> None:
    option = Option(stored=UNIT, peak=UNIT, cost_s=1.0)
    selective = Option(stored=UNIT, peak=UNIT, cost_s=1.0, nests=False)
    chain = Chain(2, (option, selective), UNIT, 1.0, 0)
    singles = [(Single(a), Single(b)) for a, b in product(range(2), repeat=2)]
    assert every_schedule(chain) == [*singles, (Group((Single(0), Single(0))),)]


def test_a_group_walked_by_hand() -> None:
    """Two blocks as one, the first of them recomputed inside, then one that keeps everything."""
    keep, whole = Option(50, 70, 0.0), Option(0, 70, 3.0)
    chain = Chain(3, (keep, whole), input_bytes=10, forward_s=2.0, tail_bytes=5)
    walk = Walk(chain, (Group((Single(1), Single(0))), Single(0)))
    # Forward keeps the last block's input and 50; its backward climbs to 80, the group's to 80 again.
    assert (walk.highest, walk.seconds) == (80, 2 * 2.0 + 3.0)
    assert Walk(chain, (Single(0), Single(0), Single(0))).highest == 2 * 60 + 70


@given(chains())
@settings(max_examples=60)
def test_no_schedule_is_cheaper_at_any_budget(chain: Chain) -> None:
    walks = [Walk(chain, schedule) for schedule in every_schedule(chain)]
    expected = [
        min((w.seconds for w in walks if w.highest <= level * UNIT), default=inf)
        for level in range(STEPS + 1)
    ]
    solution = solved(chain)
    assert solution.step == UNIT
    assert solution.costs().tolist() == expected


@given(chains())
@settings(max_examples=60)
def test_the_schedule_read_back_fits_and_costs_what_it_says(chain: Chain) -> None:
    solution = solved(chain)
    for level, cost in enumerate(solution.costs()):
        if isfinite(cost):
            schedule = solution.schedule(level)
            walk = Walk(chain, schedule)
            assert sum(map(blocks_of, schedule)) == chain.blocks
            assert walk.highest <= level * UNIT
            assert walk.seconds == cost
            assert not selective_in_groups(chain, schedule)


@given(chains())
def test_more_memory_never_costs_more(chain: Chain) -> None:
    costs = solved(chain).costs()
    assert (costs[1:] <= costs[:-1]).all()


KEEP, WHOLE = Option(50 * UNIT, 70 * UNIT, 0.0), Option(0, 70 * UNIT, 1.0)


def test_keeping_everything_costs_nothing_exactly_where_it_fits() -> None:
    chain = Chain(4, (KEEP, WHOLE), input_bytes=10 * UNIT, forward_s=1.0, tail_bytes=0)
    fits = 3 * 60 + 70
    costs = Solution(chain, 300 * UNIT, 300).costs()
    assert costs[fits] == 0 < costs[fits - 1]
    assert Solution(chain, 300 * UNIT, 300).schedule(300) == (Single(0),) * 4


def test_below_the_largest_single_moment_there_is_nothing() -> None:
    chain = Chain(4, (KEEP, WHOLE), input_bytes=10 * UNIT, forward_s=1.0, tail_bytes=0)
    costs = Solution(chain, 300 * UNIT, 300).costs()
    # Even with all recomputed again and again, the second block's input is alive beside its 70.
    assert np.isinf(costs[:80]).all()
    assert np.isfinite(costs[80:]).all()


def test_what_follows_the_blocks_can_be_what_does_not_fit() -> None:
    chain = Chain(1, (KEEP, WHOLE), input_bytes=10 * UNIT, forward_s=1.0, tail_bytes=90 * UNIT)
    costs = Solution(chain, 200 * UNIT, 200).costs()
    assert np.isinf(costs[:90]).all()
    assert (costs[90:140] == 1).all()  # kept, its 50 are alive together with the 90
    assert (costs[140:] == 0).all()


def test_groups_reach_where_single_blocks_cannot() -> None:
    """One by one, sixteen inputs are alive in the end; as groups, fewer of them are."""
    chain = Chain(16, (KEEP, WHOLE), input_bytes=10 * UNIT, forward_s=1.0, tail_bytes=0)
    apart = 15 * 10 + 70
    assert Walk(chain, (Single(1),) * 16).highest == apart * UNIT
    level = apart - 30
    solution = Solution(chain, apart * UNIT, apart)
    schedule = solution.schedule(level)
    assert any(isinstance(part, Group) for part in schedule)
    walk = Walk(chain, schedule)
    assert walk.highest <= level * UNIT
    assert walk.seconds == solution.costs()[level] < inf


def test_sizes_between_two_steps_go_to_the_nearest() -> None:
    def least(peak: int) -> int:
        one = Chain(1, (Option(0, peak, 0.0),), input_bytes=0, forward_s=1.0, tail_bytes=0)
        return int(np.flatnonzero(np.isfinite(solved(one).costs()))[0])

    assert [least(peak) for peak in (UNIT, 1400, 1600, 2 * UNIT)] == [1, 1, 2, 2]


@pytest.mark.parametrize("blocks", [48])
def test_forty_eight_blocks_with_a_menu_of_thirty(blocks: int) -> None:
    options = tuple(
        Option(stored=(30 - n) * 40_000, peak=1_500_000 - n * 1_000, cost_s=n / 10, nests=n % 3 > 0)
        for n in range(30)
    )
    chain = Chain(blocks, options, input_bytes=100_000, forward_s=2.0, tail_bytes=0)
    budget = sum(option.stored for option in options[:1]) * blocks + 100_000 * blocks + 2_000_000
    solution = Solution(chain, budget)
    costs = solution.costs()
    assert costs[-1] == 0
    for level in (*range(int(np.flatnonzero(np.isfinite(costs))[0]), len(costs), 400), len(costs) - 1):
        walk = Walk(chain, solution.schedule(level))
        assert walk.seconds == pytest.approx(costs[level])
        assert walk.highest <= (level + 2 * blocks) * solution.step  # each size rounded by half a step
