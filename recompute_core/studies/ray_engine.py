"""The Ray engine: each task on a GPU, or on a node, of a Ray cluster of its own. Imports Ray.

A task is one Ray task, never run again by Ray, in a Ray worker that ends with it. Ray carries this very
package to the nodes; torch and the other requirements must be there, all in the same versions, which the
study's environment record checks. A node of GPUs takes a task a GPU (of ranks, a GPU a rank), another
node one task at a time.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private import services
from ray.exceptions import (
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..errors import EngineError, StoreError
from ..spec import Device
from ..words import count
from ..workloads.registered import VARIABLE
from ..writing import open_log
from . import ray_node
from .engine import Garbled
from .engines import answers
from .worker import Assignment

_PACKAGE = Path(__file__).parents[1]
_GONE_S = 10.0
_ASK_S, _LOST_S = 3.0, 12.0
_FATE_S = 60.0
"""After so long Ray has noticed that a node is dead."""


@dataclass(frozen=True)
class _Node:
    """What a node of the cluster has, as Ray knows it."""

    id: str
    address: str
    cpus: int
    gpus: int


class RayEngine:
    """Starts workers on a Ray cluster."""

    def __init__(self, address: str, device: Device, gpus: int, log: Path) -> None:
        """Connect; raises EngineError when the cluster cannot be used or lacks what is asked for. `gpus`
        are those of one task, where it has any."""
        self._log = log
        self._gpus = gpus
        self._references: dict[Path, list[Any]] = {}
        self._workers: list[RayWorker] = []
        self._cluster = _Cluster(_connect(address))
        nodes = self._cluster.nodes()
        self._with_gpu = device in ("cuda", "xpu") or (device == "auto" and any(n.gpus for n in nodes))
        if not self.places:
            wanted = count(gpus, "GPU") if self._with_gpu else "a CPU"
            self.close()
            raise EngineError(f"the Ray cluster at {address} has no node with {wanted} for a cell")

    @property
    def places(self) -> int:
        """A GPU each; without, a node each."""
        if self._with_gpu:
            return sum(node.gpus // self._gpus for node in self._cluster.nodes())
        return len(self._whole_nodes())

    def start(self, assignment: Assignment) -> "RayWorker | None":
        """Begin a task; its lines arrive through the worker. None where the free node is gone."""
        node = None
        options: dict[str, Any]
        if self._with_gpu:
            options = {"num_gpus": self._gpus, "num_cpus": self._share()}
        else:
            node = self._free_node()
            if node is None:
                return None
            alone = NodeAffinitySchedulingStrategy(node.id, soft=False)
            options = {"num_cpus": node.cpus, "scheduling_strategy": alone}
        remote = ray.remote(max_calls=1, max_retries=0, num_returns="streaming", **options)(ray_node.do)
        device = assignment.spec.device
        if device == "auto":  # what was reserved is what must be got
            device = "cuda" if self._with_gpu else "cpu"
        spec = assignment.spec.model_copy(update={"device": device})
        parts = [(path.name, self._sent(path)) for path in assignment.reads]
        said = self._cluster.in_time(
            remote.remote,
            assignment.model_copy(update={"spec": spec}).model_dump_json(),
            parts,
            os.environ.get(VARIABLE, ""),
            not self._with_gpu,
        )
        worker = RayWorker(said, node, assignment, self._log, self._cluster)
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        """Leave the cluster, if it is there to be left."""
        with suppress(EngineError):
            self._cluster.in_time(ray.shutdown)

    def _share(self) -> int:
        """CPUs that go with the GPUs of one task."""
        nodes = self._cluster.nodes()
        return max(1, min((n.cpus * self._gpus // n.gpus for n in nodes if n.gpus), default=1))

    def _free_node(self) -> _Node | None:
        taken = {one.node.id for one in self._workers if one.node is not None and not one.over}
        return next((node for node in self._whole_nodes() if node.id not in taken), None)

    def _whole_nodes(self) -> list[_Node]:
        """Nodes that take a cell each; not one whose task has just crashed, which may be dead."""
        doubtful = {
            one.node.id for one in self._workers if one.node is not None and one.has_just_crashed
        }
        return [node for node in self._cluster.nodes() if node.cpus and node.id not in doubtful]

    def _sent(self, path: Path) -> list[Any]:
        """References to the parts of a file, which is sent to the cluster once."""
        if path not in self._references:
            with path.open("rb") as file:
                parts = iter(lambda: file.read(ray_node.CHUNK), b"")
                self._references[path] = [ray.put(part) for part in parts]
        return self._references[path]


class RayWorker:
    """A task on a cluster: what it says comes as a stream of objects."""

    def __init__(
        self, said: Any, node: _Node | None, task: Assignment, log: Path, cluster: "_Cluster"
    ) -> None:
        self.node = node
        self.waiting = True
        self.over = False
        self._said = said
        self._paths = {path.name: path for path in task.writes}
        self._begun: set[str] = set()
        self._log = log
        self._cluster = cluster
        self._why = "the Ray task ended without a word"
        self._crashed_at: float | None = None

    @property
    def has_just_crashed(self) -> bool:
        """Whether what ended it, a moment ago, may have been the end of its node."""
        return self._crashed_at is not None and time.monotonic() - self._crashed_at < _FATE_S

    def lines(self, timeout_s: float) -> Iterator[bytes]:
        """The lines that arrived within `timeout_s`, files put in their place before the line that tells
        of them; EOFError once it has ended, EngineError when the cluster is gone."""
        self._cluster.must_answer()
        while ray.wait([self._said], timeout=timeout_s)[0]:
            timeout_s = 0
            try:
                kind, data, name = ray.get(next(self._said))
            except (StopIteration, RayError) as error:
                if isinstance(error, RayError):
                    self._why = self._why_failed(error)
                raise EOFError from None
            self.waiting = False
            if kind == "line":
                yield data
            elif kind == "file":
                self._put(name, data)
            elif kind == "log":
                self._write_log(data)
            else:
                self._why = name

    def _write_log(self, data: bytes) -> None:
        try:
            with os.fdopen(open_log(self._log), "ab") as log:
                log.write(data)
        except OSError as error:
            raise StoreError(f"{self._log}: cannot be written: {error.strerror}") from None

    def _put(self, name: str, part: bytes) -> None:
        """Add a part to a file that appears once it is whole, which an empty part says."""
        if name not in self._paths:
            raise Garbled(f"the node sent a file that was not asked for: {name[:80]!r}")
        path = self._paths[name]
        partial = path.with_name(f"{path.name}.partial")
        try:
            with partial.open("ab" if name in self._begun else "wb") as file:
                file.write(part)
            self._begun.add(name)
            if not part:
                self._begun.remove(name)
                partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StoreError(f"{path}: {error.strerror}") from None

    def end(self) -> str:
        """Wait until the task is gone; returns why it ended, in words."""
        if not self.over:
            ray.wait([self._said.completed()], timeout=_GONE_S)
            self.over = True
        return self._why

    def kill(self) -> None:
        """Have Ray kill the task; its worker ends with it."""
        if not self.over:
            ray.cancel(self._said, force=True)

    def _why_failed(self, error: RayError) -> str:
        where = "its node" if self.node is None else f"the node {self.node.address}"
        if isinstance(error, OutOfMemoryError):
            return f"out of memory: Ray stopped the task as {where} ran out of it"
        if isinstance(error, NodeDiedError | TaskUnschedulableError | WorkerCrashedError):
            self._crashed_at = time.monotonic()
        if isinstance(error, NodeDiedError | TaskUnschedulableError) or self._is_lost():
            return f"{where} was lost"
        if isinstance(error, WorkerCrashedError):
            return f"the Ray worker on {where} died, or the node was lost"
        cause = getattr(error, "cause", None) if isinstance(error, RayTaskError) else None
        text = " ".join(str(cause or error).split())[:200]
        return f"the Ray task on {where} failed: {type(cause or error).__name__}: {text}"

    def _is_lost(self) -> bool:
        return self.node is not None and all(node.id != self.node.id for node in self._cluster.nodes())


class _Cluster:
    """The cluster's head. Ray waits for one that is gone, and then ends the process with exit code 1,
    which is a verdict's: so whether it answers is asked first."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._answered = self._asked = time.monotonic()
        self._nodes: list[_Node] = []

    def must_answer(self) -> None:
        """Ask every few seconds; raises EngineError when there has been no answer for a while."""
        if time.monotonic() - self._asked > _ASK_S:
            self._answers()

    def nodes(self) -> list[_Node]:
        """The nodes that are alive, as they were last known while the head does not answer."""
        if self._answers():
            found = self.in_time(ray.nodes)
            self._nodes = [
                _Node(
                    id=node["NodeID"],
                    address=node["NodeManagerAddress"],
                    cpus=int(node["Resources"].get("CPU", 0)),
                    gpus=int(node["Resources"].get("GPU", 0)),
                )
                for node in found
                if node["Alive"]
            ]
        return self._nodes

    def in_time(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What a call of the head gives; raises EngineError when it waits for one that is gone."""
        answer: Future[Any] = Future()

        def ask() -> None:
            try:
                answer.set_result(call(*arguments))
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        try:
            return answer.result(_LOST_S)
        except TimeoutError:
            raise self._gone() from None

    def _answers(self) -> bool:
        silent = answers(self._address) is not None
        self._asked = time.monotonic()
        if not silent:
            self._answered = self._asked
        elif self._asked - self._answered > _LOST_S:
            raise self._gone()
        return not silent

    def _gone(self) -> EngineError:
        return EngineError(f"the Ray cluster at {self._address} no longer answers")


@contextmanager
def _stderr_closed() -> Iterator[None]:
    """While Ray's own libraries would write to it what is said in one line afterwards."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _unsaid(*_: Any, **__: Any) -> None:
    """A message of Ray's to whoever started the driver."""


def _connect(address: str) -> str:
    """Become a driver of the cluster; returns its address as HOST:PORT."""
    # It would say on standard output, which is the result's, that a node was lost: its cell says so.
    ray._private.worker.print_to_stdstream = _unsaid
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with _stderr_closed():
            # What answers there may be no cluster, which `init` would ask for minutes.
            found = services.canonicalize_bootstrap_address(address)
            ray._raylet.GcsClient(address=found)  # type: ignore[attr-defined]
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            runtime_env={"py_modules": [str(_PACKAGE)], "excludes": ["__pycache__"]},
        )
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise EngineError(
            f"the Ray cluster at {address} cannot be used: {' '.join(str(error).split())[:300]}"
        ) from None
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)  # Ray puts its own there
    return str(found)
