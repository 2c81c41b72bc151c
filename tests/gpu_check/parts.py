"""The parts of the check, in the order in which they run; each in a process of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .sizes import Sizes


@dataclass(frozen=True)
class Place:
    """Where a part runs and what it tells while it does."""

    sizes: Sizes
    home: Path
    """RECOMPUTE_HOME of the check, thrown away when it has ended."""
    until_s: float
    """Seconds that it has."""
    tell: Callable[[dict[str, Any]], None]
    """Keeps what was found so far: what a part that is stopped leaves behind."""
    say: Callable[[str], None]
    """One line of progress."""


Outcome = tuple[dict[str, Any], str | None]
"""What was found, and why that is not as it should be."""


@dataclass(frozen=True)
class Part:
    name: str
    title: str
    box_s: float
    """It is stopped after so many seconds."""

    def run(self, place: Place) -> Outcome:
        """Imported when it runs: the process that starts the parts never needs torch."""
        from . import direct, studies

        work: Callable[[Place], Outcome] = {
            "machine": direct.machine,
            "parity": direct.parity,
            "estimates": direct.estimates,
            "memory": studies.beyond_memory,
            "table": studies.table,
            "decision": studies.decision,
            "compiled": studies.compiled,
            "ranks": studies.over_ranks,
            "frontier": studies.frontier,
        }[self.name]
        return work(place)


PARTS = (
    Part("machine", "The machine", 60),
    Part("parity", "Parity", 90),
    Part("memory", "Out of memory, and what follows it", 75),
    Part("estimates", "Estimated against measured peak", 90),
    Part("table", "Saved bytes, peak and time over lengths", 150),
    Part("decision", "A signed decision", 45),
    Part("compiled", "A compiled study", 75),
    Part("ranks", "A study over two ranks", 60),
    Part("frontier", "The frontier of a large GPT", 240),
)
WHOLE_S = 470.0
"""Seconds of all parts together, at most: the last ones get what is left."""
