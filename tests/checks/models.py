"""Small models around one block, and the check of it."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from recompute_core import check_blocks
from recompute_core.checks.report import BlockReport

ROWS, WIDTH = 8, 16
Act = Callable[[Any, Tensor], Any]


class Net(nn.Module):
    """A layer, the block, a layer."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.before, self.block, self.after = nn.Linear(WIDTH, WIDTH), block, nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.middle(self.before(x)))

    def middle(self, h: Tensor) -> Tensor:
        """How the block is called."""
        return self.block(h)


class Block(nn.Module):
    """Does `act` on its input, then a layer and tanh; attributes as given."""

    def __init__(self, act: Act | None = None, **attributes: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.act = act
        for name, value in attributes.items():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self, x) if self.act else None
        return torch.tanh(self.layer(x if y is None else y))


def square(output: Tensor) -> Tensor:
    return output.float().square().mean()


def batch(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(*(shape or (ROWS, WIDTH)), generator=generator).requires_grad_()


def check(build: Callable[[], nn.Module], inputs: Any = None, **options: Any) -> BlockReport:
    """The report on the block named `block` of the model that `build` makes, or of one around it."""

    def model() -> nn.Module:
        built = build()
        return built if hasattr(built, "block") else Net(built)

    given = (batch(),) if inputs is None else inputs
    blocks, loss = options.pop("blocks", ["block"]), options.pop("loss", square)
    report = check_blocks(model, given, blocks, loss, **options)
    assert report.steps <= 24, report.steps
    return report


def said(report: BlockReport) -> Mapping[str, str]:
    """The sentences of a report by their code; each of them names its block."""
    reasons = (*report.reasons, *report.conditions)
    for reason in reasons:
        assert reason.sentence.startswith(reason.block or "the model"), reason
        assert "\n" not in reason.sentence
        assert reason.sentence.endswith((".", ")")), reason
    return {reason.code: reason.sentence for reason in reversed(reasons)}


def assert_found(report: BlockReport, verdict: str, code: str | None, *words: str) -> None:
    """The verdict, the cause that comes first, and words of its sentence."""
    sentences = said(report)
    told = (report.verdict, [reason.code for reason in report.reasons], sentences)
    assert report.verdict == verdict, told
    if verdict == "legal":
        assert code is None or code in [reason.code for reason in report.conditions], told
    else:
        assert report.reasons[0].code == code, told
    for word in words:
        assert code is not None and word in sentences[code], told
