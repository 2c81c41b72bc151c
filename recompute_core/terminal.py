"""What a terminal shows: progress while a study runs, tables afterwards."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from .estimating import reached_words
from .gates import in_mb, signed_mb
from .rerun import said_of_reruns, why_undecided
from .results import Estimate, Gate, Judged, PlanPoint, PlanResult, StudyResult
from .spec import StudySpec
from .studies.driver import Listener
from .studies.findings import finding
from .studies.flow import CellKey, total_cells
from .studies.store import StudyRow
from .words import (
    ENOUGH_PAIRS,
    WHOSE_FIGURES,
    compiled_words,
    fewest_pairs,
    interval_name,
    printable,
    ranks_words,
    with_training,
)

if TYPE_CHECKING:
    from .comparing.records import Change, StudyComparison
    from .safety import Safety

_VERDICTS = {
    "legal": "[green]legal[/]",
    "no_saving": "[yellow]no saving[/]",
    "illegal": "[red]illegal[/]",
    "parity_fail": "[red]parity fails[/]",
    "error": "[red]error[/]",
}
_WORDS = {"pass": "[green]pass[/]", "fail": "[red]fail[/]", "undecided": "[yellow]undecided[/]"}
_BEGINNINGS = {"asked": "waiting for a worker for ", "placed": "loading torch for ", "start": ""}
"""What is said of a phase on its way to its first figure."""


@contextmanager
def progress(spec: StudySpec, done: int) -> Iterator[Listener]:
    """A bar on standard error that follows a study; `done` phases were finished before."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total_cells(spec), completed=done)
        pairs: list[float] = []

        def listen(kind: str, cell: CellKey | None, data: dict[str, Any]) -> None:
            if kind == "queued":
                others = f"{data['ahead']} ahead" if data["ahead"] else "the device is busy"
                bar.update(task, description=f"queued: {others}")
            elif cell is not None and kind in _BEGINNINGS:
                pairs.clear()
                what = f"{_BEGINNINGS[kind]}{cell[2]} of {_whose(cell[1])} at {cell[0]}"
                bar.update(task, description=_plain(what))
            elif cell is not None and kind == "done":
                console.print(_plain(finding(*cell, data["payload"])), highlight=False)
                bar.advance(task)
            elif cell is not None and kind == "progress":
                bar.update(task, description=_plain(f"{data['what']}: {data['percent']} %"))
            elif cell is not None and kind == "failed":
                what = _plain(f"{cell[2]} failed for {_whose(cell[1])} at {cell[0]}:")
                console.print(f"[red]{what}[/] {_plain(data['reason'])}")
            elif cell is not None and kind == "pair":
                pairs.append(data["candidate_s"] / data["plain_s"])
                ratio = sorted(pairs)[len(pairs) // 2]
                what = f"time of {cell[1]} at {cell[0]}: {len(pairs)} pairs, {ratio:.2f}"
                bar.update(task, description=_plain(what))

        yield listen


@contextmanager
def photo_progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while the receipt photos are made."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("making the receipt photos", visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def steps_progress(phases: bool = False) -> Iterator[Callable[[str], None]]:
    """A line on standard error that says which step runs. Where there is no terminal, a line for what it
    waits for, and one for each of the `phases`: what stands before a colon or a bracket."""
    console = Console(stderr=True)
    if not console.is_terminal:
        said = [""]

        def say(what: str) -> None:
            phase = what.partition(": ")[0].partition(" (")[0]
            if phase != said[0] and (phases or what.startswith("waiting ")):
                said[0] = phase
                _say(phase)

        yield say
        return
    with console.status("starting") as status:
        yield lambda what: status.update(_plain(what))


def _say(what: str) -> None:
    print(printable(what), file=sys.stderr, flush=True)


def safety_table(found: "Safety") -> Table:
    """One row a block: whether it may be recomputed, what that would free, and why not."""
    table = Table()
    table.add_column("block", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("activation MB", justify="right")
    table.add_column("reason or condition")
    for one in found.report.blocks:
        sentences = [reason.sentence for reason in (*one.reasons, *one.conditions)]
        table.add_row(
            _plain(one.block or "(the model)"),
            _VERDICTS.get(one.verdict, one.verdict),
            _mb(found.activation_bytes.get(one.block)),
            "\n".join(map(_plain, sentences)),
        )
    return table


def _plain(text: str) -> str:
    """Foreign text as it is: no mark of rich's, no control character."""
    return escape(printable(text))


def _whose(plan: str) -> str:
    return "plain" if plan == "none" else plan


def study_table(result: StudyResult) -> Table:
    """One row a candidate: what was measured and what the gates say.

    The times of a row are of its own pairs, plain's among them, so plain's own row has none.
    """
    table = Table(title=f"Study {result.study_id}", title_justify="left")
    for name in ("shape", "plan"):
        table.add_column(name, no_wrap=True)
    for name in (
        *("saved MB", "peak MB", "peak ratio", "plain ms", "update ms"),
        *("paired ratio", interval_name(fewest_pairs(one.candidate.timing for one in result.judged))),
    ):
        table.add_column(name, justify="right")
    for name in ("parity", "memory", "time", "verdict"):
        table.add_column(name)
    for shape in dict.fromkeys(one.candidate.shape_key for one in result.judged):
        here = [one for one in result.judged if one.candidate.shape_key == shape]
        for row in [*_plain_row(here), *map(_candidate_row, here)]:
            table.add_row(_plain(shape), *row)
        table.add_section()
    return table


def _plain_row(candidates: list[Judged]) -> list[tuple[str, ...]]:
    measured = next((one.candidate for one in candidates if one.candidate.memory), None)
    if measured is None or measured.memory is None:
        return []
    plain = measured.memory.plain
    return [("plain", _mb(plain.saved_bytes), _mb(plain.peak_bytes), "1.00", *[""] * 8)]


def _candidate_row(one: Judged) -> tuple[str, ...]:
    memory, timing = one.candidate.memory, one.candidate.timing
    ratio = memory.ratio if memory else None
    return (
        _plain(one.candidate.plan),
        _mb(memory.candidate.saved_bytes) if memory else "",
        _mb(memory.candidate.peak_bytes) if memory else "",
        "" if ratio is None else f"{ratio:.3f}",
        f"{timing.plain_median_s * 1e3:.0f}" if timing else "",
        f"{timing.update_s * 1e3:.0f}" if timing else "",
        f"{timing.ratio_median:.3f}" if timing else "",
        "{:.3f} to {:.3f}".format(*timing.ratio_ci95) if timing else "",
        *map(_gate_word, one.gates),
        one.verdict.replace("_", " "),
    )


def _gate_word(gate: Gate) -> str:
    return _WORDS.get(gate.outcome, "[dim]not run[/]")


def plan_table(found: PlanResult) -> Table:
    """One row a plan: what is estimated, and what was measured if a study has run."""
    title = _plain(f"Plans for {found.workload['name']} at {found.shape_key}")
    table = Table(title=title, title_justify="left")
    table.add_column("plan", no_wrap=True)
    pairs = [one.measured_pairs for one in (*found.points, *found.recipes) if one.measured_pairs]
    interval = interval_name(min(pairs, default=ENOUGH_PAIRS))
    for name in ("peak MB, est.", "above state", "time, est.", "peak MB", "ratio", interval):
        table.add_column(name, justify="right")
    table.add_column("parity")
    for title, points in (("found", found.points), ("recipes", found.recipes)):
        if points and title == "recipes":
            table.add_section()
        for point in points:
            table.add_row(*_plan_row(point))
    return table


def _plan_row(point: PlanPoint) -> tuple[str, ...]:
    low_high = point.measured_ratio_ci95
    return (
        _plain(point.plan),
        _mb(point.peak_bytes),
        _mb(point.peak_above_state_bytes),
        f"+{100 * point.overhead:.1f} %",
        (_mb(point.measured_peak_bytes) if point.measured_peak_bytes else "")
        + (" (!)" if point.flagged else ""),
        f"{point.measured_ratio:.3f}" if point.measured_ratio else "",
        "{:.3f} to {:.3f}".format(*low_high) if low_high else "",
        point.parity or "",
    )


def _mb(count: int | None) -> str:
    return "not measured" if count is None else in_mb(count)


def reasons(result: StudyResult) -> list[str]:
    """Why candidates were refused or could not be measured: the first reason of each, in a line."""
    lines = []
    for one in result.judged:
        candidate, more = one.candidate, len(one.candidate.troubles) - 1
        if candidate.troubles:
            tail = f" (and {more} more reasons, in the JSON)" if more > 0 else ""
            lines.append(f"{candidate.plan} at {candidate.shape_key}: {candidate.troubles[0]}{tail}")
    return lines


def rerun_lines(result: StudyResult) -> list[str]:
    """Which studies this one repeats; why it is undecided, and the command that measures it longer."""
    lines = list(said_of_reruns(result.spec.follows, result.spec.thresholds))
    why = why_undecided(result.judged, result.spec.timing) if result.verdict == "undecided" else None
    if why is not None:
        lines += [why, f"To measure it longer: python -m recompute_core longer {result.study_id}"]
    return lines


def estimates_table(found: dict[str, Estimate]) -> Table:
    """One row a plan: what it would keep and how high it would climb."""
    table = Table()
    table.add_column("plan", no_wrap=True)
    for name in ("saved MB", "peak MB", "above state MB"):
        table.add_column(name, justify="right")
    table.add_column("peak sits in")
    table.add_column("ceiling %", justify="right")
    table.add_column("kind")
    for plan, one in found.items():
        table.add_row(
            _plain(_whose(plan)),
            _mb(one.saved_bytes),
            _mb(one.peak_bytes),
            _mb(one.peak_above_state_bytes),
            _plain(one.peak_at.words),
            f"{one.ceiling * 100:.0f}",
            one.kind,
        )
    return table


def fit_table(fit: dict[str, Any]) -> Table:
    """The longest sequence or the largest batch under a budget, plan by plan."""
    what = {"seq_len": "longest sequence", "batch": "largest batch"}[fit["field"]]
    table = Table("plan")
    table.add_column(f"{what} in {fit['budget_bytes'] / 1e9:g} GB", justify="right")
    table.add_column("peak MB", justify="right")
    table.add_column("kind")
    for row in fit["plans"]:
        size = reached_words(row["largest"], row["at_limit"])
        peak = "" if row["largest"] is None else _mb(row["peak_bytes"])
        table.add_row(_plain(_whose(row["plan"])), size, peak, "estimated")
    return table


def studies_table(rows: list[StudyRow]) -> Table:
    """The history, newest first."""
    table = Table()
    for name in ("study", "workload", "plans", "shapes", "status", "verdict"):
        table.add_column(name, no_wrap=name == "study")
    for row in rows:
        table.add_row(
            row.id,
            _plain(with_training(row.spec.workload.name, row.spec)),
            _plain(", ".join(row.spec.plans[:3])) + (" …" if len(row.spec.plans) > 3 else ""),
            str(len(row.spec.shapes)),
            row.status,
            (row.verdict or "").replace("_", " "),
        )
    return table


def differences_table(found: "StudyComparison") -> Table:
    """What was asked and what was found differently."""
    table = Table("", "what", "A", "B")
    for one in found.differences:
        topic = f"asked: {one.asked}" if one.asked else f"found: {one.found}"
        sides = (_plain(side) if side is not None else "not there" for side in (one.a, one.b))
        table.add_row(topic, _plain(one.name), *sides)
    return table


def comparison_table(found: "StudyComparison") -> Table:
    """One row a candidate that both studies have: its update ratio and its peak in both."""
    table = Table()
    for name in ("shape", "plan", "verdict A", "verdict B"):
        table.add_column(name)
    for name in ("ratio A", "B", "difference", "peak MB A", "B", "difference"):
        table.add_column(name, justify="right")
    for one in found.pairings:
        ratio, peak = one.change("update_ratio"), one.change("peak_bytes")
        table.add_row(
            _plain(one.shape_key),
            _plain(one.plan),
            *((side.verdict or "not yet").replace("_", " ") for side in (one.a, one.b)),
            *((f"{ratio.a:.3f}", f"{ratio.b:.3f}", _moved_ratio(ratio)) if ratio else [""] * 3),
            *((in_mb(peak.a), in_mb(peak.b), signed_mb(peak.difference)) if peak else [""] * 3),
        )
    return table


def _moved_ratio(change: "Change") -> str:
    edges = "" if change.interval is None else " ({:+.3f} to {:+.3f})".format(*change.interval)
    return f"{change.difference:+.3f}{edges}"


def bytes_and_time(spec: StudySpec) -> str:
    """The note under every table: where its figures are from, and of which of several ranks they are."""
    ranks, where = spec.ranks, "here" if spec.engine == "local" else "on the Ray cluster"
    over = f" Over {ranks_words(ranks.count, ranks.kind)}: {WHOSE_FIGURES}." if ranks else ""
    made = f", {compiled_words(spec.compile.backend)}" if spec.compile else ""
    return f"MB = 10^6 bytes. Measured {where}{made}, {time.strftime('%Y-%m-%d %H:%M')}.{over}"
