"""Which toy blocks are safe to replay, and what is said about those that are not."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from recompute_core.checks.legality import check_legality
from recompute_core.results import BlockLegality
from recompute_core.spec import CheckpointSettings
from recompute_core.workloads.job import Job
from tests.core.toys import BATCH, WIDTH, Mlp, Tower, mlps, small_gpt, tower

Block = Callable[[Tensor], Tensor]


class Odd(nn.Module):
    """A linear block that does something more on every forward."""

    def __init__(self, more: Callable[["Odd", Tensor], Tensor | None], **attributes: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.more = more
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        y = self.more(self, x)
        return self.linear(x if y is None else y)


def check(block: nn.Module, **settings: Any) -> BlockLegality:
    """The verdict on `block` between two harmless ones, which must stay legal."""
    job = tower(Mlp(), block, Mlp())
    before, found, after = check_legality(job, CheckpointSettings(**settings), seed=0).blocks
    assert (before.verdict, after.verdict) == ("legal", "legal")
    assert (before.reasons, after.reasons) == ((), ())
    assert found.block == "blocks.1"
    assert all(reason.block == "blocks.1" for reason in (*found.reasons, *found.conditions))
    return found


def assert_illegal(block: nn.Module, code: str, *words: str, **settings: Any) -> None:
    found = check(block, **settings)
    assert found.verdict == "illegal"
    assert code in [reason.code for reason in found.reasons]
    sentence = next(reason.sentence for reason in found.reasons if reason.code == code)
    assert "blocks.1" in sentence
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


# --- legal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block",
    [
        nn.Linear(WIDTH, WIDTH),
        nn.LayerNorm(WIDTH),
        nn.Sequential(nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)),
        nn.BatchNorm1d(WIDTH, track_running_stats=False),
        nn.BatchNorm1d(WIDTH).eval(),
        nn.Dropout(0.5).eval(),
        Odd(lambda own, x: x.clone().add_(1)),
        Odd(lambda own, x: None, note="constant", table=[1, 2], nothing=None),
        Odd(lambda own, x: setattr(own, "last", x * 2), last=None),  # the same again
    ],
    ids=lambda block: type(block).__name__,
)
def test_legal_without_condition(block: nn.Module) -> None:
    found = check(block)
    assert (found.verdict, found.reasons, found.conditions) == ("legal", (), ())


def test_every_block_of_gpt_is_legal() -> None:
    found = check_legality(small_gpt(), CheckpointSettings(), seed=0)
    assert [(b.block, b.verdict, b.conditions) for b in found.blocks] == [
        ("blocks.0", "legal", ()),
        ("blocks.1", "legal", ()),
    ]


@pytest.mark.parametrize(
    "block",
    [nn.Dropout(0.5), Odd(lambda own, x: x + torch.rand_like(x)), nn.RReLU()],
    ids=lambda block: type(block).__name__,
)
def test_torchs_generator_is_legal_on_a_condition(block: nn.Module) -> None:
    found = check(block)
    assert (found.verdict, found.reasons) == ("legal", ())
    assert [reason.code for reason in found.conditions] == ["rng_preserved"]
    assert found.conditions[0].sentence == (
        "blocks.1 draws random numbers: legal with the random state preserved."
    )


# --- illegal --------------------------------------------------------------------------------------


def test_batch_norm_names_its_running_statistics() -> None:
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    found = check(block)
    assert found.verdict == "illegal"
    assert [reason.code for reason in found.reasons] == ["running_statistics"]
    assert found.reasons[0].sentence.startswith(
        "blocks.1: the running statistics of blocks.1.1 move on every forward"
    )


def test_two_batch_norms_are_both_named() -> None:
    block = nn.Sequential(nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.BatchNorm1d(WIDTH))
    assert_illegal(block, "running_statistics", "of blocks.1.0 and blocks.1.2 move")
    frozen = nn.Sequential(nn.BatchNorm1d(WIDTH).eval(), nn.ReLU(), nn.BatchNorm1d(WIDTH))
    assert_illegal(frozen, "running_statistics", "of blocks.1.2 move")


def test_a_buffer_that_counts() -> None:
    def more(own: Odd, x: Tensor) -> None:
        own.count += 1

    block = Odd(more)
    block.register_buffer("count", torch.zeros(()))
    assert_illegal(block, "buffer_changed", "blocks.1.count")


def test_a_buffer_outside_the_block_that_it_changes() -> None:
    other = Mlp()
    other.register_buffer("seen", torch.zeros(()))
    reach = [other]  # a list, so that it is not a submodule

    def more(own: Odd, x: Tensor) -> None:
        reach[0].seen.add_(1)

    job = tower(other, Odd(more))
    found = check_legality(job, CheckpointSettings(), seed=0).blocks
    assert [one.verdict for one in found] == ["legal", "illegal"]
    assert "blocks.0.seen" in found[1].reasons[0].sentence


def count_up(own: Odd, x: Tensor) -> None:
    own.count += 1


def count_in_place(own: Odd, x: Tensor) -> None:
    own.count[0] += 1


@pytest.mark.parametrize(
    ("more", "start"),
    [
        (count_up, 0),
        (count_up, 0.0),
        (count_in_place, [0]),
        (count_in_place, {0: 0}),
        (count_in_place, np.zeros(1)),
        (count_in_place, torch.zeros(1)),
        (lambda own, x: own.count.append(1), []),
        (lambda own, x: own.count.append(x), []),
        (lambda own, x: own.count.append(len(own.count) + own.count[-1]), deque([0, 1], maxlen=2)),
        (lambda own, x: own.count.add(len(own.count)), set()),
        (lambda own, x: own.count.update({len(own.count): 1}), {}),
    ],
    ids=[
        "int",
        "float",
        "list",
        "dict",
        "ndarray",
        "tensor",
        "tracker",
        "tensors",
        "deque",
        "set",
        "cache",
    ],
)
def test_an_attribute_that_changes(more: Callable[[Odd, Tensor], None], start: Any) -> None:
    assert_illegal(Odd(more, count=start), "attribute_changed", "blocks.1.count")


def test_a_private_generator() -> None:
    def more(own: Odd, x: Tensor) -> Tensor:
        return x + torch.rand(x.shape, generator=own.source)

    source = torch.Generator().manual_seed(1)
    assert_illegal(Odd(more, source=source), "attribute_changed", "blocks.1.source")


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda own, x: x * random.random(), "Python's random module"),
        (lambda own, x: x * np.random.rand(), "NumPy's global generator"),
    ],
    ids=["random", "numpy"],
)
def test_generators_that_checkpoint_does_not_restore(draw: Any, words: str) -> None:
    assert_illegal(Odd(draw), "foreign_generator", words)


@pytest.mark.parametrize("source", [np.random.default_rng(1), random.Random(1)], ids=["numpy", "random"])
def test_a_private_generator_of_another_library(source: Any) -> None:
    found = check(Odd(lambda own, x: x * own.source.random(), source=source))
    assert found.verdict == "illegal"


def test_a_closure_that_counts() -> None:
    hidden = [0]

    def more(own: Odd, x: Tensor) -> Tensor:
        hidden[0] += 1
        return x * hidden[0]

    assert_illegal(Odd(more), "attribute_changed", "hidden of test_a_closure_that_counts.more")


def test_an_output_that_depends_on_what_cannot_be_seen() -> None:
    numbers = iter(range(99))
    assert_illegal(Odd(lambda own, x: x * next(numbers)), "not_repeatable", "gives another output")


@pytest.mark.parametrize(
    "more",
    [
        lambda own, x: x.add_(1),
        lambda own, x: x[0].mul_(2),
        lambda own, x: x.view(-1)[:1].zero_(),
    ],
    ids=["whole", "row", "view"],
)
def test_an_input_changed_in_place(more: Any) -> None:
    def change(own: Odd, x: Tensor) -> None:
        more(own, x)

    assert_illegal(Odd(change), "input_changed", "blocks.1 changes its input in place")


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_inside(kind: str) -> None:
    for variant in ("call", "forward"):
        block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        getattr(block[1], kind)(lambda *_: None)
        found = check(block, variant=variant)
        assert (found.verdict, [reason.code for reason in found.conditions]) == (
            "legal",
            ["hooks_repeat"],
        )
        assert found.conditions[0].sentence.startswith("blocks.1.1 has a hook, which fires again")
        seen: list[int] = []
        getattr(block[1], kind)(lambda *_, seen=seen: seen.append(1))
        assert_illegal(block, "hook_repeats", "changed by a hook on blocks.1.1", variant=variant)


def test_a_hook_on_the_block_itself_is_legal_for_the_variant_that_leaves_it_out() -> None:
    seen: list[int] = []
    block = Mlp()
    block.register_forward_hook(lambda *_: seen.append(1))
    assert_illegal(block, "hook_repeats", "changed by a hook on blocks.1", variant="call")
    found = check(block, variant="forward")
    assert (found.verdict, found.conditions) == ("legal", ())


# --- errors ---------------------------------------------------------------------------------------


def test_a_block_that_cannot_run_again() -> None:
    def once(own: Odd, x: Tensor) -> None:
        own.count += 1
        if own.count > 1:
            raise RuntimeError("only once\nand no more")

    found = check(Odd(once, count=0))
    assert (found.verdict, found.conditions) == ("error", ())
    assert [(reason.code, reason.sentence) for reason in found.reasons] == [
        ("replay_raises", "blocks.1: running it again raises RuntimeError: only once")
    ]


def test_a_block_that_is_not_called() -> None:
    model = Tower([Mlp()])
    model.spare = Mlp()
    job = Job(model, (torch.ones(BATCH, WIDTH),), ("blocks.0", "spare"), BATCH)
    found = check_legality(job, CheckpointSettings(), seed=0)
    assert [one.verdict for one in found.blocks] == ["legal", "error"]
    assert [(reason.code, reason.sentence) for reason in found.of("spare").reasons] == [
        ("not_called", "spare is not called in forward.")
    ]


# --- the check itself -----------------------------------------------------------------------------


def test_keyword_arguments_are_replayed_too() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, *, scale: dict[str, Tensor]) -> Tensor:
            return x * scale["by"].add_(1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Scaled()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.block(x * self.weight, scale={"by": torch.ones(())})
            return y, y.sum()

    job = Job(Model(), (torch.ones(BATCH, WIDTH),), ("block",), BATCH)
    found = check_legality(job, CheckpointSettings(), seed=0).blocks[0]
    assert [reason.code for reason in found.reasons] == ["input_changed"]


def test_random_states_are_where_they_were() -> None:
    def draw(own: Odd, x: Tensor) -> Tensor:
        return x * random.random() * np.random.rand() * torch.rand(())

    states = []
    for blocks in ((Odd(draw),), (Odd(draw), Odd(draw))):
        check_legality(tower(*blocks), CheckpointSettings(), seed=7)
        states.append((torch.rand(2).tolist(), np.random.rand(), random.random()))
    # One plain forward draws; the replays of either leave no trace behind it.
    for blocks, state in ((1, states[0]), (2, states[1])):
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        for _ in range(blocks):
            draw(None, torch.ones(()))  # type: ignore[arg-type]
        assert state == (torch.rand(2).tolist(), np.random.rand(), random.random())


def test_blocks_are_independent() -> None:
    job = mlps(2, lambda: nn.BatchNorm1d(WIDTH))
    job.model.get_submodule("blocks.1").between = nn.Identity()  # type: ignore[assignment]
    found = check_legality(job, CheckpointSettings(), seed=0)
    assert [one.verdict for one in found.blocks] == ["illegal", "legal"]
    assert {reason.block for reason in found.blocks[0].reasons} == {"blocks.0"}
