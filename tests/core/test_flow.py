"""What comes next: the fixed order, what refusals and failures leave out, and nothing unproven."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from recompute_core.plans.names import hash_of
from recompute_core.results import BlockLegality, Gap, Legality, Noise
from recompute_core.spec import StudySpec, Thresholds
from recompute_core.studies.flow import (
    PLAIN,
    Book,
    CellKey,
    Task,
    block_names,
    canary_module,
    module_names,
    next_task,
    ready_tasks,
    total_cells,
)
from recompute_core.studies.store import PHASES, Cell
from tests.core import records as make
from tests.core.cells import LARGE, SMALL, SPEC, cell, failed, legality, play

KEYS: list[CellKey] = [
    (shape, plan, phase)
    for shape in (SMALL, LARGE)
    for plan in (PLAIN, *SPEC.plans)
    for phase in PHASES
    if (phase in ("reference", "noise", "legality")) <= (plan == PLAIN)
    and (phase in ("canary", "parity", "time")) <= (plan != PLAIN)
]


def steps(tasks: list[Task]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(task.shape_key, task.plan, task.phases) for task in tasks]


def whole(shape: str) -> list[tuple[str, str, tuple[str, ...]]]:
    return [
        (shape, PLAIN, ("reference", "noise", "legality")),
        (shape, "every-block", ("canary", "parity")),
        (shape, PLAIN, ("memory",)),
        (shape, "every-block", ("memory",)),
        (shape, "blocks:1", ("canary", "parity")),
        (shape, "blocks:1", ("memory",)),
        (shape, "every-block", ("time",)),
        (shape, "blocks:1", ("time",)),
    ]


def costs(tasks: list[Task]) -> set[tuple[str, str]]:
    """Shapes and plans of which memory or time was asked for."""
    return {(t.shape_key, t.plan) for t in tasks if {"memory", "time"} & set(t.phases)}


# --- the order ------------------------------------------------------------------------------------


def test_a_whole_study_in_its_fixed_order() -> None:
    tasks, cells = play()
    assert steps(tasks) == whole(SMALL) + whole(LARGE)
    assert len(cells) == total_cells(SPEC) == 24
    assert set(cells) == set(KEYS)


def test_a_task_carries_its_sizes_its_floor_and_its_proof() -> None:
    floor = Noise(gaps=(Gap(part="grad", name="w", absolute=1e-7, relative=1e-6),))
    tasks, _ = play(lambda key: cell(key, floor) if key[2] == "noise" else None)
    by_step = {(t.shape_key, t.plan, t.phases[0]): t for t in tasks}
    assert by_step[SMALL, PLAIN, "reference"].shape == {"seq_len": 16}
    assert by_step[LARGE, "blocks:1", "time"].shape == {"seq_len": 32}
    for task in tasks:
        costly = task.phases[0] in ("memory", "time")
        assert task.proof == (make.passed() if costly else None)
        assert task.noise_floor == (1e-6 if task.phases[0] == "canary" else None)


def test_blocks_and_hash_of_a_plan() -> None:
    assert block_names(SPEC, "every-block") == ("blocks.0", "blocks.1")
    assert block_names(SPEC, "blocks:1") == ("blocks.1",)
    assert block_names(SPEC, PLAIN) == ()
    assert hash_of(SPEC, "every-block") == hash_of(SPEC, "blocks:0,1")
    assert hash_of(SPEC, "every-block") != hash_of(SPEC, "blocks:1")
    assert block_names(SPEC, "norms") == ("blocks.0", "blocks.1")  # in part


def test_the_canary_breaks_the_first_block_that_a_plan_touches() -> None:
    assert canary_module(SPEC, "blocks:1", legality()) == "blocks.1"
    assert canary_module(SPEC, "norms", legality()) == "blocks.0"
    for plan in ("nested", "every-block"):
        assert canary_module(SPEC, plan, legality()) == "blocks.0"


def test_where_a_block_may_not_be_replayed_its_legal_parts_may() -> None:
    """Its own unbroken replay would fail too: the canary breaks the plan's first module."""
    part = BlockLegality(block="blocks.0.mlp", verdict="legal")
    found = Legality(blocks=(*legality("blocks.0").blocks, part))
    assert found.refusals(module_names(SPEC, "every-block"))
    assert not found.refusals(module_names(SPEC, "mlp"))
    assert canary_module(SPEC, "mlp", found) == "blocks.0.mlp"
    assert [one.block for one in found.over(module_names(SPEC, "mlp"))] == ["blocks.0.mlp", "blocks.1"]
    assert found.refusals(module_names(SPEC, "norms")), "what has no verdict has its block's"


# --- several places -------------------------------------------------------------------------------


@given(st.integers(1, 8), st.randoms(use_true_random=False))
def test_with_several_places_every_cell_is_done_once_and_after_what_it_needs(
    places: int, random: Random
) -> None:
    """In whatever order tasks end, each is asked for once, and the cells are those of one place."""
    cells: dict[CellKey, Cell] = {}
    running: list[Task] = []
    begun: list[tuple[str, str, tuple[str, ...]]] = []
    while True:
        while len(running) < places:
            busy = {(task.shape_key, task.plan) for task in running}
            task = next(ready_tasks(SPEC, Book(cells), busy), None)
            if task is None:
                break
            assert (task.shape_key, task.plan) not in busy
            if "memory" in task.phases or "time" in task.phases:
                assert task.proof is not None
            if "time" in task.phases:
                assert cells[task.shape_key, task.plan, "memory"].state == "done"
            begun.append((task.shape_key, task.plan, task.phases))
            running.append(task)
        if not running:
            break
        ended = running.pop(random.randrange(len(running)))
        for phase in ended.phases:
            cells[ended.shape_key, ended.plan, phase] = cell((ended.shape_key, ended.plan, phase))
    assert len(set(begun)) == len(begun)
    assert cells == play()[1]
    assert next_task(SPEC, Book(cells)) is None


def test_at_first_only_the_references_can_be_done_and_all_of_them_at_once() -> None:
    tasks = list(ready_tasks(SPEC, Book({})))
    assert [task.phases for task in tasks] == [("reference", "noise", "legality")] * len(SPEC.shapes)
    first = tasks[0]
    assert list(ready_tasks(SPEC, Book({}), {(first.shape_key, PLAIN)})) == tasks[1:]


# --- resuming -------------------------------------------------------------------------------------


def test_resumed_after_any_task_it_asks_for_what_is_missing() -> None:
    complete, _ = play()
    for done in range(len(complete) + 1):
        _, cells = play(until=done)
        tasks, _ = play(cells=cells)
        assert steps(tasks) == steps(complete)[done:]


def test_resumed_within_a_task_it_asks_for_the_rest_of_its_phases() -> None:
    first: CellKey = (SMALL, PLAIN, "reference")
    assert next_task(SPEC, Book({first: cell(first)})).phases == ("noise", "legality")  # type: ignore[union-attr]
    _, cells = play(until=1)
    canary: CellKey = (SMALL, "every-block", "canary")
    task = next_task(SPEC, Book(cells | {canary: cell(canary)}))
    assert task is not None
    assert (task.plan, task.phases) == ("every-block", ("parity",))


def test_a_phase_that_was_running_is_asked_for_again() -> None:
    key: CellKey = (SMALL, PLAIN, "reference")
    task = next_task(SPEC, Book({key: cell(key, state="running")}))
    assert task is not None
    assert task.phases == ("reference", "noise", "legality")


@given(st.sets(st.sampled_from(KEYS)))
def test_resumed_with_any_cells_lost_it_ends_with_all_of_them(lost: set[CellKey]) -> None:
    _, cells = play()
    kept = {key: one for key, one in cells.items() if key not in lost}
    tasks, again = play(cells=kept)
    assert again.keys() == cells.keys()
    asked = [(t.shape_key, t.plan, phase) for t in tasks for phase in t.phases]
    assert sorted(asked) == sorted(lost)


# --- refusals -------------------------------------------------------------------------------------


def test_an_illegal_block_stops_the_plans_that_recompute_it() -> None:
    def worker(key: CellKey) -> Cell | None:
        return cell(key, legality("blocks.0")) if key[2] == "legality" else None

    tasks, _ = play(worker)
    assert not [task for task in tasks if task.plan == "every-block"]
    assert costs(tasks) == {(s, plan) for s in (SMALL, LARGE) for plan in (PLAIN, "blocks:1")}


def test_when_every_plan_is_illegal_nothing_is_measured() -> None:
    def worker(key: CellKey) -> Cell | None:
        return cell(key, legality("blocks.0", "blocks.1")) if key[2] == "legality" else None

    tasks, _ = play(worker)
    assert steps(tasks) == [whole(SMALL)[0], whole(LARGE)[0]]


def test_a_failed_parity_stops_its_plan_at_its_shape() -> None:
    def worker(key: CellKey) -> Cell | None:
        return cell(key, make.failed()) if key == (SMALL, "every-block", "parity") else None

    tasks, _ = play(worker)
    assert (SMALL, "every-block") not in costs(tasks)
    assert costs(tasks) == {
        (SMALL, PLAIN),
        (SMALL, "blocks:1"),
        (LARGE, PLAIN),
        (LARGE, "every-block"),
        (LARGE, "blocks:1"),
    }


def test_plain_is_measured_only_when_some_candidate_passed() -> None:
    def worker(key: CellKey) -> Cell | None:
        return cell(key, make.failed()) if key[2] == "parity" and key[0] == SMALL else None

    tasks, _ = play(worker)
    assert {shape for shape, _ in costs(tasks)} == {LARGE}


def test_a_device_that_does_not_repeat_itself_is_not_measured_on() -> None:
    def worker(key: CellKey) -> Cell | None:
        return cell(key, Noise(gaps=(make.OFF,))) if key == (SMALL, PLAIN, "noise") else None

    tasks, _ = play(worker)
    assert steps(tasks) == [whole(SMALL)[0], *whole(LARGE)]


def test_a_noise_within_tolerance_is_measured_on() -> None:
    loose = SPEC.model_copy(update={"thresholds": Thresholds(gradient_gap=1, relative_gap=0.5)})
    tasks, _ = play(lambda key: cell(key, Noise(gaps=(make.OFF,))) if key[2] == "noise" else None, loose)
    assert steps(tasks) == whole(SMALL) + whole(LARGE)


def test_a_missed_canary_stops_the_study() -> None:
    def worker(key: CellKey) -> Cell | None:
        return cell(key, make.canary(caught=False)) if key == (SMALL, "blocks:1", "canary") else None

    tasks, _ = play(worker)
    assert steps(tasks) == whole(SMALL)[:5]


def test_a_caught_canary_stands_for_its_block_at_every_shape() -> None:
    first: CellKey = (SMALL, "every-block", "canary")
    book = Book({first: cell(first)})
    assert book.canary_of("blocks.0") == make.canary().model_copy(update={"ran_at": SMALL})
    assert book.canary_of("blocks.1") is None
    later: CellKey = (LARGE, "every-block", "canary")
    assert Book({later: cell(later, book.canary_of("blocks.0"))}).canary_of("blocks.0").ran_at == SMALL  # type: ignore[union-attr]


def test_a_canary_that_was_missed_or_died_stands_for_nothing() -> None:
    key: CellKey = (SMALL, "every-block", "canary")
    for one in (cell(key, make.canary(caught=False)), failed(key), cell(key, state="running")):
        assert Book({key: one}).canary_of("blocks.0") is None


# --- failures -------------------------------------------------------------------------------------


def failing(*keys: CellKey) -> Any:
    return lambda key: failed(key) if key in keys else None


def test_a_failed_phase_blocks_the_later_ones_of_its_plan_alone() -> None:
    for phase in ("canary", "parity"):
        tasks, cells = play(failing((SMALL, "every-block", phase)))  # type: ignore[arg-type]
        rest = [one for one in steps(tasks) if one[:2] != (SMALL, "every-block")]
        wanted = [one for one in whole(SMALL) + whole(LARGE) if one[:2] != (SMALL, "every-block")]
        assert sorted(rest) == sorted(wanted)
        assert (SMALL, "every-block") not in costs(tasks)
        assert ((SMALL, "every-block", "parity") in cells) is (phase == "parity")


def test_a_failed_reference_blocks_its_shape_alone() -> None:
    for phase in ("reference", "noise", "legality"):
        tasks, _ = play(failing((SMALL, PLAIN, phase)))  # type: ignore[arg-type]
        assert steps(tasks) == [whole(SMALL)[0], *whole(LARGE)]


def test_a_failed_measurement_leaves_the_others_to_be_made() -> None:
    tasks, _ = play(failing((SMALL, PLAIN, "memory"), (LARGE, "every-block", "memory")))
    assert steps(tasks) == whole(SMALL) + whole(LARGE)


def test_a_failure_is_not_tried_again_by_itself() -> None:
    tasks, cells = play(lambda key: failed(key))
    assert steps(tasks) == [whole(SMALL)[0], whole(LARGE)[0]]
    assert set(cells) == {(SMALL, PLAIN, "reference"), (LARGE, PLAIN, "reference")}


# --- nothing unproven, whatever the book says -----------------------------------------------------

STATES = {
    "reference": [None],
    "noise": [None, Noise(gaps=(make.OFF,))],
    "legality": [None, legality("blocks.0"), legality("blocks.0", "blocks.1")],
    "canary": [None, None, make.canary(caught=False)],
    "parity": [None, make.failed()],
    "memory": [None],
    "time": [None],
}
"""What a finished cell of each phase may hold; None is what it holds when all is well."""


Choices = dict[CellKey, int | str]
"""A state, or for a finished cell which of STATES it holds: prints shorter than cells do."""


def choices_of(key: CellKey) -> st.SearchStrategy[int | str]:
    found = [0, *range(len(STATES[key[2]]))]
    return st.sampled_from([*found, *found, "missing", "running", "failed"])


books: st.SearchStrategy[Choices] = st.fixed_dictionaries({key: choices_of(key) for key in KEYS})


def cells_of(choices: Choices) -> dict[CellKey, Cell]:
    return {
        key: cell(key, STATES[key[2]][choice])
        if isinstance(choice, int)
        else cell(key, state=choice, reason="it died")  # type: ignore[arg-type]
        for key, choice in choices.items()
        if choice != "missing"
    }


def may_be_measured(spec: StudySpec, book: dict[CellKey, Cell], shape: str, plan: str) -> bool:
    """Said again from the cells alone: legality, a caught canary and a passed parity."""

    def payload(of: str, phase: Any) -> dict[str, Any]:
        one = book.get((shape, of, phase))
        return (one.payload or {}) if one is not None and one.state == "done" else {}

    verdicts = {one["block"]: one["verdict"] for one in payload(PLAIN, "legality").get("blocks", [])}
    return (
        all(verdicts.get(name) == "legal" for name in block_names(spec, plan))
        and payload(plan, "canary").get("caught") is True
        and payload(plan, "parity").get("passed") is True
    )


@settings(max_examples=150)
@given(books)
def test_nothing_unproven_is_ever_measured(choices: Choices) -> None:
    tasks, after = play(cells=cells_of(choices))
    for task in tasks:
        if {"memory", "time"} & set(task.phases):
            assert task.proof is not None
            assert len(task.phases) == 1
            plans = SPEC.plans if task.plan == PLAIN else (task.plan,)
            assert any(may_be_measured(SPEC, after, task.shape_key, plan) for plan in plans)
        else:
            assert task.proof is None


@settings(max_examples=200)
@given(books)
def test_a_task_asks_only_for_what_is_neither_done_nor_failed(choices: Choices) -> None:
    cells = cells_of(choices)
    task = next_task(SPEC, Book(cells))
    if task is not None:
        keys = [(task.shape_key, task.plan, phase) for phase in task.phases]
        assert keys
        assert all(key in KEYS for key in keys)
        assert all(key not in cells or cells[key].state == "running" for key in keys)
        assert list(task.phases) == sorted(task.phases, key=PHASES.index)


@settings(max_examples=200)
@given(st.sets(st.sampled_from(KEYS), max_size=4), st.sets(st.sampled_from(KEYS), max_size=4))
def test_whatever_fails_the_study_ends_and_nothing_is_done_twice(
    dying: set[CellKey], refusing: set[CellKey]
) -> None:
    def worker(key: CellKey) -> Cell | None:
        if key in dying:
            return failed(key)
        return cell(key, STATES[key[2]][-1]) if key in refusing else None

    tasks, _ = play(worker)
    asked = [(task.shape_key, task.plan, phase) for task in tasks for phase in task.phases]
    assert len(asked) == len(set(asked))
