"""What ranks compute against what one process computes: equal where they do right, caught where not."""

import pytest

from recompute_core.plans.names import Regions
from recompute_core.spec import Region
from tests.ranks.conftest import EACH, Runs

AS_ONE = (Region(modules=("0", "1")), Region(modules=("1.up",)))


@pytest.mark.parametrize(
    ("kind", "regions", "replays"),
    [("ddp", EACH, 4), ("fsdp2", AS_ONE, 4)],
    ids=["each block", "blocks as one, and a part"],
)
def test_recompute_over_ranks_is_what_one_process_computes(
    run: Runs, kind: str, regions: Regions, replays: int
) -> None:
    """Targets of a loss are cut with the batch."""
    found = run("well", kind, parity=True, regions=regions)
    assert found.failed is None
    assert found.noise is not None
    assert found.noise.bitwise
    assert found.canary is not None
    assert found.canary.caught
    assert found.parity is not None
    assert found.parity.passed
    assert found.parity.bitwise
    assert found.parity.rollback is not None
    assert found.parity.rollback.replays_before == replays


def test_a_rank_with_random_numbers_of_its_own_is_not_what_one_process_computes(run: Runs) -> None:
    found = run("draws")
    assert found.noise is not None
    assert [f"{gap.part}/{gap.name}" for gap in found.noise.gaps if not gap.bitwise] == [
        "rng/torch of rank 1"
    ]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_gradients_that_are_added_up_are_not_their_mean(run: Runs, kind: str) -> None:
    found = run("summed", kind)
    assert found.noise is not None
    off = {gap.name: gap.relative for gap in found.noise.gaps if gap.part == "grad"}
    assert len(off) == 8
    assert set(off.values()) == {1.0}  # twice as large
    assert all(gap.bitwise for gap in found.noise.gaps if gap.part in ("output", "loss", "rng"))


def test_a_replay_that_is_wrong_on_one_rank_fails_on_both(run: Runs) -> None:
    found = run("replayed_wrong", parity=True)
    assert found.noise is not None
    assert found.noise.bitwise
    assert found.parity is not None
    assert not found.parity.passed
    assert {gap.part for gap in found.parity.failed} >= {"grad"}


def test_a_batch_that_cannot_be_cut_is_refused_in_one_line(run: Runs) -> None:
    assert run("cannot_be_cut").failed == (
        "reference",
        "ranks: the batch cannot be cut along dimension 0, where input input has 8 rows and "
        "input mask 3",
    )
