"""Plans finer and coarser than a block: what is called how often, and gradients bitwise equal."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from recompute_core.checks.parity import _check_regions, check_canary, check_parity
from recompute_core.checks.snapshot import fixed_update
from recompute_core.errors import InputError
from recompute_core.meters.saved import SavedBytes
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.apply import applied, happening, shadowed
from recompute_core.plans.names import RECIPES, Regions, named_regions, touched_blocks
from recompute_core.results import ParityPassed
from recompute_core.settings import ReceiptsSettings
from recompute_core.spec import CheckpointSettings, Region, StudySpec
from recompute_core.workloads.device import cast
from recompute_core.workloads.job import Job
from recompute_core.workloads.receipts import build_blank
from tests.core.test_apply import VARIANTS, gradients, state
from tests.core.toys import BATCH, SMALL, WIDTH, each, mlps, small_gpt

SPEC = StudySpec()
RECEIPTS = ReceiptsSettings(
    blocks=2, width=24, heads=2, height=32, image_width=32, batch=2, dropout=0.25
)
PLANS = [recipe.name for recipe in RECIPES if recipe.name != "none"]


def calls(job: Job, regions: Regions, settings: CheckpointSettings | None = None) -> Counter[str]:
    """Forward calls of every module in one update under a plan, by FQN; its gradients are checked."""
    plain = gradients(job)
    made: Counter[str] = Counter()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            made[name] += 1
            return call(*args, **kwargs)

        return counted

    with ExitStack() as stack:
        for name, module in job.model.named_modules():
            stack.enter_context(shadowed(module, "forward", counting(name, module.forward)))
        stack.enter_context(applied(job.model, regions, settings or CheckpointSettings()))
        found = gradients(job)
    assert all(torch.equal(plain[name], found[name]) for name in plain)
    return made


# --- parts of blocks ------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_nested_runs_attention_and_mlp_three_times(variant: str) -> None:
    job = small_gpt()
    settings = CheckpointSettings(variant=variant, early_stop=False)
    made = calls(job, named_regions("nested", anatomy_of(SMALL)), settings)
    for block in job.blocks:
        assert made[block] == made[f"{block}.norm1"] == made[f"{block}.norm2"] == 2
        assert made[f"{block}.attn"] == made[f"{block}.attn.query"] == 3
        assert made[f"{block}.mlp"] == made[f"{block}.mlp.down"] == 3
    assert made["norm"] == made["head"] == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_the_named_parts_run_again(variant: str) -> None:
    made = calls(
        small_gpt(), each("blocks.0.norm2", "blocks.1.mlp"), CheckpointSettings(variant=variant)
    )
    again = {name for name, times in made.items() if times == 2}
    assert again == {
        "blocks.0.norm2",
        "blocks.1.mlp",
        "blocks.1.mlp.gate",
        "blocks.1.mlp.up",
        "blocks.1.mlp.down",
    }
    assert set(made.values()) == {1, 2}


# --- selective ------------------------------------------------------------------------------------


class Products(TorchDispatchMode):
    """Counts products of weights, in the order they are asked for."""

    def __init__(self, *operators: Any) -> None:
        super().__init__()
        self.operators, self.made = operators, 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.made += operator in self.operators
        return operator(*args, **(kwargs or {}))


MM = torch.ops.aten.mm.default


def products(keep: tuple[str, ...] | None) -> int:
    """Products in one update with every block recomputed but for what is kept; None for plain."""
    job = small_gpt()
    regions = () if keep is None else tuple(Region(modules=(b,), keep=keep) for b in job.blocks)
    counter = Products(MM)
    with applied(job.model, regions, CheckpointSettings(early_stop=False)), counter:
        gradients(job)
    return counter.made


@pytest.mark.parametrize(
    ("keep", "replayed"),
    [
        ((), 14),  # seven products in each of two blocks
        (("aten.mm.default",), 0),
        (("aten.mm.default:even",), 6),  # calls 1, 3 and 5 of 0 to 6
        (("aten.mm.default:odd",), 8),
        (("aten.mm.default:0,6",), 10),
        (("aten.mm.default:7",), 14),
        (("aten.mm.default:0", "aten.mm.default:odd"), 6),
        (("aten.bmm.default", "aten.no_such_op.default"), 14),
    ],
)
def test_products_that_are_kept_are_not_replayed(keep: tuple[str, ...], replayed: int) -> None:
    assert products(keep) - products(None) == replayed


def test_ops_that_torch_does_not_have_are_one_line() -> None:
    with pytest.raises(InputError, match=r"torch has none of the ops to keep: aten\.mn\.default:odd"):
        products(("aten.mn.default:odd",))


def test_a_region_that_is_called_twice_counts_its_calls_afresh() -> None:
    """One pair of keep numbers a call, or the second update would keep nothing."""
    job = small_gpt(blocks=1)
    with applied(
        job.model,
        (Region(modules=("blocks.0",), keep=("aten.mm.default:0",)),),
        CheckpointSettings(early_stop=False),
    ):
        for _ in range(2):
            with Products(MM) as counter:
                gradients(job)
            assert counter.made == 7 + 6 + 2 * 7 + 3


def test_what_is_kept_counts_as_saved() -> None:
    """torch keeps it beside the graph: the outputs of both linear layers, the last shared with the
    next block's input."""
    unit = 4 * BATCH * WIDTH
    job = mlps(2)
    regions = tuple(Region(modules=(b,), keep=("aten.addmm.default",)) for b in job.blocks)
    meter = SavedBytes([*job.batch, *job.model.parameters()])
    with applied(job.model, regions, CheckpointSettings(rng="ignore")), meter:
        kept = job.model(*job.batch)
    assert meter.distinct == 2 * 2 * unit  # the loss squares the last output, which is one of them
    del kept


# --- blocks as one --------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("build", [lambda: small_gpt(blocks=3), lambda: mlps(3)], ids=["gpt", "mlps"])
def test_two_blocks_as_one(build: Callable[[], Job], variant: str, early_stop: bool) -> None:
    job = build()
    settings = CheckpointSettings(variant=variant, early_stop=early_stop)
    made = calls(job, (Region(modules=("blocks.0", "blocks.1")),), settings)
    assert [made[f"blocks.{n}"] for n in range(3)] == [2, 2, 1]


def test_blocks_as_one_keep_the_first_input_alone() -> None:
    unit = 4 * BATCH * WIDTH
    job = mlps(4)
    meter = SavedBytes([*job.batch, *job.model.parameters()])
    for modules, expected in (
        ((("blocks.0", "blocks.1"), ("blocks.2", "blocks.3")), 2 * unit),  # and what the loss squares
        ((("blocks.0", "blocks.1", "blocks.2", "blocks.3"),), unit),
    ):
        regions = tuple(Region(modules=group) for group in modules)
        with applied(job.model, regions, CheckpointSettings(rng="ignore")), meter:
            kept = job.model(*job.batch)
        assert meter.distinct == expected
        del kept


def test_blocks_as_one_with_dropout() -> None:
    job = mlps(3, lambda: nn.Dropout(0.5))
    assert calls(job, (Region(modules=("blocks.1", "blocks.2")),))["blocks.2"] == 2


class Detour(nn.Module):
    """Does something of its own between its two blocks."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.blocks, self.between = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), between

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[1](self.between(self.blocks[0](x)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_blocks_with_something_between_cannot_be_one(variant: str) -> None:
    model = Detour(torch.relu)
    before = state(model)
    regions = (Region(modules=("blocks.0", "blocks.1")),)
    with (
        pytest.raises(RuntimeError, match=r"blocks\.1 is not called with the result of blocks\.0"),
        applied(model, regions, CheckpointSettings(variant=variant)),
    ):
        model(torch.ones(1, 2))
    assert state(model) == before


def test_blocks_with_other_arguments_cannot_be_one() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return x * scale

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Scaled(), Scaled()

        def forward(self, x: Tensor, same: bool) -> Tensor:
            one = torch.tensor(1.0)
            return self.b(self.a(x, one), one if same else torch.tensor(1.0))

    model, x = Two(), torch.ones(2, requires_grad=True)
    with applied(model, (Region(modules=("a", "b")),), CheckpointSettings()):
        assert torch.equal(model(x, True), torch.ones(2))
        with pytest.raises(RuntimeError, match="b is not called with the result of a and the same"):
            model(x, False)


# --- on and off, and equal ------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("plan", [*PLANS, "as one"])
def test_taken_off_the_model_is_the_same(plan: str, variant: str) -> None:
    job = small_gpt()
    as_one = (Region(modules=job.blocks),)
    regions = as_one if plan == "as one" else named_regions(plan, anatomy_of(SMALL))
    before = state(job.model)
    with applied(job.model, regions, CheckpointSettings(variant=variant)):
        assert state(job.model) != before
        gradients(job)
    job.model.zero_grad()
    assert state(job.model) == before


def gpt() -> Job:
    return small_gpt()


def receipts() -> Job:
    return build_blank(RECEIPTS, 0)


def receipts_in_half() -> Job:
    return cast(build_blank(RECEIPTS, 0), "bfloat16")


@pytest.mark.parametrize("build", [gpt, receipts, receipts_in_half])
@pytest.mark.parametrize("plan", PLANS)
def test_every_recipe_is_bitwise_equal_and_its_canary_caught(
    plan: str, build: Callable[[], Job]
) -> None:
    plain = fixed_update(build(), SPEC.optimizer, SPEC.seed)
    regions = named_regions(plan, anatomy_of(SMALL))
    found = check_parity(build, SPEC, plain.tensors, regions, 0.0, plain.block_calls)
    assert isinstance(found, ParityPassed)
    assert found.bitwise
    whole = {name for region in regions for name in region.modules}
    assert found.block_calls == {b: 2 if b in whole else 1 for b in ("blocks.0", "blocks.1")}
    assert check_canary(build, SPEC, plain.tensors, touched_blocks(regions, anatomy_of(SMALL))[0]).caught


def parity_under(declared: Regions, done: Regions) -> None:
    """Parity of a plan that says one thing and does another."""
    plain = fixed_update(small_gpt(), SPEC.optimizer, SPEC.seed)
    job = small_gpt()
    with happening() as happened, applied(job.model, done, SPEC.checkpoint):
        gradients(job)
    _check_regions(happened, declared)
    check_parity(small_gpt, SPEC, plain.tensors, done, 0.0, plain.block_calls)


BLOCK, ATTN = Region(modules=("blocks.0",)), Region(modules=("blocks.0.attn",))
BOTH = Region(modules=("blocks.0", "blocks.1"))


def test_a_region_that_was_not_replayed_for_itself_is_found_out() -> None:
    parity_under((BLOCK, ATTN), (BLOCK, ATTN))
    parity_under((BOTH, BLOCK), (BOTH, BLOCK))
    for declared, done, missing in (
        ((BLOCK, ATTN), (BLOCK,), "blocks.0.attn"),
        ((BOTH,), (BLOCK,), "blocks.0 to blocks.1"),
        ((BOTH, BLOCK), (BOTH,), "blocks.0"),
    ):
        with pytest.raises(RuntimeError, match=f"^{missing} was not called again"):
            parity_under(declared, done)


def test_a_selective_region_that_keeps_nothing_is_found_out() -> None:
    plain = fixed_update(small_gpt(), SPEC.optimizer, SPEC.seed)
    nothing = (Region(modules=("blocks.0",), keep=("aten.mm.default:99",)),)
    with pytest.raises(RuntimeError, match=r"blocks\.0 kept nothing"):
        check_parity(small_gpt, SPEC, plain.tensors, nothing, 0.0, plain.block_calls)


def test_watching_ends_with_its_context() -> None:
    with happening() as happened:
        pass
    with applied((job := small_gpt()).model, (BLOCK,), SPEC.checkpoint):
        gradients(job)
    assert not happened.replays
