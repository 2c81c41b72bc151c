"""The one shape every workload takes once it is built."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Job:
    """A model with its loss inside, and the fixed batch it is trained on.

    `model(*batch)` returns `(output, loss)`, so that the loss's own tensors are inside every meter.
    """

    model: nn.Module
    batch: tuple[Tensor, ...]
    blocks: tuple[str, ...]
    """FQNs of the candidate blocks, in the order of forward."""
    outside: tuple[str, ...] = field(default=(), kw_only=True)
    """FQNs of modules outside the blocks that a plan may recompute too."""
    tokens: int
    """Positions a parameter sees in one update, for the 6 x parameters x tokens envelope."""
    data_digest: str | None = None
    """SHA-256 of the data set the batch comes from; None for synthetic batches."""

    @property
    def batch_digest(self) -> str:
        return tensors_digest((str(i), tensor) for i, tensor in enumerate(self.batch))


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
