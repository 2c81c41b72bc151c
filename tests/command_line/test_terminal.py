"""What a terminal shows of foreign text: the text."""

import io

from rich.console import Console

from recompute_core import terminal
from recompute_core.spec import StudySpec
from tests.core import cells

HOSTILE = "[bold red]a[/] [/b] [link=https://evil.example]x[/link]\x1b[2J"
SHOWN = HOSTILE.replace("\x1b", "?")


def _shown(table: object) -> str:
    console = Console(file=io.StringIO(), width=400, force_terminal=True, color_system="truecolor")
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_names_in_tables_are_no_marks() -> None:
    row = cells.row(StudySpec.model_validate({"plans": [HOSTILE.replace("\x1b", "?")]}), "done")
    assert SHOWN in _shown(terminal.studies_table([row]))


def test_names_in_progress_are_no_marks(capsys) -> None:
    with terminal.progress(cells.SPEC, 0) as listen:
        key = ("T=1 B=1", HOSTILE, "parity")
        listen("start", key, {})
        listen("pair", key, {"candidate_s": 1.0, "plain_s": 1.0})
        listen("progress", key, {"what": HOSTILE, "percent": 1})
        listen("failed", key, {"reason": HOSTILE})
    said = " ".join(capsys.readouterr().err.split())
    assert f"parity failed for {SHOWN} at T=1 B=1: {SHOWN}" in said
