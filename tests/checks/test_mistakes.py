"""What cannot be checked: one line that names the argument, or a verdict that says why."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recompute_core import check_blocks
from recompute_core.errors import InputError


def small() -> nn.Module:
    return nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))


def square(output: Tensor) -> Tensor:
    return output.square().mean()


INPUTS = (torch.ones(3, 4),)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": None}, "model: expected a module or a function that builds one, got a NoneType"),
        ({"model": "gpt"}, "model: expected a module or a function that builds one, got a str"),
        ({"model": lambda size: small()}, "model: the function that builds it takes no argument"),
        ({"model": lambda: small().to("meta")}, "model: 0.0.weight is on the meta device"),
        ({"loss_fn": "mse"}, "loss_fn: expected a function of the model's output, got a str"),
        ({"loss_fn": lambda y: y}, r"loss_fn: expected a loss of one number, got the shape \(3, 2\)"),
        ({"blocks": [0]}, "blocks: expected the names of modules"),
        ({"blocks": small()}, "blocks: expected the names of modules"),
        ({"step": 3}, "step: expected a function"),
        ({"checkpoint": 3}, "checkpoint: expected a function"),
        ({"forward_context": 3}, "forward_context: expected a function"),
        ({"candidate": 3}, "candidate: expected a function that builds the model"),
        ({"candidate": small()}, "candidate: expected a function that builds the model"),
    ],
)
def test_an_argument_that_cannot_be_is_named(given: dict[str, Any], says: str) -> None:
    asked = {"model": small, "inputs": INPUTS, "blocks": ["0"], "loss_fn": square} | given
    with pytest.raises(InputError, match=says):
        check_blocks(**asked)


def test_a_function_that_builds_other_weights_each_time_is_told_so() -> None:
    own = torch.Generator().manual_seed(1)

    def build() -> nn.Module:
        model = small()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=own))
        return model

    with pytest.raises(InputError, match=r"model: the function builds another 0\.0\.weight each time"):
        check_blocks(build, INPUTS, ["0"], square)


class Ends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(0)


def test_a_model_that_ends_the_program_is_an_error_and_ends_nothing() -> None:
    found = check_blocks(lambda: nn.Sequential(nn.Linear(4, 4), Ends()), INPUTS, ["0"], square)
    assert found.verdict == "error"
    assert "the step ends the program" in found.reasons[0].sentence
    assert found.largest_relative_gap is None


@pytest.mark.parametrize("inputs", [(torch.full((3, 4), torch.nan),), (torch.ones(0, 4),)])
def test_where_no_gradient_is_finite_nothing_is_certified(inputs: tuple[Tensor]) -> None:
    found = check_blocks(
        lambda: nn.Sequential(nn.Linear(4, 4), nn.RReLU()), inputs, ["1"], lambda y: y.square().mean()
    )
    assert found.verdict == "error"
    assert [reason.code for reason in found.reasons] == ["nothing_finite"]
    assert "1: no gradient" in found.reasons[0].sentence
