"""Somebody's own model: factories, names of libraries, and which modules are blocks."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from recompute_core import safety
from recompute_core.errors import InputError
from recompute_core.meters.modules import watch_forward
from recompute_core.safety import check
from recompute_core.settings import OwnSettings
from recompute_core.spec import StudySpec
from recompute_core.workloads import registered
from recompute_core.workloads.hf import CHECK_COPIES, hf_model
from recompute_core.workloads.own import default_loss, from_factory
from recompute_core.workloads.stacks import repeated
from recompute_core.workloads.timm import timm_model
from tests.workloads import factories
from tests.workloads.factories import Block

HERE = "tests.workloads.factories"
CPU = torch.device("cpu")


def _unheard(*_: Any) -> None:
    """For a listener that hears nothing."""


# --- factories --------------------------------------------------------------------------------------


def test_a_model_and_a_batch_are_enough() -> None:
    found = check(from_factory(f"{HERE}:least"), StudySpec())
    assert [one.block for one in found.report.blocks] == ["layers.0", "layers.1"]
    assert found.report.verdict in ("legal", "no_saving")
    # the block's input, up's output twice over (before and after relu), each [16, d] of float32
    assert found.activation_bytes == {"layers.0": 1536, "layers.1": 1536}
    assert "the loss is the mean square of the model's output" in found.notes


def test_a_factory_may_give_everything() -> None:
    own = from_factory(f"{HERE}:everything")
    found = check(own, StudySpec())
    assert (own.blocks, list(found.activation_bytes)) == (("layers.1",), ["layers.1"])
    assert found.notes == ()
    half = check(own, StudySpec(), autocast="bfloat16")
    # input [16, 8], relu's output [16, 16] and both weights [16, 8], cast to two bytes
    assert half.activation_bytes["layers.1"] == 1280


def test_a_factory_that_gives_the_same_model_twice_gives_copies() -> None:
    own = from_factory(f"{HERE}:same")
    one, two = own.build(), own.build()
    assert one is not two
    assert all(model is not factories._ONE for model in (one, two))


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "no_such_package.models:make",
            "no_such_package.models cannot be imported: ModuleNotFoundError",
        ),
        (f"{HERE}:gone", f"{HERE} has no gone"),
        (f"{HERE}:something", "something is no function but a int"),
        (f"{HERE}:fails", r"raised RuntimeError: no such file \(.*factories.py:\d+\)"),
        (f"{HERE}:nothing", r"expected \(model, batch\).* it returned a NoneType"),
        (f"{HERE}:no_model", "model: expected a module, got a int"),
        (f"{HERE}:odd_key", "has no 'criterion'; the keys are model, batch, loss, optimizer, blocks"),
        (f"{HERE}:no_batch", "needs a batch"),
    ],
)
def test_a_factory_that_cannot_be_used_is_one_line(path: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        from_factory(path)
    assert "\n" not in str(raised.value)


def test_blocks_that_are_not_there_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"blocks: no block 'layers.7'; the blocks are layers.0, layers.1"
    ):
        check(from_factory(f"{HERE}:bad_blocks"), StudySpec())
    with pytest.raises(InputError, match=r"--block: no block 'gone'"):
        check(from_factory(f"{HERE}:least"), StudySpec(), ("gone",))
    with pytest.raises(
        InputError, match="no module is repeated; name one with --block; the model has 0, 1"
    ):
        check(from_factory(f"{HERE}:lonely"), StudySpec())


def test_a_plain_step_that_raises_is_an_error_of_every_block() -> None:
    found = check(from_factory(f"{HERE}:cannot_run"), StudySpec())
    assert {one.verdict for one in found.report.blocks} == {"error"}
    assert found.activation_bytes == {}


def test_a_refusal_for_statistics_says_what_is_free_of_them() -> None:
    some = check(from_factory(f"{HERE}:with_norm"), StudySpec())
    assert some.report.of("layers.0").verdict == "illegal"
    assert some.report.of("layers.1").verdict in ("legal", "no_saving")
    assert "free of running statistics: layers.1" in some.notes
    every = check(from_factory(f"{HERE}:all_norms"), StudySpec())
    assert every.notes[-1].startswith(
        "free of running statistics: no block; in the refused ones up, down"
    )


def test_the_look_leaves_inputs_as_they_were() -> None:
    own = from_factory(f"{HERE}:uses_up")
    found = check(own, StudySpec())
    assert found.report.verdict in ("legal", "no_saving")
    assert (len(own.inputs[0]), float(own.inputs[1].sum())) == (2, 16.0)


def test_the_look_is_over_before_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    theirs = safety.check_blocks

    def counting(*args: Any, **kwargs: Any) -> Any:
        alive.append(sum(one() is not None for one in factories.made))
        return theirs(*args, **kwargs)

    monkeypatch.setattr(safety, "check_blocks", counting)
    factories.made.clear()
    found = check(from_factory(f"{HERE}:remembered"), StudySpec())
    assert (alive, len(factories.made) > 2) == ([0], True)
    assert "the loss is the mean square of the model's output" in found.notes


def test_the_default_loss_is_the_outputs_own_or_its_mean_square() -> None:
    own = torch.tensor(3.0)
    assert default_loss({"loss": own, "logits": torch.ones(2)}) is own
    assert float(default_loss((torch.full((2,), 2.0), torch.ones(3, dtype=torch.long)))) == 4.0
    with pytest.raises(InputError, match="give a loss"):
        default_loss(torch.ones(3, dtype=torch.long))


# --- names ------------------------------------------------------------------------------------------


def test_names_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registered.VARIABLE, "mine = a.b:make , other=c:d.e")
    for workload, factory, name in (
        ("mine", None, "own:mine"),
        ("own:mine", None, "own:mine"),
        ("other", None, "own:other"),
        ("gpt", None, "gpt"),
        ("timm:resnet18", None, "timm:resnet18"),
        (None, "x.y:z", "own:x.y:z"),
        ("x.y:z", None, "own:x.y:z"),  # registered by the line above
    ):
        assert registered.resolve(workload, factory) == name
    for name, named in (
        ("own:mine", "own:mine"),
        ("hf:A", "hf:A"),
        ("q.r:s", "own:q.r:s"),
        ("gpt", "gpt"),
    ):
        assert registered.resolve_any(name) == named
    paths = {"own:mine": "a.b:make", "own:other": "c:d.e", "own:x.y:z": "x.y:z"}
    assert {name: registered.factory_path(name) for name in paths} == paths
    for workload, factory, says in (
        (
            "unheard-of",
            None,
            "known: gpt, receipts, mine, other, x.y:z, q.r:s, hf:CONFIG, timm:MODEL, own:NAME",
        ),
        ("own:unheard-of", None, "unknown workload 'own:unheard-of'"),
        ("p.q:r", None, "write --workload p.q:r"),
        (None, "x.y", "expected package.module:function"),
        ("gpt", "x.y:z", "give either"),
        (None, None, "give either"),
    ):
        with pytest.raises(InputError, match=says):
            registered.resolve(workload, factory)


def test_a_factory_in_a_module_called_hf_is_a_factory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hf.py").write_text(f"from {HERE} import least as make\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(registered.VARIABLE, "mine=hf:make")
    for name in (registered.resolve(None, "hf:make"), registered.resolve("mine", None)):
        own = safety.own_model(StudySpec(workload=OwnSettings(name=name)), _unheard)
        assert isinstance(own.build(), factories.Net)
    sys.modules.pop("hf")


def test_a_factory_that_is_not_registered_here_is_one_line() -> None:
    with pytest.raises(
        InputError, match=r"own:a.b:c is not registered here; set RECOMPUTE_WORKLOADS=a.b:c"
    ):
        registered.factory_path("own:a.b:c")
    with pytest.raises(InputError, match=r"set RECOMPUTE_WORKLOADS=gone=package\.module:function"):
        registered.factory_path("own:gone")


@pytest.mark.parametrize("text", ["mine", "mine=a.b", "=a:b", "mine=hf:LlamaConfig?x=1"])
def test_a_variable_that_registers_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(registered.VARIABLE, text)
    with pytest.raises(InputError, match="RECOMPUTE_WORKLOADS: expected name="):
        registered.registered()


def test_installed_packages_register_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[recompute_workloads]\ntheirs = their.models:make\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registered.factory_path(registered.resolve("theirs", None)) == "their.models:make"


def test_settings_are_yaml_values() -> None:
    found = registered.settings_of(
        "hf:LlamaConfig?hidden_size=64&tie_word_embeddings=true&hidden_act=gelu"
    )
    assert found == (
        "LlamaConfig",
        {"hidden_size": 64, "tie_word_embeddings": True, "hidden_act": "gelu"},
    )
    for name in ("hf:LlamaConfig?hidden_size", "hf:LlamaConfig?a=1&a=2", "hf:", "hf:A?x=["):
        with pytest.raises(InputError):
            registered.settings_of(name)


# --- stacks -----------------------------------------------------------------------------------------


def test_the_outermost_repeated_modules_are_the_blocks() -> None:
    stages = nn.Sequential(
        nn.Conv1d(1, 1, 1), nn.Sequential(Block(), Block()), nn.Sequential(Block(), Block(), Block())
    )
    assert repeated(stages) == ("1.0", "1.1", "2.0", "2.1", "2.2")
    named = nn.Module()
    named.first, named.second, named.head = Block(), Block(), nn.Linear(8, 8)
    assert repeated(named) == ("first", "second")
    assert repeated(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))) == ("0", "2")
    assert repeated(nn.Sequential(nn.Linear(8, 8), nn.ReLU())) == ()
    shared = Block()
    assert repeated(nn.Sequential(shared, Block(), shared)) == ("0", "1")


def test_a_forward_shows_what_each_module_keeps_and_which_buffers_move() -> None:
    model, batch = factories.with_norm()
    seen = watch_forward(
        model, lambda: model(batch)["scores"].sum(), torch.autocast("cpu", enabled=False)
    )
    assert seen.moved == {"layers.0.norm"}
    assert seen.activation_bytes["head"] == 16 * 8 * 4
    assert seen.activation_bytes["layers.1.up"] == 16 * 8 * 4
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


# --- libraries --------------------------------------------------------------------------------------

TINY = (
    "num_hidden_layers=2&hidden_size=16&num_attention_heads=2&intermediate_size=32"
    "&vocab_size=50&seq_len=8"
)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        (f"hf:LlamaConfig?{TINY}", ("model.layers.0", "model.layers.1")),
        (f"hf:BertConfig?{TINY}", ("bert.encoder.layer.0", "bert.encoder.layer.1")),
    ],
)
def test_models_of_transformers_are_built_from_a_configuration(
    name: str, blocks: tuple[str, ...]
) -> None:
    own = hf_model(OwnSettings(name=name), 0, CPU)
    assert own.inputs["input_ids"].shape == (2, 8)
    model = own.build()
    assert repeated(model) == blocks
    assert model.training
    output = model(**own.inputs)
    assert output.loss is own.loss_fn(output)
    assert set(output) == {"loss", "logits"}  # no cache


def test_dropout_of_a_transformer_is_a_condition() -> None:
    name = "hf:GPT2Config?n_layer=2&n_embd=16&n_head=2&vocab_size=50&batch=1&seq_len=8"
    found = check(hf_model(OwnSettings(name=name), 0, CPU), StudySpec(), ("transformer.h.1",))
    assert found.report.verdict in ("legal", "no_saving")
    assert "the loss is the output's own" in found.notes
    assert "rng_preserved" in {reason.code for reason in found.report.conditions}


def test_weights_are_the_same_after_the_same_seed() -> None:
    one, two = (hf_model(OwnSettings(name=f"hf:LlamaConfig?{TINY}"), 3, CPU).build() for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hf:LlammaConfig", "transformers has no configuration 'LlammaConfig'"),
        ("hf:AutoModel", "transformers has no configuration 'AutoModel'"),
        ("hf:LlamaConfig?hiden_size=256", "LlamaConfig has no setting 'hiden_size'"),
        ("hf:BertConfig?seq_len=1000", "seq_len 1000 is above max_position_embeddings 512"),
        ("hf:ViTConfig", "no language-model head"),
        ("hf:LlamaConfig?num_hidden_layers=800", "billion parameters.* this machine has"),
    ],
)
def test_a_configuration_that_cannot_be_is_one_line(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        hf_model(OwnSettings(name=name), 0, CPU)
    assert "\n" not in str(raised.value)


def test_a_model_whose_check_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"hf:LlamaConfig?{TINY}"
    weights = 4 * sum(
        parameter.numel() for parameter in hf_model(OwnSettings(name=name), 0, CPU).build().parameters()
    )
    memory = SimpleNamespace(total=30 * weights)  # more than 30 copies are held, as was measured
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    hf_model(OwnSettings(name=name), 0, CPU)
    with pytest.raises(InputError, match=r"a check takes at least .* and this machine has"):
        hf_model(OwnSettings(name=name), 0, CPU, CHECK_COPIES)
    memory.total = 3 * weights
    with pytest.raises(InputError, match=r"an update takes at least .* and this machine has"):
        hf_model(OwnSettings(name=name), 0, CPU)


def test_models_of_timm_are_built_by_name() -> None:
    own = timm_model(OwnSettings(name="timm:test_vit?img_size=32&num_classes=5&batch=3"), 0, CPU)
    assert own.inputs[0].shape == (3, 3, 32, 32)
    found = check(own, StudySpec())
    assert found.report.verdict in ("legal", "no_saving")
    assert all(one.block.startswith("blocks.") for one in found.report.blocks)
    wide = timm_model(OwnSettings(name="timm:test_vit?img_size=[32,64]&num_classes=5"), 0, CPU)
    assert wide.inputs[0].shape == (2, 3, 32, 64)
    assert wide.build()(*wide.inputs).shape == (2, 5)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet19", "timm has no model 'resnet19'; it has "),
        ("test_vit?num_classes=0", "num_classes: expected a whole number above 0, got 0"),
        ("test_vit?in_chans=none", "in_chans: expected a whole number above 0, got 'none'"),
        ("test_vit?img_size=[32,32,32]", "img_size: expected one size or two"),
        ("test_vit?img_size=[32,a]", "img_size: expected a whole number above 0, got 'a'"),
        ("test_vit?img_size={a:1}", "img_size: expected a whole number above 0"),
        ("test_vit?patch_size=0", "timm:test_vit.patch_size=0: "),
        ("resnet10t?img_size=32", "img_size"),
        ("vit_small_patch14_dinov2?depth=1&img_size=28", "no classes of its own; set .num_classes"),
    ],
)
def test_a_model_of_timm_that_cannot_be_is_one_line(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        timm_model(OwnSettings(name=f"timm:{name}"), 0, CPU)
    assert "\n" not in str(raised.value)


def test_batch_norm_is_refused_with_what_is_free_of_it() -> None:
    found = check(
        timm_model(OwnSettings(name="timm:resnet10t?batch=2"), 0, CPU), StudySpec(), ("layer1.0",)
    )
    assert found.report.verdict == "illegal"
    assert "running statistics" in found.report.reasons[0].sentence
    assert "in the refused ones conv1" in found.notes[-1]


def test_a_missing_library_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs timm, .*pip install -r requirements-models.txt"):
        timm_model(OwnSettings(name="timm:resnet18"), 0, CPU)
