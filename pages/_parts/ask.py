"""From what was chosen on Set up to a checked specification. Pure; raises InputError with one line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from recompute_core.errors import InputError
from recompute_core.gates import in_mb
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import (
    RECIPES,
    Regions,
    budget_of,
    first_blocks,
    named_regions,
    regions_of,
)
from recompute_core.settings import OURS, Anatomy, GptSettings, OwnSettings, shape_key, size_fields
from recompute_core.spec import StudySpec, TimingSettings, parse_spec
from recompute_core.workloads.sizes import Sizes, sizes_of


def whole_blocks(regions: Regions, anatomy: Anatomy) -> tuple[str, ...]:
    """FQNs of the blocks that are recomputed whole."""
    named = {name for region in regions if not region.keep for name in region.modules}
    return tuple(block for block in anatomy.names if block in named)


def is_plain_blocks(regions: Regions, anatomy: Anatomy) -> bool:
    """Whether a plan recomputes whole blocks, each by itself, and nothing else."""
    return len(whole_blocks(regions, anatomy)) == len(regions) == sum(len(r.modules) for r in regions)


_RECIPES = tuple(recipe.name for recipe in RECIPES if recipe.name != "none")
_TYPICAL = anatomy_of(GptSettings(blocks=8))
BLOCK_RECIPES = tuple(
    name for name in _RECIPES if is_plain_blocks(named_regions(name, _TYPICAL), _TYPICAL)
)
FINER_RECIPES = tuple(name for name in _RECIPES if name not in BLOCK_RECIPES)
"""Recipes below the level of blocks: parts of them, or blocks of which something is kept."""
EFFORTS: dict[str, dict[str, float]] = {
    "quick": {"min_pairs": 9, "max_pairs": 15, "budget_s": 3},
    "normal": {"min_pairs": 9, "max_pairs": 31, "budget_s": 20},
    "thorough": {"min_pairs": 15, "max_pairs": 101, "budget_s": 120},
}
"""How long pairs are sampled."""


@dataclass(frozen=True)
class Choices:
    """What the page's fields hold, as they hold it."""

    workload: str
    settings: dict[str, Any]
    """The model's own, without the sizes that a shape sets."""
    lengths: Sequence[str]
    """Sequence lengths, or photo shapes such as `192x96`."""
    batches: Sequence[str]
    recipes: Sequence[str]
    by_hand: Sequence[int] = ()
    curve: bool = False
    thresholds: dict[str, float] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    effort: str = "quick"
    precision: str = "float32"
    threads: int | None = None
    job: dict[str, Any] = field(default_factory=dict)
    """How it trains: `ranks`, `compile` and `engine`, as the specification has them."""
    budgets: Sequence[str] = ()
    """Plans that leave to the compiler what is recomputed."""


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
            "precision": choices.precision,
            "threads": choices.threads,
            **choices.job,
        },
        "Set up",
    )


def timing_words(timing: TimingSettings, pair_s: float | None) -> str:
    """How many pairs are timed, what ends that, and how many the budget is enough for where it is known
    what a pair takes."""
    least, most, budget = timing.min_pairs, timing.max_pairs, f"{timing.budget_s:g} s"
    said = (
        f"Timing: {least} to {most} pairs of updates of each candidate. After {least} it ends once the "
        f"interval is {timing.width:g} wide or {budget} are spent."
    )
    if pair_s is None:
        return said
    fit = int(timing.budget_s / pair_s)
    each = f" A pair takes about {seconds(pair_s)} at the largest shape (estimated)"
    if fit <= least:
        return (
            f"{said}{each}, so that the budget leaves {least}; another *Timing*, in Advanced, has more."
        )
    return f"{said}{each}, so that the budget is enough for {min(fit, most)}."


def seconds(value: float) -> str:
    """`0.35 s`, `2.1 s`, `40 s`."""
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def plans(choices: Choices) -> list[str]:
    """Every chosen plan, those that recompute the same only once."""
    anatomy = _anatomy(choices)
    named = list(choices.recipes)
    if choices.by_hand:
        named.append("blocks:" + ",".join(str(number) for number in sorted(choices.by_hand)))
    if choices.curve:
        named += first_blocks(anatomy.blocks)
    if not named and not choices.budgets:
        raise InputError("Plans: choose at least one plan, blocks by hand, or the selective curve")
    different: dict[Regions, str] = {}
    for name in named:
        different.setdefault(named_regions(name, anatomy), name)
    return [*different.values(), *choices.budgets]


def shapes(choices: Choices) -> list[dict[str, int]]:
    """Every length or photo shape at every batch size, of the sizes that the workload has."""
    known = sizes_in(choices.workload)
    if not known:
        return [{}]
    batches = whole_numbers("Batch sizes", choices.batches)
    if known == ("batch",):
        return [{"batch": b} for b in batches]
    if "seq_len" in known:
        lengths = whole_numbers("Sequence lengths", choices.lengths)
        return [{"seq_len": n, "batch": b} for n, b in product(lengths, batches)]
    photos = [_photo(text) for text in _given("Photo shapes", choices.lengths)]
    return [{"height": h, "image_width": w, "batch": b} for (h, w), b in product(photos, batches)]


def sizes_in(workload: str) -> tuple[str, ...]:
    """The sizes that a shape of this workload has."""
    return size_fields(OURS[workload]() if workload in OURS else OwnSettings(name=workload))


def _anatomy(choices: Choices) -> Anatomy:
    if choices.workload in OURS:
        return anatomy_of(OURS[choices.workload](blocks=int(choices.settings["blocks"])))
    found: Anatomy = choices.settings["anatomy"]
    return found


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
            raise InputError(f"{what}: {plain[:40]!r} is not a whole number from 1 to 2147483647")
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


def saved_estimates(spec: StudySpec) -> list[tuple[str, str]]:
    """Each plan with its estimated saved MB at the largest shape; plain comes first.

    The closed form knows whole blocks of a model that is not compiled; others have no figure here, and
    where the compiler chooses what is recomputed there is nothing to show.
    """
    anatomy = anatomy_of(spec.workload)
    sizes = largest_sizes(spec)
    rows = []
    for plan in ("none", *(plan for plan in spec.plans if budget_of(plan) is None)):
        regions = regions_of(spec, plan)
        known = spec.compile is None and is_plain_blocks(regions, anatomy)
        rows.append((plan, in_mb(sizes.saved_with(len(regions))) if sizes and known else "–"))
    return rows


def largest_shape(spec: StudySpec) -> dict[str, int]:
    """The shape that keeps most; the last where that is not known."""
    return max(spec.shapes, key=lambda shape: _saved(spec, shape))


def _saved(spec: StudySpec, shape: dict[str, int]) -> int:
    sizes = sizes_of(spec.at(shape), spec.precision)
    return sizes.saved_bytes if sizes else 0


def largest_sizes(spec: StudySpec) -> Sizes | None:
    """The estimated sizes of the largest shape; None for somebody's own model."""
    return sizes_of(spec.at(largest_shape(spec)), spec.precision)


def shape_estimates(spec: StudySpec) -> list[list[str]]:
    """Each shape with what plain keeps and its peak, in MB, estimated."""
    rows = []
    for shape in spec.shapes:
        sizes = sizes_of(spec.at(shape), spec.precision)
        figures = (sizes.saved_bytes, sizes.plain_peak_bytes) if sizes else ()
        rows.append([shape_key(spec.at(shape)), *(map(in_mb, figures) if figures else ("–", "–"))])
    return rows
