"""What is looked at after every fault: nothing lost, nothing doubled, nobody left, and it goes on."""

import json
import subprocess
from collections.abc import Mapping

from recompute_core.studies.store import Cell

from .ledger import Count
from .scene import PHASES, VERDICTS, Key, Said, Scene


def look(
    at: Scene, count: Count, before: Mapping[Key, Cell], said: Said | None = None, *, ended: bool = True
) -> None:
    """Count what a fault has cost. `before` are the phases that were finished when it came, `said` is
    what the command that met it said; `ended`: nothing of the scene is meant to run any more."""
    if said is not None:
        count.tracebacks += not said.is_plain
    if ended:
        count.orphans += at.orphans()
    count.broken += not _lists(at, count)
    _compare(at, count, before)
    if at.study() is None:  # it came before there was a study
        return
    _finish(at, count)
    _compare(at, count, before)
    count.doubled += at.doubled()
    count.lost += len(PHASES - {key[1:] for key in at.finished()})
    if ended:
        count.orphans += at.orphans()


def _lists(at: Scene, count: Count) -> bool:
    """Whether the next command works."""
    said = at.run("studies", "--json", "-")
    count.tracebacks += not said.is_plain
    return said.code == 0 and isinstance(json.loads(said.out), list | dict)


def _finish(at: Scene, count: Count) -> None:
    study = at.study()
    assert study is not None
    with at.store() as store:
        done = store.study(study).status == "done"
    if done:
        return
    try:
        said = at.run("resume", study, "--json", "-")
    except subprocess.TimeoutExpired:
        count.broken += 1
        return
    count.tracebacks += not said.is_plain
    count.broken += said.code not in VERDICTS


def _compare(at: Scene, count: Count, before: Mapping[Key, Cell]) -> None:
    now = at.finished()
    count.lost += sum(now.get(key) != cell for key, cell in before.items())
