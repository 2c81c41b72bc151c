"""The dashboard's server: killed, its estimator killed, and two of them on one store."""

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import psutil

from tests.browser.chrome import free_port, running
from tests.load.visitor import PAGES, Visitor

from . import aftermath
from .ledger import Count
from .scene import Scene, eventually, scene

_TINY = {
    "workload": "gpt", "gpt_blocks": "2", "gpt_width": "32", "gpt_heads": "2", "gpt_vocab": "17",
    "gpt_lengths": "16", "gpt_batches": "2", "plans": "every-block", "finer": "", "max_peak": "1",
    "max_update": "2", "threads": "1",
}  # fmt: skip
"""Set up's form, as its address holds it."""
_LAUNCH = "Declare thresholds and launch"


def killed(chance: random.Random) -> Count:
    """The server, at a moment of a study that was launched in it: the study goes on without it."""
    count = Count("server", runs=1)
    with scene() as here:
        with running_server(here) as (address, server):
            _launch(here, address)
            time.sleep(chance.uniform(0, 4))
            before = here.known()
            server.kill()
            count.injected = 1
        count.broken += not eventually(lambda: not here.processes(), 120)
        aftermath.look(here, count, before)
        count.broken += _shows(here) > 0
    return count


def estimator_killed(chance: random.Random) -> Count:
    """The process that estimates for Set up, while somebody changes the form."""
    count = Count("estimator", runs=1)
    with scene() as here:
        with (
            running_server(here) as (address, server),
            Visitor(address, "set-up", dict(_TINY)) as visitor,
        ):
            visitor.open()
            for length in ("16", "32", "48", "64"):
                visitor.asked["gpt_lengths"] = length
                killer = threading.Thread(target=_kill_one, args=(server, chance, count))
                killer.start()
                visitor.press("Find the longest sequence")
                visitor.watch(1)
                killer.join()
            # That an estimate was not made may be said; the next one is made.
            visitor.troubles = [each for each in visitor.troubles if not each.startswith("error box: ")]
            visitor.press("Find the longest sequence")
            visitor.watch(2)
            count.broken += len(visitor.troubles)
        count.tracebacks += len(here.tracebacks())
        count.orphans += here.orphans()
    return count


def _kill_one(server: "subprocess.Popen[bytes]", chance: random.Random, count: Count) -> None:
    """As soon as there is an estimator, and a moment later."""
    if eventually(lambda: _estimators(server), 20):
        time.sleep(chance.uniform(0, 2))
        for process in _estimators(server):
            with suppress(psutil.Error):
                process.kill()
                count.injected += 1


def two_at_once(chance: random.Random) -> Count:
    """Two servers on one store, a study launched in each at once: both are done, each phase once."""
    count = Count("two servers", runs=1)
    with scene() as here:
        with running_server(here) as (one, _), running_server(here) as (other, _):
            _launch(here, one, 1)
            time.sleep(chance.uniform(0, 0.5))
            _launch(here, other, 2, gpt_lengths="32")
            before = here.known()
            count.injected = int(any(status != "done" for status in _ended(here)))
            count.broken += not eventually(lambda: _ended(here) == ["done", "done"], 180)
            for address in (one, other):
                count.broken += _shows(here, address) > 0
        aftermath.look(here, count, before)
    return count


def _ended(here: Scene) -> list[str]:
    with here.store() as store:
        return [row.status for row in store.studies()]


def _launch(here: Scene, address: str, expected: int = 1, **asked: str) -> None:
    """Through the form, as a person does; waits until the study is there."""

    def is_there() -> bool:
        with here.store() as store:
            return len(store.studies()) == expected

    with Visitor(address, "set-up", _TINY | asked) as visitor:
        visitor.open()
        visitor.press(_LAUNCH)
        assert eventually(is_there), visitor.troubles


def _shows(here: Scene, address: str | None = None) -> int:
    """How many errors the pages show to somebody who comes now."""
    troubles = 0
    with _at(here, address) as server:
        for page in PAGES:
            with Visitor(server, page) as visitor:
                visitor.open()
                troubles += len(visitor.troubles)
    return troubles


@contextmanager
def _at(here: Scene, address: str | None) -> Iterator[str]:
    if address is not None:
        yield address
        return
    with running_server(here) as (fresh, _):
        yield fresh


def running_server(here: Scene) -> AbstractContextManager[tuple[str, "subprocess.Popen[bytes]"]]:
    """A server of this scene."""
    port = free_port()
    return running(port, here.environment, here.folder / f"server-{port}.log")


def _estimators(server: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    found = []
    for process in psutil.Process(server.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "recompute_core.estimator" in " ".join(process.cmdline()):
                found.append(process)
    return found
