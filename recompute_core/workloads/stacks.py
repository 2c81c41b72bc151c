"""Which modules of a model are its blocks, where nobody says: siblings of one class, in stacks.

By structure alone; nothing is run.
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

_STACKS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
Chooses = Callable[[nn.Module, nn.Module], bool]
"""Whether a child of a parent may be a block: `(parent, child) -> bool`."""


def repeated(model: nn.Module) -> tuple[str, ...]:
    """FQNs of repeated modules, in the order of the model; the outermost stack counts.

    First what stacks hold that is made of modules itself; if there is none, siblings of one class
    anywhere; at last single layers in stacks.
    """
    known = {name for name, _ in model.named_modules()}  # a module under two names has one here
    for chooses in (_in_a_stack, _anywhere, _layers_in_a_stack):
        found = tuple(name for name in _outermost(model, "", chooses) if name in known)
        if found:
            return found
    return ()


def _in_a_stack(parent: nn.Module, child: nn.Module) -> bool:
    return isinstance(parent, _STACKS) and _is_composite(child)


def _anywhere(parent: nn.Module, child: nn.Module) -> bool:
    return _is_composite(child) and not isinstance(child, nn.Sequential)


def _layers_in_a_stack(parent: nn.Module, child: nn.Module) -> bool:
    return isinstance(parent, _STACKS) and any(True for _ in child.parameters())


def _is_composite(module: nn.Module) -> bool:
    return any(True for _ in module.children()) and not isinstance(module, nn.ModuleList | nn.ModuleDict)


def _outermost(module: nn.Module, path: str, chooses: Chooses) -> Iterator[str]:
    children = list(module.named_children())
    kinds = [_kind(child) if chooses(module, child) else None for _, child in children]
    for (name, child), kind in zip(children, kinds, strict=True):
        where = f"{path}.{name}" if path else name
        if kind is not None and kinds.count(kind) > 1:
            yield where
        else:
            yield from _outermost(child, where, chooses)


def _kind(module: nn.Module) -> Any:
    """A class; of a Sequential also what it holds, as its class says nothing."""
    if type(module) is nn.Sequential:
        return (nn.Sequential, *map(_kind, module.children()))
    return type(module)
