"""The setting that is nearest to a plan, on costs made up by hand."""

import pytest

from recompute_core.plans.export.exported import Cost, Family, Option, nearest, whole
from recompute_core.plans.names import Regions

from .plans import region

NAMES = tuple(f"b{number}" for number in range(9))
FIRST: Family = tuple(Option(f"first {n}", whole(NAMES[:n])) for n in range(10))
PARTS: Family = (Option("parts", (region("b0.mlp"),)),)


class Costs:
    """A block recomputed takes 10 off a peak of 100 and costs 5; the parts take 25 off and cost 3."""

    def __init__(self) -> None:
        self.asked: list[Regions] = []

    def __call__(self, regions: Regions) -> Cost:
        self.asked.append(regions)
        if regions == PARTS[0].regions:
            return Cost(75, 75, 3)
        modules = {name for one in regions for name in one.modules}
        odd = 1 if any(one.keep == ("aten.mm.default",) for one in regions) else 0
        return Cost(100 - 10 * len(modules) + odd, 100 - 10 * len(modules), 5 * len(modules))


def test_the_same_regions_are_exact_in_any_order() -> None:
    found = nearest(whole(("b1", "b0")), (FIRST, PARTS), Costs())
    assert (found.option.words, found.exact, found.fits) == ("first 2", True, True)
    assert found.cost == found.chosen


@pytest.mark.parametrize(
    ("op", "exact"), [("aten.never.run", True), ("aten.mm.default", False)], ids=["idle", "at work"]
)
def test_the_same_modules_at_the_same_cost_are_exact(op: str, exact: bool) -> None:
    found = nearest(whole(("b0", "b1"), keep=(op,)), (FIRST,), Costs())
    assert (found.option.words, found.exact) == ("first 2", exact)


def test_else_the_least_work_below_the_plans_peak() -> None:
    """Blocks 3, 5 and 8 climb to 70; so do three others, and the parts, which climb to 75, do not."""
    found = nearest(whole(("b3", "b5", "b8")), (FIRST, PARTS), Costs())
    assert (found.option.words, found.exact, found.fits) == ("first 3", False, True)
    found = nearest(whole(("b3", "b5")), (FIRST, PARTS), Costs())
    assert (found.option.words, found.exact, found.fits) == ("parts", False, True)


def test_else_the_lowest_peak() -> None:
    found = nearest(whole([f"c{number}" for number in range(20)]), (FIRST, PARTS), Costs())
    assert (found.option.words, found.exact, found.fits) == ("first 9", False, False)
    assert (found.cost.peak_bytes, found.chosen.peak_bytes) == (10, -100)


def test_a_family_is_searched_by_halving() -> None:
    many: Family = tuple(Option(str(n), whole([f"m{k}" for k in range(n)])) for n in range(100))
    costs = Costs()
    found = nearest((region(*(f"x{k}" for k in range(41))),), (many,), costs)
    assert found.option.words == "41"
    assert len(costs.asked) < 12


def test_a_difference_is_told_in_words() -> None:
    one, other = Cost(3_000_000, 500_000, 4_000_000_000), Cost(1_000_000, 500_000, 5_500_000_000)
    assert one.beside(other) == (
        "2.00 MB more peak, the same saved bytes, 1.5 GFLOP less recomputed an update"
    )
    assert other.beside(one).startswith("2.00 MB less peak, the same saved bytes, 1.5 GFLOP more")
    assert "as much recomputed" in one.beside(one)
