"""Medians and their intervals, derived from raw samples and from nothing else.

The interval is the one of the sign test: from the k-th lowest to the k-th highest sample, with k as
large as the level allows. A sample lies below the true median with probability one half, whatever the
distribution, so what such an interval covers is known exactly (Conover, Practical Nonparametric
Statistics, 1999, section 3.2): at least 95 % from six samples on. Fewer cannot reach that; theirs runs
from the lowest to the highest and covers what `coverage` says. Nothing is resampled: anyone who holds
the samples gets the same interval to the last bit. (The percentile bootstrap of a median, which also
reads off two samples, covers 87.5 % with 7 and from 90.7 to 96.5 % with odd numbers from 9 to 31.)
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

__all__ = [
    "Interval",
    "coverage",
    "extremes",
    "median",
    "median_interval",
    "ratio_coverage",
    "ratio_interval",
]

Interval = tuple[float, float]


def median_interval(samples: Sequence[float], level: float = 0.95) -> Interval:
    """An interval that covers the median with at least this probability, in the samples' own unit.

    With too few samples it runs over all of them. Raises ValueError when there is no sample.
    """
    if not samples:
        raise ValueError("an interval needs at least one sample")
    ordered, left_out = sorted(samples), _left_out(len(samples), level)
    return ordered[left_out], ordered[-1 - left_out]


def coverage(samples: int, level: float = 0.95) -> float:
    """The probability with which the interval of so many samples covers the median."""
    return 1 - 2 * _tail(samples, _left_out(samples, level))


@lru_cache(maxsize=4096)
def _left_out(samples: int, level: float) -> int:
    """How many of the lowest, and of the highest, samples the interval leaves out."""
    left_out = 0
    while 1 - 2 * _tail(samples, left_out + 1) >= level:
        left_out += 1
    return left_out


@lru_cache(maxsize=65_536)
def _tail(samples: int, most: int) -> float:
    """P(Binomial(samples, 1/2) <= most)."""
    ways = sum(math.comb(samples, below) for below in range(most + 1))
    return ways / (1 << samples)


def ratio_interval(candidate: Sequence[float], plain: Sequence[float], level: float = 0.95) -> Interval:
    """An interval of the ratio of two medians whose samples were not taken in pairs.

    From the edges of the medians' own intervals, each at the square root of the level: as the two are
    independent, it covers at least as much as `level` promises, and it is wider than pairs would give;
    of fewer than seven samples on a side it covers what `ratio_coverage` says.
    """
    each = math.sqrt(level)
    (low, high), (least, most) = median_interval(candidate, each), median_interval(plain, each)
    return low / most, high / least


def ratio_coverage(candidate: int, plain: int, level: float = 0.95) -> float:
    """What `ratio_interval` of so many samples covers at least: `level`, or less of few."""
    each = math.sqrt(level)
    return min(level, coverage(candidate, each) * coverage(plain, each))


def extremes(candidate: Sequence[float], plain: Sequence[float]) -> Interval:
    """The ratio at the extremes of the samples: a point where counts are exact."""
    return min(candidate) / max(plain), max(candidate) / min(plain)
