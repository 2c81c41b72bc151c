"""Somebody's own model as a workload of a study: what a look finds, its job, its estimate, a verdict."""

import importlib
import os
import re
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from recompute_core import run_study
from recompute_core.checks.snapshot import describe_optimizer, fixed_update
from recompute_core.errors import InputError
from recompute_core.estimating import estimate
from recompute_core.plans.names import named_regions
from recompute_core.settings import Anatomy, OwnSettings
from recompute_core.spec import OptimizerSettings, Precision, Ranks, StudySpec
from recompute_core.studies.admission import admit
from recompute_core.studies.looking import looked_up
from recompute_core.workloads import build, build_blank, registered
from recompute_core.workloads.device import cast
from recompute_core.workloads.hf import hf_model
from recompute_core.workloads.job import Job, called_with, named_tensors, with_tensors
from recompute_core.workloads.others import anatomy_of_blocks, look
from recompute_core.workloads.own import from_factory
from recompute_core.workloads.timm import timm_model
from recompute_core.workloads.update import optimizer_of, update

SMALL = "num_hidden_layers=2&hidden_size=32&num_attention_heads=2&vocab_size=50&seq_len=16&batch=2"
LLAMA = f"hf:LlamaConfig?{SMALL}&intermediate_size=48&num_key_value_heads=2"
BERT = f"hf:BertConfig?{SMALL}&intermediate_size=64"
VIT = "timm:test_vit?img_size=32&num_classes=5"
QUICK = {"timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0}}


def _seen(name: str) -> OwnSettings:
    return look(OwnSettings(name=name))


# --- what a look finds --------------------------------------------------------------------------------


def test_the_parts_of_known_models() -> None:
    llama = _seen(LLAMA).anatomy
    assert llama == Anatomy(
        names=("model.layers.0", "model.layers.1"),
        norms=("input_layernorm", "post_attention_layernorm"),
        attention="self_attn",
        mlp="mlp",
        matmuls=(
            *(f"self_attn.{one}_proj" for one in "qkvo"),
            *(f"mlp.{one}_proj" for one in ("gate", "up", "down")),
        ),
        others=("mlp.act_fn",),
        parameters=sum(p.numel() for p in build(_seen(LLAMA), 0, Path()).model.parameters()),
    )
    bert = _seen(BERT).anatomy
    assert bert is not None
    assert (bert.attention, bert.mlp) == ("attention", "")
    assert bert.norms == ("attention.output.LayerNorm", "output.LayerNorm")
    vit = _seen("timm:test_vit?img_size=32&num_classes=5").anatomy
    assert vit is not None
    assert (vit.norms, vit.attention, vit.mlp) == (("norm1", "norm2"), "attn", "mlp")


class Odd(nn.Module):
    """A block whose parts differ from the next one's."""

    def __init__(self, second: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.attention = nn.Sequential(nn.Linear(4, 4))
        self.handoff = nn.Linear(4, 4)
        if second:
            self.ffn = nn.Sequential(nn.Linear(4, 4))


def test_only_what_all_blocks_have_is_a_part() -> None:
    model = nn.ModuleList([Odd(True), Odd(False)])
    found = anatomy_of_blocks(("0", "1"), dict(model.named_modules()))
    assert (found.norms, found.attention, found.mlp) == (("norm",), "attention", "")
    assert found.matmuls == ("attention.0", "handoff")
    assert not found.alike
    alone = anatomy_of_blocks(("0",), dict(model.named_modules()))
    assert (alone.mlp, alone.alike) == ("ffn", True)


def test_blocks_that_are_asked_for_are_looked_up() -> None:
    found = look(OwnSettings(name=LLAMA, blocks=("model.layers.1",))).anatomy
    assert found is not None
    assert found.names == ("model.layers.1",)
    with pytest.raises(InputError, match=r"no module 'gone'; repeated modules are model\.layers\.0"):
        look(OwnSettings(name=LLAMA, blocks=("gone",)))


def test_a_process_of_its_own_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registered.VARIABLE, "mine=tests.workloads.factories:everything")
    spec = looked_up(StudySpec(workload=OwnSettings(name="own:mine")))
    assert spec.workload == _seen("own:mine")
    ours = StudySpec()
    assert looked_up(ours) is ours


@pytest.mark.parametrize(
    ("factory", "count", "says"),
    [
        ("cannot_be_cut", 2, "the batch cannot be cut along dimension 0, where input input has 8 rows"),
        ("well", 3, r"own:well: ranks\.count: a batch of 8 cannot be cut into 3 equal parts$"),
    ],
)
def test_a_batch_that_ranks_cannot_share_is_refused_before_a_study_is_kept(
    factory: str, count: int, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(registered.VARIABLE, f"{factory}=tests.ranks.factories:{factory}")
    workload = OwnSettings(name=f"own:{factory}")
    with pytest.raises(InputError, match=says):
        admit(StudySpec(workload=workload, ranks=Ranks(count=count)), tmp_path)


def test_a_batch_that_ranks_can_share_is_admitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(registered.VARIABLE, "well=tests.ranks.factories:well")
    spec = StudySpec(workload=OwnSettings(name="own:well"), ranks=Ranks(count=4), plans=("every-block",))
    assert admit(spec, tmp_path).ranks == Ranks(count=4)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own:gone", "own:gone is not registered here; set RECOMPUTE_WORKLOADS=gone="),
        ("own:lonely", "no module is repeated; name blocks with workload.blocks; the model has "),
        ("own:fails", "raised RuntimeError: no such file"),
        ("hf:LlammaConfig", "transformers has no configuration 'LlammaConfig'"),
        (
            "hf:LlamaConfig?attn_implementation=them/kernels",
            "attn_implementation: expected one of eager",
        ),
        (
            'hf:Gemma3Config?text_config={"attn_implementation":them}',
            "attn_implementation: expected one",
        ),
        ("timm:test_vit?checkpoint_path=/etc/passwd", "checkpoint_path: is no setting of a model"),
        ("hf:LlamaConfig?num_hidden_layers=800", "plain needs about .* and this machine has"),
        ("own:opaque", "its batch holds no tensor that can be seen"),
        ("own:ends", "building it ended the process, exit code 3: goodbye"),
    ],
)
def test_a_model_that_cannot_be_looked_at_is_one_line(
    name: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = ("lonely", "fails", "opaque", "ends")
    entries = (f"{one}=tests.workloads.factories:{one}" for one in known)
    monkeypatch.setenv(registered.VARIABLE, ",".join(entries))
    with pytest.raises(InputError, match=says) as raised:
        admit(StudySpec(workload=OwnSettings(name=name)), tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        'hf:GlmAsrConfig?audio_config={"model_type":"timm_wrapper","architecture":"hf-hub:evil/x"}',
        'hf:GlmAsrConfig?audio_config={"model_type":"timm_wrapper","architecture":"local-dir:/tmp"}',
        'hf:LlamaConfig?rope_scaling={"a":[{"b":"HTTPS://evil.example/x"}]}',
        'hf:Gemma3Config?vision_config={"auto_map":{"AutoModel":"evil--x.Y"}}',
        'hf:Gemma3Config?vision_config={"use_pretrained_backbone":true}',
        "timm:test_vit?act_layer=hf-hub:evil/x",
    ],
)
def test_no_name_of_a_model_makes_this_machine_ask_a_hub_or_read_a_file(name: str) -> None:
    own = OwnSettings(name=name)
    with pytest.raises(InputError, match="nothing is loaded"):
        (hf_model if own.kind == "hf" else timm_model)(own, 0, torch.device("meta"))


def test_where_models_of_theirs_are_built_no_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = importlib.import_module("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "0")
    hf_model(OwnSettings(name=LLAMA), 0, torch.device("meta"))
    assert (os.environ["HF_HUB_OFFLINE"], os.environ["TRANSFORMERS_OFFLINE"]) == ("1", "1")
    with pytest.raises(Exception, match="offline mode is enabled"):
        hub.utils.get_session().get("https://huggingface.co/api/models")


# --- its job ------------------------------------------------------------------------------------------


def test_a_batch_by_name_is_a_batch(tmp_path: Path) -> None:
    job = build(_seen(LLAMA), 0, tmp_path)
    assert [name for name, _ in named_tensors(job.batch)] == ["input_ids", "labels"]
    assert job.tokens == 32
    output, loss = job.forward()
    assert output.logits.shape == (2, 16, 50)
    assert loss is output.loss
    assert build(_seen(LLAMA), 0, tmp_path).batch_digest == job.batch_digest
    assert build(_seen(LLAMA), 1, tmp_path).batch_digest != job.batch_digest
    wide = cast(job, "bfloat16")
    assert wide.batch["input_ids"].dtype == torch.long
    assert {p.dtype for p in wide.model.parameters()} == {torch.bfloat16}


def test_what_a_factory_draws_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registered.VARIABLE, "mine=tests.workloads.factories:drawn")
    monkeypatch.delitem(
        sys.modules, "tests.workloads.factories", raising=False
    )  # importing it draws too, as any module may
    seen = OwnSettings(name="own:mine", anatomy=Anatomy(names=("layers.0", "layers.1")))
    one, two, other = (build(seen, seed, tmp_path) for seed in (0, 0, 1))
    assert one.batch_digest == two.batch_digest != other.batch_digest
    weights = [torch.cat([p.flatten() for p in job.model.parameters()]) for job in (one, two, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_how_a_model_is_called() -> None:
    one = torch.ones(1)
    assert called_with((one, 2)) == ((one, 2), {})
    assert called_with({"x": one}) == ((), {"x": one})
    assert called_with(one) == ((one,), {})
    nested = {"x": [one, {"mask": one}], "rate": 0.5}
    assert [name for name, _ in named_tensors(nested)] == ["x/0", "x/1/mask"]
    job = Job(nn.Identity(), nested, ("",), None)
    doubled = job.with_batch(lambda t: t * 2)
    assert doubled.batch["rate"] == 0.5
    assert float(doubled.batch["x"][1]["mask"]) == 2.0


class Tied(nn.Module):
    """A weight used twice and a buffer that is a view's base."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.first.weight.requires_grad_(False)
        self.register_buffer("mask", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) * self.mask


def test_a_cast_keeps_ties_and_what_is_frozen() -> None:
    job = Job(Tied(), (torch.ones(2, 4),), ("first",), None, loss=lambda out: out.sum())
    model = cast(job, "bfloat16").model
    assert model.get_parameter("first.weight") is model.get_parameter("second.weight")
    assert not model.get_parameter("first.weight").requires_grad
    assert model.get_buffer("mask").dtype == torch.bfloat16


def test_an_estimate_takes_no_memory_and_agrees_with_the_real_model(tmp_path: Path) -> None:
    for name in (LLAMA, VIT):
        seen, real = _seen(name), build(_seen(name), 0, tmp_path)
        with FakeTensorMode():
            fake = build_blank(seen, 0)
        facts = [
            [(key, p.shape, p.dtype, p.requires_grad) for key, p in job.model.named_parameters()]
            for job in (real, fake)
        ]
        assert facts[0] == facts[1]
        assert all(type(p.data).__name__ == "FakeTensor" for p in fake.model.parameters())


# --- a study of it ------------------------------------------------------------------------------------


def test_a_factory_registered_after_the_first_study_is_known_to_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"name": "gpt", "blocks": 1, "width": 16, "heads": 2, "seq_len": 8, "batch": 1}
    run_study(
        {"workload": small, "plans": ["every-block"], **QUICK}, tmp_path
    )  # the fork server is there
    monkeypatch.setenv(registered.VARIABLE, "late=tests.workloads.factories:least")
    result = run_study({"workload": "own:late", "plans": ["every-block"], **QUICK}, tmp_path)
    assert result.status == "done"


@pytest.mark.parametrize("name", [LLAMA, BERT, VIT, "own:drawn", "own:regular", "own:momentum"])
def test_a_study_runs_to_a_verdict(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ("drawn", "regular", "momentum")
    entries = (f"{one}=tests.workloads.factories:{one}" for one in known)
    monkeypatch.setenv(registered.VARIABLE, ",".join(entries))
    result = run_study({"workload": name, "plans": ["every-block"], "threads": 1, **QUICK}, tmp_path)
    (one,) = result.judged
    assert result.status == "done"
    assert {gate.outcome for gate in one.gates} <= {"pass", "fail", "undecided"}  # each was run
    assert result.verdict is not None
    assert one.candidate.state == "measured"
    assert one.candidate.parity.bitwise
    assert one.candidate.canary.caught
    memory = one.candidate.memory
    assert memory.candidate.saved_bytes < memory.plain.saved_bytes
    blocks = one.candidate.blocks
    assert {one.candidate.block_calls["candidate"][b] for b in blocks} == {2}
    for plan, measured in (("none", memory.plain), ("every-block", memory.candidate)):
        guess = estimate(result.spec, {}, plan)
        assert guess.saved_bytes == measured.saved_bytes
        assert measured.peak_bytes is not None
        miss = abs(guess.peak_bytes - measured.peak_bytes)
        scratch = 700_000 if name == VIT else 20_000  # of a convolution's kernel; random states
        assert miss < 0.02 * measured.peak_bytes + scratch


def test_batch_norm_of_a_residual_net_is_refused(tmp_path: Path) -> None:
    result = run_study(
        {"workload": "timm:resnet10t?batch=2", "plans": ["every-block"], **QUICK}, tmp_path
    )
    (one,) = result.judged
    assert one.candidate.state == "refused"
    assert "running statistics" in one.candidate.reasons[0]


# --- parts that are none ------------------------------------------------------------------------------


class Scale(nn.Module):
    """A vector of weights that is no norm."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(4))


class Inner(nn.Module):
    """One transformer block, with a norm in its attention and a layer scale."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(4)
        self.attn = nn.Module()
        self.attn.qkv, self.attn.q_norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.ls1, self.act = Scale(), nn.PReLU(4)
        self.mlp = nn.Sequential(nn.Linear(4, 4))


def test_a_stage_of_several_blocks_has_no_parts() -> None:
    stages = nn.ModuleList(nn.ModuleList([Inner(), Inner()]) for _ in range(2))
    found = anatomy_of_blocks(("0", "1"), dict(stages.named_modules()))
    assert (found.norms, found.attention, found.mlp) == ((), "", "")
    assert "0.attn" in found.others


def test_norms_are_norms_and_those_of_attention_go_with_it() -> None:
    model = nn.ModuleList([Inner(), Inner()])
    found = anatomy_of_blocks(("0", "1"), dict(model.named_modules()))
    assert found.norms == ("norm1", "attn.q_norm")
    apart = {region.modules[0] for region in named_regions("attention-mlp-apart", found)}
    assert apart == {f"{n}.{part}" for n in "01" for part in ("norm1", "attn", "mlp")}
    assert len(named_regions("norms", found)) == 4
    with pytest.raises(InputError, match=r"plan 'knapsack-50': the blocks differ in size"):
        named_regions("knapsack-50", found.model_copy(update={"alike": False}))


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        (("model.layers.0", "model.layers.0"), "model.layers.0 and model.layers.0 meet"),
        (("model.layers.0", "model.layers.0.mlp"), "model.layers.0 and model.layers.0.mlp meet"),
        (("model.layers",), "model.layers is a container and never called"),
    ],
)
def test_blocks_that_cannot_be_studied(blocks: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        look(OwnSettings(name=LLAMA, blocks=blocks))


def test_blocks_stand_in_the_order_of_the_model() -> None:
    found = look(OwnSettings(name=LLAMA, blocks=("model.layers.1", "model.layers.0"))).anatomy
    assert found is not None
    assert found.names == ("model.layers.0", "model.layers.1")


def test_an_anatomy_that_is_given_must_be_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registered.VARIABLE, "mine=tests.workloads.factories:least")
    seen = _seen("own:mine")
    assert looked_up(StudySpec(workload=seen)).workload == seen
    other = seen.model_copy(update={"anatomy": Anatomy(names=("layers.7",))})
    with pytest.raises(InputError, match="own:mine is made of other modules now; leave the anatomy out"):
        looked_up(StudySpec(workload=other))


# --- what belongs to a model --------------------------------------------------------------------------


def test_a_loss_belongs_to_the_model_it_came_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(registered.VARIABLE, "mine=tests.workloads.factories:regular")
    job = build(_seen("own:mine"), 0, tmp_path)
    job.forward()[1].backward()  # type: ignore[no-untyped-call]
    assert all(float(p.grad.abs().max()) > 0 for p in job.model.parameters() if p.grad is not None)
    assert all(p.grad is not None for p in job.model.parameters())
    own = from_factory("tests.workloads.factories:regular")
    for _ in range(2):
        model = own.build()
        own.loss_fn(model(own.inputs)).backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None for p in model.parameters())


def test_a_model_is_left_in_the_mode_and_the_types_it_was_made_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(registered.VARIABLE, "mine=tests.workloads.factories:frozen_norm")
    job = cast(build(_seen("own:mine"), 0, tmp_path), "float32")
    assert not job.model.get_submodule("layers.0.norm").training
    assert job.model.get_submodule("layers.0").training
    assert {p.dtype for p in job.model.parameters()} == {torch.float64}
    assert {p.dtype for p in cast(job, "bfloat16").model.parameters()} == {torch.bfloat16}


def test_targets_that_a_loss_refers_to_go_along() -> None:
    targets = torch.ones(2)

    def loss(output: Tensor, scale: Tensor = targets) -> Tensor:
        return (output * targets * scale).sum()

    x = torch.ones(2)
    for given in (loss, partial(loss, scale=targets)):
        assert float(with_tensors(given, lambda t: t * 3)(x)) == 18.0
        assert float(given(x)) == 2.0


def test_a_list_in_the_batch_may_be_used_up() -> None:
    class Pops(nn.Module):
        def forward(self, xs: list[Tensor]) -> Tensor:
            return xs.pop()

    job = Job(Pops(), {"xs": [torch.ones(1)]}, ("",), None, loss=lambda y: y.sum())
    assert [float(job.forward()[1]) for _ in range(2)] == [1.0, 1.0]


def test_a_batch_that_is_changed_in_place_is_named() -> None:
    class Changes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.block(x.mul_(2))
            return out

    job = Job(Changes(), {"x": torch.ones(2, 2)}, ("block",), None, loss=lambda y: y.sum())
    with pytest.raises(RuntimeError, match=r"changes its batch in place \(input x\)"):
        fixed_update(job, OptimizerSettings(), 0)


def test_another_batch_each_time_is_named() -> None:
    own = from_factory("tests.workloads.factories:restless")
    own.build()
    with pytest.raises(InputError, match="batch: it is another one each time under the same seed"):
        own.build()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_optimizer_of_its_own_trains_the_model_of_the_study(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(registered.VARIABLE, "mine=tests.workloads.factories:momentum")
    job = cast(build(_seen("own:mine"), 0, tmp_path), precision)
    optimizer = optimizer_of(job, OptimizerSettings())
    assert isinstance(optimizer, torch.optim.SGD)
    assert [(group["lr"], group["momentum"]) for group in optimizer.param_groups] == [
        (0.1, 0.9),
        (0.5, 0.9),
    ]
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert [id(p) for p in held] == [id(p) for p in job.model.parameters()]
    before = job.model.get_parameter("head.weight").detach().clone()
    update(job, optimizer)
    head = job.model.get_parameter("head.weight")
    assert head.grad is not None
    assert torch.equal(head, before - 0.5 * head.grad)
    found = fixed_update(cast(build(_seen("own:mine"), 0, tmp_path), precision), OptimizerSettings(), 0)
    assert describe_optimizer(job.model, found.optimizer).name == "SGD"


def test_an_optimizer_that_cannot_be_is_one_line() -> None:
    with pytest.raises(InputError, match="optimizer: it holds a parameter that is not the model's"):
        from_factory("tests.workloads.factories:anothers_optimizer", keep=True)
