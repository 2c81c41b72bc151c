"""Does a recomputed update equal plain's, and would we notice if it did not?"""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from recompute_core.checks import snapshot
from recompute_core.checks.parity import _breaking, check_canary, check_noise, check_parity
from recompute_core.checks.snapshot import Snapshot, compare, fixed_update
from recompute_core.errors import InputError
from recompute_core.plans.apply import applied, recompute
from recompute_core.results import Gap, Parity, ParityFailed, ParityPassed
from recompute_core.spec import CheckpointSettings, OptimizerSettings, StudySpec, Thresholds
from recompute_core.workloads.job import Job, tensors_digest
from tests.core.toys import BATCH, WIDTH, Mlp, Tower, each, mlps, small_gpt, tower

SPEC = StudySpec()


def reference_of(build: Callable[[], Job], spec: StudySpec = SPEC) -> Snapshot:
    return fixed_update(build(), spec.optimizer, spec.seed).tensors


def parity_of(
    build: Callable[[], Job], spec: StudySpec = SPEC, blocks: tuple[str, ...] | None = None
) -> Parity:
    plain = fixed_update(build(), spec.optimizer, spec.seed)
    regions = each(*(blocks or build().blocks))
    return check_parity(build, spec, plain.tensors, regions, 0.0, plain.block_calls)


def test_a_plan_that_recomputes_nothing_is_no_candidate() -> None:
    """The spare module is there and is never called, so it is never replayed."""

    def build() -> Job:
        job = small_gpt()
        job.model.get_submodule("blocks.0").spare = nn.Identity()
        return job

    plain = fixed_update(build(), SPEC.optimizer, SPEC.seed)
    with pytest.raises(RuntimeError, match=r"blocks\.0\.spare was not called again in backward"):
        check_parity(build, SPEC, plain.tensors, each("blocks.0.spare"), 0.0, plain.block_calls)


def test_a_plan_that_recomputes_what_it_does_not_name_is_no_candidate() -> None:
    plain = fixed_update(small_gpt(), SPEC.optimizer, SPEC.seed)

    def recomputing_more() -> Job:
        job = small_gpt()
        block = job.model.get_submodule("blocks.1")
        block._call_impl = recompute(SPEC.checkpoint)(block._call_impl)
        return job

    with pytest.raises(RuntimeError, match=r"blocks\.1 was called 2 times, and 1 times in plain"):
        check_parity(recomputing_more, SPEC, plain.tensors, each("blocks.0"), 0.0, plain.block_calls)


def test_a_module_that_is_not_there_is_one_line() -> None:
    with pytest.raises(InputError, match=r"plan: the model has no module 'blocks\.0\.gone'"):
        parity_of(small_gpt, blocks=("blocks.0.gone",))


def failed_names(parity: Parity) -> set[str]:
    assert isinstance(parity, ParityFailed)
    return {f"{gap.part}/{gap.name}" for gap in parity.failed}


# --- what is kept of an update --------------------------------------------------------------------


def test_everything_an_update_leaves_is_kept() -> None:
    found = fixed_update(mlps(1), OptimizerSettings(), seed=0)
    layers = [f"blocks.0.{layer}.{kind}" for layer in ("up", "down") for kind in ("weight", "bias")]
    assert set(found.tensors) == {
        "loss/",
        "output/0",
        "input_grad/input 0",
        "input_grad/input of blocks.0",
        "rng/torch",
        "rng/random",
        "rng/numpy",
        *(f"grad/{name}" for name in layers),
        *(f"weight/{name}" for name in layers),
    }
    assert found.block_calls == {"blocks.0": 1}


def test_gradients_are_the_analytic_ones() -> None:
    job = tower(nn.Linear(WIDTH, WIDTH, bias=False))
    weight, x = job.model.get_submodule("blocks.0").weight.detach().clone(), job.batch[0]
    found = fixed_update(job, OptimizerSettings(lr=1e-3, weight_decay=0.0), seed=0).tensors
    y = x @ weight.T
    dy = y / y.numel()
    torch.testing.assert_close(found["loss/"], y.pow(2).mean() / 2)
    torch.testing.assert_close(found["grad/blocks.0.weight"], dy.T @ x)
    torch.testing.assert_close(found["input_grad/input 0"], dy @ weight)
    torch.testing.assert_close(found["input_grad/input of blocks.0"], dy @ weight)
    # AdamW's first step is the learning rate in the direction of the gradient's sign.
    step = found["weight/blocks.0.weight"] - weight
    torch.testing.assert_close(step, -1e-3 * (dy.T @ x).sign(), rtol=1e-3, atol=1e-6)


def test_token_ids_have_no_gradient_but_the_first_block_has() -> None:
    found = reference_of(small_gpt)
    inputs = [key for key in found if key.startswith("input_grad/")]
    assert inputs == ["input_grad/input of blocks.0"]
    assert found[inputs[0]].shape == (2, 16, 32)
    assert "grad/embedding.weight" in found
    assert "grad/head.weight" not in found  # tied: one parameter, one name


def test_a_parameter_that_is_not_used_has_no_gradient_to_keep() -> None:
    def build() -> Job:
        torch.manual_seed(0)
        job = tower(Mlp())
        job.model.spare = nn.Linear(1, 1)
        return job

    found = reference_of(build)
    assert "weight/spare.weight" in found
    assert "grad/spare.weight" not in found
    assert isinstance(parity_of(build), ParityPassed)


def test_the_batch_is_not_touched() -> None:
    job = mlps(1)
    fixed_update(job, OptimizerSettings(), 0)
    assert not job.batch[0].requires_grad
    assert job.batch[0].grad is None


# --- keeping it on disk ---------------------------------------------------------------------------


def test_round_trip(tmp_path: Path) -> None:
    kept, path = reference_of(small_gpt), tmp_path / "reference T=16 B=2.safetensors"
    digest = snapshot.save(kept, path)
    read = snapshot.load(path, digest)
    assert read.keys() == kept.keys()
    assert all(torch.equal(read[key], kept[key]) for key in kept)
    assert all(read[key].dtype == kept[key].dtype for key in kept)
    assert digest == tensors_digest(sorted(read.items()))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_digest_is_of_names_types_shapes_and_bytes() -> None:
    ones = torch.ones(2, 3)
    digests = {
        tensors_digest([(name, tensor)])
        for name, tensor in (
            ("a", ones),
            ("b", ones),
            ("a", ones.reshape(3, 2)),
            ("a", ones.to(torch.float64)),
            ("a", torch.nextafter(ones, torch.full((2, 3), 2.0))),
            ("a", torch.ones(2, 3, dtype=torch.int32)),
        )
    }
    assert len(digests) == 6
    assert tensors_digest([("a", ones)]) == tensors_digest([("a", torch.ones(3, 2).T)])


def test_outputs_that_share_their_memory_can_be_kept(tmp_path: Path) -> None:
    class Shares(Tower):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y, loss = super().forward(x)
            return (y, y[0], loss), loss  # type: ignore[return-value]

    job = mlps(1)
    shares = Job(Shares(job.model.blocks), job.batch, job.blocks, job.tokens)  # type: ignore[arg-type]
    kept = fixed_update(shares, OptimizerSettings(), 0).tensors
    digest = snapshot.save(kept, tmp_path / "kept.safetensors")
    read = snapshot.load(tmp_path / "kept.safetensors", digest)
    with pytest.raises(RuntimeError, match="not the reference that this study recorded"):
        snapshot.load(tmp_path / "kept.safetensors", "sha256:0")
    assert torch.equal(read["output/1"], read["output/0"][0])
    assert torch.equal(read["output/2"], read["loss/"])


# --- comparing ------------------------------------------------------------------------------------


def one_gap(reference: Tensor | None, found: Tensor | None) -> Gap:
    both = [{"grad/w": tensor} if tensor is not None else {} for tensor in (reference, found)]
    (gap,) = compare(*both)
    assert (gap.part, gap.name) == ("grad", "w")
    return gap


def test_a_gap_is_relative_to_the_references_largest_value() -> None:
    gap = one_gap(torch.tensor([1.0, -4.0, 2.0]), torch.tensor([1.0, -4.0, 2.5]))
    assert (gap.absolute, gap.relative, gap.problem) == (0.5, 0.125, None)


def test_half_precision_does_not_overflow_in_the_comparison() -> None:
    top = torch.tensor([60_000.0], dtype=torch.float16)
    assert (one_gap(top, -top).absolute, one_gap(top, -top).relative) == (120_000.0, 2.0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_other_types_are_compared_too(dtype: torch.dtype) -> None:
    ones = torch.ones(3, dtype=dtype)
    other = ones.clone()
    other[1] = 0
    assert one_gap(ones, ones.clone()).bitwise
    assert (one_gap(ones, other).absolute, one_gap(ones, other).relative) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("reference", "found", "problem"),
    [
        (torch.ones(2), None, "missing"),
        (None, torch.ones(2), "not in the reference"),
        (torch.ones(2), torch.ones(3), "shape (3,) instead of (2,)"),
        (torch.ones(2), torch.ones(1, 2), "shape (1, 2) instead of (2,)"),
        (torch.ones(2), torch.ones(2).double(), "dtype torch.float64 instead of torch.float32"),
        (torch.ones(2), torch.tensor([1.0, math.nan]), "not finite"),
        (torch.ones(2), torch.tensor([1.0, math.inf]), "not finite"),
        (torch.tensor([math.nan]), torch.tensor([1.0]), "not finite in the reference"),
        (torch.tensor([math.nan]), torch.tensor([math.nan]), "not finite"),
    ],
)
def test_what_cannot_be_compared_fails_by_itself(
    reference: Tensor | None, found: Tensor | None, problem: str
) -> None:
    gap = one_gap(reference, found)
    assert (gap.absolute, gap.relative, gap.problem) == (None, None, problem)
    loosest = Thresholds(gradient_gap=1e300, relative_gap=0.999999)
    parity = ParityPassed(gaps=(gap,), noise_floor=None, block_calls={}, flops=0)
    assert parity.failures(loosest) == (gap,)


def test_an_all_zero_reference() -> None:
    zero = torch.zeros(2)
    assert one_gap(zero, zero.clone()).bitwise
    gap = one_gap(zero, torch.tensor([0.0, 1e-30]))
    assert gap.relative is None
    assert gap.problem == "all zero in the reference, up to 1e-30 here"
    loosest = Thresholds(gradient_gap=1e300, relative_gap=0.999999)
    assert ParityPassed(gaps=(gap,), noise_floor=None, block_calls={}, flops=0).failures(loosest)


def test_a_gap_too_large_for_a_number_is_still_said() -> None:
    top = torch.tensor([1.7e308], dtype=torch.float64)
    gap = one_gap(top, -top)
    assert gap.absolute is None or math.isfinite(gap.absolute)
    assert gap.problem is not None


def test_empty_tensors_are_equal() -> None:
    assert one_gap(torch.ones(0, 3), torch.ones(0, 3)).bitwise


def test_gaps_come_in_the_references_order_then_what_is_new() -> None:
    one = torch.ones(1)
    found = compare({"loss/": one, "grad/b": one}, {"grad/a": one, "grad/b": one, "loss/": one})
    assert [f"{gap.part}/{gap.name}" for gap in found] == ["loss/", "grad/b", "grad/a"]


# --- parity ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["call", "forward"])
@pytest.mark.parametrize("early_stop", [True, False])
def test_every_block_of_gpt_is_bitwise_equal(variant: str, early_stop: bool) -> None:
    spec = StudySpec(checkpoint=CheckpointSettings(variant=variant, early_stop=early_stop))
    found = parity_of(small_gpt, spec)
    assert isinstance(found, ParityPassed)
    assert found.bitwise
    assert (found.largest_gradient_gap, found.largest_relative_gap, found.worst) == (0.0, 0.0, ())
    assert found.block_calls == {"blocks.0": 2, "blocks.1": 2}
    plain = fixed_update(small_gpt(), spec.optimizer, 0)
    assert plain.block_calls == {"blocks.0": 1, "blocks.1": 1}
    assert found.flops > plain.flops
    assert {gap.part for gap in found.gaps} == {
        "output",
        "loss",
        "input_grad",
        "grad",
        "weight",
        "buffer",
        "rng",
    }


def test_one_block_alone_is_called_twice() -> None:
    found = parity_of(small_gpt, blocks=("blocks.1",))
    assert found.block_calls == {"blocks.0": 1, "blocks.1": 2}


def test_plain_against_plain_is_bitwise_equal() -> None:
    noise = check_noise(small_gpt(), SPEC, reference_of(small_gpt))
    assert noise.bitwise
    assert len(noise.gaps) == len(reference_of(small_gpt))


def test_another_seed_is_noticed() -> None:
    other = StudySpec(seed=1)
    found = check_noise(
        mlps(1, lambda: nn.Dropout(0.5)),
        other,
        reference_of(lambda: mlps(1, lambda: nn.Dropout(0.5))),
    )
    assert {"loss", "grad", "rng"} <= {gap.part for gap in found.failures(SPEC.thresholds)}


@pytest.mark.parametrize("rng", ["preserve", "ignore"])
def test_dropout(rng: str) -> None:
    spec = StudySpec(checkpoint=CheckpointSettings(rng=rng))

    def build() -> Job:
        return mlps(2, lambda: nn.Dropout(0.5))

    found = parity_of(build, spec)
    if rng == "preserve":
        assert isinstance(found, ParityPassed)
        assert found.bitwise
        return
    names = failed_names(found)
    assert {"rng/torch", "grad/blocks.0.up.weight", "weight/blocks.0.up.weight"} <= names
    assert "loss/" not in names  # the forward was right; only the replay drew other numbers
    assert found.worst[0].part == "grad"


class Relapse(nn.Module):
    """A block whose second forward differs from its first, as `change` says."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.change = change
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = x * 1.0 if self.calls == 1 else self.change(x * 1.0)
        return self.linear(x).exp()


def relapsing(change: Callable[[Tensor], Tensor]) -> Callable[[], Job]:
    def build() -> Job:
        torch.manual_seed(0)
        return tower(Mlp(), Relapse(change))

    return build


def in_place(change: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def changed(x: Tensor) -> Tensor:
        with torch.no_grad():
            change(x)
        return x

    return changed


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (in_place(lambda x: x.mul_(1.001)), None),
        (in_place(lambda x: x[0, 0].mul_(1.01)), None),
        (in_place(lambda x: x[0, 0].fill_(math.nan)), "not finite"),
        (in_place(lambda x: x.fill_(math.inf)), "not finite"),
    ],
    ids=["scaled", "one element", "NaN", "infinity"],
)
def test_a_replay_that_relapses_fails(change: Callable[[Tensor], Tensor], problem: str | None) -> None:
    found = parity_of(relapsing(change))
    assert "grad/blocks.1.linear.weight" in failed_names(found)
    assert "loss/" not in failed_names(found)
    assert found.worst[0].problem == problem
    if problem:
        assert found.largest_gradient_gap is None


def test_a_gap_within_tolerance_passes_and_is_not_bitwise() -> None:
    found = parity_of(relapsing(in_place(lambda x: x.mul_(1 + 1e-6))))
    assert isinstance(found, ParityPassed)
    assert not found.bitwise
    assert 0 < found.largest_relative_gap < 1e-4


def test_weights_after_the_update_are_compared_to_their_own_size() -> None:
    """AdamW's first step has the size of the learning rate whatever the gradient's size is: the
    weights hardly tell, and the gradients have to."""
    found = parity_of(relapsing(in_place(lambda x: x.mul_(1.001))))
    assert all(gap.part in ("grad", "input_grad") for gap in found.failures(SPEC.thresholds)[:2])


# --- the canary -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["call", "forward"])
@pytest.mark.parametrize("block", range(3))
def test_the_canary_is_caught_in_every_block(block: int, variant: str) -> None:
    def build() -> Job:
        return small_gpt(blocks=3)

    spec = StudySpec(checkpoint=CheckpointSettings(variant=variant))
    name = f"blocks.{block}"
    found = check_canary(build, spec, reference_of(build), name)
    assert (found.caught, found.block) == (True, name)
    assert found.largest_relative_gap is not None
    assert found.largest_relative_gap > spec.thresholds.relative_gap


def test_the_canary_is_caught_with_dropout_too() -> None:
    def build() -> Job:
        return mlps(2, lambda: nn.Dropout(0.5))

    assert check_canary(build, SPEC, reference_of(build), build().blocks[0]).caught


def test_the_canary_breaks_replays_and_not_the_forward() -> None:
    found = check_canary(small_gpt, SPEC, reference_of(small_gpt), "blocks.0")
    assert found.break_ == "every second feature of the replay's input is 1 % too large"
    # A reference that is off in its loss alone would be caught as well, so look at the parts.
    reference = reference_of(small_gpt)
    only = {key: tensor for key, tensor in reference.items() if key.split("/")[0] in ("loss", "output")}
    job = small_gpt()
    with applied(job.model, each("blocks.0"), SPEC.checkpoint, wrap=_breaking(SPEC.checkpoint)):
        broken = fixed_update(job, SPEC.optimizer, SPEC.seed)
    assert all(torch.equal(tensor, broken.tensors[key]) for key, tensor in only.items())
    assert broken.block_calls == {"blocks.0": 2, "blocks.1": 1}


def test_a_module_that_is_called_twice_in_forward_has_its_replays_broken_alone() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.part(self.part(x).sigmoid()).sigmoid()
            return y, y.pow(2).sum()

    def build() -> Job:
        torch.manual_seed(0)
        return Job(Twice(), (torch.ones(BATCH, WIDTH),), ("part",), BATCH)

    reference = fixed_update(build(), SPEC.optimizer, SPEC.seed).tensors
    job = build()
    with applied(job.model, each("part"), SPEC.checkpoint, wrap=_breaking(SPEC.checkpoint)):
        broken = fixed_update(job, SPEC.optimizer, SPEC.seed).tensors
    for key in ("loss/", "output/0"):
        assert torch.equal(reference[key], broken[key])
    assert check_canary(build, SPEC, reference, "part").caught


def test_thresholds_that_let_the_canary_pass_are_found_out() -> None:
    loose = StudySpec(thresholds=Thresholds(gradient_gap=1e9, relative_gap=0.99))
    assert not check_canary(small_gpt, loose, reference_of(small_gpt), "blocks.0").caught


def test_a_block_with_a_scalar_argument_can_have_a_canary() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return self.linear(x * scale)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Scaled()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.block(x, torch.tensor(2.0))
            return y, y.pow(2).sum()

    def build() -> Job:
        torch.manual_seed(0)
        return Job(Model(), (torch.ones(BATCH, WIDTH),), ("block",), BATCH)

    assert check_canary(build, SPEC, reference_of(build), "block").caught


# --- the scale trap -------------------------------------------------------------------------------


class Scaled(Tower):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, loss = super().forward(x)
        return y, loss * 1e-6


def test_a_loss_scaled_down_hides_nothing() -> None:
    """Every gradient is far below the absolute tolerance, right or wrong."""

    def build(change: Callable[[Tensor], Tensor] = lambda x: x) -> Job:
        job = relapsing(change)()
        return Job(Scaled(job.model.blocks), job.batch, job.blocks, job.tokens)  # type: ignore[arg-type]

    reference = reference_of(build)
    gradients = [t for key, t in reference.items() if key.startswith("grad/")]
    assert max(float(t.abs().max()) for t in gradients) < 1e-4
    assert check_canary(build, SPEC, reference, "blocks.0").caught
    found = check_parity(
        lambda: build(in_place(lambda x: x.mul_(1.01))),
        SPEC,
        reference,
        each(*build().blocks),
        0.0,
        dict.fromkeys(build().blocks, 1),
    )
    assert "grad/blocks.1.linear.weight" in failed_names(found)
    assert found.largest_gradient_gap is not None
    assert found.largest_gradient_gap < 1e-4
