"""From what was chosen on Set up to a checked specification. Pure; raises InputError with one line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isfinite
from typing import Any

from recompute_core.errors import InputError
from recompute_core.plans.names import RECIPES, block_numbers, first_blocks
from recompute_core.spec import StudySpec, parse_spec, shape_key
from recompute_core.workloads.sizes import sizes_of

RECIPE_NAMES = tuple(recipe.name for recipe in RECIPES if recipe.name != "none")
EFFORTS: dict[str, dict[str, float]] = {
    "quick": {"min_pairs": 7, "max_pairs": 15, "budget_s": 3},
    "normal": {"min_pairs": 7, "max_pairs": 31, "budget_s": 20},
    "thorough": {"min_pairs": 15, "max_pairs": 101, "budget_s": 120},
}
"""How long pairs are sampled."""


@dataclass(frozen=True)
class Choices:
    """What the page's fields hold, as they hold it."""

    workload: str
    settings: dict[str, Any]
    """The model's sizes, without those a shape sets."""
    lengths: Sequence[str]
    """Sequence lengths, or photo shapes such as `192x96`."""
    batches: Sequence[str]
    recipes: Sequence[str]
    by_hand: Sequence[int] = ()
    curve: bool = False
    thresholds: dict[str, float] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    effort: str = "quick"


def specification(choices: Choices) -> StudySpec:
    """The study that was chosen; raises InputError with what, where and what would be right."""
    return parse_spec(
        {
            "workload": {"name": choices.workload, **choices.settings},
            "shapes": shapes(choices),
            "plans": plans(choices),
            "thresholds": choices.thresholds,
            "checkpoint": choices.checkpoint,
            "timing": EFFORTS[choices.effort],
        },
        "Set up",
    )


def plans(choices: Choices) -> list[str]:
    """Every chosen plan, one for each set of blocks."""
    blocks = int(choices.settings["blocks"])
    named = list(choices.recipes)
    if choices.by_hand:
        named.append("blocks:" + ",".join(str(number) for number in sorted(choices.by_hand)))
    if choices.curve:
        named += first_blocks(blocks)
    if not named:
        raise InputError("Plans: choose at least one plan, blocks by hand, or the selective curve")
    sets: dict[tuple[int, ...], str] = {}
    for name in named:
        sets.setdefault(block_numbers(name, blocks), name)
    return list(sets.values())


def shapes(choices: Choices) -> list[dict[str, int]]:
    """Every length or photo shape at every batch size."""
    batches = whole_numbers("Batch sizes", choices.batches)
    if choices.workload == "gpt":
        lengths = whole_numbers("Sequence lengths", choices.lengths)
        return [{"seq_len": n, "batch": b} for n, b in product(lengths, batches)]
    photos = [_photo(text) for text in _given("Photo shapes", choices.lengths)]
    return [{"height": h, "image_width": w, "batch": b} for (h, w), b in product(photos, batches)]


def is_wild(text: str) -> bool:
    """Whether a text of the address is a number beyond any field: infinite, NaN, endless digits."""
    try:
        return len(text) > 60 or not isfinite(float(text))
    except ValueError:
        return False


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def whole_numbers(what: str, texts: Iterable[str]) -> list[int]:
    """Whole numbers of at least 1, smallest first, each once."""
    numbers = set()
    for text in _given(what, texts):
        plain = str(text).strip()
        if not (
            plain.isascii() and plain.isdigit() and len(plain) <= 10 and 1 <= int(plain) <= 2**31 - 1
        ):
            raise InputError(f"{what}: {plain[:40]!r} is not a whole number from 1 up")
        numbers.add(int(plain))
    return sorted(numbers)


def _given(what: str, texts: Iterable[str]) -> list[str]:
    given = list(texts)
    if not given:
        raise InputError(f"{what}: choose at least one")
    return given


def _photo(text: str) -> tuple[int, int]:
    sides = str(text).lower().replace("×", "x").split("x")
    if len(sides) != 2 or not all(_is_whole(side.strip()) for side in sides):
        raise InputError(f"Photo shapes: {text[:40]!r} is not height x width, such as 192x96")
    return int(sides[0]), int(sides[1])


def saved_estimates(spec: StudySpec) -> list[tuple[str, tuple[int, ...], str]]:
    """Each plan with its blocks and its estimated saved MB at the largest shape; plain first."""
    sizes = max((sizes_of(spec.at(shape)) for shape in spec.shapes), key=lambda s: s.saved_bytes)
    rows: list[tuple[str, tuple[int, ...], str]] = []
    for plan in ("none", *spec.plans):
        chosen = block_numbers(plan, spec.workload.blocks)
        rows.append((plan, chosen, f"{sizes.saved_with(len(chosen)) / 1e6:,.1f}"))
    return rows


def shape_estimates(spec: StudySpec) -> list[list[str]]:
    """Each shape with what plain keeps and its peak, in MB, estimated."""
    rows = []
    for shape in spec.shapes:
        sizes = sizes_of(spec.at(shape))
        rows.append(
            [
                shape_key(spec.at(shape)),
                f"{sizes.saved_bytes / 1e6:,.1f}",
                f"{sizes.plain_peak_bytes / 1e6:,.1f}",
            ]
        )
    return rows
