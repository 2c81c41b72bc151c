"""Models that behave on one process and come to grief on a rank, each in its own way."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recompute_core.meters.estimate import is_replaying

RANK = os.environ.get("RANK")
"""None in the process that computes the reference."""
BATCH = 8


class Block(nn.Module):
    def __init__(self, trouble: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.trouble = trouble

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.trouble(x))))


def _untroubled(x: Tensor) -> Tensor:
    return x


def _made(trouble: Callable[[Tensor], Tensor] = _untroubled) -> dict[str, Any]:
    layers = nn.Sequential(Block(_untroubled), Block(trouble))
    batch = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(0))
    return {"model": layers, "batch": batch, "blocks": ["0", "1"]}


def _on_rank_1(trouble: Callable[[], object]) -> dict[str, Any]:
    def met(x: Tensor) -> Tensor:
        if RANK == "1":
            trouble()
        return x

    return _made(met)


def well() -> dict[str, Any]:
    """Targets that the loss refers to, cut like the batch."""
    made = _made()
    targets = torch.arange(BATCH) % 8

    def loss(output: Tensor) -> Tensor:
        return F.cross_entropy(output, targets)

    return {**made, "loss": loss}


def killed() -> dict[str, Any]:
    return _on_rank_1(lambda: os.kill(os.getpid(), signal.SIGKILL))


def raises() -> dict[str, Any]:
    def trouble() -> None:
        raise ValueError("this rank has had enough")

    return _on_rank_1(trouble)


def out_of_memory() -> dict[str, Any]:
    def trouble() -> None:
        raise MemoryError("no more of it")

    return _on_rank_1(trouble)


def leaves() -> dict[str, Any]:
    return _on_rank_1(lambda: os._exit(3))


def sleeps() -> dict[str, Any]:
    return _on_rank_1(lambda: time.sleep(600))


def draws() -> dict[str, Any]:
    """Rank 1 draws one number more than it would by itself, as under another seed."""
    return _on_rank_1(lambda: torch.rand(1))


def summed() -> dict[str, Any]:
    """Over ranks the gradients are as large as if they were added up and not averaged."""
    made = _made()
    if RANK is not None:
        made["model"].append(_Doubled())
    return made


class _Doubled(nn.Module):
    """The same, with twice its gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x - x.detach()


def replayed_wrong() -> dict[str, Any]:
    """A replay on rank 1 is given another input than its forward."""
    return _made(lambda x: 1.01 * x if RANK == "1" and is_replaying() else x)


def illegal() -> dict[str, Any]:
    """No block can be replayed: running statistics move with every forward."""
    made = _made()
    made["model"] = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in "ab"))
    return made


def cannot_be_cut() -> dict[str, Any]:
    made = _made()
    return {**made, "batch": {"input": made["batch"], "mask": torch.ones(3, 3)}}
