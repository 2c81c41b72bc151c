"""The interval of the median against every resample there is, and against random ones."""

import random
import time
from collections import Counter
from fractions import Fraction
from itertools import product
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.intervals import bootstrap_medians, median_interval, ratio_interval

SAMPLES = [3.0, -1.0, 7.5, 0.25, 12.0, 100.0]
"""In no order, and no mean of two of them equals another."""

numbers = st.floats(min_value=-1e6, max_value=1e6, allow_subnormal=False)
many = st.lists(numbers, min_size=1, max_size=15)


def distribution(samples: list[float]) -> dict[float, Fraction]:
    """The median of every one of the n^n equally likely resamples."""
    found = Counter(median(resample) for resample in product(samples, repeat=len(samples)))
    return {value: Fraction(count, found.total()) for value, count in found.items()}


def quantile(masses: dict[float, Fraction], share: Fraction) -> float:
    reached = Fraction(0)
    for value in sorted(masses):
        reached += masses[value]
        if reached >= share:
            return value
    raise AssertionError("the masses do not add up to one")


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("level", ["0.5", "0.8", "0.95", "0.99"])
def test_equals_the_enumeration_of_all_resamples(n: int, level: str) -> None:
    masses = distribution(SAMPLES[:n])
    tail = (1 - Fraction(level)) / 2
    assert median_interval(SAMPLES[:n], float(level)) == (
        quantile(masses, tail),
        quantile(masses, 1 - tail),
    )


@pytest.mark.parametrize("samples", [[2.0, 2.0, 5.0], [1.0, 1.0, 1.0, 9.0], [4.0, 4.0, 4.0, 4.0, 4.0]])
def test_ties_equal_the_enumeration_too(samples: list[float]) -> None:
    masses = distribution(samples)
    assert median_interval(samples) == (
        quantile(masses, Fraction(1, 40)),
        quantile(masses, Fraction(39, 40)),
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_the_whole_distribution_is_exact(n: int) -> None:
    masses: dict[float, float] = {}
    for value, mass in bootstrap_medians(tuple(sorted(SAMPLES[:n]))):
        masses[value] = masses.get(value, 0.0) + mass
    assert masses == pytest.approx({v: float(m) for v, m in distribution(SAMPLES[:n]).items()})


@pytest.mark.parametrize("n", [9, 10, 11, 12])
def test_agrees_with_a_random_bootstrap(n: int) -> None:
    draws = np.random.default_rng(n)
    samples = draws.lognormal(size=n)
    medians = np.median(draws.choice(samples, size=(200_000, n)), axis=1)
    low, high = median_interval(samples.tolist())
    # Both edges are the smallest values that reach their share; 0.002 is more than five deviations.
    nearly = 1e-12
    for edge, share in ((low, 0.025), (high, 0.975)):
        assert (medians <= edge + nearly).mean() >= share - 0.002
        assert (medians < edge - nearly).mean() < share + 0.002


def test_known_values() -> None:
    assert median_interval([5.0]) == (5.0, 5.0)
    assert median_interval([1.0, 2.0]) == (1.0, 2.0)
    # Of seven samples the median of a resample is the lowest with probability 0.010 and at most the
    # second lowest with 0.098, so the interval runs from the second lowest to the second highest.
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == (2.0, 6.0)


def test_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        median_interval([])


@given(many)
def test_lies_in_the_range_and_contains_the_median(samples: list[float]) -> None:
    low, high = median_interval(samples)
    assert min(samples) <= low <= median(samples) <= high <= max(samples)


@given(many.flatmap(lambda samples: st.tuples(st.just(samples), st.permutations(samples))))
def test_order_does_not_matter(pair: tuple[list[float], list[float]]) -> None:
    assert median_interval(pair[0]) == median_interval(pair[1])


@given(many, st.integers(min_value=-30, max_value=30))
def test_scales_exactly_with_powers_of_two(samples: list[float], power: int) -> None:
    scale = 2.0**power
    low, high = median_interval(samples)
    assert median_interval([x * scale for x in samples]) == (low * scale, high * scale)


@given(many, st.data())
def test_a_larger_sample_never_lowers_an_edge(samples: list[float], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(samples) - 1))
    raised = list(samples)
    raised[place] += data.draw(st.floats(min_value=0, max_value=1e6))
    before, after = median_interval(samples), median_interval(raised)
    assert after[0] >= before[0]
    assert after[1] >= before[1]


@given(many)
def test_a_higher_level_never_narrows_it(samples: list[float]) -> None:
    inner, outer = median_interval(samples, 0.5), median_interval(samples, 0.95)
    assert outer[0] <= inner[0]
    assert inner[1] <= outer[1]


def test_an_interval_of_very_many_samples_is_found_in_seconds() -> None:
    samples = [1 + (7919 * n % 1000) / 1000 for n in range(999)]
    began = time.perf_counter()
    low, high = median_interval(samples)
    assert time.perf_counter() - began < 10
    assert low < 1.5 < high < low + 0.1


def test_the_ratio_of_medians_that_were_not_paired_is_wider_than_of_pairs() -> None:
    plain = [1.00, 1.02, 1.04, 1.06, 1.08, 1.10, 1.12, 1.14, 1.16]
    candidate = [1.3 * each for each in plain]
    low, high = ratio_interval(candidate, plain)
    assert low < 1.3 < high
    assert ratio_interval([2.0], [1.0]) == (2.0, 2.0)
    edges = (median_interval(candidate, 0.95**0.5), median_interval(plain, 0.95**0.5))
    assert (low, high) == (edges[0][0] / edges[1][1], edges[0][1] / edges[1][0])


def test_two_unpaired_intervals_cover_the_ratio_as_often_as_they_promise() -> None:
    draw = random.Random(5)
    held = 0
    for _ in range(400):
        plain = [draw.lognormvariate(0, 0.1) for _ in range(15)]
        candidate = [1.3 * draw.lognormvariate(0, 0.1) for _ in range(15)]
        low, high = ratio_interval(candidate, plain)
        held += low <= 1.3 <= high
    assert held / 400 >= 0.95
