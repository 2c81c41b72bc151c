"""Estimates against real updates, to the byte, and against the published figures."""

from collections.abc import Callable
from functools import cache, partial

import pytest
import torch

from recompute_core.errors import InputError
from recompute_core.meters.estimate import FakeUpdate, LiveBytes, Ops, Run, is_replaying
from recompute_core.meters.memory import measure_memory
from recompute_core.meters.saved import SavedBytes
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.apply import applied
from recompute_core.plans.names import Regions, named_regions
from recompute_core.results import Estimate, Memory, PeakAt
from recompute_core.settings import GptSettings, ReceiptsSettings
from recompute_core.spec import CheckpointSettings, OptimizerSettings, Region
from recompute_core.workloads import build_blank
from recompute_core.workloads.device import cast
from recompute_core.workloads.job import Job
from recompute_core.workloads.update import (
    allocate_state,
    make_optimizer,
    state_tensors,
    storage_bytes,
    update,
)
from tests.core import records as make
from tests.core.toys import SMALL, each

CALL = CheckpointSettings()
NO_RNG = CheckpointSettings(rng="ignore")
"""Random states are copied below any dispatch mode: the profiler sees them and an estimate does not."""
LONG = SMALL.model_copy(update={"seq_len": 64, "batch": 4})
RECEIPTS = ReceiptsSettings(
    blocks=2, width=24, heads=2, height=64, image_width=64, batch=2, dropout=0.25
)
RECIPES = ("none", "every-block", "nested", "attention-mlp-apart", "keep-matmul-attention")


def half() -> Job:
    return cast(build_blank(SMALL, 0), "bfloat16")


BUILDS: dict[str, Callable[[], Job]] = {
    "gpt": partial(build_blank, SMALL, 0),
    "gpt in half": half,
    "receipts": partial(build_blank, RECEIPTS, 0),
}


@cache  # a run on fake tensors takes a few tenths of a second
def fake(build: Callable[[], Job]) -> FakeUpdate:
    return FakeUpdate(build, OptimizerSettings())


def recipe(name: str, settings: GptSettings | ReceiptsSettings = SMALL) -> Regions:
    return named_regions(name, anatomy_of(settings))


@cache
def ran(build: Callable[[], Job], regions: Regions, settings: CheckpointSettings = CALL) -> Run:
    return fake(build).run(regions, settings)


def estimated(
    build: Callable[[], Job], regions: Regions, settings: CheckpointSettings = CALL
) -> Estimate:
    return ran(build, regions, settings).estimate


def real(
    build: Callable[[], Job], regions: Regions, settings: CheckpointSettings = CALL
) -> tuple[int, int, int, int]:
    """Peak of a real update, its saved bytes in both ways, and its state."""
    job = build()
    optimizer = make_optimizer(job.model, OptimizerSettings())
    allocate_state(optimizer)
    state = state_tensors(job, optimizer)
    live, meter = LiveBytes(state), SavedBytes([*job.model.parameters(), *job.batch])
    with applied(job.model, regions, settings):
        with live:
            update(job, optimizer)
        with meter:
            kept = job.model(*job.batch)
    del kept
    return live.peak, meter.distinct, meter.naive, storage_bytes(state)


def measured(build: Callable[[], Job], regions: Regions, settings: CheckpointSettings) -> Memory:
    job = build()
    optimizer = make_optimizer(job.model, OptimizerSettings())
    return measure_memory(job, optimizer, partial(applied, job.model, regions, settings), make.passed())


# --- fake and real --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("plan", RECIPES)
def test_fake_tensors_and_real_ones_agree_to_the_byte(plan: str, name: str) -> None:
    found = estimated(BUILDS[name], recipe(plan))
    expected = real(BUILDS[name], recipe(plan))
    counted = found.peak_above_state_bytes, found.saved_bytes, found.naive_saved_bytes
    assert (*counted, found.state_bytes) == expected


@pytest.mark.parametrize(
    "regions",
    [
        (Region(modules=("blocks.0", "blocks.1")), *each("blocks.0", "blocks.1.attn")),
        (Region(modules=("blocks.0",), keep=("aten.mm.default:0,3",)), *each("blocks.1.mlp")),
    ],
    ids=["nested group", "mixed"],
)
@pytest.mark.parametrize("variant", ["call", "forward"])
def test_plans_that_are_no_recipe_agree_too(regions: Regions, variant: str) -> None:
    build, settings = BUILDS["gpt"], CheckpointSettings(variant=variant)
    found = estimated(build, regions, settings)
    assert (
        found.peak_above_state_bytes,
        found.saved_bytes,
        found.naive_saved_bytes,
        found.state_bytes,
    ) == real(build, regions, settings)


LONG_GPT = partial(build_blank, LONG, 0)


@pytest.mark.parametrize("plan", ["none", "every-block", "torchtitan-selective"])
def test_the_measured_peak_is_within_half_a_percent(plan: str) -> None:
    found = estimated(LONG_GPT, recipe(plan), NO_RNG)
    there = measured(LONG_GPT, recipe(plan), NO_RNG)
    assert there.peak_above_state_bytes == pytest.approx(found.peak_above_state_bytes, rel=0.005)
    assert (there.saved_bytes, there.naive_saved_bytes) == (found.saved_bytes, found.naive_saved_bytes)
    assert there.state_bytes == found.state_bytes
    assert there.peak_at == found.peak_at


def test_random_states_are_what_an_estimate_leaves_out() -> None:
    """One for each region whose replay is still owed when the peak is reached, and one that waits."""
    state = torch.get_rng_state().nbytes
    above = measured(LONG_GPT, recipe("every-block"), CALL).peak_above_state_bytes
    missed = above - estimated(LONG_GPT, recipe("every-block")).peak_above_state_bytes
    assert missed == 2 * state


# --- published figures ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seq_len", "plan", "saved", "naive"),
    [
        (512, "none", 534_609_924, 553_617_412),
        (512, "every-block", 38_830_084, 38_963_204),
        (128, "none", 133_652_484, 152_610_820),
        (128, "every-block", 9_707_524, 9_791_492),
    ],
)
def test_the_published_saved_bytes(seq_len: int, plan: str, saved: int, naive: int) -> None:
    settings = GptSettings(seq_len=seq_len)
    found = estimated(_default_gpt(seq_len), recipe(plan, settings))
    assert (found.saved_bytes, found.naive_saved_bytes) == (saved, naive)


@cache
def _default_gpt(seq_len: int) -> Callable[[], Job]:
    return partial(build_blank, GptSettings(seq_len=seq_len), 0)


# --- what a peak is made of -----------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("plan", ["none", "every-block"])
def test_parts_add_up_to_the_peak(plan: str, name: str) -> None:
    run = ran(BUILDS[name], recipe(plan))
    found, parts = run.estimate, run.estimate.parts
    assert parts.state + parts.blocks + parts.outside + parts.backward + parts.optimizer == parts.total
    assert parts.state == found.state_bytes == fake(BUILDS[name]).state_bytes
    assert parts.total == found.peak_bytes == found.state_bytes + run.trace.peak
    assert found.ceiling == parts.blocks / found.peak_bytes
    assert max(found.timeline.bytes) == found.peak_bytes
    assert min(parts.outside, parts.backward) > 0
    assert parts.blocks > 0
    assert parts.optimizer == 0  # nothing of the step is there yet when backward is at its height


def test_recomputing_lowers_the_ceiling() -> None:
    plain, every = (estimated(LONG_GPT, recipe(plan)) for plan in ("none", "every-block"))
    assert 0 < every.ceiling < plain.ceiling < 1


@pytest.mark.parametrize("blocks", [1, 3])
def test_every_block_peaks_in_the_backward_of_the_last(blocks: int) -> None:
    settings = SMALL.model_copy(update={"blocks": blocks})
    found = estimated(partial(build_blank, settings, 0), recipe("every-block", settings))
    assert found.peak_at == PeakAt(phase="backward", module=f"blocks.{blocks - 1}", replaying=True)


def test_the_selective_cache_counted_by_hand() -> None:
    """Each block keeps its input, seven products and attention's output with its log-sums."""
    tokens = SMALL.batch * SMALL.seq_len
    unit, hidden = 4 * tokens * SMALL.width, 4 * tokens * int(8 / 3 * SMALL.width)
    block = unit + (5 * unit + 2 * hidden) + (unit + 4 * SMALL.heads * tokens)
    tail = 3 * unit + 4 * tokens * SMALL.vocab + 4 * tokens + 4
    found = estimated(BUILDS["gpt"], recipe("keep-matmul-attention"))
    assert found.saved_bytes == 2 * block + tail


def test_what_a_selective_region_keeps_is_alive_from_its_forward_on() -> None:
    """At the end of forward the two plans differ by exactly what the one has kept."""

    def at_end_of_forward(plan: str) -> int:
        run = ran(BUILDS["gpt"], recipe(plan))
        backward = next(number for number, label in run.trace.marks if label == "backward")
        return run.trace.alive[backward - 1]

    kept, whole = "keep-matmul-attention", "every-block"
    saved = [estimated(BUILDS["gpt"], recipe(plan)).saved_bytes for plan in (kept, whole)]
    assert at_end_of_forward(kept) - at_end_of_forward(whole) == saved[0] - saved[1] > 0


# --- state ----------------------------------------------------------------------------------------


def test_estimating_leaves_no_state_behind() -> None:
    one = FakeUpdate(BUILDS["receipts"], OptimizerSettings())
    modules = {name: set(vars(module)) for name, module in one.job.model.named_modules()}
    for plan in ("nested", "keep-matmul-attention", "none", "keep-matmul-attention", "nested"):
        assert one.run(recipe(plan), CALL) == ran(BUILDS["receipts"], recipe(plan))
    assert {name: set(vars(module)) for name, module in one.job.model.named_modules()} == modules


def test_a_plan_that_fails_leaves_no_state_behind_either() -> None:
    one = FakeUpdate(BUILDS["gpt"], OptimizerSettings())
    first = one.run((), CALL)
    with pytest.raises(InputError, match=r"no module 'blocks\.9'"):
        one.run(each("blocks.0", "blocks.9"), CALL)
    assert one.run((), CALL) == first


def test_only_replays_are_replayed() -> None:
    build = BUILDS["gpt"]
    none, first, both = (
        ran(build, each(*blocks)).replayed for blocks in ((), ("blocks.0",), ("blocks.0", "blocks.1"))
    )
    assert not none
    assert both == first + first  # the blocks are alike
    assert _products(first) == 6  # early stop: of the seven, nobody needs the last
    whole = ran(build, each("blocks.0"), CheckpointSettings(early_stop=False)).replayed
    assert _products(whole) == 7


def test_what_a_plan_replays_is_what_it_runs_beyond_plain() -> None:
    plain, both = (ran(BUILDS["gpt"], each(*blocks)) for blocks in ((), ("blocks.0", "blocks.1")))
    more = both.ops - plain.ops
    products = _products(more)
    assert products == _products(both.replayed) == 12
    assert plain.ops.total() > 100


def _products(ops: Ops) -> int:
    return sum(count for (op, _), count in ops.items() if op == "aten.mm.default")


# --- the counter ----------------------------------------------------------------------------------


def test_a_storage_counts_once_and_until_it_goes() -> None:
    known = torch.zeros(8)
    with LiveBytes([known]) as live:
        live.kind = "a"
        x = known + 1  # 32 bytes
        view = x.view(2, 4)
        x.add_(1)
        known.add_(1)
        assert live.alive == 32
        live.kind = "b"
        y = view * 2
        assert (live.alive, live.by_kind) == (64, {"a": 32, "b": 32})
        del x
        assert live.alive == 64  # the view holds it
        del view, y
        assert (live.alive, live.peak, live.at_peak) == (0, 64, {"a": 32, "b": 32})
    assert live.samples[-1] == 64


def test_nothing_is_replaying_outside_a_backward() -> None:
    seen = []
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: seen.append(is_replaying()))  # type: ignore[no-untyped-call]
    y.backward()
    assert (is_replaying(), seen) == (False, [False])
