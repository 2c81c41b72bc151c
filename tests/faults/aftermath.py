"""What is looked at after every fault: nothing lost, nothing doubled, nobody left, and it goes on."""

import json
import subprocess
from contextlib import suppress

from recompute_core.errors import StoreError

from .ledger import Count
from .scene import PHASES, VERDICTS, Known, Said, Scene


def look(
    at: Scene, count: Count, before: Known, said: Said | None = None, *, ended: bool = True
) -> None:
    """Count what a fault has cost. `before` was stored when it came, `said` is what the command that met
    it said, of phases too; `ended`: nothing of the scene is meant to run any more."""
    if said is not None:
        count.tracebacks += not said.is_plain
    if ended:
        count.orphans += at.orphans()
    count.broken += not _lists(at, count)
    lost = _gone(at, before)
    if said is not None:
        lost |= _untrue(at, before, said)
    studies = _studies(at)
    for study in studies:
        _finish(at, count, study)
    lost |= _gone(at, before) | _unfinished(at, {*before.studies, *studies})
    count.lost += len(lost)
    count.doubled += at.doubled()
    count.tracebacks += len(at.tracebacks())
    if ended:
        count.orphans += at.orphans()


def _lists(at: Scene, count: Count) -> bool:
    """Whether the next command works."""
    said = at.run("studies", "--json", "-")
    count.tracebacks += not said.is_plain
    return said.code == 0 and isinstance(json.loads(said.out), list | dict)


def _finish(at: Scene, count: Count, study: str) -> None:
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


def _studies(at: Scene) -> tuple[str, ...]:
    with suppress(StoreError):
        return at.known().studies
    return ()


Lost = set[tuple[str, str, str]]
"""Study, plan and phase, each once whichever way it is found: all studies here have one shape."""


def _gone(at: Scene, before: Known) -> Lost:
    """What was stored and is not, or is other."""
    now = at.finished()
    return {(key[0], *key[2:]) for key, cell in before.cells.items() if now.get(key) != cell}


def _untrue(at: Scene, before: Known, said: Said) -> Lost:
    """What was said to be finished and is in no study: a witness that does not ask the store."""
    stored = {key[2:] for key in at.finished()}
    studies = before.studies or _studies(at) or ("",)
    return {(studies[0], *phase) for phase in said.told - stored}


def _unfinished(at: Scene, studies: set[str]) -> Lost:
    """What the studies lack though they have ended."""
    now = {(key[0], *key[2:]) for key in at.finished()}
    return {(study, *phase) for study in studies for phase in PHASES} - now
