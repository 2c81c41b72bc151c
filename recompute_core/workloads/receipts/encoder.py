"""The receipt-quality encoder: a convolutional stem, transformer blocks, one vote over six classes.

Pre-norm blocks after Dosovitskiy et al. 2020, a convolutional stem after Xiao et al. 2021 ("Early
convolutions help transformers see better"), GELU after Hendrycks and Gimpel 2016. 2.9 million
parameters by default. Covers training only; photos come with one channel in 0 to 1.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...settings import ReceiptsSettings
from .labels import LABELS

STRIDE = 16
"""Pixels of a photo's side per token."""
STEM = (24, 48, 96)
"""Channels after each halving but the last, which goes to the model's width."""
MEAN, SPREAD = 0.45, 0.25
"""Grey level and contrast of a typical photo, fixed: a photo is the same input in every study."""


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of each channel over all tokens of all photos, `x [B, T, d]`."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, 1)).view_as(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)  # [B, heads, T, d/heads]
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Mlp(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.dropout(F.gelu(self.up(x))))
        return out


class Block(nn.Module):
    def __init__(self, settings: ReceiptsSettings) -> None:
        super().__init__()
        width, dropout = settings.width, settings.dropout
        norm = {"layer": nn.LayerNorm, "batch": TokenBatchNorm}[settings.norm]
        self.norm1 = norm(width)
        self.attn = Attention(width, settings.heads, dropout)
        self.norm2 = norm(width)
        self.mlp = Mlp(width, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attn(self.norm1(x)))
        after: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return after


class Stem(nn.Sequential):
    """Four 3x3 convolutions, each halving the photo: `[B, 1, H, W]` to `[B, d, H/16, W/16]`."""

    def __init__(self, width: int) -> None:
        layers: list[nn.Module] = []
        before = 1
        for channels in STEM:
            layers += [
                nn.Conv2d(before, channels, 3, stride=2, padding=1),
                nn.GroupNorm(8, channels),
                nn.GELU(),
            ]
            before = channels
        super().__init__(*layers, nn.Conv2d(before, width, 3, stride=2, padding=1))


class Encoder(nn.Module):
    """`forward(photos [B, 1, H, W], labels [B]) -> (logits [B, 6], loss [])`."""

    def __init__(self, settings: ReceiptsSettings) -> None:
        super().__init__()
        width = settings.width
        self.stem = Stem(width)
        self.positions = nn.Parameter(0.02 * torch.randn(token_count(settings), width))
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(LABELS))
        self.apply(_initialise)

    def forward(self, photos: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem((photos - MEAN) / SPREAD)
        x = x.flatten(2).transpose(1, 2) + self.positions  # [B, T, d]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x).mean(dim=1))
        return logits, F.cross_entropy(logits, labels)


def token_count(settings: ReceiptsSettings) -> int:
    return (settings.height // STRIDE) * (settings.image_width // STRIDE)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
