"""The phases of a recheck, run by a study's own workers in processes of their own.

Importing this imports no torch; the workers have it.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..plans.names import Regions
from ..processes import end_with_parent, fork_server
from ..results import Canary, Gap, Noise, Parity, Reference
from ..spec import StudySpec
from ..studies.artifacts import reference_name
from ..studies.engine import Garbled, LocalEngine, LocalWorker
from ..studies.store import Phase
from ..studies.worker import Assignment

Tell = Callable[[str], None]
"""Told what is being done, in a few words."""

_TICK_S = 0.2
_PARITY: TypeAdapter[Parity] = TypeAdapter(Parity)
_GAPS: TypeAdapter[tuple[Gap, ...]] = TypeAdapter(tuple[Gap, ...])
_WORDS: dict[Phase, str] = {
    "reference": "plain update",
    "noise": "plain update again",
    "canary": "a replay broken on purpose",
    "parity": "recomputed update, and the way back",
}


@dataclass(frozen=True)
class Asked:
    """What is to be run at one shape."""

    spec: StudySpec
    shape: dict[str, int]
    shape_key: str
    regions: Regions
    canary: str
    """FQN of the module whose replay is broken."""
    home: Path
    """RECOMPUTE_HOME, where data sets are kept."""
    folder: Path
    """An empty one, for the reference."""

    @property
    def reference(self) -> Path:
        """Where plain's update of this recheck is kept."""
        return self.folder / reference_name(self.shape_key)


@dataclass
class Ran:
    """What the phases found; None where one was not reached."""

    environment: dict[str, Any] | None = None
    reference: Reference | None = None
    noise: Noise | None = None
    canary: Canary | None = None
    parity: Parity | None = None
    failed: tuple[Phase, str] | None = None
    """The phase that could not be completed, and why in one line."""


def run_shape(asked: Asked, tell: Tell) -> Ran:
    """Plain and plain again, the canary, the plan and the way back: each update from a fresh model.

    Where one could not be completed, or the canary was missed, the later ones are not run.
    """
    found = Ran()
    _work(asked, ("reference", "noise"), found, tell)
    if found.noise is not None:
        _work(asked, ("canary",), found, tell)
    if found.canary is not None and found.canary.caught:
        _work(asked, ("parity",), found, tell)
    return found


def _work(asked: Asked, phases: tuple[Phase, ...], found: Ran, tell: Tell) -> None:
    assignment = Assignment(
        spec=asked.spec,
        shape=asked.shape,
        regions=asked.regions,
        phases=phases,
        home=asked.home,
        reference=asked.reference,
        plain=found.reference,
        environment=found.environment or {},
        noise_floor=None if found.noise is None else found.noise.largest_relative_gap,
        canary=asked.canary,
    )
    hearing = _Hearing(asked, found, tell, list(phases))
    # What it prints goes nowhere: a log would outlive a worker whose start was broken off by Ctrl-C.
    worker = LocalEngine(Path(os.devnull)).start(assignment)
    try:
        why = _follow(worker, hearing.hear, asked.spec.silence_s)
    except BaseException:
        worker.kill()
        worker.end()
        raise
    if hearing.left and found.failed is None:
        found.failed = (hearing.left[0], why)


def _follow(worker: LocalWorker, hear: Callable[[bytes], None], silence_s: float) -> str:
    """Hear a worker out until it ends; why it ended."""
    heard = time.monotonic()
    while True:
        try:
            for line in worker.lines(_TICK_S):
                heard = time.monotonic()
                hear(line)
        except EOFError:
            return worker.end()
        except Garbled as problem:
            worker.kill()
            worker.end()
            return str(problem)
        if time.monotonic() - heard > silence_s:
            worker.kill()
            worker.end()
            return f"the worker said nothing for {silence_s:.0f} s and was stopped"


@dataclass
class _Hearing:
    """Takes down what one worker says."""

    asked: Asked
    found: Ran
    tell: Tell
    left: list[Phase] = field(default_factory=list)

    def hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            self._take(said["kind"], said["phase"], said)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Garbled(f"the worker said something unreadable: {line[:80]!r}") from error

    def _take(self, kind: str, phase: Phase, said: dict[str, Any]) -> None:
        if kind == "start":
            self.tell(f"{_WORDS[phase]} at {self.asked.shape_key}")
        elif kind == "environment":
            self.found.environment = said["data"]
        elif kind == "progress":
            self.tell(f"{said['what']}: {said['percent']} %")
        elif kind == "failed":
            self.found.failed = (phase, said["reason"])
        elif kind == "done":
            self._keep(phase, said["payload"])
            self.left.remove(phase)

    def _keep(self, phase: Phase, payload: dict[str, Any]) -> None:
        if phase == "reference":
            self.found.reference = Reference.model_validate(payload)
        elif phase == "noise":
            self.found.noise = Noise.model_validate(payload)
        elif phase == "canary":
            self.found.canary = Canary.model_validate(payload)
        else:
            self.found.parity = _PARITY.validate_python(payload)


# --- exact gaps, where the recorded reference is still at hand -------------------------------


def exact_gaps(recorded: Path, digest: str, here: Path, digest_here: str) -> tuple[Gap, ...] | None:
    """Plain's update here against the recorded tensors; None where the file does not hold them."""
    if not recorded.is_file():
        return None
    context = fork_server()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_compare, args=(str(recorded), digest, str(here), digest_here, theirs), daemon=True
    )
    with _ended(process):
        theirs.close()
        try:
            said = ours.recv_bytes()
        except EOFError:
            return None
        finally:
            ours.close()
    return _GAPS.validate_json(said)


@contextmanager
def _ended(process: Any) -> Iterator[None]:
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join(10)


def _compare(recorded: str, digest: str, here: str, digest_here: str, pipe: Connection) -> None:
    """In a process of its own: says the gaps, or ends without a word."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it decides
    from ..checks.snapshot import compare, load

    try:
        gaps = compare(load(Path(recorded), digest), load(Path(here), digest_here))
    except Exception:  # another file under this name, or a damaged one
        os._exit(0)
    pipe.send_bytes(_GAPS.dump_json(gaps))
