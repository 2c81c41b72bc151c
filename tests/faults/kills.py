"""kill -9 at a random moment of a study: of its worker, of what forks the workers, of its driver."""

import random
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from . import aftermath
from .ledger import Count
from .scene import ended, eventually, scene

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
        count.injected = _hit(VICTIMS[kind], psutil.Process(started.pid), chance)
        before = here.finished()
        aftermath.look(here, count, before, ended(started))
    return count


def _hit(find: Victim, driver: psutil.Process, chance: random.Random) -> int:
    """Kill whom `find` finds as soon as there is somebody; how many were."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(psutil.Error):
            if driver.status() == psutil.STATUS_ZOMBIE:
                return 0
            victim = find(driver)
            if victim is not None:
                time.sleep(chance.uniform(0, 0.2))
                victim.kill()
                return 1
        if not driver.is_running():
            return 0
        time.sleep(0.005)
    return 0
