"""What every module of anybody's model keeps for backward, seen in one plain forward.

Covers what goes through saved-tensor hooks; a storage that two modules save counts in both.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..workloads.job import same_bits
from ..workloads.update import storage_of


@dataclass(frozen=True)
class Seen:
    """One forward of a model and its loss."""

    output: Any
    activation_bytes: dict[str, int]
    """By FQN, of each module that was called: distinct storages, parameters and buffers left out."""
    moved: frozenset[str]
    """FQNs of modules with a buffer of their own that forward has changed, such as BatchNorm's."""


def watch_forward(
    model: nn.Module, forward: Callable[[], Any], context: AbstractContextManager[Any]
) -> Seen:
    """Run `forward` in the context and see what each module of `model` keeps. Uses the model up."""
    own = {storage_of(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[str, dict[int, int]] = {}
    inside: list[str] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = storage_of(tensor)
        if storage not in own:
            for name in inside:
                kept[name][storage] = tensor.untyped_storage().nbytes()
        return tensor

    def enters(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            kept.setdefault(name, {})
            inside.append(name)

        return hook

    def leaves(*_: Any) -> None:
        inside.pop()

    before = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    with ExitStack() as stack:
        for name, module in model.named_modules():
            stack.callback(module.register_forward_pre_hook(enters(name), prepend=True).remove)
            stack.callback(module.register_forward_hook(leaves, always_call=True).remove)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed))
        stack.enter_context(context)
        output = forward()
    after = dict(model.named_buffers())
    changed = [name for name, buffer in before.items() if not same_bits(buffer, after.get(name))]
    return Seen(
        output=output,
        activation_bytes={name: sum(bytes_of.values()) for name, bytes_of in kept.items()},
        moved=frozenset(name.rpartition(".")[0] for name in changed),
    )
