"""The command `reinvest`: what the memory that a plan saves would buy."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..errors import Cancelled
from ..output import EXIT_CODES, check_json_file, json_option, show, write_json
from ..words import OUTCOMES, pairs_words, printable, scientific
from .asked import PRESETS

if TYPE_CHECKING:
    from .found import ReinvestResult


@click.command(
    epilog="Example: python -m recompute_core reinvest STUDY --candidate every-block --preset quick"
)
@click.argument("study_id", metavar="STUDY")
@click.option(
    "--candidate", "plan", metavar="PLAN", help="A plan that passed; else that of the lowest peak."
)
@click.option("--shape", metavar="KEY", help="At this shape, such as '192x96 B=16'; else the first.")
@click.option(
    "--preset",
    "preset_name",
    default="quick",
    show_default=True,
    metavar="NAME",
    help=f"{' or '.join(PRESETS)}.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="effective_batch, microbatch, training.seeds, thresholds.rate_ratio, …; may be repeated.",
)
@json_option
def reinvest(
    study_id: str,
    plan: str | None,
    shape: str | None,
    preset_name: str,
    settings: tuple[str, ...],
    json_file: str | None,
) -> None:
    """Spend the memory that a plan saves on a larger microbatch, and see what that buys and costs.

    The largest microbatch within plain's peak, the same objective by accumulation, examples per second,
    recall of rare defects. Asking the same again goes on with a run that was stopped.
    """
    from ..studies.store import Store
    from ..terminal import steps_progress
    from .admission import admit, asked_of
    from .driver import drive
    from .kept import declare
    from .result import result_of

    store = Store()
    asked = asked_of(store, study_id, plan, shape, preset_name, settings)
    check_json_file(json_file)
    admit(store, asked)
    kept = declare(store, asked)
    click.echo(f"Reinvestment {kept.run_id} of study {study_id} in {store.home}", err=True)
    try:
        with steps_progress(phases=True) as tell:
            drive(kept, listener=lambda now: tell(_progress(now.words, now.done, now.total)))
    except Cancelled:
        write_json(json_file, result_of(kept).document())
        raise
    found = result_of(kept)
    if json_file != "-":
        _show(found)
    write_json(json_file, found.document())
    sys.exit(EXIT_CODES[found.verdict or "undecided"])


def _progress(words: str, done: int, total: int) -> str:
    return f"{words} ({done} of {total})" if words.startswith("training") else words


def _show(found: "ReinvestResult") -> None:
    if found.objective:
        click.echo(printable(f"{found.objective} Every figure below is to be read with that.\n"))
    for line in _lines(found):
        click.echo(printable(line))
    if found.training is not None:
        show(_recall_table(found))
    show(_gate_table(found))
    click.echo("\n" + printable(found.sentence))


def _lines(found: "ReinvestResult") -> Iterator[str]:
    from ..gates import megabytes
    from .found import SIZE_WORDS
    from .gates import used_sentence

    reaches = (found.reaches.batch, found.reaches.seq_len) if found.reaches else ()
    for reach in filter(None, reaches):
        what = SIZE_WORDS[reach.field]
        best = reach.largest
        if reach.is_asked and best is not None and best.peak_bytes is not None:
            yield (
                f"Microbatch {best.size:,}, as asked for: measured {megabytes(best.peak_bytes)}; "
                f"plain's peak {megabytes(reach.budget_bytes)}."
            )
            continue
        if best is None or best.peak_bytes is None:
            yield f"No {what} was measured within plain's peak of {megabytes(reach.budget_bytes)}."
            continue
        yield (
            f"Largest {what} within plain's peak of {megabytes(reach.budget_bytes)}: {best.size:,} "
            f"instead of {reach.plain_size:,}, measured {megabytes(best.peak_bytes)}."
        )
    if (used := used_sentence(found)) is not None:
        yield used
    if (same := found.accumulation) is not None:
        gap, means = same.largest_relative_gap, same.mean_of_means_gap
        yield (
            f"Accumulated gradient of {same.accepted} accepted of {same.effective_batch} examples, "
            f"microbatch {found.plain_microbatch} against {found.microbatch}: largest relative gap "
            f"{_gap(gap)}; as a mean of microbatch means {_gap(means)}."
        )
    if (rate := found.throughput) is not None:
        low, high = rate.rate_ratio_ci95
        yield (
            f"Examples per second: {rate.recomputed_rate:.1f} instead of {rate.plain_rate:.1f}, "
            f"{rate.rate_ratio:.2f} times as many ({low:.2f} to {high:.2f}), "
            f"{pairs_words(rate.timing)}."
        )
    if found.not_trained:
        yield found.not_trained


def _gap(gap: float | None) -> str:
    return "not to be compared" if gap is None else "0" if gap == 0 else scientific(gap)


def _recall_table(found: "ReinvestResult") -> Any:
    from rich.table import Table

    assert found.training is not None
    table = Table(
        title="Recall on validation, mean over receipts, with 95 % intervals (receipts and seeds)"
    )
    for head in ("class", "receipts", "photos", "plain", "95 %", "recomputed", "95 %"):
        table.add_column(head, justify="left" if head == "class" else "right")
    for one in found.training.classes:
        table.add_row(
            one.label,
            str(one.receipts),
            str(one.photos),
            f"{one.plain:.2f}",
            _interval(one.plain_ci95),
            f"{one.recomputed:.2f}",
            _interval(one.recomputed_ci95),
        )
    return table


def _gate_table(found: "ReinvestResult") -> Any:
    from rich.table import Table

    table = Table()
    for head in ("gate", "outcome", "threshold", "figure", "interval", "in words"):
        table.add_column(head)
    for gate in found.gates:
        table.add_row(
            gate.id,
            OUTCOMES[gate.outcome],
            f"{gate.bound} {gate.threshold:g}",
            "" if gate.observed is None else f"{gate.observed:.3g}",
            "" if gate.ci95 is None else "exact" if gate.is_exact else _interval(gate.ci95),
            gate.sentence,
        )
    return table


def _interval(edges: tuple[float, float]) -> str:
    return f"{edges[0]:.2f} to {edges[1]:.2f}"
