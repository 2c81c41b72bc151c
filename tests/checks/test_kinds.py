"""Kinds of blocks and what is found of each: one small builder a kind."""

import contextvars
import functools
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.checks import elsewhere
from tests.checks.models import ROWS, WIDTH, Block, Net, assert_found, batch, check

Build = Callable[[], nn.Module]


def layers(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *between, nn.Linear(WIDTH, WIDTH))


# --- legal ----------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Keeps its last map, a mask of this length, and tables of the positions it has met."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.last_map: Tensor | None = None
        self.tables: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if len(x) not in self.tables:
            self.tables[len(x)] = torch.arange(len(x)).outer(torch.ones(WIDTH)).cos()
        self.mask = torch.ones(len(x), len(x)).tril() == 0
        q, k, v = (self.qkv(x) * self.tables[len(x)].repeat(1, 3)).chunk(3, -1)
        weights = (q @ k.T / 4).masked_fill(self.mask, float("-inf")).softmax(-1)
        self.last_map = weights.detach()
        return weights @ v


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x)
        chosen = scores.argmax(-1)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()
            y = y.index_add(0, rows, torch.tanh(expert(x[rows])))
        return y * scores.softmax(-1).amax(-1, keepdim=True)


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH // 2 + 1, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=WIDTH))


class Words(nn.Module):
    """An embedding with sparse gradients, its weights tied to the way out."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(WIDTH, WIDTH, sparse=sparse)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        if not sparse:
            self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.table(x.detach().argmax(-1))) + x)


def draws_a_branch(own: Block, x: Tensor) -> Tensor:
    return x * 2 if torch.rand(()) < 0.5 else x.sin()


def timed(own: Block, x: Tensor) -> None:
    own.seconds = time.perf_counter()


def running_max(own: Block, x: Tensor) -> None:
    own.most = torch.maximum(own.most, x.detach().abs().max())


@functools.lru_cache
def table(width: int) -> Tensor:
    return torch.arange(width) / width


def residual(own: Block, x: Tensor) -> Tensor:
    y = own.layer(x)
    y += x
    return y.relu_()


def unused() -> nn.Module:
    return Block(spare=nn.Linear(WIDTH, WIDTH))


def frozen() -> nn.Module:
    return layers(nn.Tanh()).requires_grad_(False)


def still_norm() -> nn.Module:
    return layers(nn.BatchNorm1d(WIDTH).eval(), nn.Tanh())


def with_hook(hook: Callable[..., Any], **options: Any) -> nn.Module:
    block = layers(nn.Tanh())
    block[0].register_forward_hook(hook, **options)  # type: ignore[operator]
    return block


class Twice(Net):
    def middle(self, h: Tensor) -> Tensor:
        return self.block(self.block(h))


class Auxiliary(Net):
    """The block leaves a loss on itself, which the model adds to what it gives."""

    def middle(self, h: Tensor) -> Tensor:
        return self.block(h) + self.block.aux


def leaves_aux(own: Block, x: Tensor) -> None:
    own.__dict__["aux"] = own.layer(x).square().mean()


class Scaled(nn.Module):
    """Takes a mapping by name."""

    def __init__(self, act: Callable[[dict[str, Any]], Tensor]) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(WIDTH, WIDTH), act

    def forward(self, x: Tensor, *, more: Any) -> Tensor:
        return torch.tanh(self.layer(x * self.act(more)))


def reads(more: dict[str, Any]) -> Tensor:
    return more["by"] * more["times"]  # keeps no `by`


class GivesMore(Net):
    """Hands a mapping to the block, and does `later` with it after the call."""

    def __init__(self, block: nn.Module, later: Callable[[dict[str, Any]], Any] = lambda more: None):
        super().__init__(block)
        self.later = later

    def middle(self, h: Tensor) -> Tensor:
        more = {"by": h + 1, "times": 2.0, "skips": [h.sin(), h.cos()]}
        y = self.block(h, more=more)
        self.later(more)
        return y


LEGAL: list[tuple[str, Build, str | None]] = [
    ("layers", lambda: layers(nn.GELU()), None),
    ("dropout", lambda: layers(nn.Dropout(0.5), nn.Tanh()), "rng_preserved"),
    ("functional dropout", lambda: Block(lambda own, x: F.dropout(x, 0.5, training=True)), None),
    ("a branch drawn from torch", lambda: Block(draws_a_branch), "rng_preserved"),
    ("rrelu in the middle", lambda: layers(nn.RReLU(), nn.Tanh()), "rng_preserved"),
    ("batch norm that is still", still_norm, None),
    (
        "batch norm without statistics",
        lambda: layers(nn.BatchNorm1d(WIDTH, track_running_stats=False)),
        None,
    ),
    ("group norm", lambda: layers(nn.GroupNorm(4, WIDTH)), None),
    ("attention with caches", Attention, None),
    ("routed by its input", Experts, None),
    ("a parameter without a gradient", unused, None),
    ("frozen", frozen, None),
    ("complex", Spectral, None),
    ("sparse gradients", lambda: Words(sparse=True), None),
    ("tied weights", lambda: Words(sparse=False), None),
    ("the clock in an attribute", lambda: Block(timed, seconds=0.0), None),
    ("a running maximum", lambda: Block(running_max, most=torch.zeros(())), None),
    ("a function that remembers", lambda: Block(lambda own, x: x * table(WIDTH)), None),
    ("a residual in place", lambda: Block(residual), None),
    ("a hook without a trace", lambda: with_hook(lambda *_: None), "hooks_repeat"),
    ("a hook that changes the output", lambda: with_hook(lambda m, a, o: o * 2), "hooks_repeat"),
    (
        "weight norm",
        lambda: layers(nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))),
        None,
    ),
    ("a lock", lambda: Block(lambda own, x: None, lock=threading.Lock()), None),
    ("called twice", lambda: Twice(layers(nn.Tanh())), None),
    ("a loss on an attribute", lambda: Auxiliary(Block(leaves_aux)), None),
    ("nested arguments", lambda: GivesMore(Scaled(reads)), None),
    ("lazy", lambda: nn.Sequential(nn.LazyLinear(WIDTH), nn.Tanh()), None),
]


@pytest.mark.parametrize(("build", "code"), [c[1:] for c in LEGAL], ids=[c[0] for c in LEGAL])
def test_legal(build: Build, code: str | None) -> None:
    report = check(build)
    assert_found(report, "legal", code)
    assert report.reasons == ()
    assert all("block.seconds differs from one plain step" in said for said in report.warnings)
    assert report.largest_relative_gap == report.noise_floor == 0


@dataclass
class Answer:
    logits: Tensor
    nothing: None = None


@pytest.mark.parametrize(
    "shape",
    [
        lambda y: {"logits": y, "nothing": None},
        lambda y: (y, None, [y * 2]),
        Answer,
    ],
    ids=["dict", "tuple", "dataclass"],
)
def test_outputs_of_any_shape(shape: Callable[[Tensor], Any]) -> None:
    class Shaped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = layers(nn.GELU())

        def forward(self, x: Tensor) -> Any:
            return shape(self.block(x))

    def loss(output: Any) -> Tensor:
        if isinstance(output, Answer):
            return output.logits.square().mean()
        return (output["logits"] if isinstance(output, dict) else output[0]).square().mean()

    assert_found(check(Shaped, loss=loss), "legal", None)


@pytest.mark.parametrize(
    "given", [lambda x: x, lambda x: [x], lambda x: {"x": x}], ids=["tensor", "list", "mapping"]
)
def test_inputs_of_any_shape(given: Callable[[Tensor], Any]) -> None:
    assert_found(check(lambda: Block(), given(batch())), "legal", None)


def test_a_baseline_that_is_not_finite_is_said() -> None:
    def act(own: Block, x: Tensor) -> Tensor:
        mask = torch.zeros(ROWS, 1)
        mask[2] = float("-inf")
        return (x + mask).softmax(-1)

    report = check(lambda: Block(act), loss=lambda y: y[:2].square().mean())
    assert_found(report, "legal", None)
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith("plain itself is not finite (")


@pytest.mark.parametrize("dtype", [torch.bfloat16, "bfloat16", "float16"])
def test_autocast(dtype: Any) -> None:
    report = check(lambda: layers(nn.GELU()), autocast=dtype)
    assert_found(report, "legal", None)
    assert report.largest_relative_gap == 0


# --- illegal: a replay changes state --------------------------------------------------------------

TRACK: list[float] = []
SEEN = {"calls": 0}
TOTAL = torch.zeros(2)
NUMBERS = itertools.count()
CALLS = 0
CONTEXT: contextvars.ContextVar[int] = contextvars.ContextVar("calls", default=0)
LOCAL = threading.local()
LOCAL.calls = 0


class Metric(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.updates = 0

    def forward(self, x: Tensor) -> None:
        self.total += x.detach().sum()


METRIC = Metric()


@dataclass
class State:
    calls: int = 0


@dataclass(slots=True)
class Slots:
    calls: int = 0


def track(own: Any, x: Tensor) -> None:
    TRACK.append(float(x.detach().mean()))


def in_a_dict(own: Any, x: Tensor) -> None:
    SEEN["calls"] += 1


def in_a_tensor(own: Any, x: Tensor) -> None:
    TOTAL.add_(1)


def in_a_global(own: Any, x: Tensor) -> None:
    global CALLS
    CALLS += 1


def numbered(own: Any, x: Tensor) -> None:
    next(NUMBERS)


def in_another_file(own: Any, x: Tensor) -> None:
    elsewhere.CALLS += 1


def in_a_context(own: Any, x: Tensor) -> None:
    CONTEXT.set(CONTEXT.get() + 1)


def in_a_thread(own: Any, x: Tensor) -> None:
    LOCAL.calls += 1


def by_default(own: Any, x: Tensor, seen: list[int] = []) -> None:  # noqa: B006
    seen.append(1)


def on_itself(own: Any, x: Tensor) -> None:
    on_itself.calls += 1  # type: ignore[attr-defined]


on_itself.calls = 0  # type: ignore[attr-defined]


def in_an_array(own: Any, x: Tensor) -> None:
    own.sums[0] += 1


def in_a_metric(own: Any, x: Tensor) -> None:
    METRIC(x)


def counting() -> nn.Module:
    calls = 0

    def act(own: Any, x: Tensor) -> None:
        nonlocal calls
        calls += 1

    return Block(act)


class Counted(Block):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return super().forward(x)


def counts(own: Any, x: Tensor) -> None:
    own.state.calls += 1


def counts_up(own: Any, x: Tensor) -> None:
    own.calls += 1


def hidden_module() -> nn.Module:
    reach = [Metric()]
    return Block(lambda own, x: reach[0](x))


def codebook(own: Any, x: Tensor) -> None:
    """Vector quantization's moving average."""
    near = torch.cdist(x.detach(), own.codes).argmin(-1)
    own.codes.mul_(0.99).index_add_(0, near, 0.01 * x.detach())


def observes(own: Any, x: Tensor) -> None:
    """A quantization observer's moving average."""
    own.most.add_(0.01 * (x.detach().amax() - own.most))


def draws_in_vain(own: Any, x: Tensor) -> None:
    random.random()


def collecting() -> nn.Module:
    """A hook on each layer with a list of its own; that of the block's second layer is the second."""
    block, kept = layers(nn.Tanh()), []

    def hook_of(number: int) -> Callable[..., None]:
        seen: list[Tensor] = []
        kept.append(seen)

        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            seen.append(output.detach())

        return hook

    net = Net(block)
    net.before.register_forward_hook(hook_of(0))
    block[0].register_forward_hook(hook_of(1))  # type: ignore[operator]
    return net


class Collector:
    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def look(self, module: nn.Module, args: Any, output: Tensor) -> None:
        self.seen.append(output.detach())


class Nosy(Block):
    """Registers a hook on every forward."""

    def forward(self, x: Tensor) -> Tensor:
        self.layer.register_forward_hook(lambda *_: None)
        return super().forward(x)


def count_on(module: Any, args: Any, output: Tensor) -> None:
    module.calls += 1


def hook_counts() -> nn.Module:
    block = layers(nn.Tanh())
    block[0].calls = 0  # type: ignore[assignment]
    block[0].register_forward_hook(count_on)  # type: ignore[operator]
    return block


ILLEGAL: list[tuple[str, Build, str, str]] = [
    ("batch norm", lambda: layers(nn.BatchNorm1d(WIDTH), nn.Tanh()), "running_statistics", "block.1"),
    ("a tracker", lambda: Block(track), "attribute_changed", "test_kinds.TRACK"),
    ("a global dict", lambda: Block(in_a_dict), "attribute_changed", "SEEN"),
    ("a global tensor", lambda: Block(in_a_tensor), "attribute_changed", "TOTAL"),
    ("a global number", lambda: Block(in_a_global), "attribute_changed", "CALLS"),
    ("a global count", lambda: Block(numbered), "attribute_changed", "NUMBERS"),
    ("another file's number", lambda: Block(in_another_file), "attribute_changed", "elsewhere.CALLS"),
    ("a context variable", lambda: Block(in_a_context), "attribute_changed", "CONTEXT"),
    ("a thread's own", lambda: Block(in_a_thread), "attribute_changed", "LOCAL"),
    (
        "a default argument",
        lambda: Block(by_default),
        "attribute_changed",
        "default argument of by_default",
    ),
    ("a function's attribute", lambda: Block(on_itself), "attribute_changed", "on_itself.calls"),
    ("a metric outside", lambda: Block(in_a_metric), "attribute_changed", "METRIC.total"),
    ("a hidden module", hidden_module, "attribute_changed", "total"),
    ("a closure", counting, "attribute_changed", "calls of counting.act"),
    ("a class attribute", Counted, "attribute_changed", "Counted.calls"),
    ("an attribute", lambda: Block(counts_up, calls=0), "attribute_changed", "block.calls"),
    ("a dataclass", lambda: Block(counts, state=State()), "attribute_changed", "block.state"),
    ("slots", lambda: Block(counts, state=Slots()), "attribute_changed", "block.state"),
    (
        "a queue",
        lambda: Block(lambda own, x: own.last.append(len(own.last)), last=deque(maxlen=9)),
        "attribute_changed",
        "block.last",
    ),
    (
        "a set",
        lambda: Block(lambda own, x: own.seen.add(len(own.seen)), seen=set()),
        "attribute_changed",
        "block.seen",
    ),
    (
        "an array",
        lambda: Block(in_an_array, sums=np.zeros(3)),
        "attribute_changed",
        "block.sums",
    ),
    (
        "a codebook",
        lambda: Block(codebook, codes=torch.randn(4, WIDTH)),
        "buffer_changed",
        "block.codes",
    ),
    ("an observer", lambda: Block(observes, most=torch.zeros(())), "buffer_changed", "block.most"),
    ("random in vain", lambda: Block(draws_in_vain), "foreign_generator", "Python's random module"),
    ("hooks that collect", collecting, "hook_repeats", "seen of collecting.hook_of.hook"),
    ("a bound hook", lambda: with_hook(Collector().look), "hook_repeats", "a Collector"),
    ("a hook that counts", hook_counts, "hook_repeats", "block.0.calls"),
    ("more and more hooks", Nosy, "hook_repeats", "the number of hooks of block.layer"),
]


@pytest.mark.parametrize(
    ("build", "code", "word"), [c[1:] for c in ILLEGAL], ids=[c[0] for c in ILLEGAL]
)
def test_illegal(build: Build, code: str, word: str) -> None:
    states = (CALLS, TRACK[:], dict(SEEN), TOTAL.tolist(), repr(NUMBERS), elsewhere.CALLS, Counted.calls)
    more = (CONTEXT.get(), LOCAL.calls, by_default.__defaults__, vars(on_itself), METRIC.total.item())
    assert_found(check(build), "illegal", code, word)
    assert states == (
        CALLS,
        TRACK,
        SEEN,
        TOTAL.tolist(),
        repr(NUMBERS),
        elsewhere.CALLS,
        Counted.calls,
    )
    assert more == (
        CONTEXT.get(),
        LOCAL.calls,
        by_default.__defaults__,
        vars(on_itself),
        METRIC.total.item(),
    )


def test_a_baseline_that_is_never_twice_the_same() -> None:
    def entropy(own: Any, x: Tensor) -> Tensor:
        generator = torch.Generator()
        generator.seed()
        return x + torch.rand(x.shape, generator=generator)

    for act in (entropy, lambda own, x: x * (1 + time.perf_counter() % 0.1)):
        report = check(functools.partial(Block, act))
        assert_found(report, "illegal", "not_deterministic", "no baseline")
        assert report.steps == 2


# --- parity: the numbers differ -------------------------------------------------------------------

RANDOM = np.random.default_rng(4)


class Pick(nn.Module):
    """One of two layers, by a coin."""

    def __init__(self, coin: Callable[[], float]) -> None:
        super().__init__()
        self.heads, self.tails, self.coin = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), coin

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.heads(x) if self.coin() < 0.5 else self.tails(x))


def anneals(own: Any, x: Tensor) -> Tensor:
    own.time += 1
    return x * own.time


def carries(own: Any, x: Tensor) -> Tensor:
    """A recurrent state from call to call."""
    own.__dict__["hidden"] = x.detach() + 0.5 * own.__dict__.get("hidden", 0)
    return own.__dict__["hidden"] * x


def old_spectral_norm() -> nn.Module:
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH)), nn.Tanh())


def new_spectral_norm() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)), nn.Tanh())


class Injected(Net):
    """A hook that is there for the call only."""

    def middle(self, h: Tensor) -> Tensor:
        handle = self.block.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
        try:
            return self.block(h)
        finally:
            handle.remove()


PARITY: list[tuple[str, Build, str, str]] = [
    (
        "rrelu last",
        lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.RReLU(0.1, 0.9)),
        "early_stop",
        "off",
    ),
    (
        "a generator of torch",
        lambda: Block(
            lambda own, x: x * torch.bernoulli(torch.full_like(x, 0.5), generator=own.source),
            source=torch.Generator().manual_seed(1),
        ),
        "private_generator",
        "block.source",
    ),
    (
        "a generator of NumPy",
        lambda: Block(lambda own, x: x * own.source.random(), source=np.random.default_rng(1)),
        "private_generator",
        "block.source",
    ),
    (
        "an old generator of NumPy",
        lambda: Block(lambda own, x: x * own.source.rand(), source=np.random.RandomState(1)),
        "private_generator",
        "block.source",
    ),
    (
        "a generator of random",
        lambda: Block(lambda own, x: x * own.source.random(), source=random.Random(1)),
        "private_generator",
        "block.source",
    ),
    (
        "a global generator",
        lambda: Block(lambda own, x: x * RANDOM.random()),
        "private_generator",
        "RANDOM",
    ),
    ("random", lambda: Pick(random.random), "foreign_generator", "Python's random module"),
    ("NumPy", lambda: Pick(np.random.rand), "foreign_generator", "NumPy's global generator"),
    (
        "a counter in the math",
        lambda: Block(anneals, time=torch.zeros(())),
        "buffer_changed",
        "block.time",
    ),
    ("a step in the math", lambda: Block(anneals, time=0), "attribute_changed", "block.time"),
    ("a recurrent state", lambda: Block(carries), "attribute_changed", "block.hidden"),
    ("spectral norm", old_spectral_norm, "buffer_changed", "block.0.weight_u"),
    ("spectral norm, parametrized", new_spectral_norm, "buffer_changed", "block.0.parametrizations"),
    (
        "a keyword changed later",
        lambda: GivesMore(Scaled(reads), lambda more: more["by"].add_(1)),
        "input_changed_later",
        "after the call",
    ),
    (
        "a view changed later",
        lambda: GivesMore(Scaled(reads), lambda more: more["by"][:, 0].zero_()),
        "input_changed_later",
        "after the call",
    ),
    (
        "a number changed later",
        lambda: GivesMore(Scaled(reads), lambda more: more.update(times=5.0)),
        "input_changed_later",
        "after the call",
    ),
    (
        "a list that is popped",
        lambda: GivesMore(Scaled(pops)),
        "input_changed",
        "a list that it pops from",
    ),
    ("a hook that is gone", lambda: Injected(Block()), "variant", "under the variant forward it passes"),
]


@pytest.mark.parametrize(("build", "code", "word"), [c[1:] for c in PARITY], ids=[c[0] for c in PARITY])
def test_parity_fail(build: Build, code: str, word: str) -> None:
    drawn = RANDOM.bit_generator.state
    report = check(build)
    assert_found(report, "parity_fail", code, word)
    assert report.largest_relative_gap is None or report.largest_relative_gap > report.tolerance
    assert RANDOM.bit_generator.state == drawn


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("number", range(len(PARITY)), ids=[c[0] for c in PARITY])
def test_the_size_of_the_loss_hides_nothing(number: int, scale: float) -> None:
    report = check(PARITY[number][1], loss=lambda y: y.square().mean() * scale)
    assert report.verdict == "parity_fail"


def test_a_random_state_that_is_ignored() -> None:
    build = functools.partial(layers, nn.Dropout(0.5), nn.Tanh())
    assert_found(check(build, rng="ignore"), "parity_fail", "rng_not_preserved", "preserve")
    assert check(build, rng="preserve").verdict == "legal"


# --- errors: the recomputed step raises, or plain does --------------------------------------------


class Skips(nn.Module):
    """The whole of it is left out at times (LayerDrop)."""

    def __init__(self, coin: Callable[[], float]) -> None:
        super().__init__()
        self.layer, self.coin = nn.Linear(WIDTH, WIDTH), coin

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.layer(x)) if self.coin() < 0.5 else x * x.sigmoid().sin()


def remembers_keys(own: Any, x: Tensor) -> Tensor:
    own.keys.append(own.layer(x))
    return (x @ torch.cat(own.keys).T).softmax(-1) @ torch.cat(own.keys)


def changes_its_input(own: Any, x: Tensor) -> None:
    x.relu_()


def pops(more: dict[str, Any]) -> Tensor:
    return more["skips"].pop()


def pops_all(more: dict[str, Any]) -> Tensor:
    return more["skips"].pop() * more["skips"].pop()


class MutatesOutput(Net):
    def middle(self, h: Tensor) -> Tensor:
        return self.block(h).mul_(2)


class AddsInPlace(Net):
    def middle(self, h: Tensor) -> Tensor:
        h += self.block(h)
        return h


class Flattens(nn.Module):
    """Keeps nothing of its input but what it makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x * 2))


ERRORS: list[tuple[str, Build, str, str]] = [
    ("random", lambda: Skips(random.random), "foreign_generator", "Python's random module"),
    ("NumPy", lambda: Skips(np.random.rand), "foreign_generator", "NumPy's global generator"),
    ("keys that grow", lambda: Block(remembers_keys, keys=[]), "attribute_changed", "block.keys"),
    ("an input changed inside", lambda: Block(changes_its_input), "input_changed", "in place"),
    (
        "a list that is popped",
        lambda: GivesMore(Scaled(pops_all)),
        "input_changed",
        "a list that it pops from",
    ),
    (
        "a list that is emptied later",
        lambda: GivesMore(Scaled(lambda m: m["skips"][1]), lambda m: m["skips"].clear()),
        "input_changed_later",
        "after the call",
    ),
    ("added in place", lambda: AddsInPlace(Flattens()), "input_changed_later", "after the call"),
    (
        "an output changed",
        lambda: MutatesOutput(Block()),
        "plain_raises",
        "the plain step itself raises",
    ),
]


@pytest.mark.parametrize(("build", "code", "word"), [c[1:] for c in ERRORS], ids=[c[0] for c in ERRORS])
def test_error(build: Build, code: str, word: str) -> None:
    assert_found(check(build), "error", code, word)


# --- nothing to save ------------------------------------------------------------------------------


def test_a_layer_alone_keeps_what_a_replay_needs() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Linear(128, 128)
            self.rest = nn.Linear(128, 128)

        def forward(self, x: Tensor) -> Tensor:
            return self.rest(self.block(x))

    report = check(Wide, (batch(512, 128),), blocks=["block", "rest"])
    assert_found(report, "no_saving", "nothing_dropped", "forward keeps")


def test_the_model_as_a_whole_peaks_as_high() -> None:
    block = layers(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)), nn.Tanh())
    report = check(lambda: Net(block), (batch(4096, WIDTH),), blocks=[""])
    assert_found(report, "no_saving", "peak_stays", "the peak stays")
    assert report.saving is not None
    assert not report.saving.nothing_dropped


def test_hooks_on_saved_tensors_inside_keep_everything() -> None:
    class Hooked(Block):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                return super().forward(x).sin()

    report = check(Hooked, (batch(2048, WIDTH),))
    assert_found(report, "no_saving", "nothing_dropped", "saved-tensor hooks")


def test_without_a_graph_nothing_is_compared() -> None:
    report = check(lambda: Block(), forward_context=torch.no_grad)
    assert_found(report, "no_saving", "no_graph", "requires no gradient")
    assert report.steps == 1


@pytest.mark.parametrize("block", ["rest", "spare"])
def test_a_block_that_is_not_called(block: str) -> None:
    class Spare(Net):
        def __init__(self) -> None:
            super().__init__(Block())
            self.rest, self.spare = nn.ModuleList([Block()]), Block()

    report = check(Spare, blocks=[block])
    assert_found(report, "no_saving", "not_called", "is not called in this step")
    both = check(Spare, blocks=["block", block])
    assert [one.verdict for one in both.blocks] == ["legal", "no_saving"]
