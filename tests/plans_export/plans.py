"""Plans to export, and a loaded export."""

import importlib.util
from pathlib import Path
from types import ModuleType

from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.export.exported import Source
from recompute_core.plans.export.to_torch import to_torch
from recompute_core.plans.names import ATTENTION, MATMULS, RECIPES, Regions, named_regions
from recompute_core.settings import GptSettings
from recompute_core.spec import CheckpointSettings, Region

GPT = GptSettings(blocks=4, width=32, heads=2, vocab=17, seq_len=16, batch=2)
ANATOMY = anatomy_of(GPT)


def region(*modules: str, keep: tuple[str, ...] = ()) -> Region:
    return Region(modules=modules, keep=keep)


CUSTOM: dict[str, Regions] = {
    "chained": (region("blocks.0", "blocks.1", "blocks.2"), region("blocks.3.mlp")),
    "chained, nested": (region("blocks.0", "blocks.1"), region("blocks.0"), region("blocks.1.attn")),
    "chained, selective": (region("blocks.1", "blocks.2", keep=MATMULS),),
    "two chains": (region("blocks.0", "blocks.1"), region("blocks.2", "blocks.3")),
    "calls": (
        region("blocks.0", keep=("aten.mm.default:0,3", "aten.mm.default:odd")),
        region("blocks.1", keep=("aten.mm.default:even",)),
        region("blocks.2", keep=(*ATTENTION, "aten.nothing.default")),
        region("blocks.3.attn", keep=("aten.mm.default:2",)),
    ),
}
RECIPE_PLANS: dict[str, Regions] = {
    recipe.name: named_regions(recipe.name, ANATOMY) for recipe in RECIPES if recipe.name != "none"
}
PLANS = RECIPE_PLANS | CUSTOM


def source(regions: Regions, plan: str = "mine", checkpoint: CheckpointSettings | None = None) -> Source:
    how = checkpoint or CheckpointSettings()
    return Source(
        plan=plan,
        plan_hash="sha256:0",
        study="20260101-000000-0000",
        model="gpt (blocks=4)",
        shape="T=16 B=2",
        torch="torch 2.13.0+cpu",
        regions=regions,
        variant=how.variant,
        early_stop=how.early_stop,
        preserve_rng=how.rng == "preserve",
    )


def loaded(folder: Path, regions: Regions, checkpoint: CheckpointSettings | None = None) -> ModuleType:
    """The exported plan as a module."""
    path = folder / f"plan_{len(list(folder.iterdir()))}.py"
    path.write_text(to_torch(source(regions, checkpoint=checkpoint)).text)
    return load(path)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
