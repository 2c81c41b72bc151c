"""The search for the largest size: which size is looked at next, and where it ends."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.errors import InputError
from recompute_core.reinvest import reaching
from recompute_core.reinvest.found import Tried
from recompute_core.reinvest.reaching import Search, find_reach, try_size
from recompute_core.results import Legality
from recompute_core.spec import parse_spec
from recompute_core.studies.one_shape import Asked, Ran
from tests.core import records

STATE, EACH = 1000, 50
"""Bytes of a made-up model: a peak is STATE + EACH x batch."""


def arithmetic(patch: pytest.MonkeyPatch, missing: float, ends_at: int) -> list[int]:
    """Replaces estimates and measurements; gives the list of sizes that were measured."""
    measured: list[int] = []

    def estimated(search: Search, size: int) -> int:
        if size > ends_at:
            raise InputError(f"batch {size} is above {ends_at}")
        return STATE + EACH * size

    def largest(spec: Any, plan: str, field: str, budget: int, tick: Any) -> tuple[int, None] | None:
        size = min((budget - STATE) // EACH, ends_at)
        return (size, None) if size >= 1 else None

    def tried(search: Search, size: int) -> Tried:
        measured.append(size)
        peak = int((STATE + EACH * size) * (1 + missing))
        return Tried(size=size, estimated_peak_bytes=estimated(search, size), peak_bytes=peak)

    patch.setattr(reaching, "_estimated", estimated)
    patch.setattr(reaching, "largest", largest)
    patch.setattr(reaching, "try_size", tried)
    return measured


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """A model of arithmetic: by what share estimates miss, and the largest size it has."""

    def make(missing: float = 0.0, ends_at: int = 10**9) -> list[int]:
        return arithmetic(monkeypatch, missing, ends_at)

    return make


def search(budget: int, most: int = 65_536, batch: int = 4) -> Search:
    return Search(
        spec=parse_spec({"workload": {"name": "gpt", "batch": batch}}),
        plan="every-block",
        field="batch",
        budget_bytes=budget,
        legality=Legality(blocks=()),
        proof=records.passed(),
        home=Path("."),
        tell=lambda _: None,
        tick=lambda: None,
        most=most,
        limit="there are no more",
    )


@pytest.mark.parametrize("missing", [-0.02, -0.005, 0.0, 0.005, 0.02])
def test_the_largest_that_fits_is_found_though_the_estimate_misses(
    world: Callable[..., list[int]], missing: float
) -> None:
    measured = world(missing)
    budget = 6000
    reach = find_reach(search(budget))
    right = max(s for s in range(1, 200) if int((STATE + EACH * s) * (1 + missing)) <= budget)
    assert reach.largest is not None and reach.largest.size == right
    assert len(measured) <= 4 and len(set(measured)) == len(measured)
    assert (reach.next_size, reach.estimated_next_bytes) == (right + 1, STATE + EACH * (right + 1))


def test_where_one_fits_nothing_enormous_is_tried(world: Callable[..., list[int]]) -> None:
    measured = world(-0.01)
    reach = find_reach(search(STATE + EACH + EACH // 2, batch=1))
    assert measured == [1]
    assert reach.largest is not None and reach.largest.size == 1


def test_nothing_fits(world: Callable[..., list[int]]) -> None:
    measured = world()
    reach = find_reach(search(STATE))
    assert measured == [] and reach.largest is None and reach.next_size is None


def test_the_photos_there_are_end_it(world: Callable[..., list[int]]) -> None:
    world()
    reach = find_reach(search(6000, most=30))
    assert reach.largest is not None and reach.largest.size == 30
    assert reach.limit == "there are no more" and reach.next_size is None


def test_photos_that_do_not_fit_are_no_end(world: Callable[..., list[int]]) -> None:
    world(0.02)
    reach = find_reach(search(6000, most=100))
    assert reach.largest is not None and reach.largest.size == 97
    assert reach.limit is None and reach.next_size == 98


def test_a_model_that_goes_no_further_says_so(world: Callable[..., list[int]]) -> None:
    measured = world(-0.02, ends_at=80)
    reach = find_reach(search(6000))
    assert measured == [80] and reach.largest is not None
    assert reach.limit == "batch 81 is above 80"


@given(st.integers(1050, 50_000), st.floats(-0.03, 0.03))
def test_what_is_called_largest_was_measured_and_fits(budget: int, missing: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        arithmetic(patch, missing, 10**9)
        reach = find_reach(search(budget))
    if reach.largest is not None:
        assert reach.largest.peak_bytes is not None and reach.largest.peak_bytes <= budget
        assert reach.largest.size == max(
            one.size for one in reach.tried if (one.peak_bytes or budget + 1) <= budget
        )


# --- one size --------------------------------------------------------------------------------


def tried_after(patch: pytest.MonkeyPatch, ran: Ran) -> Tried:
    """What is made of the phases that went before; the plan's memory, where asked for, is 1,100."""

    def measure(asked: Asked, found: Ran, *_: Any) -> None:
        assert found.parity is not None and found.parity.passed, "measured without a proof"
        found.memory = records.memory(1_100, state=1_000)

    patch.setattr(reaching, "run_shape", lambda *_: ran)
    patch.setattr(reaching, "run_memory", measure)
    patch.setattr(reaching, "_estimated", lambda *_: 1_090)
    patch.setattr(reaching, "canary_module", lambda *_: "blocks.0")
    return try_size(search(2_000), 8)


@pytest.mark.parametrize("phase", ["reference", "noise"])
def test_a_size_that_is_too_large_for_plain_is_measured_under_the_plan(
    monkeypatch: pytest.MonkeyPatch, phase: Any
) -> None:
    found = tried_after(monkeypatch, Ran(failed=(phase, "out of memory: 80 GiB")))
    assert (found.peak_bytes, found.problem) == (1_100, None)
    assert (found.bitwise, found.without_plain) == (None, "out of memory: 80 GiB")


@pytest.mark.parametrize(
    ("ran", "problem"),
    [
        (Ran(failed=("canary", "out of memory: x")), "canary could not be completed: out of memory: x"),
        (Ran(failed=("parity", "killed")), "parity could not be completed: killed"),
        (Ran(canary=records.canary(caught=False)), "the canary was missed"),
        (Ran(canary=records.canary(), parity=records.failed()), "parity fails at this size"),
    ],
)
def test_a_size_whose_parity_is_not_shown_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, ran: Ran, problem: str
) -> None:
    found = tried_after(monkeypatch, ran)
    assert (found.peak_bytes, found.bitwise, found.problem) == (None, None, problem)


def test_a_size_whose_parity_passed_is_compared_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried_after(monkeypatch, Ran(canary=records.canary(), parity=records.passed()))
    assert (found.peak_bytes, found.bitwise, found.without_plain) == (1_100, True, None)


def test_the_search_hears_a_cancel_while_it_estimates() -> None:
    class Cancelled(Exception):
        pass

    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        find_reach(replace(search(10**9), tick=cancel))
