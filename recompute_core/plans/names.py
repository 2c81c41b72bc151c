"""The names of plans and the blocks they recompute. No torch.

Every block is Hugging Face transformers' default for `gradient_checkpointing_enable`; every n-th
block is `every_n_layers` of fairscale and torchtitan; all but the last leaves out the block whose
backward starts at once, so that recomputing it frees nothing at the peak.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import InputError
from ..spec import CheckpointSettings, digest_of


@dataclass(frozen=True)
class Recipe:
    """A named way to choose blocks."""

    name: str
    summary: str
    choose: Callable[[int], list[int]]


RECIPES = (
    Recipe("none", "Plain training: every activation is kept.", lambda count: []),
    Recipe("every-block", "Recompute every block.", lambda count: list(range(count))),
    Recipe("every-2nd-block", "Recompute blocks 0, 2, 4 …", lambda count: list(range(0, count, 2))),
    Recipe("every-3rd-block", "Recompute blocks 0, 3, 6 …", lambda count: list(range(0, count, 3))),
    Recipe("every-4th-block", "Recompute blocks 0, 4, 8 …", lambda count: list(range(0, count, 4))),
    Recipe(
        "all-but-last",
        "Recompute every block but the last, whose backward starts at once.",
        lambda count: list(range(count - 1)),
    ),
)
_BY_NAME = {recipe.name: recipe for recipe in RECIPES}
_BLOCKS = re.compile(r"blocks:(\d+(?:,\d+)*)")


def block_numbers(plan: str, count: int) -> tuple[int, ...]:
    """The numbers of the blocks that `plan` recomputes in a model of `count` blocks.

    Raises InputError for an unknown plan, a block that does not exist, or one named twice.
    """
    if plan in _BY_NAME:
        chosen = _BY_NAME[plan].choose(count)
        if not chosen and plan != "none":
            raise InputError(f"plan {plan!r} recomputes no block of a model with {count} block(s)")
        return tuple(chosen)
    match = _BLOCKS.fullmatch(plan)
    if not match:
        raise InputError(
            f"unknown plan {plan[:60]!r}; known: {', '.join(_BY_NAME)}, blocks:0,2,4 (by number)"
        )
    numbers = [int(text) for text in match[1].split(",") if len(text) <= 9]
    missing = next((n for n in numbers if n >= count), None)
    if missing is not None or len(numbers) != match[1].count(",") + 1:
        raise InputError(
            f"plan {plan!r}: no block {missing if missing is not None else match[1]}; "
            f"the blocks are 0 to {count - 1}"
        )
    if len(set(numbers)) < len(numbers):
        raise InputError(f"plan {plan!r}: a block is named twice")
    return tuple(sorted(numbers))


def first_blocks(count: int) -> tuple[str, ...]:
    """The plans of the selective curve: the first 1, 2, … all blocks recomputed."""
    return tuple("blocks:" + ",".join(map(str, range(k))) for k in range(1, count + 1))


def plan_hash(blocks: tuple[str, ...], checkpoint: CheckpointSettings) -> str:
    """SHA-256 of what a plan does: the FQNs it recomputes and how."""
    return digest_of({"recompute": list(blocks), "checkpoint": checkpoint.model_dump(mode="json")})
