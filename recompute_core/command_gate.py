"""The command `gate`: figures that were measured elsewhere, through the gates."""

import sys
from pathlib import Path
from typing import Any

import click

from .errors import InputError
from .given_paths import GivenPath
from .output import EXIT_CODES, check_json_file, json_option, write_json
from .words import printable

set_thresholds = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="A threshold of supplied figures, such as thresholds.peak_ratio=0.9; may be repeated.",
)


@click.command(epilog="Example: python -m recompute_core gate measurements.json")
@click.argument("measurements", required=False, type=GivenPath(), metavar="[MEASUREMENTS]")
@click.option(
    "--recorder", is_flag=True, help="Print a recorder of measurements, to paste into a training script."
)
@set_thresholds
@json_option
def gate(
    measurements: Path | None, recorder: bool, settings: tuple[str, ...], json_file: str | None
) -> None:
    """Gate figures that you measured elsewhere; they are labelled supplied.

    MEASUREMENTS is a .csv or JSON file of raw samples, recompute-measurements/1, as the recorder
    writes; or a JSON object of plain and candidate, each with peak_allocated_mb, median_update_ms and
    largest_gradient_gap.

    The exit code is that of the verdict: 0 adopt, 1 keep the original, 3 undecided.
    """
    from .supplied import judge_supplied, read_supplied

    if recorder == (measurements is not None):
        raise InputError("give either a file of measurements or --recorder")
    if measurements is None:
        click.echo(recorder_source(), nl=False)
        return
    given = read_supplied(measurements, thresholds_of(settings))
    check_json_file(json_file)
    verdict = judge_supplied(given)
    if json_file != "-":
        for one in verdict["gates"]:
            click.echo(_line(one))
        for warning in verdict["warnings"]:
            click.echo(f"note: {warning}")
        click.echo(printable(verdict["sentence"]))
    write_json(json_file, verdict)
    sys.exit(EXIT_CODES[verdict["verdict"]])


def recorder_source() -> str:
    """The recorder as it is pasted, without the comments that are for our own tools."""
    text = Path(__file__).with_name("recorder.py").read_text(encoding="utf-8")
    return text[text.index("import json") :]


def thresholds_of(settings: tuple[str, ...]) -> Any:
    """What `--set` says of thresholds; None when it says nothing. InputError for any other setting."""
    from .asking import assign

    raw: dict[str, Any] = {}
    for assignment in settings:
        assign(raw, assignment)
    if set(raw) - {"thresholds"}:
        raise InputError(
            "--set: supplied figures take thresholds alone, such as thresholds.peak_ratio=0.9"
        )
    return raw.get("thresholds")


def _line(gate: dict[str, Any]) -> str:
    observed = "missing" if gate["observed"] is None else f"{gate['observed']:.4g}"
    low, high = gate["ci95"] or (None, None)
    interval = "" if low == high else f", {low:.4g} to {high:.4g}"
    words = "not run" if gate["outcome"] == "not_run" else gate["outcome"]
    figures = f"supplied {observed}{interval}, threshold {gate['threshold']:g}"
    return f"{gate['name']}: {words} ({figures}). {printable(gate['sentence'])}"
