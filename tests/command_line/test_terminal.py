"""What a terminal shows: of a study its figures, of foreign text the text."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from recompute_core import terminal
from recompute_core.spec import Compile, Ranks, StudySpec, parse_spec
from recompute_core.studies.assemble import assemble
from recompute_core.terminal import study_table
from tests.core import cells as made

HOSTILE = "[bold red]a[/] [/b] [link=https://evil.example]x[/link]\x1b[2J"
SHOWN = HOSTILE.replace("\x1b", "?")


def _shown(table: object) -> str:
    console = Console(file=io.StringIO(), width=400, force_terminal=True, color_system="truecolor")
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_names_in_tables_are_no_marks() -> None:
    row = made.row(StudySpec.model_validate({"plans": [HOSTILE.replace("\x1b", "?")]}), "done")
    assert SHOWN in _shown(terminal.studies_table([row]))


def test_names_in_progress_are_no_marks(capsys) -> None:
    with terminal.progress(made.SPEC, 0) as listen:
        key = ("T=1 B=1", HOSTILE, "parity")
        listen("start", key, {})
        listen("pair", key, {"candidate_s": 1.0, "plain_s": 1.0})
        listen("progress", key, {"what": HOSTILE, "percent": 1})
        listen("failed", key, {"reason": HOSTILE})
    said = " ".join(capsys.readouterr().err.split())
    assert f"parity failed for {SHOWN} at T=1 B=1: {SHOWN}" in said


def test_what_has_not_begun_says_what_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    key = ("T=1 B=1", "every-block", "parity")
    for kind, says in [
        ("asked", "waiting for a worker for parity of every-block at T=1 B=1"),
        ("placed", "loading torch for parity of every-block at T=1 B=1"),
        ("start", "parity of every-block at T=1 B=1"),
    ]:
        with terminal.progress(made.SPEC, 0) as listen:
            listen(kind, key, {})
        assert says in " ".join(capsys.readouterr().err.split())


def test_the_times_of_a_row_are_of_its_own_pairs() -> None:
    cells = list(made.play()[1].values())
    result = assemble(made.row(status="done"), cells)
    columns = {column.header: list(column.cells) for column in study_table(result).columns}
    plain, first = columns["plan"].index("plain"), columns["plan"].index("every-block")
    assert columns["plain ms"][plain] == columns["update ms"][plain] == ""
    timing = next(one.candidate.timing for one in result.judged if one.candidate.plan == "every-block")
    assert timing is not None
    assert columns["plain ms"][first] == f"{timing.plain_median_s * 1e3:.0f}"
    assert columns["update ms"][first] == f"{timing.candidate_median_s * 1e3:.0f}"
    assert columns["paired ratio"][first] == f"{timing.ratio_median:.3f}"


def test_the_note_says_that_ranks_share_the_batch() -> None:
    over = StudySpec(ranks=Ranks(kind="ddp", count=2))
    assert terminal.bytes_and_time(over).endswith(
        " Over 2 ranks (ddp) that share the batch: MB are of the rank with the highest peak, times of "
        "the slowest rank."
    )
    assert "ranks" not in terminal.bytes_and_time(StudySpec())


@pytest.mark.parametrize(
    ("asked", "label"),
    [
        ({}, "gpt"),
        ({"ranks": {"kind": "ddp", "count": 2}}, "gpt, ddp ×2"),
        ({"compile": {"backend": "inductor"}}, "gpt, inductor"),
        ({"engine": "ray", "ranks": {"kind": "fsdp2", "count": 4}}, "gpt, fsdp2 ×4, Ray"),
    ],
)
def test_a_list_of_studies_tells_ways_of_training_apart(asked: dict[str, object], label: str) -> None:
    row = replace(made.row(status="done"), spec=parse_spec(asked))
    (workload,) = terminal.studies_table([row]).columns[1].cells
    assert workload == label


def test_the_note_says_what_compiled() -> None:
    said = terminal.bytes_and_time(StudySpec(compile=Compile(backend="inductor")))
    assert "Measured here, compiled by inductor, 20" in said
    assert "compiled" not in terminal.bytes_and_time(StudySpec())
