"""Intervals of recall: against scipy, against Newcombe's own formula, and what may never happen."""

from dataclasses import replace
from math import sqrt
from statistics import NormalDist, fmean, stdev

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from recompute_core.reinvest.recall import (
    MOST_RECEIPTS,
    Paired,
    paired,
    receipt_recalls,
    seeds_reach,
    wilson,
)

counts = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
tables = st.tuples(*[st.integers(0, 40)] * 4).filter(lambda cells: sum(cells) > 0)
"""Receipts seen rightly by both, by plain alone, by the other alone, by neither."""


@given(counts)
def test_wilson_is_scipys(count: tuple[int, int]) -> None:
    right, trials = count
    theirs = binomtest(right, trials).proportion_ci(method="wilson")
    assert wilson(right / trials, trials) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_wilson_of_nothing_says_nothing() -> None:
    assert wilson(0.0, 0) == (0.0, 1.0)


def test_all_of_five_receipts_right_is_not_certainty() -> None:
    low, high = wilson(1.0, 5)
    assert high == 1.0
    assert low == pytest.approx(5 / (5 + NormalDist().inv_cdf(0.975) ** 2))  # 0.566


def recalls(cells: tuple[int, int, int, int]) -> tuple[dict[str, float], dict[str, float]]:
    both, first, second, neither = cells
    plain = [1.0] * (both + first) + [0.0] * (second + neither)
    other = [1.0] * both + [0.0] * first + [1.0] * second + [0.0] * neither
    return ({str(i): one for i, one in enumerate(side)} for side in (plain, other))  # type: ignore[return-value]


def one_seed(plain: dict[str, float], other: dict[str, float]) -> Paired:
    found = paired([plain], [other])
    assert found is not None
    return found


def newcombe(cells: tuple[int, int, int, int]) -> tuple[float, float]:
    """Method 10 of the paper, from the cells of the table."""
    a, b, c, d = cells
    n = a + b + c + d
    p1, p2 = (a + b) / n, (a + c) / n
    (l1, u1), (l2, u2) = (binomtest(k, n).proportion_ci(method="wilson") for k in (a + b, a + c))
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    shared = a * d - b * c
    if shared > 0:
        shared = max(shared - n / 2, 0)
    phi = shared / sqrt(margins) if margins else 0.0
    down = sqrt((p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2)
    up = sqrt((u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2)
    return max(-1.0, p1 - p2 - down), min(1.0, p1 - p2 + up)


@given(tables)
def test_the_difference_of_whole_receipts_is_newcombes(cells: tuple[int, int, int, int]) -> None:
    found = one_seed(*recalls(cells))
    assert found.interval() == pytest.approx(newcombe(cells), abs=1e-9)


@given(tables)
def test_the_interval_holds_the_loss_and_turns_with_the_sides(cells: tuple[int, int, int, int]) -> None:
    plain, other = recalls(cells)
    one, turned = one_seed(plain, other), one_seed(other, plain)
    low, high = one.interval()
    assert -1 <= low <= one.loss + 1e-12 and one.loss - 1e-12 <= high <= 1
    assert turned.interval() == pytest.approx((-high, -low))


@given(tables, st.floats(0.02, 0.4))
def test_so_many_receipts_settle_it_and_one_fewer_does_not(
    cells: tuple[int, int, int, int], threshold: float
) -> None:
    found = one_seed(*recalls(cells))
    assume(abs(found.loss - threshold) > 0.01)
    many = found.receipts_to_settle(threshold)
    assert many is not None and 1 <= many <= MOST_RECEIPTS

    def settled(receipts: int) -> bool:
        low, high = Paired(found.plain, found.other, found.covariance, receipts).interval()
        return high <= threshold or low > threshold

    assert settled(many)
    assert many == 1 or not settled(many - 1)


def test_a_loss_on_the_threshold_is_settled_by_no_number() -> None:
    assert Paired(0.5, 0.4, 0.0, 10).receipts_to_settle(0.1) is None


def test_five_receipts_seen_alike_would_need_35_for_a_tenth() -> None:
    """The rendered set's validation side, as a run of `reinvest` has shown it."""
    assert Paired(0.0, 0.0, 0.0, 5).interval() == pytest.approx((-0.434, 0.434), abs=1e-3)
    assert Paired(0.0, 0.0, 0.0, 5).receipts_to_settle(0.1) == 35


def test_a_receipt_counts_once_however_many_photos_it_has() -> None:
    looks = [("a", True), ("a", True), ("a", False), ("a", True), ("b", False)]
    assert receipt_recalls(looks) == {"a": 0.75, "b": 0.0}


def test_two_sides_of_other_receipts_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different receipts"):
        paired([{"a": 1.0}], [{"b": 1.0}])
    with pytest.raises(ValueError, match="other seeds"):
        paired([{"a": 1.0}], [{"a": 1.0}, {"a": 1.0}])
    assert paired([{}], [{}]) is None


# --- seeds -----------------------------------------------------------------------------------


def test_one_seed_cannot_tell_and_equal_seeds_make_nothing() -> None:
    assert seeds_reach([{"a": 0.5, "b": 1.0}]) == 0.0
    assert seeds_reach([{"a": 0.5, "b": 1.0}] * 3) == 0.0


def test_seeds_that_shift_every_receipt_alike_are_students_interval_of_their_means() -> None:
    shifts = [0.0, 0.1, 0.3]
    found = seeds_reach([{str(i): 0.1 * i + shift for i in range(5)} for shift in shifts])
    low, high = t_of_the_mean(shifts)
    assert found == pytest.approx((high - low) / 2, rel=1e-4)


def test_seeds_that_differ_by_no_more_than_their_few_receipts_make_nothing() -> None:
    """The means of seeds are equal, or differ by what the chance of one receipt makes."""
    assert seeds_reach([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]) == 0.0
    assert seeds_reach([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 1.0}]) == 0.0


def test_of_one_receipt_all_that_differs_is_the_seeds() -> None:
    shares = [0.2, 0.6, 0.7]
    low, high = t_of_the_mean(shares)
    assert seeds_reach([{"a": share} for share in shares]) == pytest.approx((high - low) / 2, rel=1e-4)


def t_of_the_mean(values: list[float]) -> tuple[float, float]:
    low, high = t.interval(0.95, len(values) - 1, fmean(values), stdev(values) / sqrt(len(values)))
    return float(low), float(high)


@pytest.mark.parametrize("seeds", range(2, 33))
def test_students_quantiles_for_as_many_seeds_as_there_may_be(seeds: int) -> None:
    shares = [float(seed % 2) for seed in range(seeds)]
    low, high = t_of_the_mean(shares)
    assert seeds_reach([{"a": share} for share in shares]) == pytest.approx((high - low) / 2, rel=1e-4)


@given(counts, st.floats(0, 1))
def test_seeds_widen_and_never_narrow(count: tuple[int, int], reach: float) -> None:
    right, trials = count
    low, high = wilson(right / trials, trials)
    wide_low, wide_high = wilson(right / trials, trials, reach)
    assert 0 <= wide_low <= low + 1e-12 and high - 1e-12 <= wide_high <= 1
    pair = Paired(right / trials, 0.5, 0.0, trials)
    narrow, wide = pair.interval(), replace(pair, seeds=reach).interval()
    assert wide[0] <= narrow[0] + 1e-12 and narrow[1] <= wide[1] + 1e-12


def test_seeds_that_differ_too_much_are_settled_by_no_number_of_receipts() -> None:
    assert Paired(1.0, 1.0, 0.0, 5).receipts_to_settle(0.1) == 35
    assert Paired(1.0, 1.0, 0.0, 5, seeds=0.11).receipts_to_settle(0.1) is None
    many = Paired(1.0, 1.0, 0.0, 5, seeds=0.05).receipts_to_settle(0.1)
    assert many is not None and many > 35
