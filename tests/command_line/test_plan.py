"""`plan` as a user types it: exit codes, one-line mistakes, the JSON, and a study of what was found."""

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recompute_core import planning
from recompute_core.__main__ import cli
from recompute_core.planning import Wish
from recompute_core.results import PlanPoint, PlanResult
from recompute_core.spec import StudySpec
from recompute_core.studies.locks import Lock
from tests.core import records as make

TINY = (
    "workload={name: gpt, blocks: 2, width: 32, heads: 2, vocab: 17, seq_len: 16, batch: 2}",
    "threads=1",
)


def plan(home: Path, *words: str, sets: tuple[str, ...] = TINY) -> subprocess.CompletedProcess[str]:
    given = [word for text in sets for word in ("--set", text)]
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "recompute_core", "plan", *words, *given],
        capture_output=True,
        text=True,
        env={"RECOMPUTE_HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": str(home.parent)},
        timeout=240,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# --- without planning -----------------------------------------------------------------------------

PLAIN = make.plan_point("none", 4_000_000)
OURS = make.plan_point("best-3mb", 3_000_000, "blocks.0")


def answered(monkeypatch: pytest.MonkeyPatch, found: PlanResult, *words: str) -> tuple[Result, Wish]:
    """The command where planning answers `found`, and what planning was asked for."""
    asked: list[Wish] = []

    def plan(spec: StudySpec, wish: Wish) -> PlanResult:
        asked.append(wish)
        return found

    def measure(*_: object, **__: object) -> PlanResult:
        raise AssertionError("nothing is to be measured")

    monkeypatch.setattr(planning, "plan", plan)
    monkeypatch.setattr(planning, "measure", measure)
    done = CliRunner().invoke(cli, ["plan", "gpt", *words])
    return done, asked[0]


def found(chosen: PlanPoint | None, *points: PlanPoint) -> PlanResult:
    update = {"sentence": "So it is.", "chosen": chosen, "points": points, "recipes": ()}
    update["verdict"] = "found" if points else "none"
    return make.plan_answer(OURS).model_copy(update=update)


@pytest.mark.parametrize("measure", [(), ("--measure",)])
@pytest.mark.parametrize(
    ("answer", "words", "code"),
    [
        (found(PLAIN, PLAIN), ("--budget-mb", "9"), 0),
        (found(None), ("--budget-mb", "0.5"), 1),
        (found(PLAIN, PLAIN), ("--max-overhead", "10"), 0),
        (found(None, PLAIN), ("--frontier",), 0),
    ],
)
def test_exit_codes_where_there_is_nothing_to_measure(
    monkeypatch: pytest.MonkeyPatch,
    answer: PlanResult,
    words: tuple[str, ...],
    code: int,
    measure: tuple[str, ...],
) -> None:
    done, _ = answered(monkeypatch, answer, *words, *measure)
    assert (done.exit_code, done.stderr) == (code, "")
    assert done.stdout.strip().splitlines()[-1] == "So it is."


def test_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = found(OURS, PLAIN, OURS)
    _, wish = answered(monkeypatch, answer, "--budget-mb", "1.5")
    assert wish == Wish(budget_bytes=1_500_000)
    _, wish = answered(monkeypatch, answer, "--max-overhead", "12.5", "--against", "recipes")
    assert wish == Wish(max_overhead=0.125, against_recipes=True)
    _, wish = answered(monkeypatch, answer, "--frontier")
    assert wish == Wish(frontier=True)


def test_the_json_and_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = found(OURS, PLAIN, OURS)
    done, _ = answered(monkeypatch, answer, "--budget-mb", "3", "--json", "-")
    document = json.loads(done.stdout)
    assert document == json.loads(answer.model_dump_json(by_alias=True))
    assert document["schema"] == "recompute-plan/1"
    assert (document["chosen"]["miss"], document["chosen"]["flagged"]) == (None, False)
    off = OURS.model_copy(update={"measured_peak_bytes": 3_100_000, "measured_ratio": 1.5})
    done, _ = answered(monkeypatch, found(off, PLAIN, off), "--budget-mb", "3")
    row = next(line for line in done.stdout.splitlines() if "best-3mb" in line)
    assert [cell.strip() for cell in row.strip("│ ").split("│")][:6] == [
        "best-3mb",
        "3.00",
        "2.00",
        "+25.0 %",
        "3.10 (!)",
        "1.500",
    ]


# --- in a process of its own ----------------------------------------------------------------------


def test_what_was_found_is_measured(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = plan(
        home,
        "gpt",
        "--budget-mb",
        "0.55",
        "--measure",
        "--json",
        str(file),
        sets=(*TINY, "checkpoint.rng=ignore"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    chosen = found["chosen"]
    assert chosen["peak_bytes"] <= 550_000 < found["plain"]["peak_bytes"]
    assert chosen["parity"] == "bitwise"
    assert chosen["measured_peak_bytes"] == pytest.approx(chosen["peak_bytes"], rel=0.02)
    low, high = chosen["measured_ratio_ci95"]
    assert 0 < low <= chosen["measured_ratio"] <= high
    assert chosen["miss"] == chosen["measured_peak_bytes"] / chosen["peak_bytes"] - 1
    assert chosen["flagged"] is False
    assert found["points"] == [chosen]
    assert found["plain"]["measured_peak_bytes"] == pytest.approx(found["plain"]["peak_bytes"], rel=0.02)
    assert found["plain"]["measured_ratio"] == 1.0
    rows = sqlite3.connect(home / "recompute.sqlite3")
    assert rows.execute("SELECT id, status FROM studies").fetchall() == [(found["study_id"], "done")]
    rows.close()
    assert done.stdout.strip().splitlines()[-1] == found["sentence"]
    assert " bitwise " in done.stdout


def test_an_interrupted_search_leaves_no_file(home: Path, tmp_path: Path) -> None:
    lock, file, old = Lock(tmp_path / "recompute-studio.lock"), tmp_path / "new.json", tmp_path / "old"
    old.write_text("old")
    lock.acquire()  # the search waits for the machine
    for place in (file, old):
        words = ("plan", "gpt", "--frontier", "--json", str(place))
        with subprocess.Popen(
            [sys.executable, "-m", "recompute_core", *words],
            stderr=subprocess.PIPE,
            env={"RECOMPUTE_HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        ) as process:
            assert process.stderr is not None
            assert any(b"waiting" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 4
    lock.release()
    assert not file.exists()
    assert old.read_text() == "old"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gpt"], "give one of --budget-mb N, --max-overhead PCT and --frontier"),
        (["gpt", "--against", "recipes"], "give one of --budget-mb N"),
        (["gpt", "--budget-mb", "9", "--frontier"], "give one of --budget-mb N"),
        (["gpt", "--budget-mb", "9", "--max-overhead", "9"], "give one of --budget-mb N"),
        (["gpt", "--budget-mb", "-5"], "--budget-mb: expected a number above 0, got -5"),
        (["gpt", "--budget-mb", "nan"], "--budget-mb: expected a number above 0, got nan"),
        (["gpt", "--max-overhead", "0"], "--max-overhead: expected a number above 0, got 0"),
        (["unheard-of", "--frontier"], "unknown workload 'unheard-of'; known: gpt, receipts"),
        (["gpt", "--frontier", "--set", "workload.batch=0"], "workload.batch"),
        (["gpt", "--frontier", "--set", "batch"], "batch"),
        (["gpt", "--frontier", "--json", "/nowhere/x.json"], "cannot be written"),
        (["gpt", "--frontier", "--against", "everything"], "'everything' is not 'recipes'"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error(home: Path, words: list[str], says: str) -> None:
    done = plan(home, *words, sets=())
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_plan_explains_itself(home: Path) -> None:
    done = plan(home, "--help", sets=())
    assert done.returncode == 0
    assert "Example: python -m recompute_core plan gpt" in done.stdout
