"""What runs on a node of a Ray cluster: one task, in a worker that knows nothing of Ray.

The Ray task starts the worker's command beside itself and hands on what it says. It measures nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ..workloads.registered import VARIABLE
from .engine import LONGEST_LINE, why_ended
from .locks import machine_lock
from .worker import Assignment

Said = tuple[Literal["line", "file", "log", "ended"], bytes, str]
"""What is said, for `file` with its name: its next bytes, none when it is whole. `ended` says why in the
place of the name."""
CHUNK = 64 << 20


def do(
    assignment: str, reads: Sequence[tuple[str, Sequence[Any]]], factories: str, alone: bool
) -> Iterator[Said]:
    """Do one task: yields what its worker says, and files it made before the line that tells of them.

    `reads` are the files it needs, each by name with Ray's references to its parts. `alone`: it waits
    until nothing else is measured on this machine, as two measurements on its cores disturb each other.
    """
    import ray
    from ray.util import get_node_ip_address

    with tempfile.TemporaryDirectory(prefix="recompute-") as place, _machine(alone):
        folder = Path(place)
        for name, parts in reads:
            with (folder / name).open("wb") as file:
                for part in parts:
                    file.write(ray.get(part))
        task = Assignment.model_validate_json(assignment).moved(_home(), folder)
        here = ray.get_runtime_context()
        placed = {
            "kind": "placed",
            "phase": task.phases[0],
            "node": get_node_ip_address(),  # type: ignore[no-untyped-call]
            "node_id": here.get_node_id(),
            "gpus": [str(gpu) for gpu in ray.get_gpu_ids()],
        }
        yield "line", json.dumps(placed).encode(), ""
        writes = [path for path in task.writes if not path.exists()]
        with (folder / "worker.log").open("w+b") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "recompute_core.studies.worker_command", place],
                env=_environment(factories),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            assert worker.stdin is not None and worker.stdout is not None
            with worker:
                worker.stdin.write(task.model_dump_json().encode() + b"\n")
                worker.stdin.flush()
                while line := worker.stdout.readline(LONGEST_LINE):
                    for path in [path for path in writes if path.exists()]:
                        writes.remove(path)
                        yield from _file(path)
                    yield "line", line, ""
                    if not line.endswith(b"\n"):
                        worker.kill()
            log.seek(0)
            yield "log", log.read(CHUNK), ""
            yield "ended", b"", why_ended(worker.returncode)


def _file(path: Path) -> Iterator[Said]:
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            yield "file", part, path.name
    yield "file", b"", path.name


@contextmanager
def _machine(alone: bool) -> Iterator[None]:
    lock = machine_lock("a cell of a study on Ray")
    while alone and not lock.acquire(60):
        pass
    try:
        yield
    finally:
        lock.release()


def _home() -> Path:
    """Where this node keeps data sets that it has made."""
    own = os.environ.get("RECOMPUTE_HOME")
    return Path(own) if own else Path.home() / ".cache" / "recompute-studio"


def _environment(factories: str) -> dict[str, str]:
    """Of the worker: this very package, and nothing of Ray's."""
    left = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), left.get("PYTHONPATH"))))
    return {**left, "PYTHONPATH": path, VARIABLE: factories}
