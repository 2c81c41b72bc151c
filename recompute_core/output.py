"""What a command does with its result: a table on the terminal, JSON in a file or on standard output."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from .errors import InputError
from .writing import check_writable, write_whole

EXIT_CODES = {"adopt": 0, "keep_original": 1, "undecided": 3}
"""What a command that gives a verdict ends with."""


def _named(context: click.Context, option: click.Parameter, file: str | None) -> str | None:
    if file == "":
        raise click.BadParameter("expected a file, or - for standard output", context, option)
    return file


json_option = click.option(
    "--json",
    "json_file",
    metavar="FILE",
    callback=_named,
    help="Write the result as JSON; - for standard output.",
)


def show(table: Any) -> None:
    """Print one of rich's tables, in full width where no terminal sets one."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)


def check_json_file(json_file: str | None) -> None:
    """Find out before a long run, not after it, that its result cannot be written; leaves no file."""
    if json_file in (None, "-"):
        return
    assert json_file is not None
    try:
        check_writable(Path(json_file))
    except OSError as error:
        raise InputError(f"--json {json_file}: cannot be written: {error.strerror}") from None


def write_json(json_file: str | None, document: Any) -> None:
    """Write a result where `--json` says, if it says so. InputError when that cannot be written."""
    if json_file is None:
        return
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
        return
    try:
        write_whole(Path(json_file), text)
    except OSError as error:
        raise InputError(f"--json {json_file}: cannot be written: {error.strerror}") from None
