"""Every named recipe spelled out, and every bad name in one line."""

import pytest

from recompute_core.errors import InputError
from recompute_core.plans.names import RECIPES, block_numbers, first_blocks, plan_hash
from recompute_core.spec import CheckpointSettings

EXPECTED: dict[str, list[tuple[int, ...] | None]] = {
    # For 1 to 7 blocks; None where the recipe would recompute nothing, which is an error.
    "none": [()] * 7,
    "every-block": [
        (0,),
        (0, 1),
        (0, 1, 2),
        (0, 1, 2, 3),
        (0, 1, 2, 3, 4),
        (0, 1, 2, 3, 4, 5),
        (0, 1, 2, 3, 4, 5, 6),
    ],
    "every-2nd-block": [(0,), (0,), (0, 2), (0, 2), (0, 2, 4), (0, 2, 4), (0, 2, 4, 6)],
    "every-3rd-block": [(0,), (0,), (0,), (0, 3), (0, 3), (0, 3), (0, 3, 6)],
    "every-4th-block": [(0,), (0,), (0,), (0,), (0, 4), (0, 4), (0, 4)],
    "all-but-last": [
        None,
        (0,),
        (0, 1),
        (0, 1, 2),
        (0, 1, 2, 3),
        (0, 1, 2, 3, 4),
        (0, 1, 2, 3, 4, 5),
    ],
}


def test_every_recipe_is_spelled_out_here() -> None:
    assert {recipe.name for recipe in RECIPES} == set(EXPECTED)


@pytest.mark.parametrize("plan", EXPECTED)
@pytest.mark.parametrize("count", range(1, 8))
def test_recipe(plan: str, count: int) -> None:
    expected = EXPECTED[plan][count - 1]
    if expected is None:
        with pytest.raises(InputError, match="recomputes no block of a model with 1 block"):
            block_numbers(plan, count)
    else:
        assert block_numbers(plan, count) == expected


def test_blocks_by_number_come_sorted() -> None:
    assert block_numbers("blocks:4,0,2", 6) == (0, 2, 4)
    assert block_numbers("blocks:5", 6) == (5,)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("every-5th-block", "unknown plan 'every-5th-block'; known: none, every-block"),
        ("", "unknown plan ''"),
        ("blocks:", "unknown plan 'blocks:'"),
        ("blocks:1,", "unknown plan"),
        ("blocks:-1", "unknown plan"),
        ("blocks: 1", "unknown plan"),
        ("Every-Block", "unknown plan"),
        ("every-block\n", r"unknown plan 'every-block\\n'"),
        ("blocks:6", "plan 'blocks:6': no block 6; the blocks are 0 to 5"),
        ("blocks:0,99999999999", "no block 0,99999999999; the blocks are 0 to 5"),
        ("blocks:1,1", "plan 'blocks:1,1': a block is named twice"),
    ],
)
def test_a_bad_name_is_one_line(plan: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        block_numbers(plan, 6)
    assert "\n" not in str(caught.value)


def test_first_blocks_is_the_selective_curve() -> None:
    assert first_blocks(3) == ("blocks:0", "blocks:0,1", "blocks:0,1,2")
    assert [block_numbers(plan, 3) for plan in first_blocks(3)] == [(0,), (0, 1), (0, 1, 2)]


def test_hash_is_of_what_a_plan_does_and_not_of_its_name() -> None:
    own = CheckpointSettings()
    both = plan_hash(("blocks.0", "blocks.1"), own)
    assert both == plan_hash(("blocks.0", "blocks.1"), CheckpointSettings())
    others = {
        plan_hash(("blocks.0",), own),
        plan_hash(("blocks.0", "blocks.1"), CheckpointSettings(variant="forward")),
        plan_hash(("blocks.0", "blocks.1"), CheckpointSettings(early_stop=False)),
        plan_hash(("blocks.0", "blocks.1"), CheckpointSettings(rng="ignore")),
    }
    assert len(others | {both}) == 5
    assert both.startswith("sha256:")
    assert len(both) == 7 + 64
