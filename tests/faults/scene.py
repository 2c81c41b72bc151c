"""A store, a temporary folder and processes of their own, and what must hold of them after a fault.

Every process that is started for a scene carries its mark in its environment, as do those that it
starts, so that one left behind is found whatever it is called.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from recompute_core.errors import StoreError
from recompute_core.studies.store import Cell, Store

ROOT = Path(__file__).parents[2]
MARK = "RECOMPUTE_TEST_SCENE"
_PATIENCE_S = 60.0
TINY: dict[str, Any] = {
    "workload": {"blocks": 2, "width": 32, "heads": 2, "vocab": 17, "seq_len": 16, "batch": 2},
    "plans": ["every-block"],
    "thresholds": {"peak_ratio": 1, "update_ratio": 100},
    "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
    "device": "cpu",
    "threads": 1,
}
"""A study of eight phases that takes a few seconds."""
PHASES = {
    *(("none", phase) for phase in ("reference", "noise", "legality", "memory")),
    *(("every-block", phase) for phase in ("canary", "parity", "memory", "time")),
}
"""Plan and phase of all that it finishes."""
VERDICTS = (0, 1, 3)
"""Exit codes of a study that was completed."""

Key = tuple[str, str, str, str]
"""Study, shape, plan and phase of a cell."""


@dataclass(frozen=True)
class Known:
    """What a store held at one moment."""

    studies: tuple[str, ...]
    """Oldest first."""
    cells: Mapping[Key, Cell]
    """The finished phases."""


@dataclass
class Scene:
    """Where one fault is tried."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    extra: dict[str, str] = field(default_factory=dict)
    """Of the environment of what is started."""

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.apart.mkdir(exist_ok=True)
        self.write_spec(TINY)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def apart(self) -> Path:
        """The temporary folder, and so the machine's lock, of this scene alone."""
        return self.folder / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        own = {"RECOMPUTE_HOME": str(self.home), "TMPDIR": str(self.apart), MARK: self.mark}
        return {**os.environ, **own, **self.extra}

    def start(
        self, *arguments: str, program: tuple[str, ...] = ("-m", "recompute_core"), quiet: bool = False
    ) -> "Started":
        """A command that runs on; of a `quiet` one nobody reads what it says."""
        out = subprocess.DEVNULL if quiet else subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=out, stderr=out, text=True, errors="replace",
        )  # fmt: skip

    @property
    def spec(self) -> Path:
        """The study that is started here."""
        return self.folder / "spec.json"

    def write_spec(self, asked: dict[str, Any]) -> None:
        self.spec.write_text(json.dumps(asked))

    def start_study(self) -> "Started":
        return self.start("study", str(self.spec), "--json", "-")

    def run(self, *arguments: str) -> "Said":
        """A command to its end."""
        return ended(self.start(*arguments))

    @contextmanager
    def store(self) -> Iterator[Store]:
        found = Store(self.home)
        try:
            yield found
        finally:
            found.close()

    def study(self) -> str | None:
        """The first study of this scene, if it was stored before the fault."""
        if not (self.home / "recompute.sqlite3").exists():
            return None
        with suppress(StoreError), self.store() as store:
            rows = store.studies()
            return rows[-1].id if rows else None
        return None

    def known(self) -> Known:
        """What is stored now; a store that cannot be read is a StoreError, not an empty one."""
        if not (self.home / "recompute.sqlite3").exists():
            return Known((), {})
        with self.store() as store:
            studies = tuple(row.id for row in reversed(store.studies()))
            cells = [(study, cell) for study in studies for cell in store.cells(study)]
        return Known(
            studies, {(s, c.shape_key, c.plan, c.phase): c for s, c in cells if c.state == "done"}
        )

    def finished(self) -> Mapping[Key, Cell]:
        """The finished phases; none where the store cannot be read."""
        with suppress(StoreError):
            return self.known().cells
        return {}

    def tracebacks(self) -> list[str]:
        """The ends of the tracebacks in this scene's logs, one a log; said on stderr too."""
        logs = {log: log.read_text(errors="replace") for log in sorted(self.folder.rglob("*.log"))}
        found = [f"{log.name}: {said[-1500:]}" for log, said in logs.items() if "Traceback" in said]
        for each in found:
            print(each, file=sys.stderr, flush=True)
        return found

    def processes(self) -> list[psutil.Process]:
        """What was started for this scene and runs still."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                zombie = process.status() == psutil.STATUS_ZOMBIE
                if not zombie and process.environ().get(MARK) == self.mark:
                    found.append(process)
        return found

    def orphans(self, patience_s: float = 20.0) -> int:
        """How many processes are left after a while, and then no more."""
        eventually(lambda: not self.processes(), patience_s)
        left = self.processes()
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        return len(left)

    def doubled(self) -> int:
        """Phases that were finished more than once."""
        times = Counter[Key]()
        with suppress(StoreError):
            studies = self.known().studies
            with self.store() as store:
                events = [(study, event) for study in studies for event in store.events(study)]
            times.update((s, e.shape_key, e.plan, e.phase) for s, e in events if e.kind == "done")
        return sum(number - 1 for number in times.values())


Started = subprocess.Popen[str]


@dataclass(frozen=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def is_plain(self) -> bool:
        """Whether it said no traceback."""
        return "Traceback" not in self.out + self.err

    @property
    def told(self) -> set[tuple[str, str]]:
        """Plan and phase of all that it said was finished."""
        lines = re.findall(r"^(\w+): .* for (\S+) at ", self.err, re.MULTILINE)
        return {("none" if plan == "plain" else plan, phase) for phase, plan in lines}


def ended(started: Started) -> Said:
    """What a command said, once it has ended; one that never does is itself a fault (TimeoutExpired)."""
    try:
        out, err = started.communicate(timeout=4 * _PATIENCE_S)
    except subprocess.TimeoutExpired:
        started.kill()
        started.communicate()
        raise
    return Said(started.returncode, out, err)


@contextmanager
def scene() -> Iterator[Scene]:
    """A fresh one; nothing of it is left."""
    folder = Path(tempfile.mkdtemp(prefix="rs-"))  # short: a socket's path has at most 107 characters
    made = Scene(folder)
    try:
        yield made
    finally:
        made.orphans(0)
        shutil.rmtree(folder, ignore_errors=True)


def eventually(condition: Callable[[], Any], patience_s: float = _PATIENCE_S) -> bool:
    """Whether it comes to hold."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
