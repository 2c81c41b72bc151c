"""Workers that say half a line, garbage, 100 MB without an end, or nothing for ever."""

from . import aftermath
from .ledger import Count
from .saboteur import KINDS
from .scene import TINY, ended, scene

_SILENCE_S = 5


def misbehave(kind: str) -> Count:
    """One study whose workers do so; it must end with a failed phase and a reason, and be resumable."""
    count = Count(f"worker says {kind}", runs=1)
    assert kind in KINDS
    with scene() as here:
        here.write_spec(TINY | {"silence_s": _SILENCE_S})
        program = ("-m", "tests.faults.saboteur", kind)
        said = ended(here.start("study", str(here.spec), "--json", "-", program=program))
        count.injected = int(said.code == 4 and "parity failed for every-block" in said.err)
        aftermath.look(here, count, here.known(), said)
    return count
