"""Whole studies in real processes: they run, they are killed, they go on, and they leave no orphan."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from multiprocessing import forkserver, util
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from recompute_core.errors import Cancelled, EngineError, InputError
from recompute_core.results import Measured, Proven, Refused, RngUsed, StudyResult
from recompute_core.spec import Region, StudySpec, parse_spec
from recompute_core.studies import driver, launch, local_engine
from recompute_core.studies.assemble import assemble
from recompute_core.studies.driver import drive
from recompute_core.studies.flow import CellKey
from recompute_core.studies.locks import machine_lock
from recompute_core.studies.store import PHASES, Cell, Store
from tests.core import saboteurs

ROOT = Path(__file__).parents[2]
SMALL = "T=16 B=2"
TINY: dict[str, Any] = {
    "workload": {"blocks": 2, "width": 32, "heads": 2, "vocab": 17, "seq_len": 16, "batch": 2},
    "plans": ["every-block", "blocks:1"],
    "thresholds": {"peak_ratio": 1, "update_ratio": 100},
    "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
    "device": "cpu",
    "threads": 1,
}
KEYS: set[CellKey] = {
    *((SMALL, "none", phase) for phase in ("reference", "noise", "legality", "memory")),
    *(
        (SMALL, plan, phase)
        for plan in ("every-block", "blocks:1")
        for phase in ("canary", "parity", "memory", "time")
    ),
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine of our own: another folder for its lock, here and in the processes we start."""
    util.get_temp_dir()  # multiprocessing keeps its sockets where they were
    folder = tempfile.mkdtemp(prefix="rs-")  # short: a socket's path has at most 107 characters
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    yield
    monkeypatch.undo()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def store(machine: None, tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "home")
    yield found
    for row in found.studies():
        for process in drivers_of(row.id):
            end(process)
    found.close()


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process ids of the workers that this process starts."""
    pids: list[int] = []
    start = local_engine.LocalEngine.start

    def recorded(self: local_engine.LocalEngine, assignment: Any) -> local_engine.LocalWorker:
        worker = start(self, assignment)
        pids.append(worker._process.pid or 0)
        return worker

    monkeypatch.setattr(local_engine.LocalEngine, "start", recorded)
    return pids


def tiny(**changes: Any) -> StudySpec:
    return parse_spec(TINY | changes)


def run(store: Store, spec: StudySpec) -> tuple[str, StudyResult]:
    study = store.create(spec)
    drive(store, study)
    return study, assemble(store.study(study), store.cells(study))


def cells_of(store: Store, study: str) -> dict[CellKey, Cell]:
    return {(cell.shape_key, cell.plan, cell.phase): cell for cell in store.cells(study)}


def done(store: Store, study: str) -> dict[CellKey, Cell]:
    return {key: cell for key, cell in cells_of(store, study).items() if cell.state == "done"}


def eventually(condition: Callable[[], Any], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def drivers_of(study: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if study in command and "recompute_core.studies.driver" in command:
            found.append(process)
    return found


def end(process: psutil.Process) -> None:
    process.kill()
    process.wait(30)


def log_of(store: Store, study: str) -> str:
    return (store.folder(study) / "driver.log").read_text()


# --- a study that goes well -----------------------------------------------------------------------


def test_a_whole_study_runs_to_a_verdict(store: Store, workers: list[int]) -> None:
    study, result = run(store, tiny())
    assert (store.study(study).status, store.study(study).verdict) == ("done", "adopt")
    assert store.study(study).sentence == result.sentence
    assert result.sentence.startswith("Adopt ")
    assert set(done(store, study)) == KEYS
    for one in result.judged:
        candidate = one.candidate
        assert isinstance(candidate, Measured)
        assert candidate.parity.bitwise
        assert candidate.parity.rollback is not None
        assert candidate.parity.rollback.bitwise
        assert candidate.canary.caught
        assert candidate.timing.pairs == 3
        assert set(candidate.block_calls["plain"].values()) == {1}
        assert {candidate.block_calls["candidate"][name] for name in candidate.blocks} == {2}
        assert candidate.memory.candidate.saved_bytes < candidate.memory.plain.saved_bytes
    environment = store.study(study).environment
    assert (environment["device"], environment["threads"]) == ("cpu", 1)
    # Each task in a process of its own, and none of them is left.
    assert len(set(workers)) == len(workers) == 8
    assert not [pid for pid in workers if alive(pid)]
    assert not machine_lock().is_held()
    assert not store.driver_lock(study).is_held()


def test_its_history_tells_all_of_it(store: Store) -> None:
    study = store.create(tiny(plans=["every-block"]))
    heard: list[tuple[str, CellKey | None, dict[str, Any]]] = []
    drive(store, study, listener=lambda kind, key, data: heard.append((kind, key, data)))
    events = store.events(study)
    statuses = [event.data["status"] for event in events if event.kind == "status"]
    assert statuses == ["queued", "running", "done"]
    for phase in PHASES:
        kinds = [e.kind for e in events if e.phase == phase and e.plan in ("every-block", "none")]
        assert kinds.index("start") < kinds.index("done")
        assert kinds.count("start") == kinds.count("done") == (2 if phase == "memory" else 1)
    assert len([event for event in events if event.kind == "pair"]) == 3
    pairs = [data for kind, _, data in heard if kind == "pair"]
    assert [event.data for event in events if event.kind == "pair"] == pairs
    timed = cells_of(store, study)[SMALL, "every-block", "time"]
    assert timed.payload is not None
    assert timed.payload["samples"] == pairs


def test_the_reference_is_kept_and_can_be_checked(store: Store) -> None:
    from recompute_core.checks import snapshot
    from recompute_core.workloads.job import tensors_digest

    study, result = run(store, tiny(plans=["blocks:1"]))
    reference = result.references[SMALL]
    kept = snapshot.load(store.folder(study) / f"reference {SMALL}.safetensors", reference.digest)
    assert tensors_digest(sorted(kept.items())) == reference.digest
    assert len(kept) == reference.tensors
    assert float(kept["loss/"]) == pytest.approx(reference.loss, abs=0)


def test_every_update_whose_memory_was_measured_leaves_its_trace(store: Store) -> None:
    own = {"Mine / yours": [{"modules": ["blocks.0"]}]}
    study, result = run(store, tiny(plans=["every-block", *own], custom_plans=own))
    memories = {one.candidate.plan: one.candidate.memory for one in result.judged}
    kept = [memories["every-block"].plain, *(pair.candidate for pair in memories.values())]  # type: ignore[union-attr]
    assert len({memory.trace for memory in kept}) == 3
    assert memories["every-block"].candidate.trace == f"trace {SMALL} every-block.json.gz"  # type: ignore[union-attr]
    for memory in kept:
        data = (store.folder(study) / (memory.trace or "")).read_bytes()
        assert memory.trace_digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
        events = json.loads(gzip.decompress(data))["traceEvents"]
        assert max(e["args"]["bytes"] for e in events if e["ph"] == "C") == memory.peak_bytes
    traces = [path.name for path in store.folder(study).iterdir() if path.name.startswith("trace")]
    assert sorted(traces) == sorted(memory.trace or "" for memory in kept)


def test_what_was_run_is_on_record(store: Store) -> None:
    _, result = run(store, tiny(plans=["every-block"], seed=7, checkpoint={"rng": "ignore"}))
    reference = result.references[SMALL]
    assert reference.revisions is not None and reference.optimizer is not None
    assert reference.revisions.model == "recompute_core.workloads.gpt.Gpt"
    assert reference.optimizer.name == "AdamW"
    assert reference.optimizer.state_digest.startswith("sha256:")
    assert (reference.rng, len(reference.batch or ())) == (RngUsed(policy="ignore", seed=7), 2)
    json.dumps(result.document(), allow_nan=False)


def test_a_parity_without_the_way_back_is_done_again_before_anything_more_is_measured(
    store: Store,
) -> None:
    """As an earlier version left it, interrupted before the times were taken."""
    study, _ = run(store, tiny(plans=["every-block"]))
    proof = cells_of(store, study)[SMALL, "every-block", "parity"].payload
    assert proof is not None
    assert proof.pop("rollback")["bitwise"] is True
    store.finish_cell(study, SMALL, "every-block", "parity", proof)
    drive(store, study)  # all is measured: it stays as it is
    assert cells_of(store, study)[SMALL, "every-block", "parity"].payload == proof
    store.forget_cell(study, SMALL, "every-block", "time")
    drive(store, study)
    assert store.study(study).status == "done"
    again = cells_of(store, study)[SMALL, "every-block", "parity"].payload
    assert again is not None
    assert again["rollback"]["bitwise"] is True


def test_a_lost_reference_is_made_again(store: Store) -> None:
    study, first = run(store, tiny(plans=["every-block"]))
    (store.folder(study) / f"reference {SMALL}.safetensors").unlink()
    drive(store, study)
    again = assemble(store.study(study), store.cells(study))
    assert again.references[SMALL].digest == first.references[SMALL].digest
    assert (store.folder(study) / f"reference {SMALL}.safetensors").exists()


# --- workers that come to grief -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saboteur", "phase", "says"),
    [
        (saboteurs.killed_in_memory, "memory", "the worker was killed (signal 9"),
        (saboteurs.out_of_memory_in_memory, "memory", "out of memory: no more of it"),
        (saboteurs.terminated_in_time, "time", "the worker died of signal 15 (SIGTERM)"),
    ],
    ids=["killed", "out of memory", "terminated"],
)
def test_a_worker_that_dies_costs_its_own_cell(
    store: Store,
    workers: list[int],
    monkeypatch: pytest.MonkeyPatch,
    saboteur: Any,
    phase: str,
    says: str,
) -> None:
    monkeypatch.setattr(local_engine, "_child", saboteur)
    study, result = run(store, tiny(plans=["every-block"]))
    cells = cells_of(store, study)
    failed = {key: cell for key, cell in cells.items() if cell.state != "done"}
    assert list(failed) == [(SMALL, "every-block", phase)]
    (cell,) = failed.values()
    assert cell.state == "failed"
    assert cell.reason is not None
    assert cell.reason.startswith(says)
    # The study went on: the other cost of the same candidate is there.
    other = {"memory": "time", "time": "memory"}[phase]
    assert cells[SMALL, "every-block", other].state == "done"  # type: ignore[index]
    assert (store.study(study).status, store.study(study).verdict) == ("incomplete", "undecided")
    candidate = result.judged[0].candidate
    assert isinstance(candidate, Proven)
    assert says in (candidate.failure or "")
    assert not [pid for pid in workers if alive(pid)]


def test_a_worker_that_dies_before_parity_leaves_no_figure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "_child", saboteurs.killed_in_parity)
    study, result = run(store, tiny(plans=["every-block"]))
    assert {cell.phase for cell in store.cells(study)} == {
        "reference",
        "noise",
        "legality",
        "canary",
        "parity",
    }
    candidate = result.judged[0].candidate
    assert isinstance(candidate, Refused)
    assert candidate.stopped_by == "failure"
    assert_no_figure(store, study)


@pytest.mark.parametrize(
    ("saboteur", "says"),
    [
        (saboteurs.leaves_in_canary, "the worker ended with exit code 3 and no result"),
        (saboteurs.dies_at_once, "the worker ended with exit code 7 and no result"),
        (saboteurs.babbles, "the worker said something unreadable"),
    ],
    ids=["leaves", "dies at once", "babbles"],
)
def test_a_worker_that_makes_no_sense(
    store: Store, workers: list[int], monkeypatch: pytest.MonkeyPatch, saboteur: Any, says: str
) -> None:
    monkeypatch.setattr(local_engine, "_child", saboteur)
    study, _ = run(store, tiny(plans=["every-block"]))
    reasons = [cell.reason for cell in store.cells(study) if cell.state == "failed"]
    assert len(reasons) == 1
    assert (reasons[0] or "").startswith(says)
    assert store.study(study).status == "incomplete"
    assert not [pid for pid in workers if alive(pid)]


@pytest.mark.parametrize(("deaths", "status"), [(1, "done"), (2, "incomplete")])
def test_a_fork_server_that_is_killed_as_it_starts_a_worker(
    store: Store, monkeypatch: pytest.MonkeyPatch, deaths: int, status: str
) -> None:
    real, left = forkserver.read_signed, [deaths]

    def killed(descriptor: int) -> int:
        if left[0]:
            left[0] -= 1
            raise EOFError("unexpected EOF")
        return real(descriptor)

    monkeypatch.setattr(forkserver, "read_signed", killed)
    spec = tiny(plans=["every-block"])
    if status == "done":
        study, _ = run(store, spec)
    else:
        study = store.create(spec)
        with pytest.raises(EngineError, match="the process that starts workers ended twice"):
            drive(store, study)
    assert store.study(study).status == status
    assert left == [0]


def test_a_worker_that_hangs_is_stopped(
    store: Store, workers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "_child", saboteurs.stops_in_time)
    study, _ = run(store, tiny(plans=["every-block"], silence_s=6))
    cell = cells_of(store, study)[SMALL, "every-block", "time"]
    assert (cell.state, cell.reason) == (
        "failed",
        "the worker said nothing for 6 s and was stopped",
    )
    assert cell.seconds is not None
    assert cell.seconds >= 5.9
    assert store.study(study).status == "incomplete"
    assert not [pid for pid in workers if alive(pid)]


def test_an_incomplete_study_is_completed_by_driving_it_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as sabotage:
        sabotage.setattr(local_engine, "_child", saboteurs.killed_in_memory)
        study, _ = run(store, tiny(plans=["every-block"]))
    before = done(store, study)
    drive(store, study)
    after = done(store, study)
    assert {key: after[key] for key in before} == before
    assert set(after) - set(before) == {(SMALL, "every-block", "memory")}
    assert (store.study(study).status, store.study(study).verdict) == ("done", "adopt")


# --- cancelling -----------------------------------------------------------------------------------


def test_cancelled_it_ends_at_once_and_can_be_resumed(
    store: Store, workers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, asked = store.create(tiny(plans=["every-block"])), []

    def listener(kind: str, key: CellKey | None, data: dict[str, Any]) -> None:
        if kind == "start" and key is not None and key[2] == "canary" and not asked:
            asked.append(time.monotonic())
            store.ask_cancel(study)

    with monkeypatch.context() as sabotage:
        sabotage.setattr(local_engine, "_child", saboteurs.sleeps_in_canary)
        with pytest.raises(Cancelled, match=f"study {study} was cancelled; 'resume {study}' goes on"):
            drive(store, study, listener=listener)
    assert time.monotonic() - asked[0] < 5
    assert not [pid for pid in workers if alive(pid)]
    assert (store.study(study).status, store.study(study).verdict) == ("cancelled", None)
    assert not machine_lock().is_held()
    assert not store.driver_lock(study).is_held()
    before = done(store, study)
    assert {key[2] for key in before} == {"reference", "noise", "legality"}
    assert {cell.state for cell in store.cells(study)} == {"done"}, "nothing runs any more"
    drive(store, study)
    assert store.study(study).status == "done"
    assert {key: done(store, study)[key] for key in before} == before


def test_control_c_cancels(store: Store, workers: list[int]) -> None:
    study = store.create(tiny(plans=["every-block"]))

    def listener(kind: str, key: CellKey | None, data: dict[str, Any]) -> None:
        if kind == "done":
            raise KeyboardInterrupt

    with pytest.raises(Cancelled):
        drive(store, study, listener=listener)
    assert store.study(study).status == "cancelled"
    assert [key[2] for key in done(store, study)] == ["reference"]
    assert not [pid for pid in workers if alive(pid)]


def test_cancelled_before_its_driver_got_so_far(store: Store, workers: list[int]) -> None:
    """Between the click that launches and a driver that listens lie seconds."""
    study = store.create(tiny(plans=["every-block"]))
    store.ask_cancel(study)
    with pytest.raises(Cancelled):
        drive(store, study)
    assert store.study(study).status == "cancelled"
    assert workers == []
    drive(store, study)  # asked for again, it runs
    assert store.study(study).status == "done"


# --- several drivers ------------------------------------------------------------------------------


def test_two_drivers_on_one_study(store: Store) -> None:
    study = store.create(tiny())
    lock = store.driver_lock(study)
    assert lock.acquire()
    for start in (lambda: drive(store, study), lambda: launch.resume(store, study)):
        with pytest.raises(InputError, match=f"study {study} is being driven by another process") as e:
            start()
        assert "\n" not in str(e.value)
    assert store.cells(study) == []
    assert lock.is_held()
    lock.release()


def test_a_finished_study_is_not_resumed(store: Store) -> None:
    study = store.create(tiny())
    store.conclude(study, "done", "adopt", "Adopt it.")
    with pytest.raises(InputError, match=f"study {study} is done; there is nothing to resume"):
        launch.resume(store, study)
    with pytest.raises(InputError, match="no study 'nobody'"):
        launch.resume(store, "nobody")


def test_what_cannot_be_admitted_is_not_created(store: Store) -> None:
    with pytest.raises(InputError, match=r"plans\[1\]: plan 'blocks:7'"):
        launch.launch(store, tiny(plans=["every-block", "blocks:7"]))
    with pytest.raises(InputError, match=r"shapes\[0\] .* this machine has"):
        launch.launch(store, tiny(workload={"seq_len": 2**31 - 1, "batch": 2**31 - 1}))
    assert store.studies() == []


def test_the_second_of_two_studies_waits_for_the_first(store: Store) -> None:
    """The first in a driver of its own, as the page starts it; the second in this process."""
    first = launch.launch(store, tiny(plans=["every-block"]))
    second = store.create(tiny(plans=["every-block"]))
    heard: list[tuple[str, dict[str, Any]]] = []
    seen: list[tuple[str, str]] = []

    def listener(kind: str, key: CellKey | None, data: dict[str, Any]) -> None:
        heard.append((kind, data))
        if kind == "queued" and not seen:
            seen.append((store.study(first).status, store.study(second).status))

    drive(store, second, listener=listener)
    assert heard[0] == ("queued", {"ahead": 1})
    assert seen[0][0] in ("queued", "running")
    assert seen[0][1] == "queued"
    for study in (first, second):
        assert store.study(study).status == "done", log_of(store, first)
        assert store.study(study).verdict == "adopt"

    def moments(study: str) -> list[float]:
        return [event.at for event in store.events(study) if event.phase is not None]

    assert max(moments(first)) < min(moments(second))
    assert eventually(lambda: not drivers_of(first), 10)


# --- kill -9 --------------------------------------------------------------------------------------


def test_a_killed_driver_loses_no_finished_cell(store: Store) -> None:
    spec = tiny(shapes=[{"seq_len": 16}, {"seq_len": 32}], plans=["every-block"])
    study = launch.launch(store, spec)
    assert store.study(study).status in ("queued", "running")
    assert eventually(lambda: len(done(store, study)) >= 4), log_of(store, study)
    (driver,) = drivers_of(study)
    family = [process.pid for process in driver.children(recursive=True)]
    assert family
    before = done(store, study)
    end(driver)

    assert eventually(lambda: not [pid for pid in family if alive(pid)], 20)
    assert store.study(study).status == "interrupted"
    assert not machine_lock().is_held()
    kept = done(store, study)
    assert {key: kept[key] for key in before} == before
    assert len(kept) < 16

    launch.resume(store, study)
    assert store.study(study).status in ("queued", "running")
    assert eventually(lambda: store.study(study).ended), log_of(store, study)
    assert (store.study(study).status, store.study(study).verdict) == ("done", "adopt")
    after = done(store, study)
    assert {key: after[key] for key in kept} == kept  # started_at and seconds included
    assert len(after) == len(store.cells(study)) == 16
    assert eventually(lambda: not drivers_of(study), 10)


# --- several places -------------------------------------------------------------------------------


class _Two(local_engine.LocalEngine):
    """This machine as if it had two places."""

    places = 2


def test_with_two_places_what_waits_for_nothing_is_done_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [{"seq_len": 16}, {"seq_len": 32}]
    _, one_by_one = run(store, tiny(shapes=shapes))
    monkeypatch.setattr(driver, "engine_for", lambda spec, log: _Two(log))
    study, at_once = run(store, tiny(shapes=shapes))
    began = [event for event in store.events(study) if event.kind in ("start", "done")]
    beside = [
        (a.shape_key, b.shape_key)
        for a, b in pairwise(began)
        if a.kind == b.kind == "start" and (a.shape_key, a.plan) != (b.shape_key, b.plan)
    ]
    assert beside, "no two were begun before one had ended"
    assert len(done(store, study)) == 24
    assert (at_once.verdict, one_by_one.verdict) == ("adopt", "adopt")
    assert _exact(at_once) == _exact(one_by_one)


def _exact(result: StudyResult) -> list[Any]:
    """What does not depend on time."""
    found = [judged.candidate for judged in result.judged]
    assert all(isinstance(one, Measured) for one in found)
    return [(one.plan, one.shape_key, one.parity, one.memory.ratio, one.flops) for one in found]  # type: ignore[union-attr]


def test_cells_of_one_study_are_of_one_environment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two references that begin at once have nothing to be compared with but each other."""
    monkeypatch.setattr(driver, "engine_for", lambda spec, log: _Two(log))
    monkeypatch.setattr(local_engine, "_child", saboteurs.says_another_environment_at_32)
    study, _ = run(store, tiny(shapes=[{"seq_len": 16}, {"seq_len": 32}]))
    failed = [cell for cell in store.cells(study) if cell.state == "failed"]
    assert [(cell.phase, cell.plan) for cell in failed] == [("reference", "none")]
    assert failed[0].reason is not None
    assert failed[0].reason.startswith("this study began with torch ")
    assert store.study(study).status == "incomplete"


class _None(local_engine.LocalEngine):
    """A cluster whose nodes are all gone."""

    places = 0


def test_a_study_that_nothing_takes_is_not_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "engine_for", lambda spec, log: _None(log))
    monkeypatch.setattr(driver, "_NO_PLACE_S", 0.5)
    study = store.create(tiny())
    with pytest.raises(EngineError, match="nothing has taken what is left for 0 s"):
        drive(store, study)
    assert (store.study(study).status, store.cells(study)) == ("incomplete", [])
    monkeypatch.undo()


def test_a_record_that_cannot_be_read_again_is_a_failed_cell(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "_child", saboteurs.says_a_record_that_is_none)
    study, _ = run(store, tiny(plans=["every-block"]))
    (cell,) = store.cells(study)
    assert (cell.phase, cell.state) == ("reference", "failed")
    assert "something unreadable" in (cell.reason or "")


DRIVE = """
import sys
from recompute_core.studies import driver, local_engine, store
from tests.core import saboteurs
local_engine._child = saboteurs.sleeps_in_canary
driver.drive(store.Store(), sys.argv[1])
"""


def test_a_killed_drivers_worker_ends_in_the_middle_of_its_work(store: Store) -> None:
    """It would sleep for ten minutes more."""
    study = store.create(tiny(plans=["every-block"]))
    with subprocess.Popen(
        [sys.executable, "-c", DRIVE, study],
        cwd=ROOT,
        env=os.environ | {"RECOMPUTE_HOME": str(store.home)},
    ) as driver:
        canary = (SMALL, "every-block", "canary")
        assert eventually(lambda: canary in cells_of(store, study))
        family = [one.pid for one in psutil.Process(driver.pid).children(recursive=True)]
        driver.kill()
    assert len(family) >= 2  # the fork server and the worker
    assert eventually(lambda: not [pid for pid in family if alive(pid)], 10)
    assert cells_of(store, study)[canary].state == "running"  # type: ignore[index]
    assert store.study(study).status == "interrupted"
    assert not machine_lock().is_held()


# --- nothing without parity -----------------------------------------------------------------------

FIGURES = (b"peak_samples", b"peak_bytes", b"saved_bytes", b"plain_s", b"ratio_median")


def assert_no_figure(store: Store, study: str) -> None:
    """Neither in the cells and events nor anywhere in the store's own files."""
    assert not [cell for cell in store.cells(study) if cell.phase in ("memory", "time")]
    assert not [event for event in store.events(study) if event.kind == "pair"]
    files = [file for file in store.home.iterdir() if file.is_file()]
    assert store.path in files
    content = b"".join(file.read_bytes() for file in files)
    assert b"reference" in content
    assert not [name for name in FIGURES if name in content]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A user's own folder of eight small photos."""
    folder = tmp_path / "photos"
    folder.mkdir()
    draws = np.random.default_rng(0)
    labels = ["ok", "blurry", "faint", "glare", "cutoff", "torn", "torn", "ok"]
    lines = ["image_path,receipt_id,label,split"]
    for index, label in enumerate(labels):
        pixels = draws.integers(0, 256, (32, 32), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
        split = "validation" if index >= 6 else "train"
        lines.append(f"{index}.png,r{index},{label},{split}")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    return folder


def on(photos: Path, **settings: Any) -> dict[str, Any]:
    sizes = {"blocks": 2, "width": 24, "heads": 2, "height": 32, "image_width": 32, "batch": 4}
    return {"name": "receipts", "images": str(photos), "dropout": 0.5} | sizes | settings


def test_dropout_without_its_random_state_fails_parity(store: Store, photos: Path) -> None:
    spec = tiny(workload=on(photos), plans=["every-block"], checkpoint={"rng": "ignore"})
    study, result = run(store, spec)
    candidate = result.judged[0].candidate
    assert isinstance(candidate, Refused)
    assert candidate.stopped_by == "parity", candidate
    assert candidate.parity is not None
    names = {f"{gap.part} {gap.name}" for gap in candidate.parity.failed}
    assert "rng torch" in names
    assert any(name.startswith("grad blocks.0.") for name in names)
    assert (result.verdict, store.study(study).status) == ("keep_original", "done")
    assert_no_figure(store, study)


def test_batch_norm_in_the_blocks_is_refused_by_name(store: Store, photos: Path) -> None:
    study, result = run(store, tiny(workload=on(photos, norm="batch"), plans=["every-block"]))
    candidate = result.judged[0].candidate
    assert isinstance(candidate, Refused)
    assert candidate.stopped_by == "legality"
    assert "blocks.0" in candidate.reasons[0]
    assert (result.verdict, store.study(study).status) == ("keep_original", "done")
    assert "blocks.0" in result.sentence
    assert_no_figure(store, study)


def test_dropout_with_its_random_state_passes(store: Store, photos: Path) -> None:
    spec = tiny(workload=on(photos), plans=["every-block"])
    _, result = run(store, spec)
    candidate = result.judged[0].candidate
    assert isinstance(candidate, Measured)
    assert candidate.parity.bitwise
    assert {one.conditions[0].code for one in candidate.legality} == {"rng_preserved"}


def test_a_missed_canary_stops_the_study(store: Store) -> None:
    loose = {"gradient_gap": 1e9, "relative_gap": 0.99, "peak_ratio": 1, "update_ratio": 100}
    study, result = run(store, tiny(thresholds=loose))
    assert (result.verdict, store.study(study).status) == ("undecided", "incomplete")
    assert {cell.plan for cell in store.cells(study)} == {"none", "every-block"}
    assert_no_figure(store, study)


def test_a_blocks_canary_runs_once_a_study(store: Store) -> None:
    study, _ = run(store, tiny(plans=["every-block", "blocks:1", "blocks:0"], shapes=[{}, {"batch": 3}]))
    ran_at = {
        (cell.shape_key, cell.plan): (cell.payload or {})["ran_at"]
        for cell in store.cells(study)
        if cell.phase == "canary"
    }
    own = {(SMALL, "every-block"), (SMALL, "blocks:1")}
    assert len(ran_at) == 6
    assert ran_at == {key: None if key in own else SMALL for key in ran_at}


def test_a_plan_given_as_data_is_measured(store: Store) -> None:
    own = {"as one": [{"modules": ["blocks.0", "blocks.1"]}], "parts": [{"modules": ["blocks.1.mlp"]}]}
    study, result = run(store, tiny(plans=["every-block", *own], custom_plans=own))
    assert (result.verdict, store.study(study).status) == ("adopt", "done")
    every, as_one, parts = (one.candidate for one in result.judged)
    assert isinstance(every, Measured) and isinstance(as_one, Measured) and isinstance(parts, Measured)
    assert as_one.regions == (Region(modules=("blocks.0", "blocks.1")),)
    assert (as_one.blocks, parts.blocks) == (("blocks.0", "blocks.1"), ("blocks.1",))
    assert as_one.block_calls["candidate"] == {"blocks.0": 2, "blocks.1": 2}
    assert parts.block_calls["candidate"] == {"blocks.0": 1, "blocks.1": 1}
    assert as_one.memory.candidate.saved_bytes < every.memory.candidate.saved_bytes
    # The first breaks blocks.0 as every-block does; for a part of blocks.1 the whole block is broken.
    assert (as_one.canary.block, as_one.canary.ran_at) == ("blocks.0", SMALL)
    assert (parts.canary.block, parts.canary.ran_at) == ("blocks.1", None)
    assert len({one.plan_hash for one in (every, as_one, parts)}) == 3


def test_a_module_that_is_not_there_fails_its_plan_alone(store: Store) -> None:
    own = {"gone": [{"modules": ["blocks.0.gone"]}]}
    study, result = run(store, tiny(plans=["gone", "blocks:1"], custom_plans=own))
    assert store.study(study).status == "incomplete"
    gone, other = (one.candidate for one in result.judged)
    assert isinstance(gone, Refused) and isinstance(other, Measured)
    why = "plan: the model has no module 'blocks.0.gone'"
    assert gone.failure == f"parity could not be completed: {why}"


def test_a_study_in_bfloat16(store: Store) -> None:
    _, full = run(store, tiny(plans=["every-block"]))
    study, half = run(store, tiny(plans=["every-block", "torchtitan-selective"], precision="bfloat16"))
    assert store.study(study).status == "done"
    found, selective = (one.candidate for one in half.judged)
    wide = full.judged[0].candidate
    assert isinstance(found, Measured) and isinstance(selective, Measured) and isinstance(wide, Measured)
    assert found.parity.bitwise and selective.parity.bitwise
    # Token ids and AdamW's step counts keep their size.
    ids, steps = 2 * 8 * 2 * 16, 4 * full.references[SMALL].tensors
    twice = 2 * found.memory.plain.state_bytes
    assert wide.memory.plain.state_bytes < twice <= wide.memory.plain.state_bytes + ids + steps
    assert half.document()["spec"]["precision"] == "bfloat16"
    assert half.references[SMALL].flops == full.references[SMALL].flops


def test_a_driver_does_not_load_torch() -> None:
    code = (
        "import sys; from recompute_core.studies import driver, launch, assemble, forecast;"
        "print('torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (answer.stdout.strip(), answer.stderr) == ("False", "")
