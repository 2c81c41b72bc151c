"""Factories as a user would write them, by the path that registers them."""

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16) if norm else nn.Identity()
        self.down = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.norm(self.up(x)).relu())


class Net(nn.Module):
    def __init__(self, *norms: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(norm) for norm in norms or (False, False))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for layer in self.layers:
            x = layer(x)
        return {"scores": self.head(x)}


def _batch() -> Tensor:
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


def least() -> tuple[nn.Module, Tensor]:
    return Net(), _batch()


def regular() -> dict[str, Any]:
    """A loss that refers to its own model: a penalty on the weights."""
    model = Net()

    def loss(output: dict[str, Tensor]) -> Tensor:
        penalty = torch.stack([p.square().sum() for p in model.parameters()]).sum()
        return output["scores"].square().mean() + penalty

    return {"model": model, "batch": _batch(), "loss": loss}


def momentum() -> dict[str, Any]:
    """An optimizer of its own, in two groups."""
    model = Net()
    optimizer = torch.optim.SGD(
        [
            {"params": list(model.layers.parameters())},
            {"params": list(model.head.parameters()), "lr": 0.5},
        ],
        lr=0.1,
        momentum=0.9,
    )
    return {"model": model, "batch": _batch(), "optimizer": optimizer}


def anothers_optimizer() -> dict[str, Any]:
    return {"model": Net(), "batch": _batch(), "optimizer": torch.optim.SGD(Net().parameters())}


def frozen_norm() -> tuple[nn.Module, Tensor]:
    """Fine-tuning: in double precision, the statistics of a norm as they are."""
    model = Net(True, False).double()
    model.get_submodule("layers.0.norm").eval()
    return model, _batch().double()


class _Opaque:
    """A container that torch cannot look into."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


def opaque() -> tuple[nn.Module, Any]:
    return Net(), _Opaque(_batch())


def ends() -> tuple[nn.Module, Tensor]:
    """Code that ends the process, as a crash does."""
    sys.stderr.write("goodbye\n")
    sys.stderr.flush()
    os._exit(3)


_DRAWS = torch.Generator().manual_seed(7)


def restless() -> tuple[nn.Module, Tensor]:
    """A batch from a generator that nobody seeds again."""
    return Net(), torch.randn(16, 8, generator=_DRAWS)


def drawn() -> tuple[nn.Module, Tensor]:
    """A batch from the generator that everybody shares."""
    return Net(), torch.randn(16, 8)


def with_norm() -> tuple[nn.Module, Tensor]:
    return Net(True, False), _batch()


def all_norms() -> tuple[nn.Module, Tensor]:
    return Net(True, True), _batch()


def everything() -> dict[str, Any]:
    def loss(output: dict[str, Tensor]) -> Tensor:
        return output["scores"].square().sum()

    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    return {
        "model": Net(),
        "batch": {"x": _batch()},
        "loss": loss,
        "optimizer": optimizer,
        "blocks": ["layers.1"],
    }


_ONE = Net()


def same() -> tuple[nn.Module, Tensor]:
    """The same module every time."""
    return _ONE, _batch()


def lonely() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()), _batch()


class _UsesUp(Net):
    def forward(self, xs: list[Tensor], scale: Tensor) -> dict[str, Tensor]:
        scale.mul_(2)
        return super().forward(xs.pop() * scale)


def uses_up() -> tuple[nn.Module, Any]:
    """A model that takes from a list and changes a tensor in place."""
    return _UsesUp(), ([_batch(), _batch()], torch.full((8,), 2.0))


made: list["weakref.ref[nn.Module]"] = []


def remembered() -> tuple[nn.Module, Tensor]:
    model = Net()
    made.append(weakref.ref(model))
    return model, _batch()


def cannot_run() -> tuple[nn.Module, Tensor]:
    return Net(), torch.randn(2, 3)


def fails() -> None:
    raise RuntimeError("no such\nfile")


def nothing() -> None:
    return None


def no_model() -> tuple[int, int]:
    return 1, 2


def odd_key() -> dict[str, Any]:
    return {"model": Net(), "batch": _batch(), "criterion": None}


def no_batch() -> dict[str, Any]:
    return {"model": Net()}


def bad_blocks() -> dict[str, Any]:
    return {"model": Net(), "batch": _batch(), "blocks": ["layers.7"]}


something = 3
