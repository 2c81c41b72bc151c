"""Studies on a Ray cluster: the same findings, streamed; a node that is killed costs its own cells."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from recompute_core.errors import Cancelled, EngineError
from recompute_core.results import StudyResult
from recompute_core.spec import StudySpec, parse_spec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.driver import drive
from recompute_core.studies.flow import CellKey
from recompute_core.studies.store import Cell, Store
from tests.cluster.conftest import Nodes

ROOT = Path(__file__).parents[2]
QUICK = [
    "--preset=quick",
    # Two nodes that share two cores disturb each other: what is compared here is not how long it takes.
    *("--set", "timing.min_pairs=3", "--set", "timing.max_pairs=3", "--set", "timing.budget_s=0"),
    *("--set", "thresholds.update_ratio=100"),
]
TINY: dict[str, Any] = {
    "engine": "ray",
    "workload": {"blocks": 2, "width": 32, "heads": 2, "vocab": 17, "seq_len": 16, "batch": 2},
    "shapes": [{"seq_len": 16}, {"seq_len": 32}],
    "plans": ["every-block", "blocks:1"],
    "thresholds": {"peak_ratio": 1, "update_ratio": 100},
    "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
    "threads": 1,
}


def tiny(**changes: Any) -> StudySpec:
    return parse_spec(TINY | changes)


def command(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recompute_core", *arguments],
        cwd=ROOT,
        env=os.environ | {"RECOMPUTE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=400,
    )


def eventually(condition: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)
    return found


def workers() -> list[int]:
    """Process ids of the workers' commands on this machine."""
    name = "recompute_core.studies.worker_command"
    return [p.pid for p in psutil.process_iter(["cmdline"]) if name in (p.info["cmdline"] or ())]


def cells_of(store: Store, study: str) -> dict[CellKey, Cell]:
    return {(cell.shape_key, cell.plan, cell.phase): cell for cell in store.cells(study)}


def result_of(store: Store, study: str) -> StudyResult:
    return assemble(store.study(study), store.cells(study))


def costs(document: dict[str, Any]) -> list[Any]:
    """What does not depend on how busy the machine was."""
    known = ("plan", "plan_hash", "shape", "blocks", "legality", "parity", "flops", "block_calls")
    return [
        {
            **{name: one[name] for name in known},
            "verdict": one["verdict"],
            "bytes": {
                side: {name: one["memory"][side][name] for name in BYTES} for side in one["memory"]
            },
            "gates": [(gate["id"], gate["outcome"]) for gate in one["gates"]],
        }
        for one in document["candidates"]
    ]


BYTES = ("saved_bytes", "naive_saved_bytes", "state_bytes", "peak_bytes", "peak_samples", "peak_at")


@pytest.fixture
def two(nodes: Nodes) -> Nodes:
    nodes.add("one", num_cpus=1)
    nodes.add("two", num_cpus=1)
    return nodes


def test_the_quick_study_is_the_same_on_a_cluster(two: Nodes, store: Store, tmp_path: Path) -> None:
    """And of what the local engine finds nothing is missing: reference, trace, log of the workers."""
    files = {engine: tmp_path / f"{engine}.json" for engine in ("local", "ray")}
    seen: list[tuple[str, str]] = []
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=(store, seen, over))
    watching.start()
    for engine, file in files.items():
        where = ("--engine", "ray", "--address", two.address) if engine == "ray" else ()
        ran = command("study", *QUICK, *where, "--json", str(file), home=store.home)
        assert ran.returncode == 0, ran.stderr[-2000:]
    over.set()
    watching.join()
    local, ray = (json.loads(file.read_text()) for file in files.values())
    assert costs(ray) == costs(local)
    assert (ray["verdict"], local["verdict"]) == ("adopt", "adopt")
    assert ray["environment"] == local["environment"] | {"engine": "ray"}
    assert ray["spec"] == local["spec"] | {"engine": "ray"}
    of_ray, of_local = (store.folder(one["study_id"]) for one in (ray, local))
    assert {path.name for path in of_ray.iterdir()} == {path.name for path in of_local.iterdir()}
    # A pair was in the store while its cell had not ended: events stream.
    assert any(kind == "pair" and state == "running" for kind, state in seen)
    placed = [event for event in store.events(ray["study_id"]) if event.kind == "placed"]
    assert {event.data["node_id"] for event in placed} == {node.node_id for node in two.extra}
    eventually(lambda: not workers(), 20)


def _watch(store: Store, seen: list[tuple[str, str]], over: threading.Event) -> None:
    """What the newest event of a study on Ray is, and the state of its cell."""
    while not over.wait(0.1):
        for row in store.live():
            events = store.events(row.id) if row.spec.engine == "ray" else []
            if events and (key := (events[-1].shape_key, events[-1].plan, events[-1].phase)):
                cell = cells_of(store, row.id).get(key)  # type: ignore[call-overload]
                seen.append((events[-1].kind, cell.state if cell else ""))


def test_a_killed_node_costs_the_cells_it_held_and_resume_does_them(two: Nodes, store: Store) -> None:
    study = store.create(tiny())
    lost: list[CellKey] = []
    lost_node = two.extra[-1].node_id

    def kill_in_the_middle(kind: str, cell: CellKey | None, data: dict[str, Any]) -> None:
        if kind == "placed" and data["node_id"] == lost_node and cell and not lost:
            lost.append(cell)
            two.kill()

    drive(store, study, listener=kill_in_the_middle)
    assert store.study(study).status == "incomplete"
    cells = cells_of(store, study)
    failed = {key: cell for key, cell in cells.items() if cell.state == "failed"}
    assert list(failed) == lost, [(key, one.reason) for key, one in failed.items()]
    (cell,) = failed.values()
    assert cell.reason is not None
    assert "was lost" in cell.reason
    assert "the node" in cell.reason
    others = {key: cell for key, cell in cells.items() if cell.state == "done"}
    assert any(key[2] == "time" for key in others)  # the other node went on to the end

    drive(store, study)  # on the node that is left
    again = cells_of(store, study)
    assert store.study(study).status == "done"
    assert {key: again[key] for key in others} == others  # nothing was done twice
    assert len(again) == len([cell for cell in again.values() if cell.state == "done"]) == 24
    assert result_of(store, study).verdict == "adopt"
    eventually(lambda: not workers(), 20)


def test_a_worker_that_is_killed_fails_its_cell_alone(two: Nodes, store: Store) -> None:
    study = store.create(tiny(shapes=[{"seq_len": 16}], plans=["every-block"]))
    killed: list[CellKey] = []

    def kill(kind: str, cell: CellKey | None, data: dict[str, Any]) -> None:
        if kind == "start" and cell and cell[2] == "memory" and cell[1] == "every-block" and not killed:
            killed.append(cell)
            parents = {pid: psutil.Process(pid).environ()["TMPDIR"] for pid in workers()}
            for pid in parents:
                os.kill(pid, signal.SIGKILL)

    drive(store, study, listener=kill)
    failed = {key: one for key, one in cells_of(store, study).items() if one.state == "failed"}
    assert killed[0] in failed
    assert all("signal 9" in (one.reason or "") for one in failed.values())
    assert store.study(study).status == "incomplete"


def test_a_cancelled_study_leaves_no_worker_on_any_node(two: Nodes, store: Store) -> None:
    study = store.create(tiny())

    def cancel(kind: str, cell: CellKey | None, data: dict[str, Any]) -> None:
        if kind == "start" and cell and cell[2] == "parity":
            store.ask_cancel(study)

    with pytest.raises(Cancelled):
        drive(store, study, listener=cancel)
    eventually(lambda: not workers(), 20)
    assert store.study(study).status == "cancelled"


def test_a_killed_driver_leaves_no_worker_and_resume_goes_on(two: Nodes, store: Store) -> None:
    study = store.create(tiny(shapes=[{"seq_len": 16}], plans=["every-block"]))
    with subprocess.Popen(
        [sys.executable, "-m", "recompute_core", "resume", study],
        cwd=ROOT,
        env=os.environ | {"RECOMPUTE_HOME": str(store.home)},
        stderr=subprocess.DEVNULL,
    ) as driver:
        eventually(lambda: any(key[2] == "canary" for key in cells_of(store, study)))
        driver.kill()
    assert store.study(study).status == "interrupted"
    eventually(lambda: not workers(), 20)
    kept = {key: cell for key, cell in cells_of(store, study).items() if cell.state == "done"}
    went_on = command("resume", study, "--address", two.address, home=store.home)
    assert went_on.returncode == 0, went_on.stderr[-2000:]
    after = cells_of(store, study)
    assert {key: after[key] for key in kept} == kept


def test_a_gpu_that_is_promised_and_not_there_fails_its_cells(nodes: Nodes, store: Store) -> None:
    """The device got is compared with the device asked for."""
    nodes.add("gpu", num_cpus=2, num_gpus=1)
    study = store.create(tiny(shapes=[{"seq_len": 16}], plans=["every-block"]))
    drive(store, study)
    (cell,) = store.cells(study)
    assert (cell.phase, cell.state) == ("reference", "failed")
    assert cell.reason == "device: no cuda on this machine (accelerator here: none)"


def test_a_cluster_without_what_is_asked_for_is_one_line(nodes: Nodes, store: Store) -> None:
    study = store.create(tiny(device="cuda"))
    with pytest.raises(EngineError, match="has no node with 1 GPU for a cell"):
        drive(store, study)
    row = store.study(study)
    assert (row.status, store.cells(study)) == ("incomplete", [])
    assert "has no node with 1 GPU" in row.sentence


def test_a_cluster_that_no_longer_answers_is_one_line_and_no_verdict(
    two: Nodes, store: Store, tmp_path: Path
) -> None:
    """Ray itself would end the driver after a minute, with the exit code of a verdict."""
    study, address = store.create(tiny()), two.address
    said = (tmp_path / "said").open("w+")
    with (
        said,
        subprocess.Popen(
            [sys.executable, "-m", "recompute_core", "resume", study, "--json", "-"],
            cwd=ROOT,
            env=os.environ | {"RECOMPUTE_HOME": str(store.home)},
            stdout=subprocess.PIPE,
            stderr=said,
        ) as driver,
    ):
        eventually(lambda: any(cell.state == "done" for cell in store.cells(study)))
        two.cluster.head_node.kill_gcs_server()
        assert driver.communicate(timeout=120)[0] == b""
        assert driver.returncode == 4, (said.seek(0), said.read()[-3000:])
        said.seek(0)
        last = said.read().strip().splitlines()[-1]
    assert last == f"error: the Ray cluster at {address} no longer answers"
    row = store.study(study)
    assert (row.status, row.sentence) == ("incomplete", last.removeprefix("error: "))
    assert any(cell.state == "done" for cell in store.cells(study))
