"""Small models whose bytes, calls and FLOPs can be counted by hand."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recompute_core.plans.names import Regions
from recompute_core.settings import Anatomy, GptSettings
from recompute_core.spec import Region
from recompute_core.workloads import gpt
from recompute_core.workloads.job import Job

BATCH, WIDTH = 4, 8
SMALL = GptSettings(blocks=2, width=32, heads=2, vocab=17, seq_len=16, batch=2)
"""A GPT that takes a few milliseconds."""


class Tower(nn.Module):
    """Blocks on top of each other, and half the mean square of what comes out as the loss."""

    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for block in self.blocks:
            x = block(x)
        return x, x.pow(2).mean() / 2


class Mlp(nn.Module):
    """Linear, GELU, Linear, with an option on what happens in between."""

    def __init__(self, between: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.between = between or nn.Identity()
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.between(F.gelu(self.up(x))))


def tower(*blocks: nn.Module, seed: int = 0) -> Job:
    """A job of these blocks on a fixed batch `[BATCH, WIDTH]`."""
    generator = torch.Generator().manual_seed(seed)
    model = Tower(blocks)
    return Job(
        model=model,
        batch=(torch.randn(BATCH, WIDTH, generator=generator),),
        blocks=tuple(f"blocks.{index}" for index in range(len(blocks))),
        tokens=BATCH,
    )


def mlps(count: int = 2, between: Callable[[], nn.Module] = nn.Identity) -> Job:
    """A fresh, seeded tower of `count` MLPs."""
    torch.manual_seed(0)
    return tower(*(Mlp(between()) for _ in range(count)))


def each(*modules: str) -> Regions:
    """The plan that recomputes each of these modules by itself."""
    return tuple(Region(modules=(name,)) for name in modules)


def small_gpt(**sizes: int) -> Job:
    """The small GPT, some of its sizes changed."""
    return gpt.build(SMALL.model_copy(update=sizes), seed=0)


def alike(blocks: int) -> Anatomy:
    """So many blocks of two norms, attention and an MLP, of which no more is known."""
    return Anatomy(
        names=tuple(f"blocks.{number}" for number in range(blocks)),
        norms=("norm1", "norm2"),
        attention="attn",
        mlp="mlp",
    )
