"""What became of the faults: counts that must be zero, kind by kind."""

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass
class Count:
    """Of one kind of fault."""

    kind: str
    runs: int = 0
    injected: int = 0
    """Faults that met something that was running."""
    lost: int = 0
    """Finished phases that were gone or other afterwards."""
    doubled: int = 0
    """Phases that were finished twice."""
    orphans: int = 0
    """Processes that were left."""
    tracebacks: int = 0
    broken: int = 0
    """Next commands, resumes among them, that did not work."""

    @property
    def is_clean(self) -> bool:
        """Whether every fault was met, and cost nothing."""
        return self.injected > 0 and not self.harm

    @property
    def harm(self) -> int:
        return self.lost + self.doubled + self.orphans + self.tracebacks + self.broken

    def add(self, other: "Count") -> None:
        for column in _FIGURES:
            setattr(self, column, getattr(self, column) + getattr(other, column))


_FIGURES = tuple(each.name for each in fields(Count) if each.name != "kind")


def table(counts: Iterable[Count]) -> str:
    """As Markdown, with a line of sums."""
    rows, total = list(counts), Count("all")
    for one in rows:
        total.add(one)
    heads = ("kind", *_FIGURES)
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * len(_FIGURES)}"]
    for one in (*rows, total):
        lines.append(f"| {' | '.join(str(getattr(one, head)) for head in heads)} |")
    return "\n".join(lines)
