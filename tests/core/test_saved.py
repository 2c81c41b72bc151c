"""Saved bytes to the last one, on models whose tensors can be counted by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recompute_core.meters.saved import SavedBytes
from recompute_core.plans.apply import applied
from recompute_core.spec import CheckpointSettings
from recompute_core.workloads.gpt import build
from recompute_core.workloads.job import Job
from recompute_core.workloads.sizes import sizes_of
from tests.core.toys import BATCH, SMALL, WIDTH, each, mlps

UNIT = 4 * BATCH * WIDTH
"""Bytes of one [BATCH, WIDTH] tensor."""
WEIGHT = 4 * WIDTH * WIDTH


def saved(run: Callable[[], Any], *own: Tensor) -> tuple[int, int]:
    """Distinct and naive bytes that `run` saves; its result is kept alive until they are read."""
    meter = SavedBytes(own)
    with meter:
        kept = run()
    del kept
    return meter.distinct, meter.naive


@pytest.fixture
def x() -> Tensor:
    return torch.randn(BATCH, WIDTH, requires_grad=True)


def test_linear_saves_its_input_and_its_weight(x: Tensor) -> None:
    layer = nn.Linear(WIDTH, WIDTH)
    assert saved(lambda: layer(x), x, *layer.parameters()) == (0, UNIT + WEIGHT)
    assert saved(lambda: layer(x), *layer.parameters()) == (UNIT, UNIT + WEIGHT)
    assert saved(lambda: layer(x)) == (UNIT + WEIGHT, UNIT + WEIGHT)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_stack_of_linear_and_gelu(x: Tensor, depth: int) -> None:
    """GELU keeps the output of its linear layer; each linear layer but the first, GELU's output."""
    stack = nn.Sequential(
        *(layer for _ in range(depth) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU()))
    )
    distinct, naive = saved(lambda: stack(x), x, *stack.parameters())
    assert distinct == depth * UNIT + (depth - 1) * UNIT
    assert naive == distinct + UNIT + depth * WEIGHT


def test_a_tensor_saved_by_two_operations_counts_once(x: Tensor) -> None:
    def run() -> Tensor:
        y = x * 2
        return y.sin() + y.cos()

    assert saved(run, x) == (UNIT, UNIT)


def test_a_view_counts_its_storage_once(x: Tensor) -> None:
    def run() -> tuple[Tensor, Tensor]:
        y = x * 2
        return y.sin(), y[BATCH // 2 :].cos()  # the second pointer lies inside the first's bytes

    assert saved(run, x) == (UNIT, UNIT + UNIT // 2)


def test_a_view_alone_keeps_its_whole_storage(x: Tensor) -> None:
    assert saved(lambda: (x * 2)[0].sin(), x) == (UNIT, UNIT // BATCH)


def test_a_view_of_a_parameter_is_left_out() -> None:
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    assert saved(lambda: weight[0].sin(), weight) == (0, 4 * WIDTH)


def test_an_output_that_is_saved_counts(x: Tensor) -> None:
    assert saved(lambda: x.exp(), x) == (UNIT, UNIT)


def test_dropout_saves_its_mask(x: Tensor) -> None:
    layer = nn.Dropout(0.5)
    # On the CPU the mask is already scaled, so it has the tensor's own type.
    assert saved(lambda: layer(x), x) == (UNIT, UNIT)


def test_nothing_is_saved_without_gradients(x: Tensor) -> None:
    with torch.no_grad():
        assert saved(lambda: x.exp(), x) == (0, 0)


def test_only_what_is_saved_inside_counts(x: Tensor) -> None:
    meter = SavedBytes([x])
    y = x.exp()
    with meter:
        z = y.exp()
    z.exp().sum().backward()
    assert meter.distinct == UNIT


def test_a_recomputed_block_keeps_its_input_alone() -> None:
    job = mlps(3)
    own = (*job.batch, *job.model.parameters())
    mlp = 2 * UNIT  # the first linear layer's output for GELU, GELU's output for the second

    def run() -> Any:
        return job.model(*job.batch)

    tail = UNIT  # the loss keeps what it squares
    assert saved(run, *own)[0] == 3 * mlp + 2 * UNIT + tail
    for blocks, expected in (
        (("blocks.0",), 2 * mlp + 2 * UNIT + tail),
        (("blocks.1",), 2 * mlp + 2 * UNIT + tail),
        (job.blocks, 2 * UNIT + tail),
    ):
        with applied(job.model, each(*blocks), CheckpointSettings(rng="ignore")):
            assert saved(run, *own)[0] == expected


SIZES = [
    {},
    {"batch": 3},
    {"seq_len": 24, "blocks": 3},
    {"width": 48, "heads": 3, "vocab": 65},
    {"blocks": 1, "batch": 1},
]


def gpt(sizes: dict[str, int]) -> Job:
    return build(SMALL.model_copy(update=sizes), seed=0)


def gpts_saved_bytes(job: Job, blocks: tuple[str, ...]) -> tuple[int, int]:
    with applied(job.model, each(*blocks), CheckpointSettings()):
        return saved(lambda: job.model(*job.batch), *job.batch, *job.model.parameters())


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gpt_equals_its_closed_form(sizes: dict[str, int]) -> None:
    job, s = gpt(sizes), SMALL.model_copy(update=sizes)
    tokens, hidden = s.batch * s.seq_len, int(8 / 3 * s.width)
    u = 4 * tokens * s.width
    block = 9 * u + 16 * tokens * hidden + 8 * tokens + 4 * s.heads * tokens
    tail = 3 * u + 4 * tokens * s.vocab + 4 * tokens + 4
    rope = 8 * s.seq_len * (s.width // s.heads)
    parameters = 4 * sum(p.numel() for p in job.model.parameters())
    plain = s.blocks * (block + u) + rope + tail
    assert gpts_saved_bytes(job, ())[0] == plain
    assert gpts_saved_bytes(job, job.blocks)[0] == s.blocks * u + tail
    assert sizes_of(s).saved_bytes == plain
    assert sizes_of(s).block_saved_bytes == block + u
    assert sizes_of(s).parameters * 4 == parameters


def test_gpts_naive_count_takes_weights_and_token_ids_too() -> None:
    job = gpt({})
    ids = 2 * 8 * SMALL.batch * SMALL.seq_len  # tokens for the embedding, targets for the loss
    weights = 4 * sum(p.numel() for p in job.model.parameters())
    distinct, naive = gpts_saved_bytes(job, ())
    assert naive == distinct + weights + ids
    # Recomputed, only the tail's weights are kept: the last norm's gain and the tied head.
    distinct, naive = gpts_saved_bytes(job, job.blocks)
    assert naive == distinct + 4 * SMALL.width * (SMALL.vocab + 1) + ids


def test_each_entry_starts_from_zero(x: Tensor) -> None:
    meter = SavedBytes([x])
    for _ in range(2):
        with meter:
            kept = (x * 2).sin()
        assert (meter.distinct, meter.naive) == (UNIT, UNIT)
        del kept


def test_a_meter_may_not_change_what_it_counts(x: Tensor) -> None:
    layer = nn.Linear(WIDTH, WIDTH)
    plain = torch.autograd.grad(F.gelu(layer(x)).sum(), x)[0]
    with SavedBytes([x]):
        metered = torch.autograd.grad(F.gelu(layer(x)).sum(), x)[0]
    assert torch.equal(plain, metered)
