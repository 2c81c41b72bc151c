"""Many browsers on one study while it is measured: every redraw answered, none late, no memory kept."""

import threading
import time
from dataclasses import dataclass

import psutil

from tests.faults.scene import TINY, Scene, eventually, scene
from tests.faults.servers import running_server

from .visitor import Visitor

_PAGES = ("live", "live", "live", "tradeoff", "decision", "demo", "studies", "")
"""What people look at while a study runs, in turn."""
_PLANS = ("every-block", "blocks:0", "blocks:1")
"""At 64 shapes they are more than is measured in five minutes."""
_STILL_THERE = 0.9
"""Of the time, when memory is read."""
_FRESH_S = 0.1
"""Share of the time for which as many ask a server that has just been started."""


@dataclass(frozen=True)
class Found:
    """What became of a crowd."""

    browsers: int
    seconds: float
    redraws: int
    """Without each visitor's first page."""
    median_s: float
    p95_s: float
    worst_s: float
    troubles: tuple[str, ...]
    end_mb: float
    """Memory of the server (RSS) in the end, 10^6 bytes."""
    fresh_mb: float
    """Of a server that was started then, once as many had asked it for the same study. What the first
    has beyond this it has kept for nothing."""
    finished: int
    """Phases of the study that were finished meanwhile."""


def crowd(browsers: int, seconds: float) -> Found:
    """So many tabs for so long on one running study, each on a page of its own that redraws itself."""
    with scene() as here:
        here.write_spec(
            TINY | {"plans": list(_PLANS), "shapes": [{"seq_len": 8 * n} for n in range(1, 65)]}
        )
        driver = here.start("study", str(here.spec), quiet=True)
        assert eventually(lambda: here.study() is not None, 60)
        visitors, end_mb = _visited(here, browsers, seconds)
        finished = len(here.finished())
        others, fresh_mb = _visited(here, browsers, max(5.0, _FRESH_S * seconds))
        driver.terminate()
        driver.wait(30)
        taken = sorted(each for one in visitors for each in one.latencies_s[1:])
        return Found(
            browsers,
            seconds,
            len(taken),
            _share(taken, 0.5),
            _share(taken, 0.95),
            taken[-1],
            (
                *(trouble for one in (*visitors, *others) for trouble in one.troubles),
                *here.tracebacks(),
            ),
            end_mb,
            fresh_mb,
            finished,
        )


def _visited(here: Scene, browsers: int, seconds: float) -> tuple[list[Visitor], float]:
    """A server with so many visitors for so long: them, and its memory with all of them, 10^6 bytes."""
    study = here.study()
    assert study is not None
    with running_server(here) as (address, server):
        visitors = [Visitor(address, _PAGES[n % len(_PAGES)], {"study": study}) for n in range(browsers)]
        threads = [threading.Thread(target=_stay, args=(one, seconds)) for one in visitors]
        for thread in threads:
            thread.start()
        time.sleep(_STILL_THERE * seconds)
        taken_mb = psutil.Process(server.pid).memory_info().rss / 1e6
        for thread in threads:
            thread.join()
        return visitors, taken_mb


def _stay(visitor: Visitor, seconds: float) -> None:
    try:
        with visitor:
            visitor.open()
            visitor.watch(seconds)
    except Exception as error:
        visitor.troubles.append(f"{type(error).__name__}: {error}")


def _share(taken: list[float], share: float) -> float:
    return taken[min(len(taken) - 1, int(share * len(taken)))]
