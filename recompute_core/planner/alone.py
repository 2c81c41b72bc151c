"""One block by itself on fake tensors: its forward and backward under any treatment."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ..meters.estimate import LiveBytes, Ops
from ..plans.apply import applied, happening
from ..plans.names import Regions
from ..spec import CheckpointSettings, Region
from ..workloads.job import Job

Keep = tuple[str, ...]
"""As in `Region.keep`; empty for a region that is recomputed whole."""
Relative = tuple[tuple[str, Keep], ...]
"""Regions of one block: part (empty for the block itself) and what it keeps; outer before inner."""


@dataclass(frozen=True)
class AloneRun:
    """What a block took under a treatment; bytes leave out the block's own input."""

    stored: int
    """Bytes kept from its forward to its backward."""
    peak: int
    """Highest moment of its backward, what is stored and the arriving gradient included."""
    replayed: Ops
    replays: int
    """Calls of regions that were run again."""
    judged: int
    """Ops of selective regions, in forward."""


class Alone:
    """A block cut out of a job that was built on fake tensors; make and use it under their mode.

    Raises LookupError for a block that is never called.
    """

    def __init__(self, job: Job, name: str, settings: CheckpointSettings) -> None:
        self._model, self._name, self._settings = job.model, name, settings
        self.block = job.model.get_submodule(name)
        self.args, self.kwargs = _captured(job, name)
        given = [t for t in tree_leaves((self.args, self.kwargs)) if isinstance(t, Tensor)]
        self._known = [
            *job.model.parameters(),
            *job.model.buffers(),
            *(p.grad for p in job.model.parameters() if p.grad is not None),
            *given,
        ]
        self.input_bytes = sum(t.untyped_storage().nbytes() for t in given if t.requires_grad)

    def run(self, regions: Relative) -> AloneRun:
        """Forward and backward of the block by itself under a treatment."""
        live = LiveBytes(self._known)
        put_on = applied(self._model, placed(regions, self._name), self._settings)
        with happening() as happened, put_on, live:
            args, kwargs = tree_map(_passed_on, (self.args, self.kwargs))
            ends = [
                _Arrives.apply(leaf)  # type: ignore[no-untyped-call]
                for leaf in tree_leaves(self.block(*args, **kwargs))
                if _flows(leaf)
            ]
            del args, kwargs
            stored, begun = live.alive, len(live.samples)
            torch.autograd.backward(ends, [end.detach() for end in ends])
        return AloneRun(
            stored=stored - self.input_bytes,
            peak=max(live.samples[begun:]) - self.input_bytes,
            replayed=live.replayed,
            replays=happened.replays.total(),
            judged=happened.judged,
        )


def placed(regions: Relative, block: str) -> Regions:
    """A treatment's regions in the block of this FQN."""
    return tuple(
        Region(modules=(f"{block}.{part}" if part else block,), keep=keep) for part, keep in regions
    )


class _Arrives(torch.autograd.Function):
    """Ends a block's output: backward begins with a gradient of the output's size, as in a model."""

    @staticmethod
    def forward(ctx: Any, output: Tensor) -> Tensor:
        ctx.made_like = output.shape, output.dtype, output.device
        return output.new_empty(0)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> Tensor:
        shape, dtype, device = ctx.made_like
        return torch.empty(shape, dtype=dtype, device=device)


class _Reached(Exception):
    """The forward has come to the block that was looked for."""


def _captured(job: Job, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a block is called with, cut off from what came before; raises LookupError if never called."""
    taken: list[Any] = []

    def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        taken.append((args, kwargs))
        raise _Reached

    handle = job.model.get_submodule(name).register_forward_pre_hook(hook, with_kwargs=True)
    try:
        job.forward()
    except _Reached:
        args, kwargs = tree_map(_cut_off, taken[0])
        return args, kwargs
    finally:
        handle.remove()
    raise LookupError(f"{name} is not called in forward")


def _cut_off(value: Any) -> Any:
    return value.detach().requires_grad_() if _flows(value) else value


def _passed_on(value: Any) -> Any:
    """A tensor that is no leaf, so that nothing but the block itself keeps it alive."""
    return value * 1 if _flows(value) else value


def _flows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
