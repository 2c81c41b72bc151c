"""Every module of torch.nn that can train on a CPU, each as the last op of a small block.

A block scales its input by a weight of its own and hands it to the module, so that whatever the module
keeps is what a replay has to bring back last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recompute_core import check_blocks
from recompute_core.checks.report import BlockReport

Call = Callable[[nn.Module, Tensor], Any]


def _alone(module: nn.Module, x: Tensor) -> Any:
    return module(x)


@dataclass(frozen=True)
class Kind:
    """How a module is made, what it is given, and how it is called."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    call: Call = _alone


class _Block(nn.Module):
    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.module, self._call = kind.make(), kind.call

    def forward(self, x: Tensor) -> Any:
        return self._call(self.module, x * self.scale)


class _Net(nn.Module):
    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.before, self.block = nn.Parameter(torch.ones(())), _Block(kind)

    def forward(self, x: Tensor) -> Any:
        return self.block(x * self.before)


def check(name: str) -> BlockReport:
    """The verdict on the block of a module."""
    kind = KINDS[name]
    torch.manual_seed(5)
    x = torch.randn(kind.shape)

    def build() -> nn.Module:
        net = _Net(kind)
        if "Lazy" in name:
            with torch.no_grad():
                net(x)
        return net

    return check_blocks(build, (x,), ["block"], _loss)


def _loss(output: Any) -> Tensor:
    leaves = output if isinstance(output, tuple | list) else (output,)
    flat: list[Tensor] = []
    for leaf in leaves:
        flat += list(leaf) if isinstance(leaf, tuple) else [leaf]
    terms = [
        leaf.square().mean() for leaf in flat if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]
    return torch.stack(terms).sum()


def _against(*targets: Tensor) -> Call:
    return lambda module, x: module(x, *targets)


def _two_halves(*targets: Tensor) -> Call:
    return lambda module, x: module(x, x.flip(0), *targets)


def _ids(module: nn.Module, x: Tensor) -> Tensor:
    """What looks tokens up: the ids come from the signs of x, its size scales the result."""
    return module((x > 0).long()) * x.mean()


def _indexed(pool: Callable[..., Any]) -> Call:
    def call(module: nn.Module, x: Tensor) -> Any:
        pooled, where = pool(x, 2, return_indices=True)
        return module(pooled, where)

    return call


_F = nn.functional
_LINE, _PLANE, _SPACE = (2, 4, 8), (2, 4, 8, 8), (2, 4, 4, 4, 4)
_BY_RANK = {1: _LINE, 2: _PLANE, 3: _SPACE}
_CLASSES = torch.tensor([0, 2, 1, 3])


_ELEMENTWISE = (
    *("CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity"),
    *("LeakyReLU", "LogSigmoid", "Mish", "ReLU", "ReLU6", "RReLU", "SELU", "SiLU", "Sigmoid"),
    *("Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "PReLU", "Flatten"),
)


def _kinds() -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for name in _ELEMENTWISE:
        found[name] = Kind(getattr(nn, name), (4, 8))
    for name in ("GLU", "LogSoftmax", "Softmax", "Softmin"):
        found[name] = Kind(lambda name=name: getattr(nn, name)(dim=-1), (4, 8))  # type: ignore[misc]
    found["Softmax2d"] = Kind(nn.Softmax2d, _PLANE)
    found["Threshold"] = Kind(lambda: nn.Threshold(0.1, 0.0), (4, 8))
    for name in ("AlphaDropout", "Dropout"):
        found[name] = Kind(getattr(nn, name), (4, 8))
    found["FeatureAlphaDropout"] = Kind(nn.FeatureAlphaDropout, _PLANE)
    for rank, shape in _BY_RANK.items():
        sizes = (2,) * rank
        for name, make in (
            ("AdaptiveAvgPool", lambda cls: cls(2)),
            ("AdaptiveMaxPool", lambda cls: cls(2)),
            ("AvgPool", lambda cls: cls(2)),
            ("MaxPool", lambda cls: cls(2)),
            ("LPPool", lambda cls: cls(2.0, 2)),
            ("BatchNorm", lambda cls: cls(4)),
            ("InstanceNorm", lambda cls: cls(4, affine=True)),
            ("LazyBatchNorm", lambda cls: cls()),
            ("LazyInstanceNorm", lambda cls: cls(affine=True)),
            ("Conv", lambda cls: cls(4, 3, 3, padding=1)),
            ("ConvTranspose", lambda cls: cls(4, 3, 2)),
            ("LazyConv", lambda cls: cls(3, 3, padding=1)),
            ("LazyConvTranspose", lambda cls: cls(3, 2)),
            ("Dropout", lambda cls: cls()),
            ("ReplicationPad", lambda cls: cls(1)),
            ("ReflectionPad", lambda cls: cls(1)),
            ("CircularPad", lambda cls: cls(1)),
            ("ZeroPad", lambda cls: cls(1)),
            ("ConstantPad", lambda cls: cls(1, 0.5)),
        ):
            cls = getattr(nn, f"{name}{rank}d")
            found[f"{name}{rank}d"] = Kind(lambda make=make, cls=cls: make(cls), shape)  # type: ignore[misc]
        unpool = getattr(nn, f"MaxUnpool{rank}d")
        pool = getattr(_F, f"max_pool{rank}d")
        found[f"MaxUnpool{rank}d"] = Kind(lambda unpool=unpool: unpool(2), shape, _indexed(pool))  # type: ignore[misc]
        if rank > 1:
            cls = getattr(nn, f"FractionalMaxPool{rank}d")
            found[f"FractionalMaxPool{rank}d"] = Kind(
                lambda cls=cls, sizes=sizes: cls(2, output_size=sizes),  # type: ignore[misc]
                shape,
            )
    found |= {
        "Linear": Kind(lambda: nn.Linear(8, 4), (4, 8)),
        "LazyLinear": Kind(lambda: nn.LazyLinear(4), (4, 8)),
        "Bilinear": Kind(lambda: nn.Bilinear(8, 8, 4), (4, 8), _two_halves()),
        "LayerNorm": Kind(lambda: nn.LayerNorm(8), (4, 8)),
        "RMSNorm": Kind(lambda: nn.RMSNorm(8), (4, 8)),
        "GroupNorm": Kind(lambda: nn.GroupNorm(2, 4), _PLANE),
        "LocalResponseNorm": Kind(lambda: nn.LocalResponseNorm(2), _PLANE),
        "CrossMapLRN2d": Kind(lambda: nn.CrossMapLRN2d(2), _PLANE),
        "Embedding": Kind(lambda: nn.Embedding(2, 4), (4, 8), _ids),
        "EmbeddingBag": Kind(lambda: nn.EmbeddingBag(2, 4), (4, 8), _ids),
        "ChannelShuffle": Kind(lambda: nn.ChannelShuffle(2), _PLANE),
        "PixelShuffle": Kind(lambda: nn.PixelShuffle(2), _PLANE),
        "PixelUnshuffle": Kind(lambda: nn.PixelUnshuffle(2), _PLANE),
        "Unflatten": Kind(lambda: nn.Unflatten(1, (2, 4)), (4, 8)),
        "Fold": Kind(lambda: nn.Fold((4, 4), 2, stride=2), (2, 8, 4)),
        "Unfold": Kind(lambda: nn.Unfold(2), _PLANE),
        "Upsample": Kind(lambda: nn.Upsample(scale_factor=2), _PLANE),
        "UpsamplingBilinear2d": Kind(lambda: nn.UpsamplingBilinear2d(scale_factor=2), _PLANE),
        "UpsamplingNearest2d": Kind(lambda: nn.UpsamplingNearest2d(scale_factor=2), _PLANE),
        "CosineSimilarity": Kind(nn.CosineSimilarity, (4, 8), _two_halves()),
        "PairwiseDistance": Kind(nn.PairwiseDistance, (4, 8), _two_halves()),
        "RNN": Kind(lambda: nn.RNN(8, 6, 2, dropout=0.2), (5, 2, 8)),
        "LSTM": Kind(lambda: nn.LSTM(8, 6, 2, dropout=0.2), (5, 2, 8)),
        "GRU": Kind(lambda: nn.GRU(8, 6, 2, dropout=0.2), (5, 2, 8)),
        "RNNCell": Kind(lambda: nn.RNNCell(8, 6), (4, 8)),
        "LSTMCell": Kind(lambda: nn.LSTMCell(8, 6), (4, 8)),
        "GRUCell": Kind(lambda: nn.GRUCell(8, 6), (4, 8)),
        "MultiheadAttention": Kind(
            lambda: nn.MultiheadAttention(8, 2, dropout=0.1), (5, 2, 8), lambda m, x: m(x, x, x)
        ),
        "TransformerEncoderLayer": Kind(lambda: nn.TransformerEncoderLayer(8, 2, 16), (5, 2, 8)),
        "TransformerDecoderLayer": Kind(
            lambda: nn.TransformerDecoderLayer(8, 2, 16), (5, 2, 8), lambda m, x: m(x, x.flip(0))
        ),
        "TransformerEncoder": Kind(
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False
            ),
            (5, 2, 8),
        ),
        "TransformerDecoder": Kind(
            lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2),
            (5, 2, 8),
            lambda m, x: m(x, x.flip(0)),
        ),
        "Transformer": Kind(
            lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=False),
            (5, 2, 8),
            lambda m, x: m(x, x.flip(0)),
        ),
    }
    return found | _losses()


def _losses() -> dict[str, Kind]:
    numbers, signs = torch.linspace(-1, 1, 32).view(4, 8), torch.tensor([1.0, -1.0, 1.0, -1.0])
    shares, ones = numbers.softmax(-1), torch.sign(numbers)
    many = torch.tensor([[0, 2, -1, -1, -1, -1, -1, -1]] * 4)
    ctc = (torch.tensor([[1, 2], [2, 3]]), torch.tensor([5, 5]), torch.tensor([2, 2]))
    found = {
        "L1Loss": Kind(nn.L1Loss, (4, 8), _against(numbers)),
        "MSELoss": Kind(nn.MSELoss, (4, 8), _against(numbers)),
        "HuberLoss": Kind(nn.HuberLoss, (4, 8), _against(numbers)),
        "SmoothL1Loss": Kind(nn.SmoothL1Loss, (4, 8), _against(numbers)),
        "PoissonNLLLoss": Kind(nn.PoissonNLLLoss, (4, 8), _against(numbers.exp())),
        "GaussianNLLLoss": Kind(nn.GaussianNLLLoss, (4, 8), _against(numbers, torch.ones(4, 8))),
        "KLDivLoss": Kind(
            lambda: nn.KLDivLoss(reduction="batchmean"),
            (4, 8),
            lambda m, x: m(x.log_softmax(-1), shares),
        ),
        "BCELoss": Kind(nn.BCELoss, (4, 8), lambda m, x: m(x.sigmoid(), shares)),
        "BCEWithLogitsLoss": Kind(nn.BCEWithLogitsLoss, (4, 8), _against(shares)),
        "SoftMarginLoss": Kind(nn.SoftMarginLoss, (4, 8), _against(ones)),
        "HingeEmbeddingLoss": Kind(nn.HingeEmbeddingLoss, (4, 8), _against(ones)),
        "MultiLabelSoftMarginLoss": Kind(nn.MultiLabelSoftMarginLoss, (4, 8), _against(shares)),
        "MultiLabelMarginLoss": Kind(nn.MultiLabelMarginLoss, (4, 8), _against(many)),
        "MultiMarginLoss": Kind(nn.MultiMarginLoss, (4, 8), _against(_CLASSES)),
        "CrossEntropyLoss": Kind(nn.CrossEntropyLoss, (4, 8), _against(_CLASSES)),
        "NLLLoss": Kind(nn.NLLLoss, (4, 8), lambda m, x: m(x.log_softmax(-1), _CLASSES)),
        "MarginRankingLoss": Kind(nn.MarginRankingLoss, (4,), _two_halves(signs)),
        "CosineEmbeddingLoss": Kind(nn.CosineEmbeddingLoss, (4, 8), _two_halves(signs)),
        "TripletMarginLoss": Kind(nn.TripletMarginLoss, (4, 8), _two_halves(numbers)),
        "TripletMarginWithDistanceLoss": Kind(
            nn.TripletMarginWithDistanceLoss, (4, 8), _two_halves(numbers)
        ),
        "CTCLoss": Kind(nn.CTCLoss, (5, 2, 4), lambda m, x: m(x.log_softmax(-1), *ctc)),
        "AdaptiveLogSoftmaxWithLoss": Kind(
            lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 10, [4]), (4, 8), _against(_CLASSES)
        ),
    }
    if hasattr(nn, "LinearCrossEntropyLoss"):
        found["LinearCrossEntropyLoss"] = Kind(
            lambda: nn.LinearCrossEntropyLoss(8, 10), (4, 8), _against(_CLASSES)
        )
    return found


KINDS = _kinds()

LEFT_OUT = {
    "Container": "a base class",
    "Module": "a base class",
    "RNNBase": "a base class",
    "RNNCellBase": "a base class",
    "ModuleDict": "holds modules and has no forward",
    "ModuleList": "holds modules and has no forward",
    "ParameterDict": "holds parameters and has no forward",
    "ParameterList": "holds parameters and has no forward",
    "Sequential": "what it holds decides",
    "DataParallel": "needs several devices",
    "SyncBatchNorm": "needs a process group with an accelerator",
    "NLLLoss2d": "deprecated, the same as NLLLoss",
}
"""Modules of torch.nn that cannot be tried here, and why."""

MISBEHAVING = {
    "RReLU": "parity_fail",
    **{f"{lazy}BatchNorm{rank}d": "illegal" for lazy in ("", "Lazy") for rank in (1, 2, 3)},
    **{f"LazyInstanceNorm{rank}d": "illegal" for rank in (1, 2, 3)},
}
"""Those that truly misbehave: RReLU's noise is lost when a replay stops early; running statistics move
twice (a lazy instance norm keeps them unless told otherwise)."""
