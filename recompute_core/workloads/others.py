"""Somebody's own model as a job, and what a look at it finds: its blocks and their parts.

Importing this imports torch; transformers and timm are imported when a model of theirs is built.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ..errors import InputError
from ..settings import Anatomy, OwnSettings
from .device import replace_tensors
from .job import Job
from .own import OwnModel, from_factory
from .registered import factory_path
from .stacks import repeated
from .update import seed_everything

_CPU, _META = torch.device("cpu"), torch.device("meta")
_ATTENTION = ("attn", "attention")
_MLP = ("mlp", "ffn", "ff", "feed_forward", "feedforward")


def model_of(
    settings: OwnSettings, seed: int, device: torch.device, for_a_check: bool = False
) -> OwnModel:
    """The model that a name stands for; raises InputError with one line.

    `for_a_check`: it will be copied many times, and a model for which there is no memory is refused.
    """
    if settings.kind == "own":
        return from_factory(factory_path(settings.name), seed)
    if settings.kind == "timm":
        from .timm import timm_model

        return timm_model(settings, seed, device)
    from .hf import CHECK_COPIES, STATE_COPIES, hf_model

    return hf_model(settings, seed, device, CHECK_COPIES if for_a_check else STATE_COPIES)


def build(settings: OwnSettings, seed: int) -> Job:
    """The model on the CPU, once, with its batch; its blocks are those that a look has found.

    Every generator is seeded before whoever makes it draws a batch, and before it draws weights.
    """
    return _job(settings, seed, _CPU)


def build_blank(settings: OwnSettings, seed: int) -> Job:
    """The same under a `FakeTensorMode` that is active: tensors without memory.

    A model of transformers is made without memory from the start and may be larger than this machine;
    the others are made in memory first.
    """
    with unset_fake_temporarily():
        job = _job(settings, seed, _META if settings.kind == "hf" else _CPU)
    return _faked(job)


def look(settings: OwnSettings) -> OwnSettings:
    """The settings with the model's anatomy; raises InputError where it has no such block."""
    own = model_of(settings, 0, _META if settings.kind == "hf" else _CPU)
    model = _once(own)
    names = dict(model.named_modules())
    asked = settings.blocks or own.blocks
    missing = next((name for name in asked if name not in names), None)
    if missing is not None:
        raise InputError(
            f"workload.blocks: no module {missing!r}; repeated modules are {_some(repeated(model))}"
        )
    blocks = asked or repeated(model)
    if not blocks:
        raise InputError(
            f"{settings.name}: no module is repeated; name blocks with workload.blocks; "
            f"the model has {_some(name for name, _ in model.named_children())}"
        )
    return settings.model_copy(update={"anatomy": anatomy_of_blocks(blocks, names)})


def anatomy_of_blocks(blocks: tuple[str, ...], modules: dict[str, nn.Module]) -> Anatomy:
    """Blocks, and the parts that all of them have.

    Norms are layers whose weights are vectors; attention and MLP go by the names that the field gives
    them, the outermost such module of each.
    """
    inside = [
        [name for name, _ in modules[block].named_modules(remove_duplicate=False) if name]
        for block in blocks
    ]
    common = reduce(lambda kept, names: [name for name in kept if name in set(names)], inside)
    first = {name: modules[blocks[0]].get_submodule(name) for name in common}
    attention, mlp = _called(first, _ATTENTION), _called(first, _MLP)
    norms = tuple(name for name, module in first.items() if _widest_weight(module) == 1)
    matmuls = tuple(name for name, module in first.items() if _widest_weight(module) > 1)
    known = {attention, mlp, *norms, *matmuls}
    return Anatomy(
        names=blocks,
        norms=norms,
        attention=attention,
        mlp=mlp,
        matmuls=matmuls,
        others=tuple(name for name in common if name not in known),
    )


def _called(modules: dict[str, nn.Module], words: tuple[str, ...]) -> str:
    """The outermost module with weights whose own name has or is one of the words; empty for none."""
    named = [
        name
        for name, module in modules.items()
        if any(_says(name.rpartition(".")[2].lower(), word) for word in words)
        and any(True for _ in module.children())
    ]
    return min(named, key=lambda name: name.count("."), default="")


def _says(name: str, word: str) -> bool:
    return word in name if len(word) > 2 else name == word


def _widest_weight(module: nn.Module) -> int:
    """The most dimensions of a weight of a layer's own; 0 for a module that is made of modules."""
    if any(True for _ in module.children()):
        return 0
    return max((parameter.dim() for parameter in module.parameters(recurse=False)), default=0)


def _some(names: Iterable[str]) -> str:
    return ", ".join(names)[:200] or "none"


def _once(own: OwnModel) -> nn.Module:
    return (own.once or own.build)()


def _job(settings: OwnSettings, seed: int, device: torch.device) -> Job:
    own = model_of(settings, seed, device)
    seed_everything(seed)
    model = _once(own).train()
    blocks = settings.anatomy.names if settings.anatomy else ()
    missing = next((name for name in blocks if not _has(model, name)), None)
    if missing is not None:
        raise InputError(f"{settings.name}: no module {missing!r}; it is not the model of this study")
    job = Job(model=model, batch=_plain(own.inputs), blocks=blocks, tokens=own.tokens, loss=own.loss_fn)
    if not job.inputs:
        raise InputError(f"{settings.name}: its batch holds no tensor")
    return job


def _has(model: nn.Module, name: str) -> bool:
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True


def _plain(batch: Any) -> Any:
    """A batch whose tensors torch can see: a mapping of another kind as a dict."""
    return dict(batch) if hasattr(batch, "keys") else batch


def _faked(job: Job) -> Job:
    """The job with every tensor replaced by one without memory, tied ones once."""
    made: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = torch.empty_strided(
                tensor.size(), tensor.stride(), dtype=tensor.dtype, device=_CPU
            )
        return made[id(tensor)]

    replace_tensors(job.model, fake)
    return job.with_batch(fake)
