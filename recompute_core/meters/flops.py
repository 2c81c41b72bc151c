"""Formulas that `torch.utils.flop_counter.FlopCounterMode` lacks: the CPU's fused attention.

Counted as torch counts the other fused kernels: both products over the full square, causal or not;
the backward kernel computes the scores again, which makes five products.
"""

from typing import Any

import torch
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

Shape = torch.Size


def _forward(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _backward(grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))  # type: ignore[no-untyped-call]


_aten = torch.ops.aten
FORMULAS = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
}
