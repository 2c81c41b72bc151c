"""What an update would keep and how high it would climb, found without allocating anything.

The real update runs on fake tensors under the real plan, while a dispatch mode counts the storages
alive. Estimated, never measured. It speaks for the kernels of the CPU; scratch that a kernel takes
inside itself (convolutions, mostly) is below any dispatch mode and is not seen.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..plans.apply import applied, happening
from ..plans.names import Regions
from ..results import Estimate, PeakParts
from ..spec import CheckpointSettings, OptimizerSettings
from ..workloads.job import Job
from ..workloads.update import (
    allocate_state,
    gradients,
    optimizer_of,
    state_tensors,
    storage_bytes,
    storage_of,
)
from .marks import BACK, BLOCK, END, PHASES, marked_blocks
from .saved import SavedBytes
from .timeline import Trace, peak_at, thin

SOURCE = "fake tensors under the CPU's kernels, every storage counted (scratch inside kernels is not)"


@dataclass(frozen=True)
class Run:
    """An estimated update with what a planner wants to know of it."""

    estimate: Estimate
    trace: Trace
    """Bytes alive above the state after each op; times are numbers of ops."""
    ops: "Ops"
    """Those of the whole update."""
    replayed: "Ops"
    """Those that ran in replays."""
    replays: int = 0
    """Calls of regions that were run again."""
    judged: int = 0
    """Ops of selective regions, in forward: torch asks a policy about each."""


class FakeUpdate:
    """A job built on fake tensors, with its optimizer: any number of plans can be estimated on it."""

    def __init__(self, build: Callable[[], Job], optimizer: OptimizerSettings) -> None:
        self.mode = FakeTensorMode()
        with self.mode:
            self.job = build()
            self._optimizer = optimizer_of(self.job, optimizer)
            allocate_state(self._optimizer)
            self._state = state_tensors(self.job, self._optimizer)
            with LiveBytes(self._state) as step:
                self._optimizer.step()
        self._step = step
        """The optimizer's step: the same under every plan, so it runs once."""
        self.state_bytes = storage_bytes(self._state)

    def run(self, regions: Regions, settings: CheckpointSettings) -> "Run":
        """One update under the plan. Raises InputError for a module that the model does not have."""
        live = LiveBytes(self._state)
        meter = SavedBytes([*self.job.model.parameters(), *self.job.inputs])
        marks: list[tuple[int, str]] = []
        with ExitStack() as forward_only:

            def mark(label: str) -> None:
                marks.append((len(live.samples), label))
                live.kind = _kind(label, live.kind)
                if label in PHASES:
                    forward_only.close()
                if label == "forward":
                    forward_only.enter_context(meter)

            with (
                self.mode,
                marked_blocks(self.job, mark),
                happening() as happened,
                applied(self.job.model, regions, settings),
                live,
            ):
                kept = gradients(self.job, self._optimizer, mark)
                mark("optimizer")
                live.go_through(self._step)
                del kept
        trace = Trace(tuple(range(len(live.samples))), tuple(live.samples), tuple(marks))
        where, timeline = peak_at(trace), thin(trace, self.state_bytes, per_second=1)
        assert where is not None, "an update allocates something"
        assert timeline is not None
        estimate = Estimate(
            source=SOURCE,
            saved_bytes=meter.distinct,
            naive_saved_bytes=meter.naive,
            parts=PeakParts(
                state=self.state_bytes,
                **{kind: live.at_peak.get(kind, 0) for kind in _KINDS},
            ),
            peak_at=where,
            timeline=timeline,
        )
        return Run(estimate, trace, live.ops, live.replayed, happened.replays.total(), happened.judged)


_KINDS = ("blocks", "outside", "backward", "optimizer")


def _kind(label: str, before: str) -> str:
    """What the storages made after a mark belong to."""
    if label in PHASES:
        return {"forward": "outside", "backward": "backward"}.get(label, "optimizer")
    if label.startswith(BLOCK):
        return "blocks"
    if label.startswith(BACK):
        return "backward"
    return "outside" if label.startswith(END) else before


Signature = tuple[str, tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]]
"""An op with the shape, strides and dtype of each tensor it is given: what its cost depends on."""
Ops = Counter[Signature]
"""Ops, and how often each ran."""


def signature(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Signature:
    """The signature of a dispatched call."""
    given = [*_tensors(args), *_tensors((kwargs or {}).values())]
    return str(func), tuple((tuple(t.shape), t.stride(), t.dtype) for t in given)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors an op is given or gives: by themselves or in a list; faster than a tree's leaves."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def is_replaying() -> bool:
    """Whether a forward is being run again: inside backward, and recording for another backward."""
    return torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled()


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, counts the bytes of storages that ops have made and that are still alive.

    Storages of the `known` tensors are there already and do not count. `alive` after every op is kept
    in `samples`; `kind` files what is made from now on under one name (what a replay makes belongs to
    `blocks`), `at_peak` says how the highest moment was made up; `ops` are all that ran,
    `replayed` those that ran in replays.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the guard against it costs every op

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = 0
        self.samples: list[int] = []
        self.kind = ""
        self.by_kind: dict[str, int] = {}
        self.at_peak: dict[str, int] = {}
        self.ops: Ops = Counter()
        self.replayed: Ops = Counter()
        self._watched: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._peak = 0
        self._known = {storage_of(tensor) for tensor in known}

    @property
    def peak(self) -> int:
        """Highest moment since the start, in bytes."""
        return self._peak

    def go_through(self, other: "LiveBytes") -> None:
        """Take in what another has counted, as if its ops were run again now."""
        before = 0
        for alive in other.samples:
            self._add(alive - before, self.kind)
            self.samples.append(self.alive)
            before = alive
        self._add(-before, self.kind)
        self.ops += other.ops

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return func(*args)
        kind, op = self.kind, signature(func, args, kwargs)
        self.ops[op] += 1
        if is_replaying():
            kind = "blocks"
            self.replayed[op] += 1
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors((result,)):
            self._watch(tensor.untyped_storage(), kind)
        self.samples.append(self.alive)
        return result

    def _watch(self, storage: torch.UntypedStorage, kind: str) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self._add(size, kind)
        self._watched[key] = weakref.ref(storage, lambda _: self._gone(key, size, kind))

    def _add(self, size: int, kind: str) -> None:
        self.alive += size
        self.by_kind[kind] = self.by_kind.get(kind, 0) + size
        if self.alive > self._peak:
            self._peak = self.alive
            self.at_peak = dict(self.by_kind)

    def _gone(self, key: int, size: int, kind: str) -> None:
        self._known.discard(key)
        del self._watched[key]
        self._add(-size, kind)
