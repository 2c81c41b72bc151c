"""A plan is taken off again and plain must be plain again, or the candidate has not passed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from recompute_core.checks import parity
from recompute_core.checks.parity import check_parity
from recompute_core.checks.snapshot import fixed_update
from recompute_core.gates import judge, parity_gate, stuck_sentence
from recompute_core.plans import apply
from recompute_core.plans.names import Regions
from recompute_core.results import Gap, Parity, ParityFailed, ParityPassed, Refused, Rollback
from recompute_core.spec import CheckpointSettings, Region, StudySpec, Thresholds
from recompute_core.studies.assemble import assemble
from recompute_core.studies.flow import PLAIN, Book, CellKey, without_rollback
from recompute_core.studies.worker import Assignment, _do
from recompute_core.workloads.job import Job
from tests.core import records as make
from tests.core.cells import SMALL, SPEC, cell, play, row
from tests.core.toys import Mlp, Tower, each, mlps, small_gpt, tower

LIMITS = Thresholds()
HAIR = Gap(part="grad", name="w", absolute=1e-9, relative=1e-6)


def parity_of(build: Callable[[], Job], regions: Regions, spec: StudySpec = SPEC) -> Parity:
    plain = fixed_update(build(), spec.optimizer, spec.seed)
    return check_parity(build, spec, plain.tensors, regions, 0.0, plain.block_calls)


def stuck(parity: Parity) -> Rollback:
    assert isinstance(parity, ParityFailed)
    assert parity.failed == ()
    assert parity.bitwise, "under the plan all was well"
    assert parity.stuck is not None
    return parity.stuck


# --- plain is plain again -------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["call", "forward"])
@pytest.mark.parametrize(
    "regions",
    [
        each("blocks.0", "blocks.1"),
        (Region(modules=("blocks.0", "blocks.1")),),
        (Region(modules=("blocks.0",)), Region(modules=("blocks.0.mlp",))),
        (Region(modules=("blocks.1",), keep=("aten.mm.default",)),),
    ],
    ids=["blocks", "as one", "nested", "selective"],
)
def test_every_kind_of_region_comes_off(regions: Regions, variant: str) -> None:
    spec = StudySpec(checkpoint=CheckpointSettings(variant=variant))
    found = parity_of(small_gpt, regions, spec)
    assert isinstance(found, ParityPassed)
    assert found.rollback is not None
    replays = found.rollback.replays_before
    assert replays >= len(regions), "an update ran under the plan before it came off"
    assert found.rollback == Rollback(compared=len(found.gaps), replays_before=replays)
    assert (found.rollback.bitwise, found.rollback.largest_relative_gap) == (True, 0.0)


def test_it_is_not_tried_after_a_parity_that_failed() -> None:
    spec = StudySpec(checkpoint=CheckpointSettings(rng="ignore"))
    found = parity_of(lambda: mlps(1, lambda: nn.Dropout(0.5)), each("blocks.0"), spec)
    assert isinstance(found, ParityFailed)
    assert found.failed
    assert (found.rollback, found.stuck) == (None, None)


# --- something is left ----------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["call", "forward"])
def test_an_attribute_that_stays_is_named(monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    """The tensors are equal all the same: a recomputed update has plain's."""

    @contextmanager
    def left_on(module: nn.Module, method: str, replacement: apply.Call) -> Iterator[None]:
        setattr(module, method, replacement)
        yield

    monkeypatch.setattr(apply, "shadowed", left_on)
    spec = StudySpec(checkpoint=CheckpointSettings(variant=variant))
    method = "_call_impl" if variant == "call" else "forward"
    found = stuck(parity_of(small_gpt, each("blocks.1"), spec))
    assert found.bitwise
    assert found.left == (f"blocks.1.{method}",)
    # What counts the calls puts the method `forward` itself back when it ends.
    assert found.replayed == (("blocks.1",) if variant == "call" else ())
    assert stuck_sentence(found, 0.0).startswith(
        f"Taking the plan off does not give plain back: blocks.1.{method} is not as it was"
    )


class Scaled(Mlp):
    """Counts its calls, and takes whatever factor it is given."""

    factor, calls = 1.0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.factor * super().forward(x)


class Grows(Scaled):
    """Takes another factor once a plan was taken off it."""

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name == "_call_impl":
            self.factor = 1.01


class Hooked(Mlp):
    """Takes a hook whenever a plan comes."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_call_impl":
            self.register_forward_hook(lambda *_: None)


class Leaves(Mlp):
    """Remembers that a plan was taken off."""

    left = False

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self.left = self.left or name == "_call_impl"


class CallsAgain(Tower):
    """Calls its block once more, for nothing, after a plan was on it."""

    def __init__(self) -> None:
        super().__init__([Leaves()])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.blocks[0].left:
            self.blocks[0](x)
        return super().forward(x)


class Remembers(Tower):
    """Another one after every update, with a plan or without, by what it counts and keeps."""

    def __init__(self) -> None:
        super().__init__([Mlp()])
        self.updates = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.updates += 1
        self.seen = self.seen + 1  # another tensor in its place
        self.kept = x.detach()
        return super().forward(x * (1 + 0.01 * self.updates))


def one_block(kind: type[Mlp]) -> Callable[[], Job]:
    def build() -> Job:
        torch.manual_seed(0)
        return tower(kind())

    return build


def test_an_update_that_is_another_afterwards_is_named() -> None:
    found = stuck(parity_of(one_block(Grows), each("blocks.0")))
    assert (found.left, found.replayed) == (("blocks.0.factor",), ())
    assert "blocks.0.up.weight" in {gap.name for gap in found.off if gap.part == "grad"}


def test_what_shows_only_after_an_update_under_the_plan_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def sticky(model: nn.Module, regions: Regions, *how: Any, **more: Any) -> Iterator[None]:
        with apply.applied(model, regions, *how, **more):
            yield
        block = model.get_submodule("blocks.0")
        if regions and block.calls:
            block.factor = 1.01

    monkeypatch.setattr(parity, "applied", sticky)
    found = stuck(parity_of(one_block(Scaled), each("blocks.0")))
    assert (found.left, found.replayed) == (("blocks.0.factor",), ())
    assert found.off


def test_a_model_that_remembers_its_updates_comes_back_as_far_as_plain_does() -> None:
    def build() -> Job:
        torch.manual_seed(0)
        job = tower(Mlp())
        return Job(Remembers(), job.batch, job.blocks, job.tokens)  # type: ignore[arg-type]

    found = parity_of(build, each("blocks.0"))
    assert isinstance(found, ParityPassed)
    assert found.rollback is not None
    assert (found.rollback.bitwise, found.rollback.left) == (True, ())


def test_a_hook_that_stays_is_named() -> None:
    found = stuck(parity_of(one_block(Hooked), each("blocks.0")))
    assert len(found.left) == 1
    assert found.left[0].startswith("blocks.0._forward_hooks[")


def test_a_block_that_is_called_again_is_named() -> None:
    def build() -> Job:
        torch.manual_seed(0)
        job = tower(Mlp())
        return Job(CallsAgain(), job.batch, job.blocks, job.tokens)  # type: ignore[arg-type]

    found = stuck(parity_of(build, each("blocks.0")))
    assert found.bitwise
    assert found.replayed == ("blocks.0",)
    assert not found.is_plain(1.0)


# --- the record -----------------------------------------------------------------------------------


def test_noise_explains_what_is_not_much_larger_than_noise() -> None:
    near = Rollback(compared=9, off=(HAIR,))
    assert (near.bitwise, near.largest_relative_gap) == (False, 1e-6)
    assert [near.is_plain(floor) for floor in (None, 0.0, 1e-7, 1e-6, 1e-3)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    drawn = Gap(part="rng", name="torch", absolute=1e-9, relative=1e-9)
    missing = Gap(part="grad", name="v", absolute=None, relative=None, problem="missing")
    other = Rollback(compared=9, off=(HAIR, drawn, missing))
    assert other.beyond(1.0) == (missing, drawn)
    assert other.largest_relative_gap is None


LEFTOVERS = (
    Rollback(compared=1, left=("blocks.0.forward",)),
    Rollback(compared=1, replayed=("blocks.0",)),
    Rollback(compared=1, off=(HAIR,)),
)


@pytest.mark.parametrize("rollback", LEFTOVERS)
def test_no_parity_passes_with_something_left(rollback: Rollback) -> None:
    good = make.passed().model_dump()
    with pytest.raises(ValidationError, match="taking the plan off is not plain"):
        ParityPassed.model_validate(good | {"rollback": rollback.model_dump()})
    failed = ParityFailed.model_validate(
        {**good, "passed": False, "failed": (), "rollback": rollback.model_dump()}
    )
    assert failed.stuck == rollback
    assert ParityFailed.model_validate_json(failed.model_dump_json()) == failed
    gate = parity_gate(failed, LIMITS)
    assert (gate.outcome, gate.sentence) == ("fail", stuck_sentence(rollback, 0.0))


def test_a_parity_fails_for_a_reason() -> None:
    raw = {**make.passed().model_dump(), "passed": False, "failed": ()}
    for rollback in (None, Rollback(compared=1).model_dump()):
        with pytest.raises(ValidationError, match="names a tensor or what is left of the plan"):
            ParityFailed.model_validate(raw | {"rollback": rollback})


def test_comparing_nothing_proves_nothing() -> None:
    with pytest.raises(ValidationError, match="compared"):
        Rollback(compared=0)


def test_a_parity_of_an_earlier_version_says_nothing_of_a_rollback() -> None:
    raw = make.passed().model_dump(mode="json")
    del raw["rollback"]
    assert ParityPassed.model_validate(raw).rollback is None


# --- in a study -----------------------------------------------------------------------------------

KEY: CellKey = (SMALL, "every-block", "parity")
OLD = make.passed().model_copy(update={"rollback": None})


def test_a_plan_that_stays_on_is_refused_by_name() -> None:
    raw = make.passed().model_dump() | {"passed": False, "failed": (), "rollback": LEFTOVERS[0]}
    found = ParityFailed.model_validate(raw)
    tasks, cells = play(lambda key: cell(key, found) if key == KEY else None)
    first = assemble(row(), list(cells.values())).judged[0]
    assert isinstance(first.candidate, Refused)
    assert first.candidate.stopped_by == "parity"
    assert first.candidate.reasons == (stuck_sentence(LEFTOVERS[0], 0.0),)
    assert first.verdict == "keep_original"
    assert judge(first.candidate, Thresholds(relative_gap=5e-3)).verdict == "keep_original"
    own = [t.phases for t in tasks if (t.shape_key, t.plan) == (SMALL, "every-block")]
    assert own == [("canary", "parity")], "nothing is measured of it"


def test_where_a_cost_is_still_to_come_an_old_parity_is_done_anew() -> None:
    _, cells = play()
    assert without_rollback(SPEC, Book(cells)) == []
    cells[KEY] = cell(KEY, OLD)
    assert without_rollback(SPEC, Book(cells)) == [], "all is measured"
    for phase in ("memory", "time"):
        lost = {key: one for key, one in cells.items() if key != (SMALL, "every-block", phase)}
        assert without_rollback(SPEC, Book(lost)) == [KEY]
    lost = {key: one for key, one in cells.items() if key != (SMALL, PLAIN, "memory")}
    assert without_rollback(SPEC, Book(lost)) == [KEY]


@pytest.mark.parametrize("phase", ["memory", "time"])
@pytest.mark.parametrize("proof", [OLD, None])
def test_nothing_is_measured_without_the_way_back(
    tmp_path: Path, phase: Any, proof: ParityPassed | None
) -> None:
    task = Assignment(
        spec=SPEC,
        shape={},
        regions=(),
        phases=(phase,),
        home=tmp_path,
        reference=tmp_path / "reference",
        proof=proof,
    )
    with pytest.raises(RuntimeError, match="without a proof of parity and of the way back"):
        _do(phase, task, lambda *_, **__: None)
