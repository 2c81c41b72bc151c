"""The names of plans and the regions they recompute. No torch.

Every recipe is one that the field uses; each docstring says whose. A plan found by search, or written
by hand, is data in the specification (`custom_plans`) and goes by the name it has there.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from ..errors import InputError
from ..settings import Anatomy
from ..spec import CheckpointSettings, Region, StudySpec, digest_of
from ..words import quotation
from .anatomy import anatomy_of

Regions = tuple[Region, ...]
"""A plan: what is recomputed as one, outer regions before those inside them."""

MATMULS = ("aten.mm.default", "aten.addmm.default")
"""Products with weights; those inside attention's explicit form (`bmm`) belong to ATTENTION."""
ATTENTION = (
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten.bmm.default",
)
"""Scaled dot-product attention as torch runs it: fused, or its two products where it is not."""


@dataclass(frozen=True)
class Recipe:
    """A named way to choose regions."""

    name: str
    summary: str
    choose: Callable[[Anatomy], list[Region]]


def _whole(anatomy: Anatomy, numbers: Iterable[int]) -> list[Region]:
    return [Region(modules=(anatomy.names[number],)) for number in numbers]


def _every_nth(step: int) -> Callable[[Anatomy], list[Region]]:
    """`every_n_layers` of fairscale; torchtitan counts its layers from 1 and begins with the n-th."""
    return lambda anatomy: _whole(anatomy, range(0, anatomy.blocks, step))


def _all_but_last(anatomy: Anatomy) -> list[Region]:
    """The last block's backward starts at once, so that recomputing it frees nothing at the peak."""
    return _whole(anatomy, range(anatomy.blocks - 1))


def _parts(*names: Callable[[Anatomy], tuple[str, ...]]) -> Callable[[Anatomy], list[Region]]:
    """Parts of every block, each recomputed by itself: Megatron-LM's `recompute_modules`."""

    def choose(anatomy: Anatomy) -> list[Region]:
        return [
            Region(modules=(f"{anatomy.names[number]}.{part}",))
            for number in range(anatomy.blocks)
            for name in names
            for part in name(anatomy)
        ]

    return choose


def _norms(anatomy: Anatomy) -> tuple[str, ...]:
    return _known("norms", anatomy.norms)


def _mlp(anatomy: Anatomy) -> tuple[str, ...]:
    return _known("MLP", (anatomy.mlp,))


def _attention(anatomy: Anatomy) -> tuple[str, ...]:
    return _known("attention", (anatomy.attention,))


def _outer_norms(anatomy: Anatomy) -> tuple[str, ...]:
    """The norms that lie in no other part."""
    others = (f"{anatomy.attention}.", f"{anatomy.mlp}.")
    return tuple(name for name in _norms(anatomy) if not name.startswith(others))


def _known(part: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The parts, if this model's blocks have them; raises InputError."""
    if not all(names) or not names:
        raise InputError(f"no part of every block is known as its {part}; name modules in a custom plan")
    return names


def _nested(anatomy: Anatomy) -> list[Region]:
    """Recursive checkpointing (Chen et al. 2016): the block, and attention and MLP inside it again."""
    outer = _whole(anatomy, range(anatomy.blocks))
    return [*outer, *_parts(_attention, _mlp)(anatomy)]


def _keeping(*ops: str) -> Callable[[Anatomy], list[Region]]:
    """Every block, selective: the outputs of the named ops are kept and all else is recomputed."""
    return lambda anatomy: [
        Region(modules=(anatomy.names[number],), keep=ops) for number in range(anatomy.blocks)
    ]


def _core_attention(anatomy: Anatomy) -> list[Region]:
    """Megatron-LM's `core_attn` (Korthikanti et al. 2022): softmax(QK)V again, projections kept."""
    return [
        Region(modules=(f"{block}.{part}",), keep=MATMULS)
        for block in anatomy.names
        for part in _attention(anatomy)
    ]


def _knapsack(percent: int) -> Callable[[Anatomy], list[Region]]:
    """ckptplan's whole-block knapsack: keep what fits this share of the activation bytes.

    Where the blocks are alike the knapsack's answer is a number of blocks; it keeps the last ones, as
    ckptplan does when values tie.
    """

    def choose(anatomy: Anatomy) -> list[Region]:
        if not anatomy.alike:
            raise InputError("the blocks differ in size and cannot be counted; name them as blocks:0,2")
        return _whole(anatomy, range(anatomy.blocks - anatomy.blocks * percent // 100))

    return choose


RECIPES = (
    Recipe("none", "Plain training: every activation is kept.", lambda anatomy: []),
    Recipe(
        "every-block",
        "Recompute every block; Hugging Face's gradient_checkpointing_enable.",
        _every_nth(1),
    ),
    Recipe("every-2nd-block", "Recompute blocks 0, 2, 4 …; every_n_layers.", _every_nth(2)),
    Recipe("every-3rd-block", "Recompute blocks 0, 3, 6 …", _every_nth(3)),
    Recipe("every-4th-block", "Recompute blocks 0, 4, 8 …", _every_nth(4)),
    Recipe(
        "all-but-last",
        "Recompute every block but the last, whose backward starts at once.",
        _all_but_last,
    ),
    Recipe("norms", "Recompute the norms of every block alone.", _parts(_norms)),
    Recipe("mlp", "Recompute every block's MLP alone; Megatron-LM's mlp.", _parts(_mlp)),
    Recipe("attention", "Recompute every block's attention alone.", _parts(_attention)),
    Recipe(
        "attention-mlp-apart",
        "Recompute norms, attention and MLP of every block, each by itself.",
        _parts(_outer_norms, _attention, _mlp),
    ),
    Recipe("nested", "Recompute every block, and attention and MLP inside it once more.", _nested),
    Recipe(
        "keep-matmul-attention",
        "Recompute every block but its matmuls and attention (selective).",
        _keeping(*MATMULS, *ATTENTION),
    ),
    Recipe(
        "keep-attention", "Recompute every block but its attention (selective).", _keeping(*ATTENTION)
    ),
    Recipe(
        "torchtitan-selective",
        "Recompute every block but its attention and every second matmul; torchtitan's op policy.",
        _keeping(*(f"{op}:even" for op in MATMULS), *ATTENTION),
    ),
    Recipe(
        "megatron-core-attn",
        "Recompute attention's core alone, its projections kept; Megatron-LM's core_attn.",
        _core_attention,
    ),
    *(
        Recipe(
            f"knapsack-{percent}",
            f"Recompute whole blocks until {percent} % of their activation bytes are kept; ckptplan.",
            _knapsack(percent),
        )
        for percent in (25, 50, 75)
    ),
)
_BY_NAME = {recipe.name: recipe for recipe in RECIPES}
_BLOCKS = re.compile(r"blocks:([0-9]+(?:,[0-9]+)*)")
_BUDGET = re.compile(r"memory-budget-(0|[1-9][0-9]?)")
BUDGET = "memory-budget-50"
"""An example of a plan that leaves to the compiler what is recomputed."""


def regions_of(spec: StudySpec, plan: str) -> Regions:
    """What a plan recomputes in a study's workload; raises InputError for a plan that cannot be.

    A memory budget names no region: what is recomputed is the compiler's choice.
    """
    if plan in spec.custom_plans:
        return spec.custom_plans[plan]
    if budget_of(plan) is not None:
        if spec.compile is None:
            raise InputError(
                f"plan {plan!r} is a compiler's: it needs a compiled study (compile.backend=inductor)"
            )
        return ()
    return named_regions(plan, anatomy_of(spec.workload))


def budget_of(plan: str) -> int | None:
    """The percentage of a plan such as `memory-budget-50`; None of any other plan.

    It is torch's `activation_memory_budget`: 100 is what the compiler keeps by itself, 0 what would be
    kept if the whole model were recomputed.
    """
    match = _BUDGET.fullmatch(plan)
    return int(match[1]) if match else None


@lru_cache(maxsize=1024)  # a page of many cells asks for the same plan again and again
def named_regions(plan: str, anatomy: Anatomy) -> Regions:
    """The regions of a recipe or of `blocks:0,2,4`.

    Raises InputError for an unknown plan, a block that does not exist, or one named twice.
    """
    if plan in _BY_NAME:
        try:
            chosen = _BY_NAME[plan].choose(anatomy)
        except InputError as error:
            raise InputError(f"plan {plan!r}: {error}") from None
        if not chosen and plan != "none":
            raise InputError(
                f"plan {plan!r} recomputes no block of a model with {anatomy.blocks} block(s)"
            )
        return tuple(chosen)
    match = _BLOCKS.fullmatch(plan)
    if not match:
        raise InputError(
            f"unknown plan {plan[:60]!r}; known: {', '.join(_BY_NAME)}, blocks:0,2,4 (by number), "
            f"{BUDGET} (compiled)"
        )
    numbers = [int(text) for text in match[1].split(",") if len(text) <= 9]
    missing = next((n for n in numbers if n >= anatomy.blocks), None)
    if missing is not None or len(numbers) != match[1].count(",") + 1:
        raise InputError(
            f"plan {plan!r}: no block {missing if missing is not None else match[1]}; "
            f"the blocks are 0 to {anatomy.blocks - 1}"
        )
    if len(set(numbers)) < len(numbers):
        raise InputError(f"plan {plan!r}: a block is named twice")
    return tuple(_whole(anatomy, sorted(numbers)))


def in_a_sentence(plan: str) -> str:
    """A plan's name where a sentence goes on: one that somebody chose is quoted."""
    ours = plan in _BY_NAME or _BLOCKS.fullmatch(plan) or budget_of(plan) is not None
    return plan if ours else quotation(plan)


def is_taken(name: str) -> bool:
    """Whether a name belongs to a recipe, to blocks by number or to a budget."""
    return name in _BY_NAME or name.startswith("blocks:") or budget_of(name) is not None


@lru_cache(maxsize=256)
def touched_blocks(regions: Regions, anatomy: Anatomy) -> tuple[str, ...]:
    """FQNs of the blocks, and of what may be recomputed before them, that a plan recomputes in whole or
    in part, in the order of forward."""
    at_or_above = {
        prefix
        for region in regions
        for name in region.modules
        for prefix in accumulate(name.split("."), "{}.{}".format)
    }
    return tuple(block for block in (*anatomy.outside, *anatomy.names) if block in at_or_above)


def first_blocks(count: int) -> tuple[str, ...]:
    """The plans of the selective curve: the first 1, 2, … all blocks recomputed."""
    return tuple("blocks:" + ",".join(map(str, range(k))) for k in range(1, count + 1))


@lru_cache(maxsize=256)
def plan_hash(regions: Regions, checkpoint: CheckpointSettings, budget: int | None = None) -> str:
    """SHA-256 of what a plan does: the regions it recomputes and how, or the compiler's budget."""
    return digest_of(
        {
            "regions": [region.model_dump(mode="json") for region in regions],
            "checkpoint": checkpoint.model_dump(mode="json"),
        }
        | ({} if budget is None else {"memory_budget_percent": budget})
    )


def hash_of(spec: StudySpec, plan: str) -> str:
    """The hash of a study's plan."""
    return plan_hash(regions_of(spec, plan), spec.checkpoint, budget_of(plan))
