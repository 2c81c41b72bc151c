"""A plan put on and taken off again leaves the very same model."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recompute_core.errors import InputError
from recompute_core.plans.apply import Call, applied, shadowed
from recompute_core.spec import CheckpointSettings
from recompute_core.workloads.job import Job
from tests.core.toys import each, mlps

VARIANTS = ["call", "forward"]


@pytest.fixture
def job() -> Job:
    return mlps(3)


def state(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Every attribute of every module, by identity; dictionaries by their items' identity."""
    return {
        name: {
            key: [(k, id(v)) for k, v in value.items()] if isinstance(value, dict) else id(value)
            for key, value in vars(module).items()
        }
        for name, module in model.named_modules()
    }


def gradients(job: Job) -> dict[str, Tensor]:
    job.model.zero_grad()
    torch.manual_seed(1)
    job.model(*job.batch)[1].backward()
    return {name: p.grad.clone() for name, p in job.model.named_parameters()}  # type: ignore[union-attr]


def calls_of(job: Job, name: str) -> Iterator[int]:
    """Counts the forward calls of a block so far; next() reads the counter."""
    counter = [0]
    module = job.model.get_submodule(name)
    plain = module.forward

    def counting(*args: Any) -> Any:
        counter[0] += 1
        return plain(*args)

    module.forward = counting  # type: ignore[method-assign]
    while True:
        yield counter[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_taken_off_the_model_is_the_same(job: Job, variant: str) -> None:
    before = state(job.model)
    with applied(job.model, each(*job.blocks), CheckpointSettings(variant=variant)):
        on = state(job.model)
        gradients(job)
    job.model.zero_grad()
    assert on != before
    assert state(job.model) == before


@pytest.mark.parametrize("variant", VARIANTS)
def test_taken_off_after_an_error_too(job: Job, variant: str) -> None:
    before = state(job.model)
    with (
        pytest.raises(RuntimeError, match="shapes cannot be multiplied"),
        applied(job.model, each(*job.blocks), CheckpointSettings(variant=variant)),
    ):
        job.model(torch.ones(1, 1))
    assert state(job.model) == before


def test_a_block_that_does_not_exist_leaves_nothing_behind(job: Job) -> None:
    before = state(job.model)
    with (
        pytest.raises(InputError, match=r"plan: the model has no module 'blocks\.7'"),
        applied(job.model, each("blocks.0", "blocks.7"), CheckpointSettings()),
    ):
        pass
    assert state(job.model) == before


@pytest.mark.parametrize("variant", VARIANTS)
def test_names_and_state_dicts_stay_as_they_are(job: Job, variant: str) -> None:
    def named() -> tuple[list[str], list[str], dict[str, int]]:
        return (
            [name for name, _ in job.model.named_modules()],
            [name for name, _ in job.model.named_parameters()],
            {key: tensor.data_ptr() for key, tensor in job.model.state_dict().items()},
        )

    before, kind = named(), type(job.model.get_submodule("blocks.0"))
    with applied(job.model, each(*job.blocks), CheckpointSettings(variant=variant)):
        assert named() == before
        assert type(job.model.get_submodule("blocks.0")) is kind


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("early_stop", [True, False])
def test_chosen_blocks_run_twice_and_gradients_are_bitwise_equal(
    job: Job, variant: str, early_stop: bool
) -> None:
    plain = gradients(job)
    counters = {name: calls_of(job, name) for name in job.blocks}
    assert [next(counter) for counter in counters.values()] == [0, 0, 0]
    settings = CheckpointSettings(variant=variant, early_stop=early_stop)
    with applied(job.model, each("blocks.0", "blocks.2"), settings):
        found = gradients(job)
    assert {name: next(counter) for name, counter in counters.items()} == {
        "blocks.0": 2,
        "blocks.1": 1,
        "blocks.2": 2,
    }
    assert plain.keys() == found.keys()
    assert all(torch.equal(plain[name], found[name]) for name in plain)


@pytest.mark.parametrize(("variant", "times"), [("call", 2), ("forward", 1)])
def test_hooks_of_a_block_are_recomputed_with_its_call_only(job: Job, variant: str, times: int) -> None:
    seen = {"before": 0, "after": 0}

    def count(key: str) -> Any:
        def hook(*_: Any) -> None:
            seen[key] += 1

        return hook

    block = job.model.get_submodule("blocks.1")
    block.register_forward_pre_hook(count("before"))
    block.register_forward_hook(count("after"))
    with applied(job.model, each(*job.blocks), CheckpointSettings(variant=variant, early_stop=False)):
        gradients(job)
    assert seen == {"before": times, "after": times}


def test_early_stop_stops_after_the_last_tensor_that_is_needed(job: Job) -> None:
    ran = []
    block = job.model.get_submodule("blocks.1")
    block.down.register_forward_hook(lambda *_: ran.append("down"))  # type: ignore[union-attr]
    for early_stop, times in ((True, 1), (False, 2)):
        ran.clear()
        with applied(job.model, each("blocks.1"), CheckpointSettings(early_stop=early_stop)):
            gradients(job)
        assert len(ran) == times


@pytest.mark.parametrize("outer", VARIANTS)
@pytest.mark.parametrize("inner", VARIANTS)
def test_nested_application(job: Job, outer: str, inner: str) -> None:
    plain, before = gradients(job), None
    job.model.zero_grad()
    before = state(job.model)
    with applied(job.model, each("blocks.0"), CheckpointSettings(variant=outer)):
        middle = state(job.model)
        with applied(job.model, each("blocks.0.up", "blocks.1"), CheckpointSettings(variant=inner)):
            found = gradients(job)
        job.model.zero_grad()
        assert state(job.model) == middle
    assert state(job.model) == before
    assert all(torch.equal(plain[name], found[name]) for name in plain)


def test_the_same_plan_twice_comes_off_once_at_a_time(job: Job) -> None:
    before = state(job.model)
    with applied(job.model, each(*job.blocks), CheckpointSettings()):
        once = state(job.model)
        with applied(job.model, each(*job.blocks), CheckpointSettings()):
            pass
        assert state(job.model) == once
    assert state(job.model) == before


@pytest.mark.parametrize(("rng", "equal"), [("preserve", True), ("ignore", False)])
def test_dropout_needs_the_random_state(rng: str, equal: bool) -> None:
    job = mlps(2, lambda: nn.Dropout(0.5))
    plain = gradients(job)
    with applied(job.model, each(*job.blocks), CheckpointSettings(rng=rng)):
        found = gradients(job)
    assert all(torch.equal(plain[name], found[name]) for name in plain) is equal


@pytest.mark.parametrize(("rng", "same"), [("preserve", True), ("ignore", False)])
def test_where_the_generator_ends(rng: str, same: bool) -> None:
    job = mlps(2, lambda: nn.Dropout(0.5))
    gradients(job)
    plain = torch.get_rng_state()
    with applied(job.model, each(*job.blocks), CheckpointSettings(rng=rng)):
        gradients(job)
    assert torch.equal(torch.get_rng_state(), plain) is same


def test_another_way_to_recompute_may_be_given(job: Job) -> None:
    wrapped = []

    def wrap(call: Call) -> Call:
        wrapped.append(call)
        return call

    with applied(job.model, each("blocks.2"), CheckpointSettings(), wrap=wrap):
        gradients(job)
    assert [call.__self__ for call in wrapped] == [job.model.get_submodule("blocks.2")]


def test_a_shadow_keeps_what_the_instance_had_before(job: Job) -> None:
    block = job.model.get_submodule("blocks.0")
    own = block.forward
    with ExitStack() as stack:
        block.forward = own  # type: ignore[method-assign]
        stack.enter_context(shadowed(block, "forward", lambda x: x))
        assert block.forward is not own
    assert vars(block)["forward"] is own
