"""What a plan does where: one row a block, one cell for each of its parts. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Literal

from recompute_core.plans.names import ATTENTION, MATMULS, Regions
from recompute_core.settings import Anatomy
from recompute_core.spec import Region
from recompute_core.words import count, listed

State = Literal["kept", "recomputed", "nested", "selective", "partly"]
GLYPHS: dict[State, str] = {
    "kept": "○",
    "recomputed": "●",
    "nested": "◉",
    "selective": "◐",
    "partly": "◔",
}


@dataclass(frozen=True)
class Cell:
    """One part of one block under a plan."""

    part: str
    state: State
    times: int
    """How often backward runs its forward again."""
    keep: tuple[str, ...] = ()
    """What is not recomputed in it, in words."""

    @property
    def word(self) -> str:
        """What stands in the cell."""
        if self.state == "nested":
            return "recomputed twice" if self.times == 2 else f"recomputed {self.times} times"
        return {"partly": "in part"}.get(self.state, self.state)

    @property
    def sentence(self) -> str:
        """What is said when the cell is pointed at."""
        meaning = {
            "kept": "activations kept",
            "recomputed": "recomputed once in backward",
            "nested": f"{self.word} in backward: regions are nested",
            "selective": f"recomputed; its region keeps {listed(self.keep)}",
            "partly": "some modules inside it are recomputed",
        }[self.state]
        return f"{self.part}: {meaning}"


@dataclass(frozen=True)
class Row:
    """One block, and where it stands among blocks that are recomputed as one."""

    block: str
    cells: tuple[Cell, ...]
    group: Literal["first", "middle", "last"] | None


def plan_map(regions: Regions, anatomy: Anatomy) -> tuple[Row, ...]:
    """What a plan does to each part of each block, in the order of forward."""
    parts = _in_order(anatomy) or ("",)
    known = _Regions(regions, anatomy)
    return tuple(
        Row(block, tuple(_cell(known, block, part) for part in parts), known.place(block))
        for block in anatomy.names
    )


class _Regions:
    """The regions of a plan, found by the modules they hold."""

    def __init__(self, regions: Regions, anatomy: Anatomy) -> None:
        self._by_module: dict[str, list[Region]] = {}
        self._above: set[str] = set()
        for region in regions:
            for module in region.modules:
                self._by_module.setdefault(module, []).append(region)
                self._above.update(_upwards(module))
        self._anatomy = anatomy

    def around(self, name: str) -> list[Region]:
        """Those that a module lies in."""
        return [region for outer in _upwards(name) for region in self._by_module.get(outer, ())]

    def is_above_some(self, name: str) -> bool:
        """Whether one lies in this module."""
        return name in self._above

    def kept_in(self, region: Region) -> list[str]:
        """What a region keeps, in words."""
        return [op_words(op, _matmuls_in(region, self._anatomy)) for op in region.keep]

    def place(self, block: str) -> Literal["first", "middle", "last"] | None:
        """Where a block stands among those that one region holds."""
        for region in self._by_module.get(block, ()):
            if len(region.modules) > 1:
                at = region.modules.index(block)
                return "first" if at == 0 else "last" if at == len(region.modules) - 1 else "middle"
        return None


def _upwards(name: str) -> list[str]:
    """A module and what it lies in, outermost first: `a`, `a.b`, `a.b.c`."""
    steps = name.split(".")
    return [".".join(steps[: n + 1]) for n in range(len(steps))]


def whole(row: Row) -> Cell:
    """What a plan does to a block as a whole: in part, where some of its parts are kept."""
    states = {cell.state for cell in row.cells}
    times = max(cell.times for cell in row.cells)
    keep = tuple(dict.fromkeys(op for cell in row.cells for op in cell.keep))
    if states == {"kept"}:
        return Cell(row.block, "kept", 0)
    if states & {"kept", "partly"}:
        return Cell(row.block, "partly", 0)
    state: State = "selective" if keep else "nested" if times > 1 else "recomputed"
    return Cell(row.block, state, times, keep)


def _in_order(anatomy: Anatomy) -> tuple[str, ...]:
    """The parts of a block; of pre-norm ones each norm before what it norms."""
    rest = tuple(filter(None, (anatomy.attention, anatomy.mlp)))
    if len(anatomy.norms) != len(rest):
        return (*anatomy.norms, *rest)
    return tuple(name for pair in zip(anatomy.norms, rest, strict=True) for name in pair)


def _cell(known: _Regions, block: str, part: str) -> Cell:
    """A part's cell; an empty part is the whole block."""
    name = f"{block}.{part}" if part else block
    part = part or "whole block"
    around = known.around(name)
    keep = tuple(dict.fromkeys(words for region in around for words in known.kept_in(region)))
    if keep:
        return Cell(part, "selective", len(around), keep)
    if around:
        return Cell(part, "recomputed" if len(around) == 1 else "nested", len(around))
    return Cell(part, "partly" if known.is_above_some(name) else "kept", 0)


def _holds(outer: str, inner: str) -> bool:
    return f"{inner}.".startswith(f"{outer}.")


@lru_cache(maxsize=1024)
def _matmuls_in(region: Region, anatomy: Anatomy) -> tuple[str, ...]:
    """What a region multiplies by weights, call by call; empty where that is not known."""
    every = [(f"{block}.{name}", name) for block in anatomy.names for name in anatomy.matmuls]
    return tuple(short for full, short in every if any(_holds(m, full) for m in region.modules))


_OPS = {**dict.fromkeys(MATMULS, "matmuls"), **dict.fromkeys(ATTENTION, "attention")}


def op_words(op: str, matmuls: Sequence[str] = ()) -> str:
    """`matmuls`, `every second of the matmuls`, `matmuls 1 and 2 of 4 (query, key)`, or another op.

    `matmuls` are the modules that make them in the region, in the order of forward.
    """
    name, _, calls = op.partition(":")
    word = _OPS.get(name, name.split(".")[1].strip("_").replace("_", " "))
    if not calls:
        return word
    if calls in ("even", "odd"):
        return f"every second of the {word}"
    numbers = [int(call) for call in calls.split(",")]
    if name not in MATMULS:
        return f"{word} {listed([str(number + 1) for number in numbers])}"
    said = f"{'matmul' if len(numbers) == 1 else word} {listed([str(number + 1) for number in numbers])}"
    if max(numbers) >= len(matmuls):
        return said
    # `mlp.gate`, not `gate`: a gate is something else on every page.
    names = dict.fromkeys(matmuls[number].removeprefix("attn.") for number in numbers)
    return f"{said} of {len(matmuls)} ({', '.join(names)})"


def summary(rows: Sequence[Row]) -> str:
    """A plan in one sentence."""
    cells = [cell for row in rows for cell in row.cells]
    words = {
        "recomputed": "recomputed",
        "nested": "recomputed more than once",
        "selective": "recomputed but for ",
        "partly": "recomputed in part",
        "kept": "kept",
    }
    counts = Counter((cell.state, cell.keep) for cell in cells)
    said = [
        f"{number} {words[state]}{listed(keep)}"
        for state in words
        for (its, keep), number in counts.items()
        if its == state
    ]
    between = "; " if any(keep for _, keep in counts) else ", "
    grouped = sum(row.group == "first" for row in rows)
    tail = f" Blocks joined by a bracket come back as one ({grouped})." if grouped else ""
    return f"Of {len(cells)} parts in {count(len(rows), 'block')}: {between.join(said)}.{tail}"


def drawn(rows: Sequence[Row]) -> str:
    """The map as a table; every cell has its shape and its word."""
    heads = "".join(f'<th scope="col">{escape(cell.part)}</th>' for cell in rows[0].cells)
    body = "".join(
        f'<tr><th scope="row" class="rs-bracket{_bracket(row)}">{escape(row.block)}{_joined(row)}</th>'
        + "".join(_drawn_cell(cell) for cell in row.cells)
        + "</tr>"
        for row in rows
    )
    return (
        '<div class="rs-scroll rs-map" tabindex="0" role="region" aria-label="What the plan does where">'
        '<table class="rs-table"><thead><tr><th scope="col" class="rs-bracket">Block</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _bracket(row: Row) -> str:
    return f" rs-bracket-{row.group}" if row.group else ""


def _joined(row: Row) -> str:
    words = {"first": "joined with the next", "middle": "joined", "last": "joined with the one before"}
    return f'<span class="rs-vh"> ({words[row.group]})</span>' if row.group else ""


def _drawn_cell(cell: Cell) -> str:
    return (
        f'<td class="rs-part rs-part-{cell.state}" title="{escape(cell.sentence)}">'
        f'<span aria-hidden="true">{GLYPHS[cell.state]}</span> {escape(cell.word)}</td>'
    )
