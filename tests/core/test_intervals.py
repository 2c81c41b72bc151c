"""The interval of the median: what it covers, by every way in which samples can lie around it."""

import random
from itertools import product
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.intervals import coverage, median_interval, ratio_coverage, ratio_interval
from recompute_core.words import fewest_pairs, interval_name, interval_note
from tests.core.records import timing

numbers = st.floats(min_value=-1e6, max_value=1e6, allow_subnormal=False)
many = st.lists(numbers, min_size=1, max_size=40)


def covered(n: int, level: float) -> float:
    """In what share of the equally likely ways to lie above or below the true median, here 0, `n`
    samples have an interval that covers it."""
    held = 0
    for signs in product((-1, 1), repeat=n):
        low, high = median_interval([sign * (1.0 + at) for at, sign in enumerate(signs)], level)
        held += low <= 0 <= high
    return held / 2**n


@pytest.mark.parametrize("n", range(1, 13))
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
def test_it_covers_what_it_says(n: int, level: float) -> None:
    assert covered(n, level) == pytest.approx(coverage(n, level))
    whole = median_interval([float(at) for at in range(n)], level) == (0, n - 1)
    assert coverage(n, level) >= level or whole


@pytest.mark.parametrize("n", range(6, 202))
def test_from_six_samples_on_it_covers_95_percent_and_no_narrower_one_does(n: int) -> None:
    low, high = median_interval([float(at) for at in range(n)])
    assert low == n - 1 - high
    assert coverage(n) >= 0.95
    # One sample fewer at each end covers less by twice the chance that just so many lie below.
    narrower = coverage(n) - 2 * _chance(n, int(low) + 1)
    assert narrower < 0.95


def _chance(n: int, below: int) -> float:
    ways = 1
    for step in range(below):
        ways = ways * (n - step) // (step + 1)
    return ways / 2**n


def test_known_values() -> None:
    assert median_interval([5.0]) == (5.0, 5.0)
    assert median_interval([1.0, 2.0]) == (1.0, 2.0)
    seven = [4.0, 1.0, 2.0, 7.0, 3.0, 6.0, 5.0]
    assert median_interval(seven) == (1.0, 7.0)
    assert median_interval([*seven, 8.0, 9.0]) == (2.0, 8.0)
    assert [coverage(n) for n in (1, 3, 5, 7, 9)] == [0, 0.75, 0.9375, 0.984375, 0.9609375]


def test_it_covers_a_skewed_median_as_often_as_it_promises() -> None:
    draw = random.Random(3)
    held = 0
    for _ in range(2000):
        low, high = median_interval([draw.lognormvariate(0, 1) for _ in range(21)])
        held += low <= 1 <= high
    assert held / 2000 >= 0.95


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


def test_an_interval_of_very_many_samples() -> None:
    low, high = median_interval([1 + (7919 * n % 1000) / 1000 for n in range(999)])
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


def test_an_interval_is_called_what_it_covers() -> None:
    names = [interval_name(pairs) for pairs in (1, 3, 5, 6, 9)]
    assert names == ["0 % interval", "75 % interval", "93.8 % interval", *["95 % interval"] * 2]


def test_what_is_said_of_many_intervals_holds_of_the_poorest() -> None:
    assert fewest_pairs([timing(*[1.2] * 9), None, timing(*[1.2] * 3)]) == 3
    assert interval_name(fewest_pairs([None])) == "95 % interval"
    assert interval_note(3) == f"{interval_note()} Of 3 pairs, as here, they cover 75 %."
    assert interval_note(6) == interval_note() and "at least 95 %" in interval_note()


def test_unpaired_intervals_of_few_samples_say_what_they_cover() -> None:
    """Each median's of three covers 75 %, both at once three quarters of that; seven are enough."""
    assert ratio_coverage(3, 3) == 0.75**2
    assert ratio_coverage(3, 9) == 0.75 * coverage(9, 0.95**0.5)
    assert ratio_coverage(6, 6) < 0.95 == ratio_coverage(7, 7) == ratio_coverage(7, 31)
