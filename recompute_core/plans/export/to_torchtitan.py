"""A plan as torchtitan takes it: the section `[activation_checkpoint]` of its TOML file.

Written for torchtitan 0.2, which is configured by TOML files; later ones are configured in Python.
`selective` with a number counts layers from 1, so that 2 recomputes the second, the fourth and so on;
with `op` it keeps attention and every second product without a bias.
"""

from dataclasses import replace

from ...settings import Anatomy
from ..names import ATTENTION, Regions
from .exported import Exported, Family, Nearest, Option, Source, costs_words, differences, remarks, whole

VERSION = "torchtitan 0.2"
_NAME = "torchtitan"
_OP = ("aten.mm.default:even", *ATTENTION)


def families(anatomy: Anatomy, regions: Regions) -> tuple[Family, ...]:
    """Nothing, every n-th layer up to all of them, and its policy by op."""
    blocks, layers = anatomy.names, anatomy.blocks
    every_nth = (
        Option(
            f"layers {n}, {2 * n}, … counted from 1",
            whole(blocks[n - 1 :: n]),
            (("mode", "selective"), ("selective_ac_option", str(n))),
        )
        for n in range(layers, 1, -1)
    )
    by_op = Option(
        "every layer but attention and every second matmul",
        whole(blocks, _OP),
        (("mode", "selective"), ("selective_ac_option", "op")),
    )
    return (
        (Option("nothing recomputed", (), (("mode", "none"),)),),
        (*every_nth, Option("every layer", whole(blocks), (("mode", "full"),))),
        (by_op,),
    )


def export(source: Source, found: Nearest, anatomy: Anatomy) -> Exported:
    """The section of the TOML file."""
    cannot = (
        []
        if found.exact
        else differences(anatomy.names, source.regions, _NAME, keeps=False, chains=False)
        or [f"{_NAME} recomputes every layer or every n-th, the n-th first, and no other choice."]
    )
    exported = Exported(
        text="",
        filename=f"torchtitan_{source.slug}.toml",
        exact=found.exact,
        cannot=(*cannot, *costs_words(_NAME, source, found)),
        notes=tuple(_notes(source, found.option)),
        nearest=found,
    )
    return replace(exported, text=_text(source, found.option, exported))


def _notes(source: Source, option: Option) -> list[str]:
    notes = ["The layers of your model stand for the blocks of the study."]
    if source.variant == "forward" and option.regions:
        notes.append("Hooks of a layer are recomputed too: torchtitan recomputes its call.")
    if ("selective_ac_option", "op") in option.arguments:
        notes.append("torchtitan also keeps what its collectives return; the study has none.")
    return notes


def _text(source: Source, option: Option, exported: Exported) -> str:
    lines = [f"{name} = {_toml(value)}" for name, value in option.arguments]
    if ("selective_ac_option", "op") in option.arguments:
        lines.append("per_op_sac_force_recompute_mm_shapes_by_fqns = []")
    if option.regions:
        lines.append(f"preserve_rng_state = {_toml(source.preserve_rng)}")
        lines.append(f"early_stop = {_toml(source.early_stop)}")
    body = "\n".join(lines)
    head = f"{source.comments}#\n{remarks(exported)}# Written for {VERSION}.\n"
    return f"{head}\n[activation_checkpoint]\n{body}\n"


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'
