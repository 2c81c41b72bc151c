"""A check leaves the user's model, and all that it shares with the outside, as it was."""

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from recompute_core import check_blocks
from tests.checks.models import WIDTH, Block, Net, batch, check, square

SEEN: list[float] = []
COUNTS = {"forward": 0}
NOISE = np.random.default_rng(1)


class Busy(nn.Module):
    """Touches everything that a forward can: itself, its class, globals, closures, generators."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.count, self.kept = 0, [1, 2]
        self.source = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        self.count += 1
        self.kept.append(self.count)
        SEEN.append(float(x.detach().sum()))
        COUNTS["forward"] += 1
        x = x + torch.rand(x.shape, generator=self.source) * random.random() * float(NOISE.random())
        return torch.tanh(self.norm(self.inner(x)) * np.random.rand())


def facts(model: Net, seen: list[Any]) -> Any:
    """Everything that must be the same afterwards, by value and by identity."""
    block: Any = model.block
    hooks = [dict(module._forward_hooks) for module in model.modules()]
    return (
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        {name: id(p) for name, p in model.named_parameters()},
        {
            name: (p.grad, None if p.grad is None else p.grad.clone())
            for name, p in model.named_parameters()
        },
        [(name, module.training) for name, module in model.named_modules()],
        [(list(h), [id(hook) for hook in h.values()]) for h in hooks],
        (block.count, block.kept, list(block.kept), id(block.source), block.source.get_state()),
        sorted(vars(block)),
        (
            Busy.calls,
            SEEN,
            list(SEEN),
            COUNTS,
            dict(COUNTS),
            seen,
            list(seen),
            NOISE.bit_generator.state,
        ),
        (torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)),
        (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu")),
    )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool((one == other).all())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def busy() -> tuple[Net, list[Any], Callable[[Any], Tensor]]:
    """A model in the middle of training, with a hook that changes it, and a loss that collects."""
    torch.manual_seed(0)
    model, seen = Net(Busy()), [0.5]
    model.train()
    model.after.eval()

    def hook(module: nn.Module, args: Any, output: Tensor) -> None:
        seen.append(float(output.detach().sum()))
        model.before.looks = len(seen)  # type: ignore[assignment]

    model.block.inner.register_forward_hook(hook)  # type: ignore[union-attr,operator]

    def loss(output: Tensor) -> Tensor:
        seen.append("loss")
        return square(output)

    square(model(batch())).backward()
    return model, seen, loss


class _Interrupted(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("stop_at", [None, 1, 2, 5, 9])
def test_nothing_changes(stop_at: int | None) -> None:
    model, seen, loss = busy()
    x = batch()
    before = facts(model, seen)
    objects = [id(before[5][1]), id(SEEN), id(COUNTS), id(seen)]
    told: list[str] = []

    def progress(what: str) -> None:
        told.append(what)
        if len(told) == stop_at:
            raise _Interrupted

    if stop_at is None:
        report = check_blocks(model, (x,), ["block"], loss, progress=progress)
        assert report.verdict == "parity_fail"
        assert report.steps <= 24
        assert len(told) >= report.steps / 2
    else:
        with pytest.raises(_Interrupted):
            check_blocks(model, (x,), ["block"], loss, progress=progress)
    after = facts(model, seen)
    assert [id(after[5][1]), id(SEEN), id(COUNTS), id(seen)] == objects
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        assert same(one, other), number
    assert not hasattr(model.before, "looked")
    assert x.grad is None


def test_interrupted_in_the_middle_of_a_backward() -> None:
    model, seen, _ = busy()
    before = facts(model, seen)
    left = iter(range(3))  # a number would be put back before every step

    def stop(gradient: Tensor) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    def loss(output: Tensor) -> Tensor:
        output.register_hook(stop)  # type: ignore[no-untyped-call]
        return square(output)

    with pytest.raises(KeyboardInterrupt):
        check_blocks(model, (batch(),), ["block"], loss)
    assert all(map(same, before, facts(model, seen)))


def test_a_function_that_gives_the_same_model_again_is_as_good_as_the_model() -> None:
    model = Net(Block(lambda own, x: x * 2))
    before = copy.deepcopy(model.state_dict())
    assert check_blocks(lambda: model, (batch(),), ["block"], square).verdict == "legal"
    assert same(before, model.state_dict())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_has_run_holds_tensors_with_a_history() -> None:
    def keeps(own: Any, x: Tensor) -> None:
        own.__dict__["kept"] = {"x": x * 2}

    model = Net(Block(keeps))
    model(batch())
    kept = vars(model.block)["kept"]["x"]
    assert check_blocks(model, (batch(),), ["block"], square).verdict == "legal"
    assert vars(model.block)["kept"]["x"] is kept
    assert kept.requires_grad


def test_inputs_and_the_losss_own_weights_are_left_alone() -> None:
    center = nn.BatchNorm1d(4)
    x = batch()
    report = check(lambda: Block(), (x,), loss=lambda y: center(y).square().mean())
    assert report.verdict == "legal"
    assert center.num_batches_tracked == 0
    assert [parameter.grad for parameter in (*center.parameters(), x)] == [None, None, None]


@pytest.mark.parametrize("name", ["shared", "again"])
def test_a_module_by_either_of_its_names(name: str) -> None:
    class Shared(Net):
        def __init__(self) -> None:
            super().__init__(Block())
            self.shared = self.again = self.block

    assert check(Shared, blocks=[name]).verdict == "legal"
    both = check(Shared, blocks=["block", name])
    assert [one.verdict for one in both.blocks] == ["legal", "legal"]


# --- any stack of pure ops is legal; with one impurity in it, it never is --------------------------

PURE: list[Callable[[Any, Tensor], Tensor]] = [
    lambda own, x: torch.tanh(x),
    lambda own, x: own.layer(x),
    lambda own, x: nn.functional.gelu(x),
    lambda own, x: nn.functional.layer_norm(x, (WIDTH,)),
    lambda own, x: nn.functional.dropout(x, 0.3),
    lambda own, x: x.softmax(-1) * x,
    lambda own, x: (x @ x.T) @ x / WIDTH,
    lambda own, x: x.clone().relu_(),
    lambda own, x: x * torch.rand(()),
    lambda own, x: torch.where(x > 0, x, x.sin()),
]


def _counts(own: Any, x: Tensor) -> Tensor:
    own.count += 1
    return x * 1.5


def _scales(own: Any, x: Tensor) -> Tensor:
    own.count += 1
    return x * own.count


def _moves(own: Any, x: Tensor) -> Tensor:
    own.total.add_(x.detach().abs().mean())  # a mean may be exactly 0, and then nothing moves
    return x


def _tracks(own: Any, x: Tensor) -> Tensor:
    SEEN.append(0.0)
    return x


def _draws(own: Any, x: Tensor) -> Tensor:
    return x * random.random()


def _draws_from_its_own(own: Any, x: Tensor) -> Tensor:
    return x * torch.rand((), generator=own.source)


def _pops(own: Any, x: Tensor) -> Tensor:
    return x * own.left.pop()


IMPURE = [_counts, _scales, _moves, _tracks, _draws, _draws_from_its_own, _pops]


class Stack(nn.Module):
    def __init__(self, acts: list[Callable[[Any, Tensor], Tensor]]) -> None:
        super().__init__()
        self.acts, self.layer = acts, nn.Linear(WIDTH, WIDTH)
        self.count, self.left = 0, [1.0, 0.5, 2.0, 3.0, 4.0, 5.0]
        self.register_buffer("total", torch.zeros(()))
        self.source = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        for act in self.acts:
            x = act(self, x)
        return torch.tanh(self.layer(x))


@settings(max_examples=12)
@given(acts=st.lists(st.sampled_from(PURE), max_size=4))
def test_pure_ops_are_legal(acts: list[Any]) -> None:
    report = check(lambda: Stack(acts))
    assert report.verdict == "legal", report.reasons
    assert report.largest_relative_gap == 0


@settings(max_examples=16)
@given(
    acts=st.lists(st.sampled_from(PURE), max_size=3), bad=st.sampled_from(IMPURE), at=st.integers(0, 3)
)
def test_one_impurity_is_never_legal(acts: list[Any], bad: Any, at: int) -> None:
    with_it = [*acts[:at], bad, *acts[at:]]
    report = check(lambda: Stack(with_it))
    assert report.verdict not in ("legal", "no_saving"), report.conditions


class Counts(nn.Module):
    """Counts what is out of range: nothing in the batch itself, much in one three times as large."""

    def __init__(self, keep: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.keep = nn.Linear(WIDTH, WIDTH), keep
        self.register_buffer("clipped", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        highest = x.detach().abs().amax()
        self.clipped.copy_(self.keep(self.clipped, torch.where(highest > 1, highest, torch.zeros(()))))
        return torch.tanh(self.layer(x.clamp(-1, 1)))


def within_range(keep: Callable[[Tensor, Tensor], Tensor]) -> Any:
    inputs = torch.linspace(-0.9, 0.9, 4 * WIDTH).reshape(4, WIDTH)
    return check(lambda: Counts(keep), inputs)


def test_a_counter_that_the_batch_leaves_alone_is_seen_with_another_batch() -> None:
    report = within_range(lambda before, now: before + now)
    assert report.verdict == "illegal"
    assert [reason.code for reason in report.reasons] == ["buffer_changed"]


def test_what_is_kept_of_the_last_call_alone_is_a_condition() -> None:
    report = within_range(lambda before, now: now)
    assert report.verdict == "legal"
    assert "two_forwards" in [one.code for one in report.conditions]
