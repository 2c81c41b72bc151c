"""Somebody's own model as a job, and what a look at it finds: its blocks and their parts.

Importing this imports torch; transformers and timm are imported when a model of theirs is built.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves

from ..errors import InputError
from ..settings import Anatomy, OwnSettings
from .device import replace_tensors
from .job import Job, with_tensors
from .own import Made, OwnModel, from_factory, plain_batch
from .registered import factory_path
from .rows import rows_to_share
from .stacks import repeated

_CPU, _META = torch.device("cpu"), torch.device("meta")
_ATTENTION = ("attn", "attention")
_MLP = ("mlp", "ffn", "ff", "feed_forward", "feedforward")


def model_of(
    settings: OwnSettings,
    seed: int,
    device: torch.device,
    for_a_check: bool = False,
    keep: bool = False,
) -> OwnModel:
    """The model that a name stands for; raises InputError with one line.

    `for_a_check`: it will be copied many times, and a model for which there is no memory is refused.
    `keep`: it is made once, and that one is asked for.
    """
    if settings.kind == "own":
        return from_factory(factory_path(settings.name), seed, keep)
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


def look(settings: OwnSettings, ranks: int | None = None) -> OwnSettings:
    """The settings with the model's anatomy; raises InputError where it has no such block, and for a
    batch that so many ranks cannot share."""
    own = model_of(settings, 0, _META if settings.kind == "hf" else _CPU, keep=True)
    made = _made(own)
    model = made.model
    _check_batch(settings.name, made.batch, ranks)
    names = dict(model.named_modules())
    asked = settings.blocks or own.blocks
    _check_blocks(asked, names, model)
    blocks = tuple(name for name in names if name in asked) or repeated(model)
    if not blocks:
        raise InputError(
            f"{settings.name}: no module is repeated; name blocks with workload.blocks; "
            f"the model has {_some(name for name, _ in model.named_children())}"
        )
    anatomy = anatomy_of_blocks(blocks, names)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return settings.model_copy(update={"anatomy": anatomy.model_copy(update={"parameters": parameters})})


def _check_batch(name: str, batch: Any, ranks: int | None) -> None:
    plain = plain_batch(batch)
    if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(plain)):
        raise InputError(
            f"{name}: its batch holds no tensor that can be seen; a study takes tensors in tuples, "
            "lists and mappings"
        )
    if ranks is not None:
        try:
            rows_to_share(plain, ranks)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None


def _check_blocks(asked: tuple[str, ...], names: dict[str, nn.Module], model: nn.Module) -> None:
    """Raises InputError for blocks that are not there, never called, named twice or in each other."""
    for number, name in enumerate(asked):
        if name not in names:
            known = _some(repeated(model))
            raise InputError(f"workload.blocks: no module {name!r}; repeated modules are {known}")
        if not name:
            raise InputError("workload.blocks: the whole model is no block of a study")
        if isinstance(names[name], nn.ModuleList | nn.ModuleDict):
            raise InputError(
                f"workload.blocks: {name} is a container and never called; name what is in it"
            )
        for other in asked[:number]:
            if f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}."):
                raise InputError(f"workload.blocks: {other} and {name} meet; name each module once")


# --- the parts of blocks --------------------------------------------------------------------------


def anatomy_of_blocks(blocks: tuple[str, ...], modules: dict[str, nn.Module]) -> Anatomy:
    """Blocks, and the parts that all of them have.

    Attention and MLP go by the names that the field gives them, norms by their class's name or their
    own. A part is known where each block holds one such module; a block that holds several attentions
    or MLPs is a stage, none of whose parts is known.
    """
    inside = [_inside(modules[block]) for block in blocks]
    common = [name for name in inside[0] if all(name in one for one in inside)]
    attention, mlp = (_the_one(inside, words) for words in (_ATTENTION, _MLP))
    is_stage = attention is None or mlp is None
    norms = tuple(name for name in common if all(_is_norm(name, one[name]) for one in inside))
    matmuls = tuple(name for name in common if _widest_weight(inside[0][name]) > 1)
    parts = {attention, mlp, *norms} if not is_stage else set()
    return Anatomy(
        names=blocks,
        norms=() if is_stage else norms,
        attention="" if is_stage else attention or "",
        mlp="" if is_stage else mlp or "",
        matmuls=matmuls,
        others=tuple(name for name in common if name not in {*parts, *matmuls}),
        alike=len({_shapes(one) for one in inside}) == 1,
    )


def _inside(block: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in block.named_modules(remove_duplicate=False) if name}


def _the_one(inside: list[dict[str, nn.Module]], words: tuple[str, ...]) -> str | None:
    """The one outermost module that goes by these words in every block; empty where there is none in
    common, None where a block has several."""
    found = [_called(one, words) for one in inside]
    if any(len(names) > 1 for names in found):
        return None
    names = {name for one in found for name in one}
    return names.pop() if len(names) == 1 and all(found) else ""


def _called(modules: dict[str, nn.Module], words: tuple[str, ...]) -> list[str]:
    """The outermost modules, made of modules, whose own name has or is one of the words."""
    found: list[str] = []
    for name, module in modules.items():
        own = name.rpartition(".")[2].lower()
        is_inside = any(name.startswith(f"{outer}.") for outer in found)
        if not is_inside and any(True for _ in module.children()) and any(_says(own, w) for w in words):
            found.append(name)
    return found


def _says(name: str, word: str) -> bool:
    return word in name if len(word) > 2 else name == word


def _is_norm(name: str, module: nn.Module) -> bool:
    own = name.rpartition(".")[2].lower()
    by_name = "norm" in own or own.startswith(("ln", "bn")) or "norm" in type(module).__name__.lower()
    return by_name and _widest_weight(module) == 1


def _shapes(modules: dict[str, nn.Module]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(
        (f"{name}.{key}", tuple(parameter.shape))
        for name, module in modules.items()
        for key, parameter in module.named_parameters(recurse=False)
    )


def _widest_weight(module: nn.Module) -> int:
    """The most dimensions of a weight of a layer's own; 0 for a module that is made of modules."""
    if any(True for _ in module.children()):
        return 0
    return max((parameter.dim() for parameter in module.parameters(recurse=False)), default=0)


def _some(names: Iterable[str]) -> str:
    return ", ".join(names)[:200] or "none"


# --- as a job -------------------------------------------------------------------------------------


def _made(own: OwnModel) -> Made:
    return own.once() if own.once else Made(own.build(), own.inputs, own.loss_fn)


def _job(settings: OwnSettings, seed: int, device: torch.device) -> Job:
    own = model_of(settings, seed, device, keep=True)
    made = _made(own)
    blocks = settings.anatomy.names if settings.anatomy else ()
    missing = next((name for name in blocks if not _has(made.model, name)), None)
    if missing is not None:
        raise InputError(f"{settings.name}: no module {missing!r}; it is not the model of this study")
    return Job(
        made.model,
        plain_batch(made.batch),
        blocks,
        own.tokens,
        loss=made.loss,
        optimizer=made.optimizer,
    )


def _has(model: nn.Module, name: str) -> bool:
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True


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
    for module in job.model.modules():
        for name, held in vars(module).items():
            if isinstance(held, Tensor):  # neither a parameter nor a buffer
                vars(module)[name] = fake(held)
    return replace(job.with_batch(fake), loss=with_tensors(job.loss, fake))
