"""The exported module by itself: what it says, how it goes on and comes off, what it refuses."""

import ast
import copy
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recompute_core.plans.export.to_torch import to_torch
from recompute_core.spec import CheckpointSettings
from tests.core.toys import BATCH, WIDTH, Mlp, each, mlps

from .plans import ANATOMY, PLANS, load, loaded, region, source

BLOCKS = each("blocks.0", "blocks.1")
FORWARD = CheckpointSettings(variant="forward")


def attributes(model: nn.Module) -> list[tuple[str, dict[str, int]]]:
    return [
        (name, {key: id(value) for key, value in vars(module).items()})
        for name, module in model.named_modules()
    ]


def gradients(model: nn.Module, seed: int = 1) -> list[Tensor]:
    torch.manual_seed(seed)
    x = torch.ones(BATCH, WIDTH)
    return list(torch.autograd.grad(model(x)[1], list(model.parameters())))


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def calls(module: nn.Module) -> list[None]:
    """Grows by one with every forward of a module's `up`, on whatever copy of the model."""
    seen: list[None] = []
    module.up.register_forward_pre_hook(lambda *_: seen.append(None))  # type: ignore[union-attr]
    return seen


@pytest.mark.parametrize("settings", [CheckpointSettings(), FORWARD], ids=["call", "forward"])
@pytest.mark.parametrize(
    "regions",
    [BLOCKS, (region("blocks.0", "blocks.1"), region("blocks.0"), region("blocks.0.up"))],
    ids=["whole", "nested chain"],
)
def test_it_goes_on_once_and_comes_off_without_a_trace(
    tmp_path: Path, settings: CheckpointSettings, regions: Any
) -> None:
    model, plan = mlps(3, lambda: nn.Dropout(0.5)).model, loaded(tmp_path, regions, settings)
    plain, seen = gradients(model), calls(model.blocks[0])  # type: ignore[index]
    before = attributes(model)
    plan.apply_plan(model)
    with pytest.raises(RuntimeError, match=r"blocks\.0.* has a plan on; remove_plan\(model\)"):
        plan.apply_plan(model)
    assert attributes(model) != before
    assert equal(gradients(model), plain)
    # The innermost region replays a hook of its module with the module's call, not with its forward.
    assert len(seen) == (2 if regions is BLOCKS else 4 if settings.variant == "call" else 3)
    plan.remove_plan(model)
    assert attributes(model) == before
    assert equal(gradients(model), plain)
    with pytest.raises(RuntimeError, match="the model has no plan on"):
        plan.remove_plan(model)


def test_a_method_that_the_instance_had_of_its_own_comes_back(tmp_path: Path) -> None:
    model, plan = mlps(2).model, loaded(tmp_path, BLOCKS, FORWARD)
    block = model.blocks[0]  # type: ignore[index]
    own = block.forward
    block.forward = own
    plan.apply_plan(model)
    plan.remove_plan(model)
    assert vars(block)["forward"] is own


@pytest.mark.parametrize(
    ("wrapped", "prefix", "says"),
    [
        (False, "", "the model has no module 'blocks.7'$"),
        (False, "module.", "the model has no module 'module.blocks.0'$"),
        (
            True,
            "",
            "the model has no module 'blocks.0'; it has 'module.blocks.0': give prefix='module.'",
        ),
    ],
)
def test_a_missing_module_is_named_before_anything_changes(
    tmp_path: Path, wrapped: bool, prefix: str, says: str
) -> None:
    model = mlps(2).model
    plan = loaded(tmp_path, each("blocks.0", "blocks.1" if prefix or wrapped else "blocks.7"))
    outer = nn.ModuleDict({"module": model}) if wrapped else model
    before = attributes(outer)
    with pytest.raises(ValueError, match=says):
        plan.apply_plan(outer, prefix)
    assert attributes(outer) == before


@pytest.mark.parametrize("prefix", ["module.", "module"])
def test_a_prefix_reaches_a_model_inside_another(tmp_path: Path, prefix: str) -> None:
    model, plan = mlps(2).model, loaded(tmp_path, BLOCKS)
    outer, seen = nn.ModuleDict({"module": model}), calls(model.blocks[1])  # type: ignore[index]
    plan.apply_plan(outer, prefix=prefix)
    gradients(model)
    assert len(seen) == 2
    plan.remove_plan(outer)


@pytest.mark.parametrize("settings", [CheckpointSettings(), FORWARD], ids=["call", "forward"])
def test_a_plan_of_another_file_is_seen_and_comes_off(
    tmp_path: Path, settings: CheckpointSettings
) -> None:
    model, one, other = mlps(2).model, loaded(tmp_path, BLOCKS), loaded(tmp_path, BLOCKS, settings)
    before = attributes(model)
    one.apply_plan(model)
    with pytest.raises(RuntimeError, match="has a plan on"):
        other.apply_plan(model)
    other.remove_plan(model)
    assert attributes(model) == before


@pytest.mark.parametrize("regions", [BLOCKS, (region("blocks.0", "blocks.1"),)], ids=["alone", "chain"])
def test_a_copy_of_a_planned_model_calls_its_own_modules(tmp_path: Path, regions: Any) -> None:
    model, plan = mlps(2).model, loaded(tmp_path, regions)
    plan.apply_plan(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(grad.any() for grad in gradients(twin))
    plan.remove_plan(twin)
    assert plan._shadows(model.blocks[0])  # type: ignore[index]


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_deeper_model_than_it_was_made_for_is_warned_of(tmp_path: Path, prefix: str) -> None:
    def on(count: int) -> list[str]:
        model = mlps(count).model
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            plan.apply_plan(nn.ModuleDict({"module": model}) if prefix else model, prefix)
        return [str(one.message) for one in said]

    path = tmp_path / "plan.py"
    made_for = replace(source(each("blocks.0")), blocks=("blocks.0", "blocks.1"))
    path.write_text(to_torch(made_for).text)
    plan = load(path)
    assert on(2) == []
    assert on(3) == [
        "the plan was made for 2 blocks; the model has 1 more of their class beside them, which stay "
        f"plain: {prefix}blocks.2"
    ]
    assert on(5)[0].endswith(f"stay plain: {prefix}blocks.2 to {prefix}blocks.4")


def test_keywords_are_the_modules_own(tmp_path: Path) -> None:
    """`debug` and `determinism_check` are names of checkpoint's too."""

    class Loud(nn.Module):
        def forward(self, x: Tensor, *, debug: float, determinism_check: Tensor) -> Tensor:
            return x.sin() * debug * determinism_check

    model, plan = nn.ModuleDict({"loud": Loud()}), loaded(tmp_path, each("loud"))
    x, factor = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    plan.apply_plan(model)
    y = model["loud"](x, debug=3.0, determinism_check=factor)
    y.sum().backward()
    assert torch.equal(x.grad, 6.0 * torch.ones(3).cos())  # type: ignore[arg-type]
    assert torch.equal(factor.grad, 3.0 * torch.ones(3).sin())  # type: ignore[arg-type]


def test_a_chain_that_is_called_otherwise_is_refused(tmp_path: Path) -> None:
    model, plan = mlps(2).model, loaded(tmp_path, (region("blocks.0", "blocks.1"),))
    plan.apply_plan(model)
    first, second = model.blocks  # type: ignore[misc]
    with pytest.raises(RuntimeError, match=r"blocks\.1 is not called with the result of blocks\.0"):
        second(first(torch.ones(BATCH, WIDTH)) * 2)
    with pytest.raises(RuntimeError, match=r"blocks\.1 is not called with the result of blocks\.0"):
        second(torch.ones(BATCH, WIDTH))


def test_what_would_be_passed_by_is_refused(tmp_path: Path) -> None:
    model, plan = nn.Sequential(Mlp()), loaded(tmp_path, each("0"))
    model[0]._compiled_call_impl = model[0]._call_impl  # what module.compile() leaves
    with pytest.raises(ValueError, match="0 is compiled, and would pass the plan by"):
        plan.apply_plan(model)
    keeping = loaded(tmp_path, (region("1", keep=("aten.nothing.default",)),))
    with pytest.raises(ValueError, match=r"this torch has none of the ops to keep: aten\.nothing"):
        keeping.apply_plan(nn.Sequential(Mlp(), Mlp()))


@pytest.mark.parametrize(("rng", "same"), [("preserve", True), ("ignore", False)])
def test_random_state_is_replayed_or_not(tmp_path: Path, rng: Any, same: bool) -> None:
    model = mlps(2, lambda: nn.Dropout(0.5)).model
    plan, plain = loaded(tmp_path, BLOCKS, CheckpointSettings(rng=rng)), gradients(model)
    plan.apply_plan(model)
    assert equal(gradients(model), plain) is same


@pytest.mark.parametrize(("early_stop", "times"), [(True, 1), (False, 2)])
def test_a_replay_stops_early_or_not(tmp_path: Path, early_stop: bool, times: int) -> None:
    model = mlps(2).model
    plan = loaded(tmp_path, BLOCKS, CheckpointSettings(early_stop=early_stop))
    ran: list[None] = []
    model.blocks[1].down.register_forward_hook(lambda *_: ran.append(None))  # type: ignore[index]
    plan.apply_plan(model)
    gradients(model)
    assert len(ran) == times


def test_it_says_where_it_comes_from_and_needs_torch_alone() -> None:
    text = to_torch(source(PLANS["calls"], plan='bad"""\nimport os\\')).text
    tree = ast.parse(text)
    said = ast.get_docstring(tree) or ""
    for words in ("sha256:0", "20260101-000000-0000", "gpt (blocks=4)", "torch 2.13.0+cpu", 'bad"""'):
        assert words in said
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]  # type: ignore[union-attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= {"torch", *sys.stdlib_module_names}
    assert "os" not in imported


@pytest.mark.parametrize("plan", ["torchtitan-selective", "chained, nested", "calls"])
def test_it_is_tidy(tmp_path: Path, plan: str) -> None:
    file = tmp_path / "plan.py"
    made = replace(source(PLANS[plan], plan), blocks=ANATOMY.names, missed="it failed")
    file.write_text(to_torch(made).text)
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [ruff, *command, "--config", "line-length = 105", "--isolated", file],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
