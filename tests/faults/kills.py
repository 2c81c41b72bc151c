"""kill -9 at a random moment of a study: of its worker, of what forks the workers, of its driver."""

import random
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from . import aftermath
from .ledger import Count
from .scene import Known, Scene, ended, eventually, scene

Victim = Callable[[psutil.Process], psutil.Process | None]
"""Finds whom to kill, from the driver's process."""


def _fork_server(driver: psutil.Process) -> psutil.Process | None:
    return next((each for each in driver.children() if "forkserver" in " ".join(each.cmdline())), None)


def _worker(driver: psutil.Process) -> psutil.Process | None:
    server = _fork_server(driver)
    return next(iter(server.children()), None) if server else None


def _driver(driver: psutil.Process) -> psutil.Process | None:
    return driver


VICTIMS: dict[str, Victim] = {"worker": _worker, "fork server": _fork_server, "driver": _driver}


def kill(kind: str, chance: random.Random) -> Count:
    """One study, one kill of `kind` at a moment by chance; a study that was faster was not hit."""
    count = Count(kind, runs=1)
    with scene() as here:
        started = here.start_study()
        eventually(here.study)
        time.sleep(chance.uniform(0, 4))
        count.injected, before = _hit(here, VICTIMS[kind], psutil.Process(started.pid), chance)
        aftermath.look(here, count, before, ended(started))
    return count


def _hit(here: Scene, find: Victim, driver: psutil.Process, chance: random.Random) -> tuple[int, Known]:
    """Kill whom `find` finds as soon as there is somebody; how many were, and what was stored then."""
    deadline, before = time.monotonic() + 60, Known((), {})
    while time.monotonic() < deadline:
        with suppress(psutil.Error):
            if driver.status() == psutil.STATUS_ZOMBIE:
                break
            victim = find(driver)
            if victim is not None:
                time.sleep(chance.uniform(0, 0.2))
                before = here.known()
                victim.kill()
                return 1, before
        if not driver.is_running():
            break
        time.sleep(0.005)
    return 0, here.known()
