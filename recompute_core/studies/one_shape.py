"""Parity at one shape outside a study, run by a study's own workers in processes of their own.

Importing this imports no torch; the workers have it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..plans.names import Regions
from ..results import Canary, Memory, Noise, Parity, ParityPassed, Reference
from ..spec import StudySpec
from .artifacts import reference_name
from .engine import follow
from .flow import read_record
from .local_engine import LocalEngine
from .store import Phase
from .worker import Assignment

Tell = Callable[[str], None]
"""Told what is being done, in a few words."""

_WORDS: dict[Phase, str] = {
    "reference": "plain update",
    "noise": "plain update again",
    "canary": "a replay broken on purpose",
    "parity": "recomputed update, and the way back",
    "memory": "peak of the recomputed update",
}


def _unticked() -> None:
    """Nothing that could end the work."""


@dataclass(frozen=True)
class Asked:
    """What is to be run at one shape."""

    spec: StudySpec
    shape: dict[str, int]
    shape_key: str
    regions: Regions
    canary: str
    """FQN of the module whose replay is broken."""
    budget: int | None
    """The percentage of a plan that leaves it to the compiler what is recomputed."""
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
    memory: Memory | None = None
    """Of the plan; run on request, after its parity."""
    failed: tuple[Phase, str] | None = None
    """The phase that could not be completed, and why in one line."""


def run_shape(asked: Asked, tell: Tell, tick: Callable[[], None] = _unticked) -> Ran:
    """Plain and plain again, the canary, the plan and the way back: each update from a fresh model.

    Where one could not be completed, or the canary was missed, the later ones are not run. `tick` is
    called several times a second, and what it raises ends the work.
    """
    found = Ran()
    _work(asked, ("reference", "noise"), found, tell, tick)
    if found.noise is not None:
        _work(asked, ("canary",), found, tell, tick)
    if found.canary is not None and found.canary.caught:
        _work(asked, ("parity",), found, tell, tick)
    return found


def run_memory(asked: Asked, found: Ran, tell: Tell, tick: Callable[[], None] = _unticked) -> None:
    """The plan's memory, put into `found`, whose parity must have passed."""
    _work(asked, ("memory",), found, tell, tick)


def _work(
    asked: Asked, phases: tuple[Phase, ...], found: Ran, tell: Tell, tick: Callable[[], None]
) -> None:
    assignment = Assignment(
        spec=asked.spec,
        shape=asked.shape,
        regions=asked.regions,
        budget=asked.budget,
        phases=phases,
        home=asked.home,
        reference=asked.reference,
        plain=found.reference,
        environment=found.environment or {},
        noise_floor=None if found.noise is None else found.noise.largest_relative_gap,
        canary=asked.canary,
        proof=found.parity if isinstance(found.parity, ParityPassed) else None,
    )
    hearing = _Hearing(asked, found, tell, list(phases))
    # What it prints goes nowhere: a log would outlive a worker whose start was broken off by Ctrl-C.
    worker = LocalEngine(Path(os.devnull)).start(assignment)
    why = follow(worker, hearing.hear, asked.spec.silence_s, tick)
    if hearing.left and found.failed is None:
        found.failed = (hearing.left[0], why)


@dataclass
class _Hearing:
    """Takes down what one worker says."""

    asked: Asked
    found: Ran
    tell: Tell
    left: list[Phase] = field(default_factory=list)

    def hear(self, said: dict[str, Any]) -> None:
        kind, phase = said["kind"], said["phase"]
        if kind == "start":
            self.tell(f"{_WORDS[phase]} at {self.asked.shape_key}")
        elif kind == "environment":
            self.found.environment = said["data"]
        elif kind == "progress":
            self.tell(f"{said['what']}: {said['percent']} %")
        elif kind == "failed":
            self.found.failed = (phase, said["reason"])
        elif kind == "done":
            setattr(self.found, phase, read_record(phase, said["payload"]))
            self.left.remove(phase)
