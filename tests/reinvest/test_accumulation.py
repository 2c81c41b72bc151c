"""The accumulated gradient: equal to the whole batch's, whatever is rejected and however it is cut."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from recompute_core.errors import InputError
from recompute_core.plans.apply import applied
from recompute_core.reinvest.accumulation import (
    _to_scale,
    accumulate,
    by_examples,
    by_means,
    compare_accumulated,
    microbatches,
)
from recompute_core.reinvest.asked import microbatch_within
from recompute_core.results import Gap
from recompute_core.settings import ReceiptsSettings
from recompute_core.spec import CheckpointSettings, Region
from recompute_core.workloads.job import Job
from recompute_core.workloads.receipts import build_blank

PLAN = (Region(modules=("blocks.0",)), Region(modules=("blocks.1",)))


class Small(nn.Module):
    """Two blocks; in float64, so that only rounding is between two ways to add up."""

    def __init__(self, norm: type[nn.Module] = nn.LayerNorm, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), norm(6), nn.Tanh(), nn.Dropout(dropout)) for _ in range(2)
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return logits, F.cross_entropy(logits, labels)


def job_of(drawn: int, model: nn.Module | None = None, dtype: torch.dtype = torch.float64) -> Job:
    generator = torch.Generator().manual_seed(1)
    photos = torch.randn(drawn, 6, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(3, (drawn,), generator=generator)
    return Job(
        model=(model or Small()).to(dtype),
        batch=(photos, labels),
        blocks=("blocks.0", "blocks.1"),
        tokens=None,
    )


def gradient_of(job: Job) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in job.model.named_parameters() if p.grad is not None}


def whole_batch(job: Job, accepted: list[bool]) -> dict[str, Tensor]:
    """The mean over the accepted examples in one pass, as a textbook writes it."""
    kept = torch.tensor(accepted)
    photos, labels = job.batch
    job.model.zero_grad(set_to_none=True)
    job.model(photos[kept], labels[kept])[1].backward()
    return gradient_of(job)


def in_microbatches(job: Job, accepted: list[bool], size: int) -> dict[str, Tensor]:
    job.model.zero_grad(set_to_none=True)
    accumulate(microbatches(job, accepted, size), by_examples(sum(accepted)))
    return gradient_of(job)


def close(found: dict[str, Tensor], wanted: dict[str, Tensor], rounding: float) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        scale = wanted[name].abs().max()
        assert (found[name] - wanted[name]).abs().max() <= rounding * scale, name


def accepting(counts: list[int], size: int) -> list[bool]:
    """So many accepted of each microbatch of `size`."""
    return [place < count for count in counts for place in range(size)]


@pytest.mark.parametrize(
    "accepted",
    [
        accepting([5, 5, 6, 5], 6),
        accepting([5, 0, 6, 5], 6),
        [*accepting([6, 4, 6], 6), True, False],
        [True],
    ],
    ids=["5, 5, 6, 5", "none in the second", "a last short one", "a single example"],
)
def test_unequal_microbatches_give_the_whole_batchs_gradient_to_float32_rounding(
    accepted: list[bool],
) -> None:
    job = job_of(len(accepted), dtype=torch.float32)
    wanted = whole_batch(job_of(len(accepted)), accepted)
    exact = {name: gradient.float() for name, gradient in wanted.items()}
    close(in_microbatches(job, accepted, 6), exact, 4e-6)


@given(st.lists(st.booleans(), min_size=1, max_size=40).filter(any), st.integers(1, 41))
@settings(deadline=None)
def test_any_cut_of_any_batch_is_the_whole_batch(accepted: list[bool], size: int) -> None:
    job = job_of(len(accepted))
    close(in_microbatches(job, accepted, size), whole_batch(job, accepted), 1e-12)


def test_a_mean_of_means_is_another_gradient_where_microbatches_are_unequal() -> None:
    accepted = accepting([5, 1, 6, 5], 6)
    job = job_of(len(accepted))
    rightly = in_microbatches(job, accepted, 6)
    job.model.zero_grad(set_to_none=True)
    accumulate(microbatches(job, accepted, 6), by_means(4))
    wrongly = gradient_of(job)
    gap = max(float((wrongly[n] - rightly[n]).abs().max() / rightly[n].abs().max()) for n in rightly)
    assert gap > 0.05


def test_a_loss_of_its_own_is_cut_with_the_batch() -> None:
    drawn, accepted = 7, [True, True, False, True, True, True, True]
    plain = job_of(drawn)
    labels = plain.batch[1]

    class Logits(Small):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return self.head(self.blocks[1](self.blocks[0](x)))  # type: ignore[no-any-return]

    job = replace(
        job_of(drawn, Logits()),
        batch=(plain.batch[0],),
        loss=lambda logits: F.cross_entropy(logits, labels),
    )
    close(in_microbatches(job, accepted, 3), whole_batch(plain, accepted), 1e-12)


def test_a_batch_without_rows_is_refused() -> None:
    with pytest.raises(InputError, match="no tensor of the batch has 5 rows"):
        next(microbatches(job_of(4), [True] * 5, 2))


@pytest.mark.parametrize(
    ("effective", "largest", "size"), [(64, 30, 22), (64, 64, 64), (64, 100, 64), (5, 2, 2), (1, 1, 1)]
)
def test_passes_are_shared_out_evenly(effective: int, largest: int, size: int) -> None:
    assert microbatch_within(effective, largest) == size


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_an_even_microbatch_takes_no_more_passes_and_no_more_memory(
    effective: int, largest: int
) -> None:
    size = microbatch_within(effective, largest)
    assert 1 <= size <= largest
    assert -(-effective // size) == -(-effective // largest)


# --- parity of the two sizes -----------------------------------------------------------------


def compared(job: Job, accepted: list[bool], sizes: tuple[int, int]):  # type: ignore[no-untyped-def]
    put_on = partial(applied, job.model, PLAN, CheckpointSettings())
    return compare_accumulated(job, accepted, sizes, put_on, seed=0)


def test_the_two_sizes_agree_and_the_mean_of_means_does_not() -> None:
    accepted = accepting([5, 5, 6, 2], 6)
    found = compared(job_of(24), accepted, (4, 6))
    assert found.failures(1e-10) == ()
    assert found.noise_floor == 0
    assert found.mean_of_means_gap is not None and found.mean_of_means_gap > 1e-2
    assert found.plain_microbatches == (4, 3, 3, 4, 4, 0)
    assert found.recomputed_microbatches == (5, 5, 6, 2)
    assert (found.accepted, found.effective_batch) == (18, 24)
    assert not found.draws and not found.batch_statistics and not found.dropout_off


def test_batch_statistics_are_found_out_and_named() -> None:
    found = compared(job_of(12, Small(nn.BatchNorm1d)), [True] * 12, (3, 6))
    assert found.batch_statistics == ("blocks.0.1", "blocks.1.1")
    assert found.failures(1e-4)


def test_frozen_batch_statistics_are_none() -> None:
    model = Small(nn.BatchNorm1d)
    model.blocks.eval()
    found = compared(job_of(12, model), [True] * 12, (3, 6))
    assert found.batch_statistics == () and found.failures(1e-10) == ()


def test_dropout_is_off_for_the_comparison() -> None:
    found = compared(job_of(12, Small(dropout=0.5)), [True] * 12, (3, 6))
    assert found.dropout_off and not found.draws
    assert found.failures(1e-10) == ()


def test_a_model_that_draws_by_itself_is_found_out() -> None:
    class Drawing(Small):
        def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(x + 0.1 * torch.randn_like(x), labels)

    found = compared(job_of(12, Drawing()), [True] * 12, (3, 6))
    assert found.draws and found.failures(1e-4)


def test_a_gradient_that_is_rounding_alone_is_no_other_objective() -> None:
    """Softmax is blind to what is added to every logit, so this bias has a gradient of zero."""

    class Shifted(Small):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            logits, _ = super().forward(x, labels)
            return logits, F.cross_entropy(logits + self.shift, labels)

    found = compared(job_of(15, Shifted(), torch.float32), [True] * 15, (3, 5))
    shift = next(gap for gap in found.gaps if gap.name == "shift")
    assert shift.absolute is not None and 0 < shift.absolute < 1e-6
    assert found.failures(1e-4) == ()


def test_a_small_gradient_that_is_wrong_is_still_found() -> None:
    """A hundredth of the largest, and a tenth off: far beyond a thousandth of the largest times 1e-4."""
    gaps = (
        Gap(part="grad", name="large", absolute=0.0, relative=0.0),
        Gap(part="grad", name="small", absolute=1e-5, relative=0.1),
    )
    plain = {"grad/large": torch.tensor([1.0]), "grad/small": torch.tensor([1e-4])}
    _, small = _to_scale(gaps, plain)
    assert small.relative == pytest.approx(1e-2)


def test_an_update_without_an_accepted_example_is_refused() -> None:
    with pytest.raises(InputError, match="none of the 4 examples of an update is accepted"):
        compared(job_of(4), [False] * 4, (2, 4))


def test_bfloat16_rounds_more_than_the_tolerance_and_its_spacing_is_told() -> None:
    found = compared(job_of(15, dtype=torch.bfloat16), [True] * 15, (3, 5))
    assert found.rounding == 2**-7
    gap = found.largest_relative_gap
    assert gap is not None and 1e-4 < gap < 16 * found.rounding


def test_a_loss_over_pairs_of_examples_is_no_sum_over_examples() -> None:
    class Contrasting(Small):
        def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            logits, _ = super().forward(x, labels)
            return logits, F.cross_entropy(logits @ logits.T, torch.arange(len(x)))

    found = compared(job_of(12, Contrasting()), [True] * 12, (3, 6))
    assert found.failures(1e-4) and not found.draws and not found.batch_statistics


def test_the_receipts_encoders_own_dropout_is_off_too() -> None:
    asked = ReceiptsSettings(
        blocks=2, width=32, heads=2, height=32, image_width=32, batch=8, dropout=0.5
    )
    job = build_blank(asked, 0)
    photos = torch.rand(job.batch[0].shape, generator=torch.Generator().manual_seed(0))
    found = compared(replace(job, batch=(photos, job.batch[1])), [True] * 8, (2, 4))
    assert found.dropout_off and not found.draws
    assert found.failures(1e-4) == ()
