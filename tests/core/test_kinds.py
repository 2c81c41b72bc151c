"""What bytes are: by hand on events, on a toy to the byte, and against the saved bytes of a GPT."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.meters import memory
from recompute_core.meters.kinds import Event, Kinds, kinds
from recompute_core.meters.timeline import thin
from recompute_core.plans.apply import applied
from recompute_core.results import Memory, Timeline
from recompute_core.spec import CheckpointSettings, OptimizerSettings, Region
from recompute_core.workloads.update import make_optimizer
from tests.core import records as make
from tests.core.test_memory import UNIT, measured, toy
from tests.core.toys import small_gpt

A, B, C = 1, 2, 3
"""Addresses."""


def test_kept_is_what_autograd_saved_and_backward_finds() -> None:
    events = [
        Event(0, A, 10),  # kept
        Event(1, B, 20),  # nobody saves it
        Event(2, B, -20),
        Event(3, B, 40),  # the address again, saved this time
        Event(5, A, -10),
        Event(6, B, -40),
        Event(7, A, 80),  # made in backward, where a saved one had been
    ]
    assert kinds(events, 4, [], {A, B}) == Kinds((10, 10, 10, 50, 40, 0, 0), (0,) * 7)


def test_what_was_saved_but_gone_before_backward_was_not_kept() -> None:
    assert kinds([Event(0, A, 10), Event(1, A, -10)], 2, [], {A}).kept == (0, 0)


def test_brought_back_is_what_outlives_its_replay() -> None:
    events = [
        Event(1, A, 10),
        Event(2, B, 20),  # within the replay alone
        Event(3, B, -20),
        Event(5, C, 40),  # after it
        Event(6, A, -10),
    ]
    assert kinds(events, 0, [(0, 4)], ()) == Kinds((0,) * 5, (10, 10, 10, 10, 0))


def test_what_an_inner_replay_made_comes_back_once() -> None:
    events = [Event(2, A, 10), Event(5, B, 20), Event(9, A, -10), Event(9, B, -20)]
    assert kinds(events, 0, [(1, 3), (0, 8)], ()).back == (10, 30, 20, 0)


def test_a_release_of_what_was_there_before_is_of_no_kind() -> None:
    assert kinds([Event(1, A, -10), Event(2, A, 10)], 3, [], {A}) == Kinds((0, 10), (0, 0))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=40),
    st.integers(-1, 40),
    st.sets(st.integers(0, 3)),
    st.tuples(st.integers(-1, 40), st.integers(-1, 40)).map(sorted),
)
def test_no_byte_is_of_two_kinds_and_none_is_left_over(touched, backward, saved, replay) -> None:
    """Each touch of an address allocates or, where something lies there, releases it."""
    there: dict[int, int] = {}
    events, alive = [], []
    for at, (address, size) in enumerate(touched):
        change = -there.pop(address) if address in there else there.setdefault(address, size)
        events.append(Event(at, address, change))
        alive.append(sum(there.values()))
    found = kinds(events, backward, [tuple(replay)], saved)
    for all_, kept, back in zip(alive, found.kept, found.back, strict=True):
        assert kept >= 0
        assert back >= 0
        assert kept + back <= all_


# --- measured -------------------------------------------------------------------------------------


@pytest.fixture
def every_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "thin", partial(thin, bins=10**8))


def parts(found: Memory) -> tuple[Timeline, tuple[int, ...], tuple[int, ...]]:
    line = found.timeline
    assert line is not None
    assert line.kept is not None
    assert line.back is not None
    return line, line.kept, line.back


@pytest.mark.usefixtures("every_moment")
def test_a_toys_two_exponentials_are_kept_or_come_back() -> None:
    _, kept, back = parts(measured(toy()))
    assert (max(kept), max(back)) == (2 * UNIT, 0)
    _, kept, back = parts(measured(toy(), ("block",), rng="ignore"))
    assert (max(kept), max(back)) == (0, 2 * UNIT)


@pytest.mark.usefixtures("every_moment")
@pytest.mark.parametrize("part", ["", ".attn"])
def test_as_backward_begins_the_kept_are_the_saved_bytes(part: str) -> None:
    blocks = tuple(name + part for name in small_gpt().blocks)
    found = measured(small_gpt(), blocks, rng="ignore")
    line, kept, back = parts(found)
    begins = next(at for at, label in line.marks if label == "backward")
    before = [number for number, at in enumerate(line.seconds) if at <= begins]
    assert kept[before[-1]] == found.saved_bytes
    assert max(back[: len(before)]) == 0 < max(back)
    assert kept[-1] == back[-1] == 0


@pytest.mark.usefixtures("every_moment")
def test_blocks_come_back_one_at_a_time() -> None:
    """The highest that is back at once is one block's own, whatever the number of blocks."""
    every = measured(small_gpt(), small_gpt().blocks, rng="ignore")
    one = measured(small_gpt(), small_gpt().blocks[:1], rng="ignore")
    assert max(parts(every)[2]) == max(parts(one)[2])


def test_the_parts_of_the_state_are_the_state() -> None:
    found = measured(toy())
    assert found.state_parts is not None
    assert found.state_parts.model_dump() == {
        "parameters": UNIT,
        "gradients": UNIT,
        "optimizer": 2 * UNIT + 4,
        "other": 4,
    }
    assert found.state_parts.total == found.state_bytes


@pytest.mark.usefixtures("every_moment")
def test_what_a_selective_region_keeps_is_kept_and_the_rest_comes_back() -> None:
    job = small_gpt()
    regions = tuple(Region(modules=(name,), keep=("aten.mm.default:even",)) for name in job.blocks)
    optimizer = make_optimizer(job.model, OptimizerSettings())
    put_on = partial(applied, job.model, regions, CheckpointSettings(rng="ignore"))
    found = memory.measure_memory(job, optimizer, put_on, make.passed())
    whole = measured(small_gpt(), job.blocks, rng="ignore")
    line, kept, back = parts(found)
    begins = next(at for at, label in line.marks if label == "backward")
    before = [number for number, at in enumerate(line.seconds) if at <= begins]
    assert whole.saved_bytes < found.saved_bytes == kept[before[-1]]
    assert 0 < max(back) < max(parts(whole)[2])
