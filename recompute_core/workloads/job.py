"""The one shape every workload takes once it is built."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map

MakesOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass(frozen=True)
class Job:
    """A model with its loss, and the fixed batch it is trained on.

    `forward` gives output and loss, so that the loss's own tensors are inside every meter.
    """

    model: nn.Module
    batch: Any
    """What the model is called with: a tuple or list of arguments, a mapping of them by name, or one."""
    blocks: tuple[str, ...]
    """FQNs of the candidate blocks, in the order of forward."""
    outside: tuple[str, ...] = field(default=(), kw_only=True)
    """FQNs of modules outside the blocks that a plan may recompute too."""
    tokens: int | None
    """Positions a parameter sees in one update, for the 6 x parameters x tokens envelope."""
    loss: Callable[[Any], Tensor] | None = None
    """Of the model's output; None: the model returns `(output, loss)`."""
    optimizer: MakesOptimizer | None = None
    """Makes the optimizer of the model; None: AdamW."""
    data_digest: str | None = None
    """SHA-256 of the data set the batch comes from; None for synthetic batches."""
    called: nn.Module | None = None
    """What is called in the model's place: a wrapper that trains it together with other processes."""
    compiled: Callable[..., tuple[Any, Tensor]] | None = None
    """Model and loss as one compiled function of the batch's arguments; None: they run as they are."""

    def forward(self) -> tuple[Any, Tensor]:
        """One forward on the batch: output and loss."""
        positional, named = called_with(tree_map(_itself, self.batch))  # a list may be used up
        if self.compiled is not None:
            return self.compiled(*positional, **named)
        output = (self.model if self.called is None else self.called)(*positional, **named)
        return output if self.loss is None else (output, self.loss(output))

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors of the batch."""
        return [leaf for leaf in tree_leaves(self.batch) if isinstance(leaf, Tensor)]

    @property
    def device(self) -> torch.device:
        """Where the batch is."""
        return self.inputs[0].device

    @property
    def batch_digest(self) -> str:
        return tensors_digest(named_tensors(self.batch))

    def with_batch(self, change: Callable[[Tensor], Tensor]) -> "Job":
        """The job with every tensor of its batch changed; those that its loss refers to stay."""
        return replace(
            self,
            batch=tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, self.batch),
        )


def _itself(leaf: Any) -> Any:
    return leaf


def with_tensors(loss: Callable[[Any], Tensor] | None, change: Callable[[Tensor], Tensor]) -> Any:
    """A loss whose targets are changed: the tensors that a function or a partial refers to itself."""
    if isinstance(loss, partial):
        given = tree_map(_if_tensor(change), (loss.args, loss.keywords))
        return partial(with_tensors(loss.func, change), *given[0], **given[1])
    if not isinstance(loss, FunctionType):
        return loss
    cells = tuple(CellType(_if_tensor(change)(cell.cell_contents)) for cell in loss.__closure__ or ())
    given = tree_map(_if_tensor(change), (loss.__defaults__, loss.__kwdefaults__))
    made = FunctionType(loss.__code__, loss.__globals__, loss.__name__, given[0], cells)
    made.__kwdefaults__ = given[1]
    return made


def _if_tensor(change: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    return lambda value: change(value) if type(value) is Tensor else value


def named_tensors(batch: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a batch by their place in it: `0`, `1`, `input_ids`, `labels`, `0/mask`."""
    leaves, _ = tree_flatten_with_path(batch)
    return [
        ("/".join(str(getattr(step, "key", getattr(step, "idx", step))) for step in path) or "0", leaf)
        for path, leaf in leaves
        if isinstance(leaf, Tensor)
    ]


def called_with(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a model is called with a batch: a tuple or list as arguments, a mapping by name."""
    if isinstance(batch, tuple | list):
        return tuple(batch), {}
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (batch,), {}


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which each rank holds a share, collected by all of them; any other as it is."""
    collect = getattr(tensor, "full_tensor", None)
    return tensor if collect is None else collect()


def own_share(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor of which each rank holds a share; any other as it is."""
    take = getattr(tensor, "to_local", None)
    return tensor if take is None else take()


def same_bits(old: Tensor | None, new: Tensor | None) -> bool:
    """Whether two tensors are there and hold the same bits, NaN included."""
    if old is None or new is None or old.shape != new.shape or old.dtype != new.dtype:
        return False
    flat = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (old, new)]
    return torch.equal(flat[0], flat[1])


def tensors_digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """`sha256:` over names, dtypes, shapes and bytes, in the given order."""
    sha = hashlib.sha256()
    for name, tensor in named:
        sha.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        plain = tensor.detach().cpu().contiguous()
        sha.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return "sha256:" + sha.hexdigest()
