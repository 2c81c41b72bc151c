"""The store's file, broken in its middle or at its head between two commands."""

import random

from .ledger import Count
from .scene import VERDICTS, ended, scene

_PAGE = 4096


def corrupt(chance: random.Random) -> Count:
    """One finished study, some pages overwritten: noticed, set aside whole, told; a new study works.

    The phases on the broken pages are gone and are not counted as lost; a phase that is there afterwards
    and is not what it was is. Where the first page alone is broken nothing may be gone."""
    count = Count("store corrupted", runs=1)
    with scene() as here:
        assert ended(here.start_study()).code in VERDICTS
        before, study, path = here.finished(), here.study(), here.home / "recompute.sqlite3"
        assert study is not None
        content = bytearray(path.read_bytes())
        pages = len(content) // _PAGE
        first = 0 if chance.random() < 0.3 else chance.randrange(1, pages)
        last = min(pages, first + chance.randint(1, 4)) if first else 1
        content[first * _PAGE : last * _PAGE] = chance.randbytes((last - first) * _PAGE)
        path.write_bytes(content)
        told = False
        for command in (["studies"], ["longer", study]) * 2:  # what reads the list, and what reads cells
            said = here.run(*command)
            told |= "was damaged; it is kept as" in said.err
            count.tracebacks += not said.is_plain
        aside = [found for found in here.home.glob("*.damaged-*") if found.read_bytes() == content]
        count.injected = int(told)
        count.broken += told != bool(aside)
        after = here.finished()
        count.lost += sum(before.get(key) != cell for key, cell in after.items())
        count.lost += len(before.keys() - after.keys()) if first == 0 else 0
        count.broken += here.run("studies").code != 0
        again = ended(here.start_study())
        count.broken += again.code not in VERDICTS
        count.tracebacks += not again.is_plain
        count.tracebacks += len(here.tracebacks())
        count.orphans += here.orphans()
    return count
