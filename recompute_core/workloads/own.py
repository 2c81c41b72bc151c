"""Somebody's own model, made by a factory `package.module:function`.

The factory takes nothing and returns `(model, batch)`, or up to five things in this order, or a mapping
with these keys:

`model`      the `nn.Module`, in training mode, on the device where it is to run
`batch`      what it is called with: a tuple or list of arguments, a mapping of them by name, one tensor
`loss`       a function of the model's output. Without one: the output's own `loss`, or else the mean
             square of its floating leaves
`optimizer`  one of torch.optim over the model's parameters, or a function of them that makes one; AdamW
             without it. A check of blocks takes a step of plain SGD instead
`blocks`     FQNs of the candidate blocks. Without them: repeated modules, as `stacks` finds them

A study calls it once in each of its processes, a check once for every training step that needs a fresh
model, with every generator seeded; what it draws from torch, `random` and NumPy is then the same each
time. The loss may refer to the model that it came with.
"""

import copy
import importlib
import inspect
import traceback
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..errors import InputError
from .extras import declare_vision_ops
from .job import MakesOptimizer, named_tensors, tensors_digest
from .update import seed_everything

PARTS = ("model", "batch", "loss", "optimizer", "blocks")


@dataclass(frozen=True)
class Made:
    """A model, and what was made together with it."""

    model: nn.Module
    batch: Any
    loss: Callable[[Any], Tensor]
    optimizer: MakesOptimizer | None = None
    """Makes the optimizer of a model like this one; None: AdamW."""


@dataclass(frozen=True)
class OwnModel:
    """A model with its batch and its loss: what a check of blocks needs."""

    build: Callable[[], nn.Module]
    """Makes a fresh model, the same one after the same seed; quick the second time."""
    inputs: Any
    """A tuple or list of arguments, a mapping of them by name, or one tensor."""
    loss_fn: Callable[[Any], Tensor]
    """Of the model's output."""
    blocks: tuple[str, ...] = ()
    """FQNs of the candidate blocks; none: they are found."""
    batch_words: str = ""
    """What the batch is, where we chose it."""
    once: "Callable[[], Made] | None" = None
    """The model with the batch and the loss that belong to it, no other kept to copy from."""
    tokens: int | None = None
    """Positions a parameter sees in one update, where that is known."""


def from_factory(path: str, seed: int = 0, keep: bool = False) -> OwnModel:
    """The model that `package.module:function` makes; raises InputError with one line.

    Generators are seeded between the import, which may draw from them too, and the first call. `keep`
    keeps what that call made, for `once`.
    """
    factory = _imported(path)
    seed_everything(seed)
    first = _made(path, factory)
    model = weakref.ref(first["model"])  # a factory that gives it again keeps it alive
    loss = [first.get("loss") or default_loss]
    digests: set[str] = set()

    def build() -> nn.Module:
        made = _made(path, factory)
        digests.add(tensors_digest(named_tensors(plain_batch(made["batch"]))))
        if len(digests) > 1:
            raise InputError(
                f"{path}: batch: it is another one each time under the same seed; seed what it is drawn "
                "from (torch, random and NumPy are seeded before each call)"
            )
        if made["model"] is model():
            return copy.deepcopy(model())  # type: ignore[return-value]
        loss[:] = [made.get("loss") or default_loss]  # it may refer to its model
        return made["model"]  # type: ignore[no-any-return]

    def its_loss(output: Any) -> Tensor:
        return loss[0](output)

    kept = None
    if keep:
        optimizer = _optimizer(path, first.get("optimizer"), first["model"])
        kept = Made(first["model"], first["batch"], loss[0], optimizer)
    return OwnModel(
        build=build,
        inputs=first["batch"],
        loss_fn=default_loss if first.get("loss") is None else its_loss,
        blocks=tuple(first.get("blocks") or ()),
        once=(lambda: kept) if kept else None,
    )


def _imported(path: str) -> Callable[[], Any]:
    module, _, function = path.partition(":")
    declare_vision_ops()
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path}: {module} cannot be imported: {_line(error)}") from None
    for name in function.split("."):
        if not hasattr(found, name):
            raise InputError(f"{path}: {module} has no {function}")
        found = getattr(found, name)
    if not callable(found):
        raise InputError(f"{path}: {function} is no function but a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _made(path: str, factory: Callable[[], Any]) -> dict[str, Any]:
    """The parts that the factory returns, checked."""
    try:
        returned = factory()
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(f"{path}: raised {_line(error)} ({last.filename}:{last.lineno})") from None
    if isinstance(returned, Mapping):
        parts = dict(returned)
    elif isinstance(returned, tuple | list) and 2 <= len(returned) <= len(PARTS):
        parts = dict(zip(PARTS, returned, strict=False))
    else:
        raise InputError(
            f"{path}: expected (model, batch), with loss, optimizer and blocks if you like, or a "
            f"mapping of them; it returned a {type(returned).__name__}"
        )
    unknown = [key for key in parts if key not in PARTS]
    if unknown or "batch" not in parts:
        what = f"has no {unknown[0]!r}" if unknown else "needs a batch"
        raise InputError(f"{path}: what it returns {what}; the keys are {', '.join(PARTS)}")
    if not isinstance(parts.get("model"), nn.Module):
        raise InputError(f"{path}: model: expected a module, got a {type(parts.get('model')).__name__}")
    if parts.get("loss") is not None and not callable(parts["loss"]):
        raise InputError(f"{path}: loss: expected a function of the model's output")
    blocks = parts.get("blocks") or ()
    if isinstance(blocks, str) or not all(isinstance(name, str) for name in blocks):
        raise InputError(f"{path}: blocks: expected a list of FQNs, got {blocks!r}")
    return parts


def _optimizer(path: str, given: Any, model: nn.Module) -> MakesOptimizer | None:
    """What makes the given optimizer again for a model whose parameters are other tensors by then."""
    if given is None:
        return None
    if isinstance(given, torch.optim.Optimizer):
        return _like(path, given, model)
    if not callable(given):
        raise InputError(
            f"{path}: optimizer: expected one of torch.optim, or a function of the parameters that "
            f"makes one, got {type(given).__name__}"
        )

    def made(trained: nn.Module) -> torch.optim.Optimizer:
        found = given([p for p in trained.parameters() if p.requires_grad])
        if not isinstance(found, torch.optim.Optimizer):
            raise InputError(f"{path}: optimizer: the function makes a {type(found).__name__}")
        return found

    return made


def _like(path: str, given: torch.optim.Optimizer, model: nn.Module) -> MakesOptimizer:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in given.param_groups:
        if any(id(parameter) not in names for parameter in group["params"]):
            raise InputError(f"{path}: optimizer: it holds a parameter that is not the model's")
    groups = [
        {**group, "params": [names[id(parameter)] for parameter in group["params"]]}
        for group in given.param_groups
    ]
    kind: Any = type(given)
    known = inspect.signature(kind).parameters
    defaults = {key: value for key, value in given.defaults.items() if key in known}

    def made(trained: nn.Module) -> torch.optim.Optimizer:
        there = dict(trained.named_parameters())
        found: torch.optim.Optimizer = kind(
            [{**group, "params": [there[name] for name in group["params"]]} for group in groups],
            **defaults,
        )
        return found

    return made


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def own_loss(output: Any) -> Tensor | None:
    """The loss that an output carries, as an attribute or under the key `loss`."""
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return found if isinstance(found, Tensor) else None


def plain_batch(batch: Any) -> Any:
    """A batch whose tensors torch can see: mappings of other kinds as dicts, however deep."""
    if isinstance(batch, Mapping):
        return {key: plain_batch(value) for key, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(map(plain_batch, batch))
    return batch


def default_loss(output: Any) -> Tensor:
    """The output's own loss, or the mean square of its floating leaves."""
    own = own_loss(output)
    if own is not None:
        return own
    leaves = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    squares = [leaf.abs().square().mean() for leaf in leaves if _has_gradient(leaf)]
    if not squares:
        raise InputError(
            "loss: the output holds no floating tensor to take the mean square of; give a loss"
        )
    return sum(squares[1:], squares[0])


def _has_gradient(leaf: Tensor) -> bool:
    return leaf.is_floating_point() or leaf.is_complex()


def template(make: Callable[[], nn.Module], seed: int) -> Callable[[], nn.Module]:
    """Makes copies of one model, made once under the seed; for models that no hook shares."""
    once = seeded(make, seed)
    made: list[nn.Module] = []

    def build() -> nn.Module:
        made[:] = made or [once()]
        return copy.deepcopy(made[0])

    return build


def seeded(make: Callable[[], nn.Module], seed: int) -> Callable[[], nn.Module]:
    """Makes the model in training mode under the seed, anew each time."""

    def build() -> nn.Module:
        seed_everything(seed)
        return make().train()

    return build
