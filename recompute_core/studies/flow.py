"""What comes next in a study: a pure function of what is asked and what has been found.

The order is fixed. At each shape: plain's reference, noise and legality; then candidate by candidate
canary, parity and memory, so that figures arrive early; then their times. An engine that has several
places also begins what comes later and waits for nothing. A resumed study asks the same question of the
same cells, so resuming needs no rule of its own.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..errors import StudyError
from ..plans.anatomy import anatomy_of
from ..plans.names import regions_of, touched_blocks
from ..results import (
    Canary,
    Legality,
    Memory,
    Noise,
    Parity,
    ParityPassed,
    Record,
    Reference,
    Timing,
)
from ..settings import shape_key
from ..spec import StudySpec
from .store import Cell, Phase

PLAIN = "none"
Found = TypeVar("Found", bound=Record)
CellKey = tuple[str, str, Phase]
"""Shape key, plan, phase."""


@dataclass(frozen=True)
class Task:
    """What one worker process does: phases of one plan at one shape, in order."""

    shape: dict[str, int]
    shape_key: str
    plan: str
    phases: tuple[Phase, ...]
    proof: ParityPassed | None = None
    """The parity that allows memory or time to be measured."""
    noise_floor: float | None = None
    canary: str | None = None
    """FQN of the module whose replay is broken in the canary."""


@dataclass(frozen=True)
class Book:
    """The cells of a study by key, with what each phase's record says."""

    cells: Mapping[CellKey, Cell]
    _records: dict[CellKey, Record] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> "Book":
        return cls({(cell.shape_key, cell.plan, cell.phase): cell for cell in cells})

    def done(self, shape: str, plan: str, phase: Phase) -> Cell | None:
        cell = self.cells.get((shape, plan, phase))
        return cell if cell is not None and cell.state == "done" else None

    def open(self, shape: str, plan: str, phases: Sequence[Phase]) -> tuple[Phase, ...]:
        """The phases that are neither done nor failed, up to the first that failed."""
        still = []
        for phase in phases:
            cell = self.cells.get((shape, plan, phase))
            if cell is not None and cell.state == "failed":
                break
            if cell is None or cell.state == "running":
                still.append(phase)
        return tuple(still)

    def reference(self, shape: str) -> Reference | None:
        return self._read(Reference, shape, PLAIN, "reference")

    def noise(self, shape: str) -> Noise | None:
        return self._read(Noise, shape, PLAIN, "noise")

    def legality(self, shape: str) -> Legality | None:
        return self._read(Legality, shape, PLAIN, "legality")

    def canary(self, shape: str, plan: str) -> Canary | None:
        return self._read(Canary, shape, plan, "canary")

    def canary_of(self, module: str) -> Canary | None:
        """A canary in this module that was caught earlier in the study, at whatever shape."""
        for shape, plan, phase in self.cells:
            if phase == "canary":
                canary = self.canary(shape, plan)
                if canary is not None and canary.caught and canary.block == module:
                    return canary.model_copy(update={"ran_at": canary.ran_at or shape})
        return None

    def proof(self, shape: str, plan: str) -> ParityPassed | None:
        """The candidate's parity, if it passed and its canary was caught."""
        cell = self.done(shape, plan, "parity")
        if cell is None or cell.payload is None or not cell.payload.get("passed"):
            return None
        canary = self.canary(shape, plan)
        return self._read(ParityPassed, shape, plan, "parity") if canary and canary.caught else None

    def _read(self, kind: type[Found], shape: str, plan: str, phase: Phase) -> Found | None:
        """A finished phase's record, checked once."""
        cell = self.done(shape, plan, phase)
        if cell is None:
            return None
        key = (shape, plan, phase)
        if key not in self._records:
            self._records[key] = record_of(kind, cell)
        return self._records[key]  # type: ignore[return-value]


def record_of(kind: type[Found], cell: Cell) -> Found:
    """What a phase found; raises StudyError where that cannot be read."""
    try:
        return kind.model_validate(cell.payload)
    except ValidationError:
        whose = "plain" if cell.plan == PLAIN else cell.plan
        where = f"{cell.phase} of {whose} at {cell.shape_key}"
        raise StudyError(f"the study is damaged: its record of {where} cannot be read") from None


_RECORDS: dict[Phase, TypeAdapter[Record]] = {
    "reference": TypeAdapter(Reference),
    "noise": TypeAdapter(Noise),
    "legality": TypeAdapter(Legality),
    "canary": TypeAdapter(Canary),
    "parity": TypeAdapter(Parity),
    "memory": TypeAdapter(Memory),
    "time": TypeAdapter(Timing),
}


def read_record(phase: Phase, payload: Any) -> Record:
    """A phase's record; raises ValueError where it is none."""
    return _RECORDS[phase].validate_python(payload)


def block_names(spec: StudySpec, plan: str) -> tuple[str, ...]:
    """FQNs of the blocks that a plan recomputes in this study's workload, in whole or in part."""
    return touched_blocks(regions_of(spec, plan), anatomy_of(spec.workload))


def module_names(spec: StudySpec, plan: str) -> tuple[str, ...]:
    """FQNs of the modules that a plan recomputes."""
    return tuple(name for region in regions_of(spec, plan) for name in region.modules)


def canary_module(spec: StudySpec, plan: str, legality: Legality) -> str:
    """FQN of the module whose replay a plan's canary breaks: the first block that the plan touches.

    A whole block, since a part may well be blind to its input: a dropout's backward is. Where that block
    may not be replayed, an unbroken replay of it fails too and would prove nothing: then a part that
    sees its input, the plan's own if it has one, or else the block's MLP.
    """
    own = module_names(spec, plan)
    if not own:  # the compiler chooses what is recomputed
        legal = (each.block for each in legality.blocks if each.verdict == "legal")
        return next(legal, legality.blocks[0].block)
    block = block_names(spec, plan)[0]
    if legality.of(block).verdict == "legal":
        return block
    anatomy = anatomy_of(spec.workload)
    seeing = (anatomy.mlp, anatomy.attention, *anatomy.matmuls, *anatomy.norms)
    known = [f"{block}.{part}" for part in seeing if part] + list(anatomy.outside)
    return next((name for name in known if name in own), known[0] if known else own[0])


def next_task(spec: StudySpec, book: Book) -> Task | None:
    """The next piece of work, or None when nothing is left that can be done."""
    return next(ready_tasks(spec, book), None)


Busy = Collection[tuple[str, str]]
"""Shape key and plan of the tasks that are being done."""


def ready_tasks(spec: StudySpec, book: Book, busy: Busy = ()) -> Iterator[Task]:
    """Every piece of work that could begin now beside those in `busy`, in the order of the study.

    Plain's memory comes once for each candidate that waits for it: ask anew when one has begun.
    """
    if any((canary := book.canary(*key)) and not canary.caught for key in _candidates(spec)):
        return  # a check that lets a broken replay through proves nothing: the study stops
    for shape in spec.shapes:
        for task in _ready_at(spec, book, shape):
            if (task.shape_key, task.plan) not in busy:
                yield task


def _candidates(spec: StudySpec) -> list[tuple[str, str]]:
    return [(shape_key(spec.at(shape)), plan) for shape in spec.shapes for plan in spec.plans]


def _ready_at(spec: StudySpec, book: Book, shape: dict[str, int]) -> Iterator[Task]:
    key = shape_key(spec.at(shape))
    prepare = book.open(key, PLAIN, ("reference", "noise", "legality"))
    if prepare:
        yield Task(shape, key, PLAIN, prepare)
        return
    noise, legality = book.noise(key), book.legality(key)
    if noise is None or legality is None or noise.failures(spec.thresholds):
        return
    legal = [plan for plan in spec.plans if not legality.refusals(module_names(spec, plan))]
    in_memory = set()
    for plan in legal:
        phases = book.open(key, plan, ("canary", "parity"))
        if phases:
            canary = canary_module(spec, plan, legality)
            floor = noise.largest_relative_gap
            yield Task(shape, key, plan, phases, noise_floor=floor, canary=canary)
            continue
        proof = book.proof(key, plan)
        for measured in (PLAIN, plan) if proof else ():
            if book.open(key, measured, ("memory",)):
                in_memory.add(measured)
                yield Task(shape, key, measured, ("memory",), proof)
    for plan in legal:
        proof = book.proof(key, plan)
        if proof and plan not in in_memory and book.open(key, plan, ("time",)):
            yield Task(shape, key, plan, ("time",), proof)


def without_rollback(spec: StudySpec, book: Book) -> list[CellKey]:
    """Parities that an earlier version passed without taking the plan off again, where a cost is still
    to be measured: they are to be done anew first."""
    found: list[CellKey] = []
    for shape, plan in _candidates(spec):
        proof = book.proof(shape, plan)
        costs: list[tuple[str, Phase]] = [(PLAIN, "memory"), (plan, "memory"), (plan, "time")]
        complete = all(book.done(shape, measured, phase) for measured, phase in costs)
        if proof is not None and proof.rollback is None and not complete:
            found.append((shape, plan, "parity"))
    return found


def total_cells(spec: StudySpec) -> int:
    """How many phases a study has when nothing is refused: the length of its progress bar."""
    return len(spec.shapes) * (3 + 1 + 4 * len(spec.plans))
