"""A plan as Megatron-LM takes it: its command line's arguments.

Written for Megatron-LM core 0.15. `full` recomputes layers: `block` the first N of each pipeline stage,
each by itself, `uniform` all of them in groups of N; `selective` parts of every layer. All counts are
for one stage.
"""

from dataclasses import replace
from itertools import combinations

from ...settings import Anatomy
from ...spec import Region
from ..names import MATMULS, Regions
from .exported import Exported, Family, Nearest, Option, Source, costs_words, differences, remarks, whole

VERSION = "Megatron-LM core 0.15"
_NAME = "Megatron-LM"


def families(anatomy: Anatomy, regions: Regions) -> tuple[Family, ...]:
    """Nothing, the first N layers, all layers in groups of N, and every choice of parts."""
    blocks, layers = anatomy.names, anatomy.blocks
    first = tuple(
        Option(f"layers 1 to {n} of {layers}", whole(blocks[:n]), _full("block", n))
        for n in range(1, layers)
    )
    groups = tuple(
        (Option(_groups_words(n), _groups(blocks, n), _full("uniform", n)),)
        for n in range(2, layers + 1)
        if layers % n == 0
    )
    every = Option("every layer", whole(blocks), _full("uniform", 1))
    return (
        (Option("nothing recomputed", ()),),
        (*first, every),
        *groups,
        *((option,) for option in _parts(anatomy)),
    )


def _full(method: str, number: int) -> tuple[tuple[str, object], ...]:
    return (
        ("--recompute-granularity", "full"),
        ("--recompute-method", method),
        ("--recompute-num-layers", number),
    )


def _groups_words(number: int) -> str:
    return f"all layers in groups of {number}"


def _groups(blocks: tuple[str, ...], number: int) -> Regions:
    return tuple(
        Region(modules=blocks[start : start + number]) for start in range(0, len(blocks), number)
    )


def _parts(anatomy: Anatomy) -> list[Option]:
    """`selective`: any of attention's core, the norms and the MLP, in every layer."""
    known: dict[str, list[Region]] = {}
    if anatomy.attention:
        known["core_attn"] = [
            Region(modules=(f"{block}.{anatomy.attention}",), keep=MATMULS) for block in anatomy.names
        ]
    if anatomy.norms:
        known["layernorm"] = [
            Region(modules=(f"{block}.{norm}",)) for block in anatomy.names for norm in anatomy.norms
        ]
    if anatomy.mlp:
        known["mlp"] = [Region(modules=(f"{block}.{anatomy.mlp}",)) for block in anatomy.names]
    return [
        Option(
            f"{', '.join(names)} of every layer",
            tuple(region for name in names for region in known[name]),
            (("--recompute-granularity", "selective"), ("--recompute-modules", " ".join(names))),
        )
        for count in range(1, len(known) + 1)
        for names in combinations(known, count)
    ]


def export(source: Source, found: Nearest, anatomy: Anatomy) -> Exported:
    """The arguments, one a line."""
    parts = dict(found.option.arguments).get("--recompute-modules", "")
    discards = "layernorm" in str(parts)
    cannot = [] if found.exact else _differences(source.regions, anatomy)
    if discards:
        cannot.append(
            "layernorm also lets go of what the norms return, so that it keeps less than estimated."
        )
    exported = Exported(
        text="",
        filename=f"megatron_{source.slug}.txt",
        exact=found.exact and not discards,
        cannot=(*cannot, *costs_words(_NAME, source, found)),
        notes=(*_notes(source, found.option),),
        nearest=found,
    )
    return replace(exported, text=_text(source, found.option, exported))


_PARTS_WORDS = (
    "recomputes of a layer's parts only the core of attention (without its projections), the norms and "
    "the MLP, each in every layer, not these by themselves"
)


def _differences(regions: Regions, anatomy: Anatomy) -> list[str]:
    return differences(
        anatomy.names, regions, _NAME, keeps=False, chains=True, parts_words=_PARTS_WORDS
    ) or [
        f"{_NAME} recomputes the first layers, all of them, or all in equal groups, and no other choice."
    ]


def _notes(source: Source, option: Option) -> list[str]:
    notes = [
        "The layers of your model stand for the blocks of the study.",
        "Counts are for one pipeline stage.",
    ]
    if not option.regions:
        return notes
    if not source.preserve_rng:
        notes.append("Megatron-LM always replays under the random state of the first forward.")
    if source.early_stop:
        notes.append("Megatron-LM replays to the end: a little more work than estimated.")
    if source.variant == "forward":
        notes.append("Hooks of what is recomputed run again.")
    return notes


def _text(source: Source, option: Option, exported: Exported) -> str:
    lines = "\n".join(f"{name} {value}" for name, value in option.arguments)
    head = f"{source.comments}#\n{remarks(exported)}# Written for {VERSION}.\n"
    return f"{head}{lines or '# Nothing is to be recomputed: no argument.'}\n"
