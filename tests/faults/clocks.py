"""A clock that is put back by an hour while a study runs, by libfaketime under every process of it."""

import random
import sys
import time
from pathlib import Path

from . import aftermath
from .ledger import Count
from .scene import VERDICTS, ended, eventually, scene

IN_ORDER = [
    *(("none", phase) for phase in ("reference", "noise", "legality")),
    *(("every-block", phase) for phase in ("canary", "parity")),
    *(("none", "memory"), ("every-block", "memory"), ("every-block", "time")),
]
"""Plan and phase of all cells of the study, as they were begun."""


def library() -> Path | None:
    """libfaketime, where it is installed."""
    for folder in (Path("/usr/lib"), Path("/usr/local/lib")):
        for found in sorted(folder.glob("**/faketime/libfaketimeMT.so.1")):
            return found
    return None


def put_back(chance: random.Random) -> Count:
    """One study during which it becomes an hour earlier, after it has begun."""
    count, fake = Count("clock put back", runs=1), library()
    assert fake is not None
    with scene() as here:
        clock = here.folder / "clock"
        clock.write_text("+0\n")
        here.extra = {
            "LD_PRELOAD": str(fake),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        started = here.start_study()
        eventually(here.finished)
        time.sleep(chance.uniform(0, 1.5))
        count.injected = int(started.poll() is None)
        before = here.known()
        clock.write_text("-1h\n")
        said = ended(started)
        study = here.study()
        assert study is not None
        with here.store() as store:
            cells = store.cells(study)
        if said.code not in VERDICTS:
            count.broken += 1
            print([cell.reason for cell in cells if cell.state == "failed"], said.err, file=sys.stderr)
        count.broken += sum(cell.seconds is None or cell.seconds < 0 for cell in cells)
        count.broken += [(cell.plan, cell.phase) for cell in cells] != IN_ORDER
        aftermath.look(here, count, before, said)
    return count
