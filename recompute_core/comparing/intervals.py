"""How far two medians are apart, when their samples were taken in different studies.

Each study's bootstrap distribution of its median has a closed form (Maritz and Jarrett, JASA 1978), and
the two studies are independent. So the distribution of the difference is known too: every pair of
values, with the product of their probabilities. Its 2.5 % and 97.5 % points are the interval; nothing is
resampled.
Swapped sides give the same edges with the other sign, a study against itself an interval around 0.

Of equal normal noise on both sides it covers the true difference in 96 % of 20,000 draws with 7 pairs
each and in 97 % with 9, 15 and 31; in 93 % with 7 pairs each, where one side's noise is three times the
other's. It is of the noise within each run: what changed between the runs as a whole, such as a warmer
processor, it does not know.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from ..intervals import Interval

Values = NDArray[np.float64]
_NEGLIGIBLE = 1e-15
"""Probability of a value below which it moves no edge."""
_FEW = 10_000
"""Steps from one value to another that are all written out."""
_ROUNDING = 1e-12
"""What sums of probabilities may be off by."""
_TURNS = 60
"""Halvings of the range: what remains is below the rounding of a float."""


def difference_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """The `level` bootstrap interval of the median of `b` minus that of `a`, in their unit."""
    first, second, tail = _medians(tuple(a)), _medians(tuple(b)), (1 - level) / 2
    low = _edge(first, second, tail)
    high = _edge(second, first, tail)
    return float(low[1] - low[0]), float(high[0] - high[1])


def quotient_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """The same of the median of `b` divided by that of `a`; all samples are above 0."""
    first, second, tail = _medians(tuple(a)), _medians(tuple(b)), (1 - level) / 2
    low = _edge(first, second, tail, np.log)
    high = _edge(second, first, tail, np.log)
    return float(low[1] / low[0]), float(high[0] / high[1])


@lru_cache(maxsize=4096)
def _medians(samples: tuple[float, ...]) -> tuple[Values, Values]:
    """The values that a resample's median can take, ascending, and their probabilities."""
    found: Values = np.array(bootstrap_medians(tuple(sorted(samples))))
    values, places = np.unique(found[:, 0], return_inverse=True)
    masses = np.zeros(len(values))
    np.add.at(masses, places, found[:, 1])
    kept = masses > _NEGLIGIBLE
    return values[kept], masses[kept]


def _edge(
    first: tuple[Values, Values],
    second: tuple[Values, Values],
    share: float,
    scale: Callable[[Values], Values] = np.asarray,
) -> tuple[float, float]:
    """A value of `first` and one of `second`: the least step from one to the other, on this scale, that
    a share of all steps does not exceed."""
    (a, weights), (b, masses) = first, second
    x, y = scale(a), scale(b)
    if len(x) * len(y) <= _FEW:
        steps = np.subtract.outer(y, x).ravel()
        ascending = np.argsort(steps, kind="stable")
        reached = np.cumsum(np.outer(masses, weights).ravel()[ascending])
        place = ascending[np.searchsorted(reached, share - _ROUNDING)]
        return float(a[place % len(a)]), float(b[place // len(a)])
    return _edge_of_many(a, b, x, y, weights, masses, share)


def _edge_of_many(
    a: Values, b: Values, x: Values, y: Values, weights: Values, masses: Values, share: float
) -> tuple[float, float]:
    """The same where there are too many steps to write them all out: their range is halved instead."""
    reached = np.concatenate(([0.0], np.cumsum(masses)))
    beyond = np.abs(x).max() + np.abs(y).max() + 1e-9
    low, high = -2 * beyond, 2 * beyond
    for _ in range(_TURNS):
        middle = (low + high) / 2
        if weights @ reached[y.searchsorted(x + middle, side="right")] >= share - _ROUNDING:
            high = middle
        else:
            low = middle
    places = y.searchsorted(x + high, side="right") - 1
    steps = np.where(places >= 0, y[places] - x, -np.inf)
    nearest = int(np.argmax(steps))
    return float(a[nearest]), float(b[places[nearest]])


# --- one median ----------------------------------------------------------------------------------------


def bootstrap_medians(ordered: tuple[float, ...]) -> list[tuple[float, float]]:
    """Each value that the median of a resample of `ordered` samples can take, with its probability;
    values may repeat."""
    n = len(ordered)
    half = n // 2
    if n % 2:
        at_most = [_at_least(half + 1, n, i / n) for i in range(n + 1)]
        return [(ordered[i - 1], at_most[i] - at_most[i - 1]) for i in range(1, n + 1)]
    # Even n: the median is the mean of the two middle order statistics of the resample, of ranks
    # i <= j among the samples. For i < j exactly `half` draws are of rank <= i, the others >= j.
    below = [(i / n) ** half for i in range(n + 1)]
    lower_rank = [_at_least(half, n, i / n) for i in range(n + 1)]
    medians = []
    for i in range(1, n + 1):
        exactly_i = lower_rank[i] - lower_rank[i - 1]
        both_sides = comb(n, half) * (below[i] - below[i - 1])
        for j in range(i + 1, n + 1):
            mass = both_sides * (below[n - j + 1] - below[n - j])
            exactly_i -= mass
            medians.append(((ordered[i - 1] + ordered[j - 1]) / 2, mass))
        medians.append((ordered[i - 1], max(exactly_i, 0.0)))
    return medians


def _at_least(successes: int, trials: int, p: float) -> float:
    """P(Binomial(trials, p) >= successes)."""
    ways = _ways(trials)
    return sum(ways[k] * p**k * (1 - p) ** (trials - k) for k in range(successes, trials + 1))


@lru_cache(maxsize=64)
def _ways(trials: int) -> tuple[float, ...]:
    """How many ways there are to pick k of so many, for every k; up to 1000 they fit into a float."""
    return tuple(float(comb(trials, k)) for k in range(trials + 1))
