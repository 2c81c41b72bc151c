"""What loops, contexts and checkpoint functions do to a block, each as an option of the check."""

import contextlib
import functools
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from recompute_core.checks.step import Training, Way, run
from recompute_core.errors import InputError
from tests.checks.models import WIDTH, Block, Net, assert_found, batch, check, square

Loss = Callable[[Any], Tensor]
REENTRANT = functools.partial(checkpoint, use_reentrant=True)


def layers(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *between, nn.Linear(WIDTH, WIDTH))


# --- inputs ---------------------------------------------------------------------------------------


def one_block() -> nn.Module:
    return Net(Block())


def test_any_mapping_is_given_by_name_and_its_tensors_are_seen() -> None:
    given = UserDict({"x": batch().requires_grad_()})
    as_mapping, as_dict = (
        run(Training(one_block, inputs, square, contextlib.nullcontext), Way())
        for inputs in (given, dict(given))
    )
    assert as_mapping.error is None
    assert "input_grad/input 0" in as_mapping.tensors
    assert as_mapping.tensors.keys() == as_dict.tensors.keys()
    assert check(one_block, given).verdict == "legal"

    def own(model: nn.Module, inputs: Any, loss_fn: Loss) -> tuple[Any, Tensor]:
        assert isinstance(inputs, UserDict)  # a step of theirs gets what they gave
        output = model(**inputs)
        loss = loss_fn(output)
        loss.backward()
        return output, loss

    left = run(Training(one_block, given, square, contextlib.nullcontext, own), Way())
    assert (left.error, "input_grad/input 0" in left.tensors) == (None, True)
    assert given["x"].grad is None


# --- step= ----------------------------------------------------------------------------------------


def moves_weights(model: nn.Module, inputs: Any, loss_fn: Loss) -> tuple[Any, Tensor]:
    output = model(*inputs)
    loss = loss_fn(output)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    loss.backward()
    return output, loss


def asks_for_gradients(model: nn.Module, inputs: Any, loss_fn: Loss) -> tuple[Any, Tensor]:
    output = model(*inputs)
    loss = loss_fn(output)
    wanted = [*model.parameters(), *inputs]
    for tensor, gradient in zip(wanted, torch.autograd.grad(loss, wanted), strict=True):
        tensor.grad = gradient
    return output, loss


def penalizes_gradients(model: nn.Module, inputs: Any, loss_fn: Loss) -> tuple[Any, Tensor]:
    output = model(*inputs)
    (gradient,) = torch.autograd.grad(output.sum(), inputs[0], create_graph=True)
    loss = loss_fn(output) + (gradient.norm(dim=1) - 1).square().mean()
    loss.backward()
    return output, loss


def two_batches(model: nn.Module, inputs: Any, loss_fn: Loss) -> tuple[Any, Tensor]:
    one, other = model(inputs[0]), model(inputs[0].flip(0) * 3)
    loss = loss_fn(one) + loss_fn(other)
    loss.backward()
    return (one, other), loss


def transformed(model: nn.Module, inputs: Any, loss_fn: Loss) -> tuple[Any, Tensor]:
    return torch.zeros(()), torch.func.grad(lambda x: loss_fn(model(x)))(inputs[0]).sum()


def forward_mode(model: nn.Module, inputs: Any, loss_fn: Loss) -> tuple[Any, Tensor]:
    x = inputs[0].detach()
    output, tangent = torch.func.jvp(model, (x,), (torch.ones_like(x),))
    return output, loss_fn(output) + tangent.square().mean()


class Shares(Net):
    """Tells the block the size of its batch through a mapping that both hold."""

    def __init__(self) -> None:
        shared: dict[str, Tensor] = {}
        super().__init__(Block(lambda own, x: x * own.shared["size"], shared=shared))
        self.shared = shared

    def middle(self, h: Tensor) -> Tensor:
        self.shared["size"] = h.detach().abs().mean()
        return self.block(h)


def plain_layers() -> nn.Module:
    return layers(nn.Tanh())


STEPS: list[tuple[str, Callable[[], nn.Module], Any, Any, str, str | None]] = [
    ("autograd.grad", plain_layers, asks_for_gradients, None, "legal", None),
    (
        "autograd.grad, reentrant",
        plain_layers,
        asks_for_gradients,
        REENTRANT,
        "error",
        "variant_refuses",
    ),
    ("a gradient penalty", plain_layers, penalizes_gradients, None, "legal", None),
    ("a penalty, reentrant", plain_layers, penalizes_gradients, REENTRANT, "error", "variant_refuses"),
    ("two batches", Shares, two_batches, None, "parity_fail", "step"),
    ("two batches of a pure block", plain_layers, two_batches, None, "legal", None),
    ("func.grad", plain_layers, transformed, None, "error", "variant_refuses"),
    ("func.jvp", plain_layers, forward_mode, None, "legal", None),
    ("func.jvp, reentrant", plain_layers, forward_mode, REENTRANT, "error", "variant_refuses"),
]


@pytest.mark.parametrize(
    ("build", "step", "own", "verdict", "code"), [c[1:] for c in STEPS], ids=[c[0] for c in STEPS]
)
def test_steps(build: Any, step: Any, own: Any, verdict: str, code: str | None) -> None:
    assert_found(check(build, step=step, checkpoint=own), verdict, code)


def test_weights_that_move_before_backward() -> None:
    report = check(plain_layers, step=moves_weights, blocks=[""])
    assert_found(report, "parity_fail", "plain_refuses", "goes on silently")
    assert_found(check(plain_layers, step=moves_weights), "error", "plain_raises")  # `after` refuses


def test_batches_in_parts_are_not_blamed_on_recomputing() -> None:
    """A mean of means over uneven parts is another loss, plain or recomputed."""

    def in_parts(model: nn.Module, inputs: Any, loss_fn: Loss) -> tuple[Any, Tensor]:
        outputs = [model(part) for part in inputs[0].split(3)]
        loss = torch.stack([loss_fn(output) for output in outputs]).mean()
        loss.backward()
        return outputs, loss

    assert_found(check(plain_layers, step=in_parts), "legal", None)


def test_blocks_inside_of_a_block() -> None:
    def nested() -> nn.Module:
        return Net(nn.Sequential(*(layers(nn.GELU()) for _ in range(3))))

    x = batch(512, WIDTH)
    inner = ["block.0", "block.1", "block.2"]
    alone, both = check(nested, (x,), blocks=inner), check(nested, (x,), blocks=["block", *inner])
    assert [one.verdict for one in (*alone.blocks, *both.blocks)] == ["legal"] * 7
    assert alone.saving is not None
    assert both.saving is not None
    assert both.saving.recomputed_held_bytes < alone.saving.recomputed_held_bytes


def test_two_batches_are_tried_without_being_asked_for() -> None:
    assert_found(check(Shares), "parity_fail", "two_forwards", "two forwards before a backward")


def test_weights_that_move_in_backward_are_a_condition() -> None:
    def tied() -> nn.Module:
        model = Net(Block(lambda own, x: x + own.peer[0].weight.detach()[0]))
        model.block.peer = [model.after]  # type: ignore[assignment]
        return model

    report = check(tied)
    assert_found(report, "legal", "no_step_in_backward", "inside backward")


def test_what_a_step_must_give() -> None:
    with pytest.raises(InputError, match=r"step: expected the loss as a tensor, got float"):
        check(plain_layers, step=lambda model, inputs, loss_fn: (None, 1.0))
    with pytest.raises(InputError, match=r"loss_fn: expected the loss as a tensor, got float"):
        check(plain_layers, step=None, loss=lambda output: float(output.sum().detach()))


def test_one_process_of_data_parallel(tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1
    )
    try:

        def parallel() -> nn.Module:
            return nn.parallel.DistributedDataParallel(Net(plain_layers()), find_unused_parameters=True)

        given = ((batch(),), square)
        for own, verdict in ((None, "legal"), (REENTRANT, "error")):
            report = check_module(parallel, *given, own)
            assert_found(report, verdict, "variant_refuses" if own else None)
    finally:
        torch.distributed.destroy_process_group()


def check_module(build: Any, inputs: Any, loss: Loss, own: Any) -> Any:
    from recompute_core import check_blocks

    return check_blocks(build, inputs, ["module.block"], loss, checkpoint=own)


# --- checkpoint= ----------------------------------------------------------------------------------


def selective(policy: Any) -> Any:
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    return functools.partial(checkpoint, use_reentrant=False, context_fn=contexts)


def must_save(*_: Any, **__: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE


class Half(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) * x.sigmoid()


class SharedCasts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.Linear(WIDTH, WIDTH)
        self.block, self.rest = Half(layer), Half(layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.block(x))


class Forgetful(torch.autograd.Function):
    """A home-made checkpoint that does not put the random state back."""

    @staticmethod
    def forward(ctx: Any, call: Any, x: Tensor, *weights: Tensor) -> Tensor:
        ctx.call, ctx.weights = call, weights
        ctx.save_for_backward(x)
        with torch.no_grad():
            return call(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.call(x)
        return None, *torch.autograd.grad(y, (x, *ctx.weights), gradient, allow_unused=True)


class Helped(nn.Module):
    """A block with a checkpoint helper of its own, off until it is switched on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.on = inner, False

    def forward(self, x: Tensor) -> Tensor:
        return Forgetful.apply(self.inner, x, *self.inner.parameters()) if self.on else self.inner(x)


def helped(on: bool, *between: nn.Module) -> nn.Module:
    model = Net(Helped(layers(*between)))
    model.block.on = on  # type: ignore[assignment]
    return model


def test_reentrant_builds_no_graph_without_an_input_that_needs_it() -> None:
    first = functools.partial(nn.Sequential, nn.Linear(WIDTH, WIDTH), nn.Tanh())

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.after = first(), nn.Linear(WIDTH, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.after(self.block(x))

    x = batch().detach()
    report = check(First, (x,), checkpoint=REENTRANT)
    assert_found(report, "parity_fail", "own_checkpoint", "is missing", "torch's own, non-reentrant")
    assert check(First, (x,)).verdict == "legal"


class Nested(Net):
    """Hands what it computes to the block in a mapping, and uses it again."""

    def middle(self, h: Tensor) -> Tensor:
        more = {"h": torch.tanh(h)}
        return self.block(h, more) + more["h"]


class Takes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, more: dict[str, Tensor]) -> Tensor:
        return torch.tanh(self.layer(x) * more["h"])


class Attributed(Net):
    """Puts an attribute on a tensor, which a detached copy has not."""

    def middle(self, h: Tensor) -> Tensor:
        h.by = 3.0  # type: ignore[attr-defined]
        return self.block(h)


class Remembers(nn.Module):
    """Counts how often it meets another tensor than the last."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last, self.misses = nn.Linear(WIDTH, WIDTH), [None], 0

    def forward(self, x: Tensor) -> Tensor:
        if x is not self.last[0]:
            self.misses, self.last[0] = self.misses + 1, x
        return torch.tanh(self.layer(x))


def gates_by_call() -> nn.Module:
    calls = [0]

    def act(own: Any, x: Tensor) -> Tensor:
        calls[0] += 1
        return x * torch.rand(len(x) if calls[0] % 2 else 1, WIDTH)

    return Block(act)


OWN: list[tuple[str, Any, Any, str, str]] = [
    ("nested input, reentrant", lambda: Nested(Takes()), REENTRANT, "error", "variant_refuses"),
    (
        "a tensor's attribute, reentrant",
        lambda: Attributed(Block(lambda own, x: x * getattr(x, "by", 1.0))),
        REENTRANT,
        "parity_fail",
        "own_checkpoint",
    ),
    ("identity, reentrant", Remembers, REENTRANT, "illegal", "attribute_changed"),
    ("identity", Remembers, None, "legal", ""),
    (
        "no check of shapes",
        gates_by_call,
        functools.partial(checkpoint, use_reentrant=False, determinism_check="none"),
        "parity_fail",
        "attribute_changed",
    ),
    (
        "random state lost",
        lambda: layers(nn.Dropout(0.5), nn.Tanh()),
        functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False),
        "parity_fail",
        "rng_not_preserved",
    ),
    (
        "selective, changed in place",
        lambda: Block(lambda own, x: torch.selu_(x @ own.layer.weight)),
        selective([torch.ops.aten.mm.default]),
        "error",
        "selective_changed",
    ),
    (
        "home-made",
        lambda: layers(nn.Dropout(0.5), nn.Tanh()),
        lambda call, x: Forgetful.apply(call, x),
        "parity_fail",
        "rng_not_preserved",
    ),
]


@pytest.mark.parametrize(
    ("build", "own", "verdict", "code"), [c[1:] for c in OWN], ids=[c[0] for c in OWN]
)
def test_checkpoints_of_ones_own(build: Any, own: Any, verdict: str, code: str) -> None:
    assert_found(check(build, checkpoint=own), verdict, code or None)


def test_selective_that_keeps_everything_costs_more() -> None:
    report = check(lambda: layers(nn.GELU()), (batch(2048, WIDTH),), checkpoint=selective(must_save))
    assert_found(report, "no_saving", "nothing_dropped", "a selective policy")


def test_selective_and_the_cache_of_casts() -> None:
    report = check(
        SharedCasts,
        blocks=["block", "rest"],
        autocast="bfloat16",
        checkpoint=selective([torch.ops.aten.mm.default, torch.ops.aten.addmm.default]),
    )
    assert_found(report, "error", "selective_missing", "cache_enabled=False")


# --- candidate= -----------------------------------------------------------------------------------


def test_a_model_that_switches_a_helper_of_its_own_on() -> None:
    def verdict(*between: nn.Module) -> Any:
        return check(lambda: helped(False, *between), candidate=lambda: helped(True, *between))

    assert_found(verdict(nn.Dropout(0.5), nn.Tanh()), "parity_fail", "rng_not_preserved")
    assert_found(verdict(nn.Tanh()), "legal", None)  # that its switch differs is no finding


def test_wrapped_by_torchs_own_wrapper() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    def wrapped() -> nn.Module:
        model = Net(layers(nn.Dropout(0.5), nn.Tanh()))
        model.block = checkpoint_wrapper(model.block)  # type: ignore[no-untyped-call]
        return model

    report = check(lambda: Net(layers(nn.Dropout(0.5), nn.Tanh())), candidate=wrapped)
    assert_found(report, "legal", None)


def test_a_compilers_memory_budget() -> None:
    import torch._functorch.config as functorch

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block(lambda own, x: nn.functional.dropout(x.sin(), 0.5, True).cos())

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x)

    def compiled() -> Any:
        return torch.compile(Masked(), backend="aot_eager_decomp_partition")

    with functorch.patch(activation_memory_budget=0.0):
        report = check(Masked, candidate=compiled)
    torch._dynamo.reset()
    assert report.verdict == "parity_fail"
    assert report.reasons[0].sentence.startswith("block (the gradient of ")


# --- contexts -------------------------------------------------------------------------------------

FLAGS = {"scale": 1.0}


@contextlib.contextmanager
def scaled() -> Iterator[None]:
    FLAGS["scale"] = 3.0
    try:
        yield
    finally:
        FLAGS["scale"] = 1.0


def attends(own: Any, x: Tensor) -> Tensor:
    q = x.view(1, 2, 4, WIDTH)
    return nn.functional.scaled_dot_product_attention(q, q * 2, q).view_as(x)


CONTEXTS: list[tuple[str, Any, Any, str]] = [
    ("a flag", lambda own, x: x * FLAGS["scale"], scaled, "parity_fail"),
    ("attention's kernel", attends, lambda: sdpa_kernel(SDPBackend.MATH), "error"),
    (
        "autocast of one's own",
        lambda own, x: x.sin(),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        "legal",
    ),
]


@pytest.mark.parametrize(
    ("act", "context", "verdict"), [c[1:] for c in CONTEXTS], ids=[c[0] for c in CONTEXTS]
)
def test_contexts_that_are_left_before_backward(act: Any, context: Any, verdict: str) -> None:
    report = check(functools.partial(Block, act), forward_context=context)
    assert_found(report, verdict, None if verdict == "legal" else "context_left")
    assert FLAGS == {"scale": 1.0}


# --- what does not exist --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": ["blok"]}, r"blocks: the model has no module 'blok'; it has before, block, after"),
        ({"blocks": []}, r"blocks: expected at least one FQN"),
        ({"blocks": "block"}, r"blocks: expected a list of FQNs, got the text 'block'"),
        ({"rng": "keep"}, r"rng: expected preserve or ignore, got 'keep'"),
        ({"variant": "hook"}, r"variant: expected call or forward, got 'hook'"),
        ({"autocast": "float32"}, r"autocast: expected bfloat16 or float16, got 'float32'"),
    ],
)
def test_options_that_do_not_exist(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(Block, **options)


# --- float16 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_float16_is_checked_with_a_scaled_loss(scale: float) -> None:
    def loss(output: Tensor) -> Tensor:
        return square(output.float()) * scale

    report = check(lambda: layers(nn.GELU()), autocast="float16", loss=loss)
    assert_found(report, "legal", None)
    (said,) = report.warnings  # and not that anything is not finite
    taken = float(said.removeprefix("float16: the loss was scaled by ").partition(" ")[0])
    assert taken <= 1 if scale > 1 else taken == 65536
    broken = check(
        lambda: layers(nn.Dropout(0.5), nn.Tanh()), autocast="float16", loss=loss, rng="ignore"
    )
    assert broken.verdict == "parity_fail"


def test_what_is_scaled_is_divided_again() -> None:
    training = Training(one_block, (batch(),), square, lambda: torch.autocast("cpu", torch.float16))
    plain, scaled = (
        run(replace(training, loss_scale=scale), Way()).tensors["grad/block.layer.weight"]
        for scale in (1.0, 2.0**10)
    )
    assert float((plain - scaled).abs().max()) <= 1e-3 * float(plain.abs().max())
