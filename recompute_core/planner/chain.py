"""The cheapest way to run a chain of blocks backward within a memory budget. Pure, no torch.

Every block chooses one option of its menu, and blocks that follow each other may be recomputed as one
group, groups inside groups included. Exact but for three things: memory is counted in steps, each
block's to the nearest; moments of the forward are left out; a group has at most 64 blocks.
The recursion is that of checkpointing heterogeneous chains (Beaumont, Eyraud-Dubois, Herrmann, Joly,
Shilova 2019), with a menu a block in place of "keep or not".
"""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

_LEAST_STEPS, _MOST_STEPS = 4096, 65_536
_LONGEST_GROUP = 64


@dataclass(frozen=True)
class Option:
    """One way to treat a block; bytes leave out the block's own input, which its caller has stored."""

    stored: int
    """Bytes kept from its forward to its backward."""
    peak: int
    """Highest moment of its backward, what is stored and the arriving gradient included."""
    cost_s: float
    """Seconds of replay."""
    nests: bool = True
    """Whether it may stand inside a group. A selective one may not: what it keeps would be held from the
    first forward on, for a replay that makes it again."""


@dataclass(frozen=True)
class Chain:
    """Equal blocks one after the other, and what comes after the last."""

    blocks: int
    options: tuple[Option, ...]
    input_bytes: int
    """Bytes of one block's input."""
    forward_s: float
    """Seconds of one block's forward: what a group pays for each of its blocks."""
    tail_bytes: int
    """Highest moment after the last block, above what the blocks have stored."""
    groups: bool = True
    """Whether blocks may be recomputed as one."""


@dataclass(frozen=True)
class Single:
    """A block treated by one option of the menu."""

    option: int


@dataclass(frozen=True)
class Group:
    """Blocks recomputed as one; `inner` says how each is treated while they are run again."""

    inner: "tuple[Single | Group, ...]"

    @property
    def length(self) -> int:
        return sum(part.length if isinstance(part, Group) else 1 for part in self.inner)


Schedule = tuple[Single | Group, ...]
"""How the blocks of a chain are treated, in the order of forward."""


class Solution:
    """The cheapest schedule of a chain for every budget up to `budget` bytes."""

    def __init__(self, chain: Chain, budget: int, steps: int | None = None) -> None:
        if steps is None:  # fine enough for four steps to a block's input
            steps = min(max(_LEAST_STEPS, 4 * budget // max(1, chain.input_bytes)), _MOST_STEPS)
        self._chain = chain
        self.step = max(1, -(-budget // steps))
        self._levels = np.arange(steps + 1)
        self._stored = [self._in_steps(option.stored) for option in chain.options]
        self._peaks = [self._in_steps(option.peak) for option in chain.options]
        self._input = self._in_steps(chain.input_bytes)
        empty = np.zeros(steps + 1)
        after = np.where(self._levels >= self._in_steps(chain.tail_bytes), 0.0, inf)
        self._inner = [empty]
        self._inner_choice: list[NDArray[np.int64]] = [np.zeros(steps + 1, dtype=np.int64)]
        self._outer = [after]
        self._outer_choice = [self._inner_choice[0]]
        for length in range(1, chain.blocks + 1):
            for table, choices in (
                (self._inner, self._inner_choice),
                (self._outer, self._outer_choice),
            ):
                costs, choice = self._cheapest(table, length)
                table.append(costs)
                choices.append(choice)

    def _in_steps(self, count: int) -> int:
        return max(0, round(count / self.step))

    def _cheapest(
        self, table: list[NDArray[np.float64]], length: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Cost at every level of a chain of `length` blocks; the choice is an option, or -group."""
        best = np.full(len(self._levels), inf)
        choice = np.zeros(len(self._levels), dtype=np.int64)

        def offer(costs: NDArray[np.float64], number: int) -> None:
            better = costs < best
            best[better] = costs[better]
            choice[better] = number

        following = self._input if length > 1 else 0
        for number, option in enumerate(self._chain.options):
            if table is self._inner and not option.nests:
                continue
            rest = _shifted(table[length - 1], self._stored[number] + following)
            fits = self._levels >= self._peaks[number]
            offer(np.where(fits, rest + option.cost_s, inf), number)
        # A group of the whole of an inner chain would only be run once more for nothing.
        longest = min(length if table is self._outer else length - 1, _LONGEST_GROUP)
        if not self._chain.groups:
            longest = 0
        for size in range(2, longest + 1):
            rest = _shifted(table[length - size], self._input if length > size else 0)
            again = size * self._chain.forward_s
            offer(self._inner[size] + rest + again, -size)
        return best, choice

    def costs(self) -> NDArray[np.float64]:
        """Seconds of replay of the cheapest schedule within `level * step` bytes; inf where none is."""
        return self._outer[self._chain.blocks]

    def schedule(self, level: int) -> Schedule:
        """The cheapest schedule within `level * step` bytes."""
        return self._read(self._chain.blocks, level, outer=True)

    def _read(self, length: int, level: int, outer: bool) -> Schedule:
        parts: list[Single | Group] = []
        choices = self._outer_choice if outer else self._inner_choice
        while length:
            choice = int(choices[length][level])
            if choice >= 0:
                parts.append(Single(choice))
                length -= 1
                level -= self._stored[choice]
            else:
                parts.append(Group(self._read(-choice, level, outer=False)))
                length += choice
            level -= self._input if length else 0
        return tuple(parts)


def _shifted(costs: NDArray[np.float64], by: int) -> NDArray[np.float64]:
    """Costs when `by` levels of the budget are taken already."""
    if by == 0:
        return costs
    if by >= len(costs):
        return np.full(len(costs), inf)
    return np.concatenate((np.full(by, inf), costs[:-by]))
