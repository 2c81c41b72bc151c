"""Op costs, timed on a real model, priced for one on fake tensors."""

from functools import partial

import pytest

from recompute_core.meters.estimate import FakeUpdate
from recompute_core.planner.costs import Costs, measure_costs
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import named_regions
from recompute_core.spec import CheckpointSettings, OptimizerSettings
from recompute_core.workloads import build_blank
from tests.core.toys import SMALL


def test_every_op_of_a_plain_update_has_its_cost() -> None:
    """What fake tensors run is what was timed, but for reading what a meter asks."""
    costs = measure_costs(build_blank(SMALL, 0), OptimizerSettings(), CheckpointSettings())
    assert all(spent > 0 for spent in costs.ops.values())
    ran = FakeUpdate(partial(build_blank, SMALL, 0), OptimizerSettings()).run((), CheckpointSettings())
    unpriced = {op for op, _ in ran.ops} - {op for op, _ in costs.ops}
    assert unpriced <= {"aten.detach.default"}
    priced = sum(count for op, count in ran.ops.items() if op in costs.ops)
    assert priced > 0.9 * ran.ops.total()


def test_checkpointing_itself_takes_time_and_a_selective_op_more() -> None:
    """Counted for each call that is run again, and for each op that a policy is asked about."""
    costs = measure_costs(build_blank(SMALL, 0), OptimizerSettings(), CheckpointSettings())
    assert costs.region_s > 0
    assert costs.judged_s > 0
    fake = FakeUpdate(partial(build_blank, SMALL, 0), OptimizerSettings())
    anatomy = anatomy_of(SMALL)
    blocks = SMALL.blocks
    plain, every, nested, keeping = (
        fake.run(named_regions(name, anatomy), CheckpointSettings())
        for name in ("none", "every-block", "nested", "keep-attention")
    )
    assert (plain.replays, plain.judged) == (0, 0)
    assert (every.replays, every.judged) == (blocks, 0)
    assert nested.replays > every.replays
    assert keeping.replays == blocks
    assert keeping.judged > 20 * blocks
    assert costs.of_replays(plain) == 0
    assert costs.of_replays(every) == pytest.approx(costs.of(every.replayed) + blocks * costs.region_s)
    assert costs.of_replays(keeping) > costs.of(keeping.replayed) + 20 * blocks * costs.judged_s


def test_seconds_are_counts_times_costs() -> None:
    mm, gelu, view = (("aten." + name, ()) for name in ("mm", "gelu", "view"))
    costs = Costs({mm: 0.5, gelu: 0.25})
    assert costs.of({mm: 2, gelu: 3, view: 7}) == pytest.approx(1.75)
