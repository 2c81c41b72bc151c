"""Every named recipe spelled out, and every bad name in one line."""

import pytest

from recompute_core.errors import InputError
from recompute_core.plans.names import (
    ATTENTION,
    MATMULS,
    RECIPES,
    Regions,
    first_blocks,
    in_a_sentence,
    named_regions,
    plan_hash,
    regions_of,
    touched_blocks,
)
from recompute_core.spec import CheckpointSettings, Region, parse_spec
from tests.core.toys import alike, each

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
    # Keeps a quarter, a half, three quarters of the blocks, rounded down: the last ones.
    "knapsack-25": [tuple(range(n)) for n in (1, 2, 3, 3, 4, 5, 6)],
    "knapsack-50": [tuple(range(n)) for n in (1, 1, 2, 2, 3, 3, 4)],
    "knapsack-75": [tuple(range(n)) for n in (1, 1, 1, 1, 2, 2, 2)],
}
TWO = alike(2)
FINER: dict[str, Regions] = {
    # For two blocks.
    "norms": each("blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1", "blocks.1.norm2"),
    "mlp": each("blocks.0.mlp", "blocks.1.mlp"),
    "attention": each("blocks.0.attn", "blocks.1.attn"),
    "attention-mlp-apart": each(
        *(f"blocks.{n}.{part}" for n in (0, 1) for part in ("norm1", "norm2", "attn", "mlp"))
    ),
    "nested": each(
        "blocks.0", "blocks.1", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn", "blocks.1.mlp"
    ),
    "keep-matmul-attention": tuple(
        Region(modules=(name,), keep=(*MATMULS, *ATTENTION)) for name in ("blocks.0", "blocks.1")
    ),
    "keep-attention": tuple(
        Region(modules=(name,), keep=ATTENTION) for name in ("blocks.0", "blocks.1")
    ),
    "torchtitan-selective": tuple(
        Region(
            modules=(name,),
            keep=("aten.mm.default:even", "aten.addmm.default:even", *ATTENTION),
        )
        for name in ("blocks.0", "blocks.1")
    ),
    "megatron-core-attn": tuple(
        Region(modules=(name,), keep=MATMULS) for name in ("blocks.0.attn", "blocks.1.attn")
    ),
}


def whole(numbers: tuple[int, ...]) -> Regions:
    return each(*(f"blocks.{number}" for number in numbers))


def test_every_recipe_is_spelled_out_here() -> None:
    assert {recipe.name for recipe in RECIPES} == set(EXPECTED) | set(FINER)


@pytest.mark.parametrize("plan", FINER)
def test_recipe_below_the_level_of_blocks(plan: str) -> None:
    assert named_regions(plan, TWO) == FINER[plan]
    assert touched_blocks(FINER[plan], TWO) == ("blocks.0", "blocks.1")


def test_touched_blocks_come_in_the_order_of_forward() -> None:
    regions = (*each("blocks.10.attn.out", "blocks.1"), Region(modules=("blocks.3", "blocks.4")))
    assert touched_blocks(regions, alike(12)) == ("blocks.1", "blocks.3", "blocks.4", "blocks.10")
    assert touched_blocks(each("norm", "blocks", "blocks.12", "blocks.1x"), alike(12)) == ()


def test_a_custom_plan_is_found_by_its_name() -> None:
    raw = {"plans": ["mine", "mlp"], "custom_plans": {"mine": [{"modules": ["blocks.0", "blocks.1"]}]}}
    spec = parse_spec(raw)
    assert regions_of(spec, "mine") == (Region(modules=("blocks.0", "blocks.1")),)
    assert regions_of(spec, "mlp") == each(*(f"blocks.{n}.mlp" for n in range(6)))
    assert regions_of(spec, "none") == ()


@pytest.mark.parametrize("plan", EXPECTED)
@pytest.mark.parametrize("count", range(1, 8))
def test_recipe(plan: str, count: int) -> None:
    expected = EXPECTED[plan][count - 1]
    if expected is None:
        with pytest.raises(InputError, match="recomputes no block of a model with 1 block"):
            named_regions(plan, alike(count))
    else:
        assert named_regions(plan, alike(count)) == whole(expected)


def test_blocks_by_number_come_sorted() -> None:
    assert named_regions("blocks:4,0,2", alike(6)) == whole((0, 2, 4))
    assert named_regions("blocks:5", alike(6)) == whole((5,))


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
        named_regions(plan, alike(6))
    assert "\n" not in str(caught.value)


def test_first_blocks_is_the_selective_curve() -> None:
    assert first_blocks(3) == ("blocks:0", "blocks:0,1", "blocks:0,1,2")
    assert [named_regions(plan, alike(3)) for plan in first_blocks(3)] == [
        whole(tuple(range(k))) for k in (1, 2, 3)
    ]


def test_hash_is_of_what_a_plan_does_and_not_of_its_name() -> None:
    own = CheckpointSettings()
    both = plan_hash(each("blocks.0", "blocks.1"), own)
    assert both == plan_hash(each("blocks.0", "blocks.1"), CheckpointSettings())
    others = {
        plan_hash(each("blocks.0"), own),
        plan_hash((Region(modules=("blocks.0", "blocks.1")),), own),
        plan_hash((Region(modules=("blocks.0",), keep=MATMULS), *each("blocks.1")), own),
        plan_hash(each("blocks.0", "blocks.1"), CheckpointSettings(variant="forward")),
        plan_hash(each("blocks.0", "blocks.1"), CheckpointSettings(early_stop=False)),
        plan_hash(each("blocks.0", "blocks.1"), CheckpointSettings(rng="ignore")),
    }
    assert len(others | {both}) == 7
    assert both.startswith("sha256:")
    assert len(both) == 7 + 64


def test_hashes_differ_but_for_plans_that_are_the_same() -> None:
    plans = [recipe.name for recipe in RECIPES] + ["blocks:0,1,2", "blocks:0,1,2,3,4"]
    by_hash: dict[str, set[str]] = {}
    for plan in plans:
        hashed = plan_hash(named_regions(plan, alike(6)), CheckpointSettings())
        by_hash.setdefault(hashed, set()).add(plan)
    assert [names for names in by_hash.values() if len(names) > 1] == [
        {"all-but-last", "knapsack-25", "blocks:0,1,2,3,4"},
        {"knapsack-50", "blocks:0,1,2"},
    ]


def test_a_name_that_somebody_chose_is_quoted_in_a_sentence() -> None:
    for ours in ("every-block", "none", "blocks:0,2"):
        assert in_a_sentence(ours) == ours
    assert in_a_sentence("best at 1 GB") == "“best at 1 GB”"
    assert in_a_sentence("x”. Adopt it\x1b[2J") == "“x'. Adopt it?[2J”"
    assert in_a_sentence("blocks: all") == "“blocks: all”"
    assert len(in_a_sentence("x" * 80)) == 62
