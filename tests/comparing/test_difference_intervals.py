"""The interval of a difference of medians against every pair of resamples there is."""

import random
from collections import Counter
from fractions import Fraction
from itertools import product
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.comparing import intervals
from recompute_core.comparing.intervals import (
    bootstrap_medians,
    difference_interval,
    quotient_interval,
)

A, B = [1.0, 1.25, 1.5, 2.75], [1.75, 1.375, 4.0, 8.0, 1.625]
# Multiples of 1/64, whose differences are exact, and above 0.
numbers = st.integers(64, 64 * 64).map(lambda n: n / 64)
many = st.lists(numbers, min_size=1, max_size=12)


def medians(samples: list[float]) -> dict[float, Fraction]:
    found = Counter(median(resample) for resample in product(samples, repeat=len(samples)))
    return {value: Fraction(count, found.total()) for value, count in found.items()}


def edges(a: list[float], b: list[float], share: Fraction) -> tuple[float, float]:
    """The least step that at least a share of all steps does not exceed, and the same from above."""
    steps: dict[float, Fraction] = {}
    for (x, p), (y, q) in product(medians(a).items(), medians(b).items()):
        steps[y - x] = steps.get(y - x, Fraction(0)) + p * q
    low = next(s for s in sorted(steps) if sum(p for t, p in steps.items() if t <= s) >= share)
    high = next(s for s in sorted(steps)[::-1] if sum(p for t, p in steps.items() if t >= s) >= share)
    return low, high


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_distribution_of_one_median_is_exact(n: int) -> None:
    masses: dict[float, float] = {}
    for value, mass in bootstrap_medians(tuple(sorted(B[:n]))):
        masses[value] = masses.get(value, 0.0) + mass
    assert masses == pytest.approx({value: float(mass) for value, mass in medians(B[:n]).items()})


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (3, 3), (4, 3), (4, 5)])
@pytest.mark.parametrize("level", ["0.5", "0.9", "0.95"])
def test_equals_the_enumeration_of_all_pairs_of_resamples(n: int, m: int, level: str) -> None:
    a, b = A[:n], B[:m]
    assert difference_interval(a, b, float(level)) == edges(a, b, (1 - Fraction(level)) / 2)


def test_known_values() -> None:
    assert difference_interval([1.25] * 7, [1.5] * 7) == (0.25, 0.25)
    assert quotient_interval([1.25] * 7, [2.5] * 7) == (2.0, 2.0)
    assert difference_interval([1, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7, 8]) == (-2.0, 4.0)


@given(many, many)
def test_swapped_sides_turn_the_sign_to_the_last_bit(a: list[float], b: list[float]) -> None:
    low, high = difference_interval(a, b)
    assert difference_interval(b, a) == (-high, -low)
    least, most = quotient_interval(a, b)
    assert quotient_interval(b, a) == pytest.approx((1 / most, 1 / least), rel=1e-12)


@given(many)
def test_against_itself_it_lies_around_zero(a: list[float]) -> None:
    low, high = difference_interval(a, a)
    assert low == -high
    assert low <= 0


@given(many, many)
def test_contains_the_difference_of_the_medians(a: list[float], b: list[float]) -> None:
    low, high = difference_interval(a, b)
    assert low <= median(b) - median(a) <= high


@given(many, many)
def test_halving_the_range_finds_what_writing_out_finds(a: list[float], b: list[float]) -> None:
    written = difference_interval(a, b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_FEW", 0)
        assert difference_interval(a, b) == written
        assert quotient_interval(a, b) == pytest.approx(quotient_interval(a, b), rel=1e-12)


def test_many_samples_need_no_more_than_a_moment() -> None:
    a = [1 + (7919 * n % 1000) / 1024 for n in range(200)]
    low, high = difference_interval(a, [x + 0.5 for x in a])
    assert low < 0.5 < high < low + 0.5


def test_covers_the_difference_as_often_as_it_promises() -> None:
    draw = random.Random(7)
    held = 0
    for _ in range(600):
        a = [draw.gauss(1.2, 0.03) for _ in range(9)]
        b = [draw.gauss(1.3, 0.03) for _ in range(9)]
        low, high = difference_interval(a, b)
        held += low <= 0.1 <= high
    assert held / 600 >= 0.945
