"""FLOPs to the last one, forward and backward, with the CPU's fused attention."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from recompute_core.checks.snapshot import fixed_update
from recompute_core.meters.flops import FORMULAS
from recompute_core.plans.apply import applied
from recompute_core.spec import CheckpointSettings, OptimizerSettings
from recompute_core.workloads.sizes import sizes_of
from tests.core.toys import BATCH, SMALL, WIDTH, each, mlps, small_gpt


def count(run: object) -> int:
    with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter:
        run()  # type: ignore[operator]
    return counter.get_total_flops()


def test_linear_forward_and_backward() -> None:
    layer, x = nn.Linear(16, 32), torch.randn(8, 16, requires_grad=True)
    product = 2 * 8 * 16 * 32
    assert count(lambda: layer(x)) == product
    assert count(lambda: layer(x).sum().backward()) == 3 * product
    # Without a gradient for the input, backward is one product, not two.
    assert count(lambda: layer(x.detach()).sum().backward()) == 2 * product


@pytest.mark.parametrize("causal", [True, False])
def test_fused_attention(causal: bool) -> None:
    batch, heads, length, width = 2, 3, 16, 8
    q, k, v = (torch.randn(batch, heads, length, width, requires_grad=True) for _ in range(3))
    product = 2 * batch * heads * length * length * width

    def attend() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    assert "FlashAttention" in type(attend().grad_fn).__name__
    assert count(attend) == 2 * product
    assert count(lambda: attend().sum().backward()) == (2 + 5) * product


def test_attention_of_another_length_and_value_width() -> None:
    q = torch.randn(1, 2, 4, 8)
    k, v = torch.randn(1, 2, 16, 8), torch.randn(1, 2, 16, 8)
    assert count(lambda: F.scaled_dot_product_attention(q, k, v)) == 2 * 2 * 1 * 2 * 4 * 16 * 8


def test_torchs_own_counter_still_lacks_the_formula() -> None:
    """If this fails, FORMULAS may go."""
    q = torch.randn(1, 2, 16, 8)
    with FlopCounterMode(display=False) as counter:
        F.scaled_dot_product_attention(q, q, q)
    assert counter.get_total_flops() == 0


def test_gpt_equals_its_closed_form() -> None:
    """A block's weights three times over, attention's seven products, the head's three."""
    s = SMALL
    tokens, hidden = s.batch * s.seq_len, 85
    weights = 4 * s.width**2 + 3 * s.width * hidden
    product = 2 * s.batch * s.seq_len**2 * s.width
    expected = s.blocks * (6 * tokens * weights + 7 * product) + 6 * tokens * s.width * s.vocab
    assert fixed_update(small_gpt(), OptimizerSettings(), 0).flops == expected
    assert sizes_of(s).flops == expected


def test_recomputing_adds_a_forward_of_the_block() -> None:
    product = 2 * BATCH * WIDTH * WIDTH
    plain = mlps(2)
    # Two products forward and four backward a block, the input's gradient included.
    assert fixed_update(plain, OptimizerSettings(), 0).flops == 2 * 6 * product
    for early_stop, more in ((False, 2), (True, 1)):
        job = mlps(2)
        with applied(job.model, each("blocks.0"), CheckpointSettings(early_stop=early_stop)):
            assert fixed_update(job, OptimizerSettings(), 0).flops == (2 * 6 + more) * product
