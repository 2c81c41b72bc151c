"""Live: who waits behind whom, a failure where it happened, and a store that goes and comes back."""

from pathlib import Path

import pytest

from pages._parts import markup, progress
from pages._parts.data import get_store
from pages._parts.queue import Queue, device_words, ordinal, queue_of, waiting_words
from recompute_core.errors import StoreError
from recompute_core.studies.assemble import assemble
from recompute_core.studies.findings import finding
from recompute_core.studies.flow import total_cells
from recompute_core.studies.locks import machine_lock
from recompute_core.studies.store import Store

from . import studies
from .conftest import OpenPage
from .reading import shown, text


def _queue(**known: object) -> Queue:
    idle = Queue(None, None, None, (), 0, False)
    return Queue(**{**idle.__dict__, **known})  # type: ignore[arg-type]


MEASURING = {"measuring": "gpt, 4 of 12 cells", "running": "a", "is_held": True}


@pytest.mark.parametrize(("gpus", "on"), [([], "node 10.0.0.2"), (["3"], "node 10.0.0.2, GPU 3")])
def test_the_log_names_the_node_that_a_cell_goes_to(store: Store, gpus: list[str], on: str) -> None:
    study, key = store.create(studies.spec_of()), ("T=64 B=1", "every-block", "time")
    store.add_event(study, "placed", key, node="10.0.0.2", node_id="ab", gpus=gpus)
    said = [text for _, text in progress.log_lines(store.events(study), [])]
    assert said == [f"time: every-block at T=64 B=1 goes to {on}"]


@pytest.mark.parametrize(
    ("queue", "study", "says"),
    [
        (_queue(**MEASURING, waiting=("b", "c")), "b", "next in line behind gpt, 4 of 12 cells."),
        (_queue(**MEASURING, waiting=("b", "c")), "c", "2nd in line behind gpt, 4 of 12 cells."),
        (_queue(searching="T=64 B=1", waiting=("b",)), "b", "next in line behind a search for plans at"),
        (
            _queue(is_held=True, waiting=("b",), held_for="a check of the blocks of gpt"),
            "b",
            "next in line; the device is busy with a check of the blocks of gpt.",
        ),
        (
            _queue(is_held=True, waiting=("b",)),
            "b",
            "next in line; the device is busy with another study",
        ),
        (_queue(waiting=("b", "c")), "c", "2nd in line; the first is about to start."),
        (_queue(waiting=("b",)), "b", "receipts is about to start."),
        (_queue(), "b", "receipts is about to start."),
    ],
)
def test_a_study_that_waits_says_behind_whom(queue: Queue, study: str, says: str) -> None:
    assert waiting_words(queue, study, "receipts").startswith(f"Waiting: {says}")


def test_the_device_line_says_the_place_of_the_study_that_is_looked_at() -> None:
    queue = _queue(**MEASURING, waiting=("b", "c"), also_waiting=1)
    assert device_words(queue, "a") == (True, "Measuring gpt, 4 of 12 cells, 3 waiting")
    said = "Measuring gpt, 4 of 12 cells, 3 waiting; this study is 2nd in line"
    assert device_words(queue, "c") == (True, said)
    assert device_words(_queue(), None) == (False, "Device: idle")


@pytest.mark.parametrize(
    ("number", "word"), [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st")]
)
def test_places_are_ordinals(number: int, word: str) -> None:
    assert ordinal(number) == word


def test_the_queue_is_in_the_order_of_the_launches(store: Store) -> None:
    first = studies.running(store)
    others = [store.create(studies.spec_of()) for _ in range(2)]
    locks = [store.driver_lock(one) for one in (first.id, *others)]
    assert all(lock.acquire() for lock in locks)
    queue = queue_of(store)
    assert queue == Queue("gpt, 11 of 12 cells", first.id, None, tuple(others), 0, True)
    for lock in locks:
        lock.release()
    assert queue_of(store) == _queue()
    machine = machine_lock()
    assert machine.acquire()
    assert queue_of(store) == _queue(is_held=True)
    machine.release()


def _board(store: Store, study: str) -> list[progress.GridCell]:
    cells = store.cells(study)
    return progress.grid(assemble(store.study(study), cells), cells, live=False)


def test_a_failure_stands_in_the_cell_where_it_happened(open_page: OpenPage, store: Store) -> None:
    study = studies.failed(store)
    whys = {one.plan: one.why for one in _board(store, study)}
    said = "time: the worker was killed (signal 9)"
    assert whys == {"none": "", "every-block": "", "every-2nd-block": said}
    assert said in text(open_page("live", study=study))


def test_plain_that_fails_says_so_once(store: Store) -> None:
    study = studies.Filled(store, studies.spec_of(shapes=[{"seq_len": 128}]))
    shape = study.shapes[0]
    store.begin_cell(study.id, shape, "none", "reference")
    store.fail_cell(study.id, shape, "none", "reference", "out of memory <at once>" + "x" * 400)
    board = _board(store, study.id)
    assert [bool(one.why) for one in board] == [True, False, False]
    drawn = markup.cell_grid(board)
    assert ">reference: out of memory &lt;at once&gt;xxx" in drawn
    assert "xxx…</div>" in drawn, "all of it when it is pointed at"


def test_a_refusal_stands_in_its_cell(store: Store) -> None:
    board = _board(store, studies.refused_by_parity(store))
    refused = [one for one in board if one.plan != "none"]
    assert all("blocks.3.attn.weight" in one.why for one in refused)


@pytest.mark.parametrize("begun", [True, False])
def test_a_cancelled_study_waits_for_nothing(open_page: OpenPage, store: Store, begun: bool) -> None:
    made = studies.running(store) if begun else studies.Filled(store, studies.spec_of())
    if not begun:
        made.prepare(made.shapes[0])
    made.conclude("cancelled")
    for page in ("live", "tradeoff"):
        said = text(open_page(page, study=made.id))
        assert "not yet" not in said and "waiting" not in said, page
        assert page != "live" or "not run" in said


def test_the_words_of_the_cells_are_explained_where_they_stand(
    open_page: OpenPage, store: Store
) -> None:
    app = open_page("live", study=studies.filled(store))
    said = text(app)
    assert "A cell is one phase of one plan at one shape: a letter" in said
    assert "T: tokens in a sequence; B: sequences in an update." in said
    (note,) = [one for one in app.caption if "A cell is" in one.value]
    for phase in (*progress.STEPS, "gates"):
        assert f"- {phase}: " in note.proto.help
    steps = next(one.proto.body for one in app.get("html") if "rs-steps" in one.proto.body)
    assert 'title="Canary: a replay broken on purpose, which parity must catch"' in steps
    grid = next(one.proto.body for one in app.get("html") if "rs-grid" in one.proto.body)
    assert 'title="every-2nd-block: ' in grid, "what a recipe recomputes"
    assert grid.count('class="rs-bit ') == total_cells(studies.spec_of()), "a letter is a cell"


def test_bytes_that_are_kept_do_not_read_as_a_saving(open_page: OpenPage, store: Store) -> None:
    found = [one.payload for one in store.cells(studies.filled(store)) if one.phase == "memory"]
    said = finding("T=128 B=4", "every-block", "memory", found[0] or {})
    assert said == "memory: peak 276.0 MB, 130.0 MB kept for backward for every-block at T=128 B=4"


# --- a tab that is left open ------------------------------------------------------------------------


def test_a_store_that_goes_is_said_and_found_again(store: Store, open_page: OpenPage) -> None:
    study = studies.filled(store)
    app = open_page("live", study=study)
    sentence = store.study(study).sentence
    away = store.home.with_name("away")
    store.home.rename(away)
    app.run()
    assert not app.exception
    assert "is gone; put it back, or start the server again" in text(app)
    assert not store.home.exists(), "nothing is made in its place"
    away.rename(store.home)
    app.run()
    assert not app.exception
    assert sentence in text(app)


def test_a_store_that_comes_back_as_another_is_read_anew(store: Store) -> None:
    study = studies.filled(store)
    before = get_store()
    assert get_store() is before
    again = studies.filled(store)
    store.close()
    before.close()
    moved = Path(store.path)
    moved.write_bytes((copy := moved.rename(moved.with_suffix(".old"))).read_bytes())
    assert {row.id for row in get_store().studies()} == {study, again}
    assert get_store() is not before
    moved.unlink()
    with pytest.raises(StoreError, match="is gone"):
        get_store()
    copy.rename(moved)
    assert get_store().study(study).verdict == "adopt"


def test_looking_at_a_study_makes_no_folder(store: Store) -> None:
    study = store.create(studies.spec_of())
    store.folder(study).rmdir()
    assert store.study(study).status == "interrupted"
    assert not store.folder(study).exists()


@pytest.mark.parametrize(
    ("asked", "found", "says"),
    [
        ({}, {}, ""),
        ({"engine": "ray"}, {}, "On a Ray cluster."),
        (
            {"ranks": {"kind": "ddp"}},
            {"ranks_backend": "gloo"},
            "Over 2 ranks (ddp) that share the batch, gloo.",
        ),
        (
            {"engine": "ray", "ranks": {"kind": "fsdp2", "count": 4}},
            {},
            "On a Ray cluster, over 4 ranks (fsdp2) that share the batch.",
        ),
        ({"compile": {"backend": "inductor"}}, {}, "Compiled by inductor."),
    ],
)
def test_live_says_on_what_a_study_runs(
    open_page: OpenPage,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, object],
    found: dict[str, object],
    says: str,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.9.8.7:6379")
    study = studies.Filled(store, studies.spec_of(**asked))
    store.set_environment(study.id, {**studies.ENVIRONMENT, **found})
    app = open_page("live", study=study.id)
    said = [shown(one.value) for one in app.caption]
    assert [one for one in said if one.startswith(("On a Ray", "Over ", "Compiled "))] == (
        [says] if says else []
    )
    assert "10.9.8.7" not in text(app)
