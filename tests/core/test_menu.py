"""What a block may do, with made-up costs: bytes by hand, and against whole updates under each way."""

from functools import cache
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recompute_core.meters.estimate import Signature
from recompute_core.planner.alone import Alone
from recompute_core.planner.chain import Option
from recompute_core.planner.costs import Costs
from recompute_core.planner.menu import Menu, Treatment, _undominated
from recompute_core.planner.runs import Runs
from recompute_core.plans.names import Regions
from recompute_core.spec import CheckpointSettings, OptimizerSettings, Region
from recompute_core.workloads import build_blank
from recompute_core.workloads.job import Job
from recompute_core.workloads.sizes import sizes_of
from tests.core.toys import BATCH, SMALL, WIDTH, mlps

SETTINGS = CheckpointSettings(rng="ignore")
SECONDS = {
    "prim.device.default": 0,
    "aten.mm.default": 64,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": 32,
}


class MadeUp(dict[Signature, float]):
    """Products and attention take many seconds, every other op one; what only fake tensors ask, none."""

    def get(self, op: Signature, _: Any = None) -> Any:
        return SECONDS.get(op[0], 1)


COSTS = Costs(ops=MadeUp())


@cache
def runs() -> Runs:
    return Runs(lambda: build_blank(SMALL, 0), OptimizerSettings(), SETTINGS)


@cache
def menu() -> Menu:
    return Menu(runs(), "blocks.0", COSTS)


def treatment(*regions: tuple[str, tuple[str, ...]]) -> Treatment:
    return next(one for one in menu().treatments if one.regions == regions)


def test_plain_is_first_and_stores_what_the_block_saves_but_its_input() -> None:
    plain, sizes = menu().treatments[0], sizes_of(SMALL)
    assert plain == treatment()
    assert plain.option.stored == sizes.block_saved_bytes - sizes.block_input_bytes
    assert plain.option.cost_s == 0
    assert menu().input_bytes == sizes.block_input_bytes


def test_the_whole_block_stores_nothing_and_replays_all_but_its_end() -> None:
    whole = treatment(("", ()))
    assert whole.option.stored == 0
    assert whole.option.peak == treatment().option.peak  # a block by itself comes back whole
    assert whole.option.nests
    # Early stop: nobody needs the last product, its view and the sum; nor attention's three detached.
    assert whole.option.cost_s == menu().forward_s - (64 + 1 + 1) - 3


def test_recomputing_more_inside_costs_more_and_lowers_the_peak() -> None:
    whole = treatment(("", ())).option
    nested = [t.option for t in menu().treatments if t.regions[:1] == (("", ()),) and len(t.regions) > 1]
    assert nested
    for option in nested:
        assert option.cost_s > whole.cost_s
        assert option.peak < whole.peak
        assert (option.stored, option.nests) == (0, True)


def test_parts_are_the_children_with_parameters() -> None:
    there = {part for one in menu().treatments for part, _ in one.regions}
    assert there == {"", "norm1", "attn", "norm2", "mlp"}


def test_the_menu_offers_every_family_and_no_way_twice() -> None:
    ways = [one.regions for one in menu().treatments]
    assert len(set(ways)) == len(ways) <= 64
    assert any(len(way) == 1 and way[0][0] == "" and way[0][1] for way in ways), "no selective block"
    assert any(way[0][0] != "" and any(keep for _, keep in way) for way in ways[1:]), "no selective part"


def test_nothing_on_the_menu_is_beaten() -> None:
    def beats(one: Option, other: Option) -> bool:
        return (
            one.stored <= other.stored
            and one.peak <= other.peak
            and one.cost_s <= other.cost_s
            and one.nests >= other.nests
        )

    options = [one.option for one in menu().treatments]
    assert not any(beats(one, other) for one, other in permutations(options, 2))


def test_a_way_that_may_not_stand_in_a_group_pushes_out_none_that_may() -> None:
    selective = Treatment((("", ("aten.mm.default:0",)),), Option(1, 1, 1.0, nests=False))
    nesting = Treatment((("attn", ()),), Option(2, 2, 2.0))
    dearer = Treatment((("mlp", ()),), Option(2, 2, 3.0))
    assert _undominated([dearer, nesting, selective]) == (selective, nesting)


def test_regions_are_placed_in_any_block_and_name_ops_that_there_are() -> None:
    for one in menu().treatments:
        regions = one.on("blocks.1")
        assert [r.modules for r in regions] == [
            (f"blocks.1.{part}" if part else "blocks.1",) for part, _ in one.regions
        ]
        for region in regions:
            assert Region.model_validate(region.model_dump()) == region
            for entry in region.keep:
                _, packet, overload = entry.partition(":")[0].split(".")
                assert hasattr(getattr(torch.ops.aten, packet), overload)
        assert one.option.nests == (not any(region.keep for region in regions))


def on_both_blocks(one: Treatment) -> Regions:
    return (*one.on("blocks.0"), *one.on("blocks.1"))


def test_a_whole_update_keeps_and_replays_what_the_menu_says() -> None:
    """Bytes alive at the end of forward differ from plain's by what each block's option says, and the
    ops of the replays cost what it says."""

    def ran(one: Treatment) -> tuple[int, float]:
        run = runs().update.run(on_both_blocks(one), SETTINGS)
        backward = next(number for number, label in run.trace.marks if label == "backward")
        return run.trace.alive[backward - 1], COSTS.of(run.replayed)

    plain = treatment()
    alive, none = ran(plain)
    assert none == 0
    chosen = {
        treatment(("", ())),
        *menu().treatments[1::4],
        *[one for one in menu().treatments if not one.option.nests][::4],
    }
    for one in chosen:
        kept, seconds = ran(one)
        assert alive - kept == 2 * (plain.option.stored - one.option.stored), one.regions
        assert seconds == 2 * one.option.cost_s, one.regions


def test_two_linear_layers_counted_by_hand() -> None:
    """GELU keeps the output of the first layer and makes what the second one keeps."""
    unit = 4 * BATCH * WIDTH
    found = Menu(Runs(mlps, OptimizerSettings(), SETTINGS), "blocks.1", COSTS)
    by_way = {one.regions: one.option for one in found.treatments}
    assert found.input_bytes == unit
    assert by_way[()].stored == 2 * unit
    whole, keeping = by_way[("", ()),], by_way[("", ("aten.addmm.default:0",)),]
    assert whole.stored == 0
    assert (keeping.stored, keeping.nests) == (unit, False)
    assert (whole.cost_s, keeping.cost_s) == (4, 3)  # two transposed weights, the layer, GELU


class Spare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, self.used(x).sum()


def test_a_block_that_is_never_called_is_said() -> None:
    job = Job(model=Spare(), batch=(torch.ones(1, 2),), blocks=("used", "spare"), tokens=1)
    with pytest.raises(LookupError, match="spare is not called in forward"):
        Alone(job, "spare", SETTINGS)
    assert not job.model.spare._forward_pre_hooks  # type: ignore[union-attr]
