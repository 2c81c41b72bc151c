"""What transformers, torchtitan and Megatron-LM are told, and which plans each can express."""

import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.export import to_megatron, to_torchtitan, to_transformers
from recompute_core.plans.export.exported import Cost, Exported, nearest, whole
from recompute_core.plans.names import MATMULS, Regions
from recompute_core.settings import GptSettings
from recompute_core.spec import CheckpointSettings
from recompute_core.workloads.extras import declare_vision_ops

from .plans import ANATOMY, CUSTOM, PLANS, load, source

TRAINERS = {"transformers": to_transformers, "torchtitan": to_torchtitan, "megatron": to_megatron}
NAMES = ANATOMY.names


def cost(regions: Regions) -> Cost:
    """Every module recomputed takes 10 off a peak of 1000, its kept ops 1 less; each costs 1."""
    taken = sum(10 * len(one.modules) - len(one.keep) for one in regions)
    return Cost(1000 - taken, 1000 - taken, sum(len(one.modules) for one in regions))


def exported(trainer: str, regions: Regions, settings: CheckpointSettings | None = None) -> Exported:
    module: Any = TRAINERS[trainer]
    found = nearest(regions, module.families(ANATOMY, regions), cost)
    made: Exported = module.export(source(regions, checkpoint=settings), found, ANATOMY)
    return made


EXACT = {
    "transformers": {
        "every-block",
        "every-2nd-block",
        "every-3rd-block",
        "every-4th-block",
        "keep-matmul-attention",
        "keep-attention",
        "torchtitan-selective",
        "knapsack-75",
    },
    "torchtitan": {"every-block"},
    "megatron": {
        "every-block",
        "all-but-last",
        "mlp",
        "megatron-core-attn",
        "every-4th-block",
        "knapsack-25",
        "knapsack-50",
        "knapsack-75",
        "two chains",
    },
}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_which_plans_a_trainer_expresses(trainer: str) -> None:
    exact = {name for name, regions in PLANS.items() if exported(trainer, regions).exact}
    assert exact == EXACT[trainer]


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("plan", PLANS)
def test_what_it_cannot_express_stands_in_the_text_with_its_price(trainer: str, plan: str) -> None:
    made = exported(trainer, PLANS[plan])
    head = [line for line in made.text.splitlines() if line.startswith("#")]
    assert f"# {source(PLANS[plan]).line}" == head[0]
    assert all(f"# {line}" in head for line in (*made.cannot, *made.notes))
    assert made.nearest is not None
    if made.nearest.exact:
        assert made.exact or "layernorm also lets go" in made.cannot[0]
    else:
        assert len(made.cannot) >= 2
        assert any(line.startswith("Nearest: ") and "at T=16 B=2" in line for line in made.cannot)
        assert made.nearest.fits is not any("comes down to" in line for line in made.cannot)
    assert ("# This does what the plan does." in head) is made.exact


def test_what_cannot_be_expressed_is_named() -> None:
    said = "\n".join(exported("torchtitan", CUSTOM["chained"]).cannot)
    assert "cannot recompute a part of a layer by itself: blocks.3.mlp." in said
    assert "cannot recompute several layers as one: blocks.0 to blocks.2." in said
    said = "\n".join(exported("megatron", PLANS["keep-attention"]).cannot)
    assert "cannot keep the outputs of these ops: aten._scaled" in said
    said = "\n".join(exported("megatron", CUSTOM["calls"]).cannot)
    assert "only the core of attention (without its projections), the norms and the MLP, each" in said
    assert "not these by themselves: blocks.3.attn." in said


# --- torchtitan -----------------------------------------------------------------------------------


def section(made: Exported) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(made.text)["activation_checkpoint"]
    return found


@pytest.mark.parametrize(
    ("regions", "told"),
    [
        (whole(NAMES), {"mode": "full"}),
        (whole(("blocks.1", "blocks.3")), {"mode": "selective", "selective_ac_option": "2"}),
        (whole(("blocks.2",)), {"mode": "selective", "selective_ac_option": "3"}),
        (
            whole(NAMES, to_torchtitan._OP),
            {
                "mode": "selective",
                "selective_ac_option": "op",
                "per_op_sac_force_recompute_mm_shapes_by_fqns": [],
            },
        ),
    ],
)
def test_torchtitan_counts_layers_from_one(regions: Regions, told: dict[str, Any]) -> None:
    made = exported("torchtitan", regions)
    assert made.exact
    assert section(made) == {**told, "preserve_rng_state": True, "early_stop": True}


def test_torchtitan_is_told_how() -> None:
    settings = CheckpointSettings(rng="ignore", early_stop=False, variant="forward")
    made = exported("torchtitan", whole(NAMES), settings)
    assert section(made) == {"mode": "full", "preserve_rng_state": False, "early_stop": False}
    assert any("Hooks" in note for note in made.notes)


# --- Megatron-LM ----------------------------------------------------------------------------------


def arguments(made: Exported) -> str:
    return " ".join(line for line in made.text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ("every-block", "full --recompute-method uniform --recompute-num-layers 1"),
        ("all-but-last", "full --recompute-method block --recompute-num-layers 3"),
        ("two chains", "full --recompute-method uniform --recompute-num-layers 2"),
        ("mlp", "selective --recompute-modules mlp"),
        ("norms", "selective --recompute-modules layernorm"),
        ("megatron-core-attn", "selective --recompute-modules core_attn"),
    ],
)
def test_megatrons_arguments(plan: str, told: str) -> None:
    made = exported("megatron", PLANS[plan])
    assert arguments(made) == f"--recompute-granularity {told}"
    assert made.exact is (plan != "norms")


def test_groups_of_megatron_are_equal() -> None:
    anatomy = anatomy_of(GptSettings(blocks=6))
    sizes = {
        tuple(len(region.modules) for region in option.regions)
        for family in to_megatron.families(anatomy, ())
        for option in family
        if any(len(region.modules) > 1 for region in option.regions)
    }
    assert sizes == {(2, 2, 2), (3, 3), (6,)}


# --- transformers ---------------------------------------------------------------------------------


def llama() -> Any:
    declare_vision_ops()  # a torchvision that was built for another torch would keep transformers out
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 17, "num_hidden_layers": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, use_cache=False)).train()


def update(model: Any) -> tuple[list[torch.Tensor], list[int]]:
    """Gradients of one update, and how often each layer's MLP ran."""
    ran = [0] * len(model.model.layers)
    hooks = []
    for number, layer in enumerate(model.model.layers):

        def count(*_: Any, number: int = number) -> None:
            ran[number] += 1

        hooks.append(layer.mlp.register_forward_pre_hook(count))
    model.zero_grad()
    ids = torch.arange(12).view(2, 6)
    model(input_ids=ids, labels=ids).loss.backward()
    for hook in hooks:
        hook.remove()
    return [parameter.grad.clone() for parameter in model.parameters()], ran


def kept(model: Any) -> int:
    """Bytes that autograd keeps of an update's forward."""
    storages = {}

    def see(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    ids = torch.arange(12).view(2, 6)
    with torch.autograd.graph.saved_tensors_hooks(see, lambda tensor: tensor):
        result = model(input_ids=ids, labels=ids)
    del result
    return sum(storages.values())


@pytest.mark.parametrize(
    ("plan", "ran"),
    [
        ("every-block", [2, 2, 2, 2]),
        ("every-2nd-block", [2, 1, 2, 1]),
        ("every-3rd-block", [2, 1, 1, 2]),
        ("torchtitan-selective", [2, 2, 2, 2]),
    ],
)
def test_it_runs_on_a_real_model(tmp_path: Path, plan: str, ran: list[int]) -> None:
    file = tmp_path / "plan.py"
    file.write_text(exported("transformers", PLANS[plan]).text)
    model = llama()
    module = load(file)
    (plain, once), before = update(model), kept(model)
    module.apply_plan(model)
    (found, times), after = update(model), kept(model)
    assert (once, times) == ([1, 1, 1, 1], ran)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert after < before
    module.remove_plan(model)
    again, once = update(model)
    assert once == [1, 1, 1, 1]
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    assert kept(model) == before
    assert not any(module._forward_hooks for module in model.modules())


def test_a_trainer_takes_it_too() -> None:
    """The names in the text are those of TrainingArguments (a Trainer itself needs accelerate)."""
    declare_vision_ops()
    from transformers import PreTrainedModel, TrainingArguments

    whole_layers = exported("transformers", PLANS["every-2nd-block"]).text
    named = re.findall(r"(\w+)=(?=True|\{)", whole_layers)
    assert named == ["activation_checkpointing", "activation_checkpointing_kwargs"]
    assert set(named) <= {field.name for field in fields(TrainingArguments)}
    enable = inspect.signature(PreTrainedModel.activation_checkpointing_enable)
    assert "every_n_layers" in enable.parameters
    keeping = exported("transformers", PLANS["keep-attention"]).text
    assert "TrainingArguments" not in keeping  # which are written out as JSON, and a function is not


def test_ops_are_kept_in_transformers(tmp_path: Path) -> None:
    """A replay takes the matmuls from the forward: none runs again, where all did."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Matmuls(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += func is torch.ops.aten.mm.default
            return func(*args, **(kwargs or {}))

    counts = []
    for regions in ((), whole(NAMES, MATMULS), whole(NAMES)):
        model = llama()
        if regions:
            file = tmp_path / f"plan_{len(counts)}.py"
            file.write_text(exported("transformers", regions).text)
            load(file).apply_plan(model)
        with Matmuls() as mode:
            update(model)
        counts.append(mode.count)
    assert counts[0] == counts[1] < counts[2]
