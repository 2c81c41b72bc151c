"""Hand-made cells of a study, and a study that is played through without any measuring."""

from collections.abc import Callable
from typing import Any

from recompute_core.results import BlockLegality, Legality, Noise, Record, Reference
from recompute_core.settings import GptSettings
from recompute_core.spec import StudySpec
from recompute_core.studies.flow import PLAIN, Book, CellKey, Task, next_task
from recompute_core.studies.store import Cell, CellState, Phase, StudyRow
from tests.core import records as make

SPEC = StudySpec(
    workload=GptSettings(blocks=2, width=32, heads=2, vocab=17, batch=2),
    shapes=({"seq_len": 16}, {"seq_len": 32}),
    plans=("every-block", "blocks:1"),
)
SMALL, LARGE = "T=16 B=2", "T=32 B=2"
BLOCKS = ("blocks.0", "blocks.1")


def reference() -> Reference:
    return Reference(
        loss=2.5,
        tensors=9,
        digest="sha256:1",
        batch_digest="sha256:2",
        data_digest=None,
        parameters=100,
        block_calls=dict.fromkeys(BLOCKS, 1),
        flops=30,
        envelope_flops=24,
        blocks=BLOCKS,
    )


def legality(*illegal: str) -> Legality:
    return Legality(
        blocks=tuple(
            make.illegal(name) if name in illegal else BlockLegality(block=name, verdict="legal")
            for name in BLOCKS
        )
    )


def good(phase: Phase, plan: str = "every-block") -> Record:
    """What a phase finds when all is well; plain's peak is 4 MB and a candidate's half."""
    return {
        "reference": reference(),
        "noise": Noise(gaps=(make.SAME,)),
        "legality": legality(),
        "canary": make.canary(),
        "parity": make.passed(),
        "memory": make.memory(4_000_000 if plan == PLAIN else 2_000_000),
        "time": make.timing(1.25, 1.25, 1.25),
    }[phase]


def cell(
    key: CellKey,
    found: Record | None = None,
    state: CellState = "done",
    reason: str | None = None,
) -> Cell:
    payload: dict[str, Any] | None = None
    if state == "done":
        payload = (found or good(key[2], key[1])).model_dump(mode="json", by_alias=True)
    return Cell(*key, state, payload, reason, 0.0, None if state == "running" else 1.0)


def failed(key: CellKey, reason: str = "it died") -> Cell:
    return cell(key, state="failed", reason=reason)


def row(spec: StudySpec = SPEC, status: Any = "running") -> StudyRow:
    return StudyRow(
        id="s",
        created_at="2026-01-01T00:00:00.000Z",
        declared_at="2026-01-01T00:00:00.000Z",
        spec=spec,
        spec_hash=spec.digest(),
        status=status,
        environment={"device": "cpu"},
        verdict=None,
        sentence="",
        cancel=False,
    )


def play(
    worker: Callable[[CellKey], Cell | None] = lambda key: None,
    spec: StudySpec = SPEC,
    cells: dict[CellKey, Cell] | None = None,
    until: int = 1000,
) -> tuple[list[Task], dict[CellKey, Cell]]:
    """Do what `next_task` asks for until nothing is left, or `until` tasks are done.

    `worker` says what a phase ends as; None is a good end. A failed phase ends its task.
    """
    cells = dict(cells or {})
    tasks: list[Task] = []
    while len(tasks) < until and (task := next_task(spec, Book(cells))) is not None:
        assert len(tasks) < 200, "the study does not end"
        tasks.append(task)
        for phase in task.phases:
            key = (task.shape_key, task.plan, phase)
            cells[key] = worker(key) or cell(key)
            if cells[key].state != "done":
                break
    return tasks, cells
