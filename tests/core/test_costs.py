"""Op costs, timed on a real model, priced for one on fake tensors."""

from functools import partial

import pytest

from recompute_core.meters.estimate import FakeUpdate
from recompute_core.planner.costs import Costs, measure_costs
from recompute_core.spec import CheckpointSettings, OptimizerSettings
from recompute_core.workloads import build_blank
from tests.core.toys import SMALL


def test_every_op_of_a_plain_update_has_its_cost() -> None:
    """What fake tensors run is what was timed, but for reading what a meter asks."""
    costs = measure_costs(build_blank(SMALL, 0), OptimizerSettings())
    assert all(spent > 0 for spent in costs.ops.values())
    ran = FakeUpdate(partial(build_blank, SMALL, 0), OptimizerSettings()).run((), CheckpointSettings())
    unpriced = {op for op, _ in ran.ops} - {op for op, _ in costs.ops}
    assert unpriced <= {"aten.detach.default"}
    priced = sum(count for op, count in ran.ops.items() if op in costs.ops)
    assert priced > 0.9 * ran.ops.total()


def test_seconds_are_counts_times_costs() -> None:
    mm, gelu, view = (("aten." + name, ()) for name in ("mm", "gelu", "view"))
    costs = Costs({mm: 0.5, gelu: 0.25})
    assert costs.of({mm: 2, gelu: 3, view: 7}) == pytest.approx(1.75)
