"""One line for each tensor of a reference, enough to name those that differ and to bound by how much."""

import torch

from recompute_core.checks.snapshot import fingerprints
from recompute_core.results import Fingerprint


def of(tensor: torch.Tensor) -> Fingerprint:
    (found,) = fingerprints({"grad/w": tensor})
    return found


def sizes(tensor: torch.Tensor) -> tuple[float | None, float | None]:
    found = of(tensor)
    return found.norm, found.largest


def test_norm_and_largest_value() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        assert sizes(torch.tensor([[3.0], [-4.0]], dtype=dtype)) == (5.0, 4.0)
    assert sizes(torch.tensor([3 + 4j, 0])) == (5.0, 5.0)
    assert sizes(torch.tensor(-2.0)) == (2.0, 2.0)
    assert sizes(torch.empty(0, 3)) == (0.0, 0.0)


def test_whole_numbers_and_infinities_have_neither() -> None:
    assert sizes(torch.tensor([3, 4])) == (None, None)
    assert sizes(torch.tensor([True])) == (None, None)
    for odd in ("inf", "-inf", "nan"):
        assert sizes(torch.tensor([1.0, float(odd)])) == (None, None)


def test_the_digest_is_of_type_shape_and_bytes() -> None:
    ones = torch.ones(2, 3)
    assert of(ones).sha256 == of(ones.t().contiguous().t()).sha256, "wherever its bytes lie"
    assert len({of(one).sha256 for one in (ones, ones.t(), ones.double(), -ones, ones.int())}) == 5


def test_norms_are_exact_enough_to_show_a_last_bit() -> None:
    """Summed in double precision: a float32 sum over this many would be off by more than that."""
    many = torch.full((1 << 20,), 1.0)
    assert sizes(many) == (1024.0, 1.0)
    many[0] = 2.0
    assert sizes(many)[0] == (2**20 + 3) ** 0.5
