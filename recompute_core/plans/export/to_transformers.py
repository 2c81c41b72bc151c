"""A plan as transformers takes it: every n-th layer, whole or keeping the outputs of some ops.

Written for transformers 5.23.0, whose `activation_checkpointing_enable` has `every_n_layers` and hands
other arguments to `torch.utils.checkpoint.checkpoint`. It counts its layers from 0 and recomputes their
forward, so that hooks of a layer run once.
"""

from dataclasses import replace
from pathlib import Path

from ...settings import Anatomy
from ..names import Regions
from .exported import Exported, Family, Nearest, Option, Source, costs_words, differences, remarks, whole

VERSION = "transformers 5.23.0"
_NAME = "transformers"


def families(anatomy: Anatomy, regions: Regions) -> tuple[Family, ...]:
    """Every n-th layer, from few layers to all; the same with the ops kept that the plan keeps."""
    keeps = dict.fromkeys([(), *(region.keep for region in regions)])
    return (
        (Option("nothing recomputed", ()),),
        *(
            tuple(
                Option(
                    ("every layer" if n == 1 else f"layers 0, {n}, {2 * n} …")
                    + (", some op outputs kept" if keep else ""),
                    whole(anatomy.names[::n], keep),
                    (("every_n_layers", n), ("keep", keep)),
                )
                for n in range(anatomy.blocks, 0, -1)
            )
            for keep in keeps
        ),
    )


def export(source: Source, found: Nearest, anatomy: Anatomy) -> Exported:
    """A module with `apply_plan(model)` and `remove_plan(model)`, and what a Trainer takes."""
    cannot = (
        []
        if found.exact
        else differences(anatomy.names, source.regions, _NAME, keeps=True, chains=False)
        or [f"{_NAME} recomputes every n-th layer, all in the same way, and no other choice of layers."]
    )
    notes = ["The layers of your model, in the order of its modules, stand for the blocks of the study."]
    if source.variant == "call":
        notes.append("Hooks of a layer run once: transformers recomputes its forward, not its call.")
    exported = Exported(
        text="",
        filename=f"transformers_{source.slug}.py",
        exact=found.exact,
        cannot=(*cannot, *costs_words(_NAME, source, found)),
        notes=tuple(notes),
        nearest=found,
    )
    return replace(exported, text=_text(source, found.option, exported))


def _text(source: Source, option: Option, exported: Exported) -> str:
    arguments = dict(option.arguments)
    if not arguments:
        return f"{source.comments}#\n{remarks(exported)}# Nothing is to be recomputed: change nothing.\n"
    keep: tuple[str, ...] = arguments["keep"]  # type: ignore[assignment]
    context = '\n    "context_fn": partial(keeping, parse(KEEP)),' if keep else ""
    imports, tail = (_SELECTIVE_IMPORTS, f"\n\n{_selective()}") if keep else ("", "")
    listed = "".join(f'    "{op}",\n' for op in keep)
    constant = f"KEEP = (\n{listed})\n" if keep else ""
    checkpoint = f"""ARGUMENTS = {{
    "use_reentrant": False,
    "preserve_rng_state": {source.preserve_rng},
    "early_stop": {source.early_stop},{context}
}}
\"\"\"What `torch.utils.checkpoint.checkpoint` is told.\"\"\"
EVERY_N_LAYERS = {arguments["every_n_layers"]}
"""
    functions = _FUNCTIONS.replace("TRAINER", _BEFORE_A_TRAINER if keep else _TRAINER)
    body = f"{functions}{tail}\n\n{constant}{checkpoint}"
    head = f"{source.comments}#\n{remarks(exported)}# Written for {VERSION}.\n\n"
    return f"{head}{imports}{_IMPORTS}\n\n{body}"


_IMPORTS = """from transformers import PreTrainedModel
"""
_SELECTIVE_IMPORTS = """from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
"""
_FUNCTIONS = """def apply_plan(model: PreTrainedModel) -> None:
    \"\"\"Recompute in backward, from now on.

    TRAINER
    \"\"\"
    model.activation_checkpointing_enable(ARGUMENTS, every_n_layers=EVERY_N_LAYERS)


def remove_plan(model: PreTrainedModel) -> None:
    \"\"\"Take it off; also the hook by which transformers makes embeddings require gradients.\"\"\"
    model.activation_checkpointing_disable()
    model.disable_input_require_grads()
"""


_TRAINER = """With a Trainer, instead: TrainingArguments(activation_checkpointing=True,
    activation_checkpointing_kwargs={**ARGUMENTS, "every_n_layers": EVERY_N_LAYERS})."""
_BEFORE_A_TRAINER = "With a Trainer: before it is made; its arguments cannot hold a function."


def _selective() -> str:
    """The part of the stand-alone module that keeps the outputs of some ops."""
    text = Path(__file__).with_name("standalone.py").read_text()
    return text[text.index("# --- keeping the outputs") :]
