"""A plan as a stand-alone Python module that needs torch and nothing else."""

import json
from pathlib import Path

from ...spec import Region
from ..names import Regions
from .exported import Exported, Source, module_name

_ORDER = """In this order: apply_plan, then fully_shard (each block, then the model) or
DistributedDataParallel, then torch.compile, whose graphs take the plan in at the first call."""
_WRAPPERS = {"ddp": "DistributedDataParallel", "fsdp2": "fully_shard"}
_BEGIN, _END = "\nVARIANT = ", "\n# --- end of the plan"


def to_torch(source: Source) -> Exported:
    """The module: `apply_plan(model)` puts the plan on, `remove_plan(model)` takes it off."""
    text = Path(__file__).with_name("standalone.py").read_text()
    _, _, after = text.removeprefix('"""').partition('"""')
    before, _, rest = after.partition(_BEGIN)
    _, _, rest = rest.partition(_END)
    return Exported(
        text=f'"""{_docstring(source)}"""{before}{_constants(source)}{_END}{rest}',
        filename=f"{module_name(source.plan)}.py",
        exact=True,
    )


def budget_to_torch(source: Source, percent: int) -> Exported:
    """The lines that set a compiler's memory budget."""
    warning = f"# {source.warning}\n#\n" if source.missed else ""
    text = f"""{warning}# {source.line}
# Read when a model is compiled: run this before the first call of what torch.compile returns.
# Measured with backend="{source.backend}"; another backend may choose otherwise.
# To undo: set it to 1.0, torch's own, and compile again; torch.compiler.reset() drops what is compiled.
import torch._functorch.config

torch._functorch.config.activation_memory_budget = {percent / 100:g}
"""
    return Exported(text=text, filename=f"{module_name(source.plan)}.py", exact=True)


def _docstring(source: Source) -> str:
    title = "Activation checkpointing, a plan that Recompute Studio measured"
    if not source.missed:
        title = "Activation checkpointing as Recompute Studio chose it"
    warning = f"\n\n{_escaped(source.warning)}" if source.missed else ""
    return f"""{title}. Needs torch alone.{warning}

{_escaped(source.line)}

    from {source.module or module_name(source.plan)} import apply_plan, remove_plan

    apply_plan(model)  # with prefix="module." for a model inside DistributedDataParallel
    ...
    remove_plan(model)

{_ORDER}
{_tried(source)}
"""


def _tried(source: Source) -> str:
    """In which of these the study has tried the plan, and in which it cannot work."""
    within = "torch.compile" if source.backend else "none of the three"
    if source.ranks:
        within = _WRAPPERS[source.ranks]
    tried = f"The study ran under {within}."
    if source.variant == "forward" and any(len(region.modules) > 1 for region in source.regions):
        tried += " Not for fully_shard: with VARIANT forward, modules recomputed as one skip its hooks."
    return tried


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"', '\\"')


def _constants(source: Source) -> str:
    keeps = list(dict.fromkeys(region.keep for region in source.regions if region.keep))
    names = {keep: f"KEEP_{number}" for number, keep in enumerate(keeps)}
    lists = "".join(f"{names[keep]} = {_tuple(keep)}\n" for keep in keeps)
    return f"""
VARIANT = {_quoted(source.variant)}
\"\"\"`call`: a module's hooks are recomputed with it; `forward`: its forward alone.\"\"\"
PRESERVE_RNG_STATE = {source.preserve_rng}
\"\"\"A replay draws the random numbers of the first forward.\"\"\"
EARLY_STOP = {source.early_stop}
\"\"\"A replay stops once every tensor that backward needs is back.\"\"\"
{lists}REGIONS: tuple[Region, ...] = {_regions(source.regions, names)}
\"\"\"Outer regions before those inside them.\"\"\"
BLOCKS: tuple[str, ...] = {_tuple(source.blocks) if source.blocks else "()"}
\"\"\"All blocks of the model that the plan was made for, recomputed or not.\"\"\"
"""


def _tuple(items: tuple[str, ...]) -> str:
    if len(items) == 1:
        return f"({_quoted(items[0])},)"
    return "(\n" + "".join(f"    {_quoted(item)},\n" for item in items) + ")"


def _regions(regions: Regions, names: dict[tuple[str, ...], str]) -> str:
    return "(\n" + "".join(f"    {_region(region, names)},\n" for region in regions) + ")"


def _region(region: Region, names: dict[tuple[str, ...], str]) -> str:
    keep = f", keep={names[region.keep]}" if region.keep else ""
    modules = [_quoted(name) for name in region.modules]
    if len(modules) == 1:
        return f"Region(({modules[0]},){keep})"
    if len(line := ", ".join(modules)) < 60:
        return f"Region(({line}){keep})"
    lines = "".join(f"            {name},\n" for name in modules)
    return f"Region(\n        (\n{lines}        ){keep or ','}\n    )"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
