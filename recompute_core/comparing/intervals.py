"""How far two medians are apart, when their samples were taken in different studies.

Each study's bootstrap distribution of its median is known in closed form (`..intervals`), and the two
studies are independent. So the distribution of the difference is known too: every pair of values, with
the product of their probabilities. Its 2.5 % and 97.5 % points are the interval; nothing is resampled.
Swapped sides give the same edges with the other sign, a study against itself an interval around 0.

Of equal normal noise on both sides it covers the true difference in 96 % of 20,000 draws with 7 pairs
each and in 97 % with 9, 15 and 31; in 93 % with 7 pairs each, where one side's noise is three times the
other's. It is of the noise within each run: what changed between the runs as a whole, such as a warmer
processor, it does not know.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..intervals import Interval, bootstrap_medians

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
