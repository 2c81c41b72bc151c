"""A small GPT on seeded token ids: pre-norm, tied head, no biases, no dropout.

RMSNorm: Zhang and Sennrich 2019. RoPE: Su et al. 2021. SwiGLU: Shazeer 2020. The sizes are
settings; the model covers training only, no cache and no generation.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..settings import GptSettings
from .job import Job

Rope = tuple[Tensor, Tensor]


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rope: Rope) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            project(x).view(batch, length, self.heads, -1).transpose(1, 2)  # [B, heads, T, d/heads]
            for project in (self.query, self.key, self.value)
        )
        q, k = rotate(q, rope), rotate(k, rope)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        joined: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return joined


class SwiGLU(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = int(8 / 3 * width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.silu(self.gate(x)) * self.up(x)  # [B, T, hidden]
        narrowed: Tensor = self.down(hidden)
        return narrowed


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = RMSNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = RMSNorm(width)
        self.mlp = SwiGLU(width)

    def forward(self, x: Tensor, rope: Rope) -> Tensor:
        x = x + self.attn(self.norm1(x), rope)
        x = x + self.mlp(self.norm2(x))
        return x


class Gpt(nn.Module):
    """`forward(tokens [B, T], targets [B, T]) -> (logits [B, T, V], loss [])`."""

    cos: Tensor
    sin: Tensor

    def __init__(self, settings: GptSettings) -> None:
        super().__init__()
        width, heads = settings.width, settings.heads
        self.embedding = nn.Embedding(settings.vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(settings.blocks))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, settings.vocab, bias=False)
        self.apply(_initialise)
        self.head.weight = self.embedding.weight
        cos, sin = rope_tables(settings.seq_len, width // heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(tokens)
        rope = (self.cos, self.sin)
        for block in self.blocks:
            x = block(x, rope)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rope_tables(length: int, head_width: int) -> Rope:
    """Cosines and sines, each `[T, d/heads]`."""
    frequencies = 10_000.0 ** (-torch.arange(0, head_width, 2) / head_width)
    angles = torch.outer(torch.arange(length).float(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Rotary position embedding of `x [B, heads, T, d/heads]`."""
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def build(settings: GptSettings, seed: int) -> Job:
    """The model under `seed`, with a batch of token ids and their successors as targets."""
    torch.manual_seed(seed)
    model = Gpt(settings)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(settings.vocab, (settings.batch, settings.seq_len + 1), generator=generator)
    return Job(
        model=model,
        batch=(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()),
        blocks=tuple(f"blocks.{index}" for index in range(settings.blocks)),
        tokens=settings.batch * settings.seq_len,
    )
