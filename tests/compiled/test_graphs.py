"""What is read off compiled graphs, in exact numbers; and what must not pass for a recomputed plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed, InternalTorchDynamoError
from torch._inductor.exc import CppCompileError, InductorError

from recompute_core.checks.parity import check_canary, check_noise, plain_update
from recompute_core.checks.snapshot import fixed_update
from recompute_core.compiled import job as compiled_job
from recompute_core.compiled.evidence import check_graphs
from recompute_core.compiled.graphs import Graphs
from recompute_core.plans.apply import Wrap, recompute, shadowed
from recompute_core.plans.names import Regions
from recompute_core.results import ParityFailed
from recompute_core.spec import Region, StudySpec
from recompute_core.studies.assemble import gap_words
from recompute_core.studies.worker import reason_of
from recompute_core.workloads.job import Job
from tests.compiled.toys import parity_of, spec_of, wide
from tests.core.toys import BATCH, WIDTH, Mlp, each, mlps, small_gpt, tower

PRODUCT = 2 * BATCH * WIDTH * WIDTH
"""FLOPs of one linear layer's product."""


def test_ops_and_flops_are_those_of_the_graphs() -> None:
    spec = spec_of()
    plain, found = parity_of(mlps, spec, each("blocks.0", "blocks.1"))
    eager = fixed_update(mlps(), spec.optimizer, spec.seed)
    assert plain.flops == eager.flops == 4 * 3 * PRODUCT
    assert plain.graphs is not None
    assert plain.graphs.record().recomputed_ops == {}
    # Backward needs what goes into the second layer of each: the first one and GELU run again. The
    # loss needs what the last block gave, which the partition has made again and not kept.
    assert found.compiled is not None
    assert found.compiled.recomputed_ops == {"blocks.0": 2, "blocks.1": 3}
    assert found.flops == plain.flops + 3 * PRODUCT
    assert found.passed
    assert found.bitwise
    assert found.rollback is not None
    assert (found.rollback.bitwise, found.rollback.left, found.rollback.replayed) == (True, (), ())
    assert found.block_calls == {}


def test_compiled_plain_equals_eager_plain_where_ops_run_as_they_are() -> None:
    """With nothing that makes kernels in between, a graph of the same ops gives the same bits."""
    spec = spec_of()
    compiled = plain_update(mlps(), spec)
    eager = fixed_update(mlps(), spec.optimizer, spec.seed)
    differ = [name for name in compiled.tensors if not compiled.tensors[name].equal(eager.tensors[name])]
    assert differ == []
    # The gradient that arrives at a block is seen by a hook in Python, which a graph has none of.
    assert eager.tensors.keys() - compiled.tensors.keys() == {"input_grad/input of blocks.0"}


PLANS: dict[str, Regions] = {
    "as one": (Region(modules=("blocks.0", "blocks.1")),),
    "nested": (Region(modules=("blocks.0",)), Region(modules=("blocks.0.between",))),
    "a part": each("blocks.1.between"),
    "selective": (Region(modules=("blocks.0",), keep=("aten.addmm.default:even",)),),
}


def with_tanh() -> Job:
    return mlps(between=nn.Tanh)


@pytest.mark.parametrize(
    ("backend", "name"),
    [*(("aot_eager", name) for name in PLANS), ("aot_eager_decomp_partition", "selective")],
)
def test_every_kind_of_region_is_found_in_the_graph(backend: str, name: str) -> None:
    _, found = parity_of(with_tanh, spec_of(backend), PLANS[name])
    assert found.passed
    assert found.compiled is not None
    named = {module[: len("blocks.0")] for region in PLANS[name] for module in region.modules}
    assert found.compiled.recomputed_ops.keys() == named


class Remembering(nn.Linear):
    """Remembers what came out of it, and gives more of it each time."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.seen = torch.zeros(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x) + self.seen
        with torch.no_grad():
            self.seen = self.seen + out.mean(0)
        return out


def test_a_model_that_remembers_its_updates_comes_back_as_far_as_compiled_plain_does() -> None:
    def build() -> Job:
        torch.manual_seed(0)
        return tower(Mlp(), Remembering())

    _, found = parity_of(build, spec_of(), each("blocks.0"))
    assert found.passed
    assert found.rollback is not None
    assert (found.rollback.bitwise, found.rollback.left, found.rollback.replayed) == (True, (), ())


# --- what must not pass ---------------------------------------------------------------------------


def ignored(*_: Any) -> Any:
    """A wrap that recomputes nothing, as dynamo would make of one that it does not honour."""
    return lambda call: call


def test_a_plan_that_compiling_ignores_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recompute_core.plans.apply.recompute", ignored)
    with pytest.raises(RuntimeError, match=r"no op of blocks\.0 stands in the compiled backward graph"):
        parity_of(mlps, spec_of(), each("blocks.0"))


def test_a_module_that_a_region_of_several_leaves_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def first_alone(region: Region, modules: list[nn.Module], method: str, wrap: Wrap) -> Iterator[None]:
        with shadowed(modules[0], method, wrap(getattr(modules[0], method))):
            yield

    both = (Region(modules=("blocks.0", "blocks.1")),)
    parity_of(mlps, spec_of(), both)
    monkeypatch.setattr("recompute_core.plans.apply._chained", first_alone)
    with pytest.raises(
        RuntimeError, match=r"no op of blocks\.1 stands in the compiled backward graph, and"
    ):
        parity_of(lambda: mlps(3), spec_of(), both)


def test_a_part_without_anything_to_run_again_is_no_fault() -> None:
    def build() -> Job:
        torch.manual_seed(0)
        return tower(nn.Linear(WIDTH, WIDTH), nn.Identity(), Mlp())

    _, found = parity_of(build, spec_of(), (Region(modules=("blocks.0", "blocks.1")),))
    assert found.passed
    assert found.compiled is not None
    assert found.compiled.recomputed_ops == {"blocks.0": 1}


def test_a_plan_that_recomputes_what_it_does_not_name_is_no_candidate() -> None:
    def recomputing_more() -> Job:
        job = mlps()
        block = job.model.get_submodule("blocks.1")
        block._call_impl = recompute(StudySpec().checkpoint)(block._call_impl)
        return job

    with pytest.raises(RuntimeError, match=r"blocks\.1 is recomputed in the compiled graph"):
        parity_of(recomputing_more, spec_of(), each("blocks.0"))


def test_a_policy_that_keeps_nothing_is_no_candidate() -> None:
    nothing = (Region(modules=("blocks.0",), keep=("aten.tanh.default",)),)
    with pytest.raises(RuntimeError, match=r"blocks\.0 kept nothing"):
        parity_of(mlps, spec_of(), nothing)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (Graphs(compiled=2), "one update was compiled 2 times"),
        (Graphs(compiled=1, replayed=5), "runs 5 ops again, and 5 in plain: it recomputes nothing more"),
    ],
)
def test_graphs_that_say_nothing_are_refused(found: Graphs, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        check_graphs(found, (), 50, 5)


def test_a_broken_replay_is_caught_inside_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of()
    plain = plain_update(mlps(), spec).tensors
    found = check_canary(mlps, spec, plain, "blocks.0")
    assert found.caught
    assert found.largest_relative_gap is not None
    assert 1e-3 < found.largest_relative_gap < 0.1
    monkeypatch.setattr(compiled_job, "break_replay", lambda graph: 1)
    assert not check_canary(mlps, spec, plain, "blocks.0").caught


def test_a_canary_without_a_replay_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recompute_core.plans.apply.recompute", ignored)
    with pytest.raises(RuntimeError, match="nothing is replayed in the backward graph"):
        check_canary(mlps, spec_of(), {}, "blocks.0")


class Breaking(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return super().forward(x)


def test_a_graph_break_is_refused_in_one_line() -> None:
    with pytest.raises(Exception, match="graph_break") as raised:
        plain_update(tower(Breaking(WIDTH, WIDTH)), spec_of())
    assert reason_of(raised.value).startswith("the model does not compile as one graph: ")
    assert "\n" not in reason_of(raised.value)


OUT_OF_MEMORY = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which "
    "1.00 GiB is free."
)
KILLED = "In file included from cpp_prefix.h\ng++: fatal error: Killed signal terminated program cc1plus"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            BackendCompilerFailed("aot_eager", OUT_OF_MEMORY, None),
            "out of memory: 2.00 GiB asked for, 1.00 GiB of 8.00 GiB free",
        ),
        (
            InductorError(CppCompileError(["g++", "-O3"], KILLED), None),
            "the compiler failed: CppCompileError: C++ compile error: g++: fatal error: Killed signal "
            "terminated program cc1plus",
        ),
        (
            BackendCompilerFailed("x", InductorError(ValueError("no such kernel\nat all"), None), None),
            "the compiler failed: ValueError: no such kernel",
        ),
        (InternalTorchDynamoError("lost\nits way"), "InternalTorchDynamoError: lost"),
    ],
)
def test_what_the_compiler_came_to_grief_over_is_no_graph_break(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


# --- budgets --------------------------------------------------------------------------------------

BACKENDS = ("aot_eager", "aot_eager_decomp_partition")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_budget_passes_without_dropout(backend: str) -> None:
    plain, found = parity_of(lambda: wide(0.0), spec_of(backend), budget=50)
    assert found.passed
    assert found.bitwise
    assert plain.graphs is not None
    assert found.compiled is not None
    assert found.compiled.replayed_ops > plain.graphs.replayed
    assert found.compiled.recomputed_ops == {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_budget_draws_another_mask_in_backward_and_is_caught(backend: str) -> None:
    """On this version of torch a random op that a budget has run again draws anew."""
    _, found = parity_of(lambda: wide(0.1), spec_of(backend), budget=50)
    assert isinstance(found, ParityFailed)
    assert found.failed[0].part in ("grad", "input_grad")
    assert "gradient" in gap_words(found.failed[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_dropout_in_a_region_is_replayed_with_its_mask(backend: str) -> None:
    def build() -> Job:
        return wide(0.1, blocks=2)

    spec = spec_of(backend)
    assert check_noise(build(), spec, plain_update(build(), spec).tensors).bitwise
    _, found = parity_of(build, spec, each("blocks.0", "blocks.1"))
    assert found.passed
    assert found.bitwise


def test_attention_is_kept_in_the_graph_of_a_gpt() -> None:
    keep = ("aten._scaled_dot_product_flash_attention_for_cpu.default",)
    _, found = parity_of(small_gpt, spec_of(), (Region(modules=("blocks.1",), keep=keep),))
    assert found.passed
    assert found.bitwise
    assert found.compiled is not None
    assert found.compiled.recomputed_ops.keys() == {"blocks.1"}
