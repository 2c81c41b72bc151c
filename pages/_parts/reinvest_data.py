"""What Reinvest reads: a study's runs, and one run as it stands, re-read only when it changed."""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from recompute_core.reinvest.asked import SIDES, Side
from recompute_core.reinvest.found import Evaluation, ReinvestResult, Update
from recompute_core.reinvest.kept import Kept, Now, training_name
from recompute_core.reinvest.result import result_of
from recompute_core.spec import StudySpec

T = TypeVar("T")
LIVE = ("running", "waiting")
NEW = "new"
"""In the address in place of a run's id: the fields for another one."""


@dataclass(frozen=True)
class Learnt:
    """What one training run has said so far."""

    side: Side
    seed: int
    effective_batch: int
    updates: Sequence[Update]
    evaluations: Sequence[Evaluation]
    is_done: bool


@dataclass(frozen=True)
class Shown:
    """A run at one moment."""

    kept: Kept
    spec: StudySpec
    """Of its study."""
    result: ReinvestResult
    now: Now | None
    runs: Sequence[Learnt]
    """Training runs that have begun, seed by seed."""
    memo: dict[Hashable, Any]

    @property
    def is_live(self) -> bool:
        return self.result.status in LIVE

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once for as long as the run's files stay as they are."""
        if key not in self.memo:
            self.memo[key] = make()
        made: T = self.memo[key]
        return made


Stamp = tuple[tuple[str, int, int], ...]


@dataclass
class _Feed:
    """One run's files as they were read last."""

    stamp: Stamp | None = None
    result: ReinvestResult | None = None
    spec: StudySpec | None = None
    runs: Sequence[Learnt] = ()
    memo: dict[Hashable, Any] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def refresh(self, kept: Kept) -> Shown:
        with self.guard:
            stamp = _stamp(kept.folder)
            if self.result is None or self.spec is None or stamp != self.stamp:
                self.result = result_of(kept)
                self.spec = kept.store.study(kept.asked.study).spec
                self.runs = learnt(kept)
                self.memo, self.stamp = {}, stamp
            # Whether it runs shows in locks, not in files.
            status = kept.status(self.result.verdict is not None)
            told = {"status": status, "failure": kept.failure()}
            return Shown(
                kept,
                self.spec,
                self.result.model_copy(update=told),
                kept.now(),
                self.runs,
                self.memo,
            )


_NO_FIGURES = ("now.json", "worker.log", "driver.log")


def _stamp(folder: Path) -> Stamp:
    """Names, times and sizes of all that a run's figures follow from."""
    found = []
    for path in sorted(folder.glob("*")):
        if path.suffix in (".json", ".log") and path.name not in _NO_FIGURES:
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            found.append((path.name, stat.st_mtime_ns, stat.st_size))
    return tuple(found)


@lru_cache(maxsize=64)
def _feed(folder: Path) -> _Feed:
    return _Feed()


def shown(kept: Kept) -> Shown:
    """A run as it stands now."""
    return _feed(kept.folder).refresh(kept)


def learnt(kept: Kept) -> list[Learnt]:
    """Every training run that has begun."""
    asked, found = kept.asked, []
    for seed in asked.training.seeds:
        for side in SIDES:
            updates, looks = kept.said(side, seed)
            if updates or looks:
                is_done = (kept.folder / f"{training_name(side, seed)}.json").exists()
                found.append(Learnt(side, seed, asked.batch_of(side), updates, looks, is_done))
    return found


def chosen(known: Sequence[Kept], asked: str | None) -> Kept | None:
    """The run to show: the one in the address, or else one that is being done, or else the newest.

    None where there is none, or another one is to be asked for.
    """
    if asked == NEW:
        return None
    by_id = {kept.run_id: kept for kept in known}
    if asked in by_id:
        return by_id[asked]
    under_way = [kept for kept in known if kept.lock.is_held()]
    return next(iter([*under_way, *known]), None)
