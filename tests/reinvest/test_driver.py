"""Whole reinvestments in real processes: to a verdict, killed and gone on with, cancelled, refused."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from recompute_core.errors import InputError
from recompute_core.reinvest import driver
from recompute_core.reinvest.admission import admit, asked_of
from recompute_core.reinvest.asked import (
    SIDES,
    parse_reinvest,
)
from recompute_core.reinvest.found import (
    TrainingRun,
)
from recompute_core.reinvest.kept import Kept, declare, run_named, runs, training_name
from recompute_core.reinvest.result import findings_of, result_of
from recompute_core.spec import parse_spec
from recompute_core.studies.admission import admit as admit_study
from recompute_core.studies.driver import drive as drive_study
from recompute_core.studies.store import Store

from .photos import asked, photos, receipts_study

ROOT = Path(__file__).parents[2]
GPT = {
    "workload": {"blocks": 4, "width": 32, "heads": 2, "vocab": 17, "seq_len": 64, "batch": 4},
    "plans": ["every-block"],
    "thresholds": {"peak_ratio": 1, "update_ratio": 100},
    "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
    "device": "cpu",
    "threads": 1,
}


def studied(store: Store, raw: dict[str, Any]) -> str:
    study = store.create(admit_study(parse_spec(raw), store.home))
    drive_study(store, study)
    return study


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def study(store: Store, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A study of the tiny encoder whose plan passed."""
    return studied(store, receipts_study(photos(tmp_path_factory.mktemp("own") / "photos")))


def command(store: Store, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recompute_core", "reinvest", *arguments],
        cwd=ROOT,
        env={**os.environ, "RECOMPUTE_HOME": str(store.home)},
        capture_output=True,
        text=True,
        timeout=400,
    )


def settings_of(raw: dict[str, Any]) -> list[str]:
    """`--set` of all that a request says beyond its plan."""
    given = {key: value for key, value in raw.items() if key not in ("study", "plan", "shape")}
    return [word for key, value in given.items() for word in ("--set", f"{key}={json.dumps(value)}")]


@pytest.fixture(scope="module")
def whole(store: Store, study: str) -> Kept:
    """A run that nothing broke off."""
    kept = declare(store, parse_reinvest(asked(study)))
    driver.drive(kept)
    return kept


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def processes_of(kept: Kept) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if kept.run_id in (process.info["cmdline"] or []):
            found += [process, *process.children(recursive=True)]
    return found


def test_a_run_ends_with_a_verdict_and_every_part_of_it(whole: Kept) -> None:
    found = result_of(whole)
    assert found.status == "done" and found.verdict is not None and found.objective is None
    assert found.reaches is not None and found.reaches.batch.tried[0].peak_bytes is not None
    assert found.accumulation is not None and found.accumulation.dropout_off
    assert found.accumulation.accepted < found.accumulation.effective_batch == 12
    assert found.accumulation.failures(1e-5) == ()
    assert (found.accumulation.mean_of_means_gap or 0) > 1e-3
    assert found.throughput is not None and found.throughput.timing.pairs == 3
    assert (found.throughput.plain_microbatches, found.throughput.recomputed_microbatches) == (3, 2)
    assert found.training is not None and found.training.rare is not None
    assert [one.label for one in found.training.classes][-1] == "torn"
    assert len(found.training.accuracy["plain"]) == 2
    assert [run.seed for run in findings_of(whole).runs] == [0, 0, 1, 1]
    for run in findings_of(whole).runs:
        updates, looks = whole.said(run.side, run.seed)
        assert tuple(updates) == run.updates and tuple(looks) == run.evaluations
        assert len(run.updates) == 8 and [look.after for look in looks] == [3, 6, 8]
        assert not whole.checkpoint(run.side, run.seed).exists()
    json.dumps(found.document(), allow_nan=False)


def test_files_that_do_not_fit_are_done_again_to_the_same_bits(
    store: Store, study: str, whole: Kept
) -> None:
    digests = [run.weights_digest for run in findings_of(whole).runs]
    first, other = (whole.folder / f"training {side} 0.json" for side in SIDES)
    other.write_bytes(first.read_bytes())
    edited = json.loads((whole.folder / "throughput.json").read_bytes())
    edited["recomputed_examples"] *= 1000
    (whole.folder / "throughput.json").write_text(json.dumps(edited))
    (whole.folder / "accumulation.json").unlink()
    found = result_of(whole)
    assert (found.verdict, found.throughput, found.training) == (None, None, None)
    driver.drive(whole)
    assert result_of(whole).verdict is not None
    assert [run.weights_digest for run in findings_of(whole).runs] == digests
    assert (whole.folder / "throughput.damaged").exists()


def test_asking_the_same_again_shows_it_and_runs_nothing(store: Store, study: str, whole: Kept) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in whole.folder.glob("*.json")}
    ran = command(
        store,
        study,
        "--candidate",
        "mlp",
        "--preset",
        "quick",
        *settings_of(asked(study)),
        "--json",
        "-",
    )
    document = json.loads(ran.stdout)
    assert document["run_id"] == whole.run_id and document["schema"] == "recompute-reinvest/1"
    assert ran.returncode == {"adopt": 0, "keep_original": 1, "undecided": 3}[document["verdict"]]
    assert document == result_of(whole).document()
    after = {path.name: path.stat().st_mtime_ns for path in whole.folder.glob("*.json")}
    assert {name: at for name, at in after.items() if name != "now.json"} == {
        name: at for name, at in before.items() if name != "now.json"
    }


@pytest.mark.parametrize("victim", ["driver", "worker"])
def test_killed_in_the_middle_of_training_the_weights_end_bitwise_the_same(
    store: Store, study: str, whole: Kept, victim: str
) -> None:
    other = asked(study, thresholds={"rare_recall_loss": 0.2 if victim == "driver" else 0.3})
    kept = driver.start(store, parse_reinvest(other))
    until(lambda: kept.checkpoint("recomputed", 0).exists())
    members = processes_of(kept)
    drivers = [process for process in members if kept.run_id in process.cmdline()]
    if victim == "driver":
        drivers[0].send_signal(signal.SIGKILL)
    else:
        for process in members:
            if process not in drivers and "spawn_main" not in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
    until(lambda: not kept.lock.is_held())
    until(lambda: not any(process.is_running() and process.status() != "zombie" for process in members))
    assert result_of(kept).status in ("interrupted", "failed")
    assert result_of(kept).verdict is None
    assert kept.read(training_name("plain", 0), TrainingRun) is not None, "what was finished is kept"

    driver.drive(kept)
    assert result_of(kept).status == "done"
    mine, theirs = findings_of(kept).runs, findings_of(whole).runs
    assert [run.weights_digest for run in mine] == [run.weights_digest for run in theirs]
    assert [run.seen for run in mine] == [run.seen for run in theirs]
    assert sum(run.stopped for run in mine) == 1


def test_cancelled_it_stops_and_goes_on_when_asked_again(store: Store, study: str) -> None:
    other = parse_reinvest(asked(study, thresholds={"rare_recall_loss": 0.4}))
    kept = driver.start(store, other)
    until(lambda: kept.log("plain", 0).exists())
    with pytest.raises(InputError, match="running already"):
        driver.start(store, other)
    kept.ask_cancel()
    until(lambda: not kept.lock.is_held())
    assert result_of(kept).status == "cancelled"
    driver.drive(kept)
    assert result_of(kept).status == "done"


def test_batch_normalisation_changes_the_objective_and_says_so(store: Store, tmp_path: Path) -> None:
    study = studied(store, receipts_study(photos(tmp_path / "photos"), norm="batch"))
    one = asked(study, training={"seeds": []})
    ran = command(store, study, *settings_of(one), "--json", str(tmp_path / "found.json"))
    assert ran.returncode == 1, ran.stderr
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["objective"].startswith(
        "The training objective changed: blocks.0.norm1, blocks.0.norm2 and 2 more normalise over"
    )
    assert document["objective"] in " ".join(ran.stdout.split())
    gates = {gate["id"]: gate["outcome"] for gate in document["gates"]}
    assert gates["same_objective"] == "fail" and gates["rare_recall"] == "not_run"
    assert document["throughput"]["rate_ratio"] > 0, "figures are still given, to be read with that"


def test_a_gpt_finds_a_larger_microbatch_and_a_longer_sequence(store: Store) -> None:
    study = studied(store, GPT)
    found_asked = asked_of(
        store, study, None, None, "quick", ("timing.min_pairs=3", "timing.max_pairs=3")
    )
    assert (found_asked.plan, found_asked.shape) == ("every-block", "T=64 B=4")
    assert found_asked.effective_batch == 16
    admit(store, found_asked)
    kept = declare(store, found_asked)
    driver.drive(kept)
    found = result_of(kept)
    assert found.reaches is not None and found.reaches.seq_len is not None
    for reach in (found.reaches.batch, found.reaches.seq_len):
        best = reach.largest
        assert best is not None and best.size > reach.plain_size and best.bitwise
        assert best.peak_bytes is not None and best.peak_bytes <= reach.budget_bytes
        assert best.peak_bytes == pytest.approx(best.estimated_peak_bytes, rel=0.02)
        assert reach.estimated_next_bytes is not None
        assert reach.estimated_next_bytes > 0.98 * reach.budget_bytes
    assert found.microbatch is not None and found.microbatch > 4
    assert found.training is None and "gpt has no rare class" in str(found.not_trained)
    assert found.verdict in ("keep_original", "undecided")


def test_a_failed_phase_is_said_in_one_line_and_tried_again(
    store: Store, study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = declare(store, parse_reinvest(asked(study, thresholds={"rare_recall_loss": 0.5})))
    with monkeypatch.context() as broken:
        broken.setattr(driver, "find_reach", None)
        broken.setattr(driver, "asked_size", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            driver.drive(kept)
    found = result_of(kept)
    assert (found.status, found.failure) == ("failed", "ZeroDivisionError: division by zero")
    assert not kept.lock.is_held()


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--candidate", "every-block"], "every-block would have to pass study {study}'s gates"),
        (["--shape", "64x64 B=9"], "any plan at 64x64 B=9 would have to pass"),
        (["--preset", "fast"], "unknown preset 'fast' of reinvest; known: quick, full"),
        (["--set", "effective_batch=0"], "effective_batch: input should be greater than or equal to 1"),
        (["--set", "effective_batch=3"], "effective_batch 3 is less than plain's microbatch 4"),
        (["--set", "microbatch=99"], "microbatch 99 is more than an update's 16 examples"),
        (["--set", "training.seeds=[1,1]"], "each seed may be named once"),
        (["--set", "thresholds.rare_recall_loss=nan"], "thresholds.rare_recall_loss"),
        (["--set", "wheel=4"], "wheel: no such setting"),
        (["--json", "/nowhere/at/all.json"], "--json /nowhere/at/all.json: cannot be written"),
    ],
)
def test_bad_input_gets_one_line(store: Store, study: str, arguments: list[str], line: str) -> None:
    ran = command(store, study, *arguments)
    assert ran.returncode == 2, ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    assert line.format(study=study) in ran.stderr


def test_a_study_that_is_not_there_and_a_run_that_is_not(store: Store, study: str) -> None:
    assert "no study 'nothing'" in command(store, "nothing").stderr
    with pytest.raises(InputError, match="no reinvestment 'x'"):
        run_named(store, study, "x")


def test_damaged_files_are_done_again_and_a_damaged_question_is_told(store: Store, study: str) -> None:
    one = parse_reinvest(asked(study, thresholds={"rare_recall_loss": 0.6}))
    kept = declare(store, one)
    (kept.folder / "batch.json").write_text('{"batch": ')
    assert result_of(kept).reaches is None
    (kept.folder / "asked.json").write_text("{")
    assert kept.run_id not in [run.run_id for run in runs(store, study)]
    with pytest.raises(Exception, match=r"asked\.json is damaged or was changed; delete that folder"):
        declare(store, one)


def test_nothing_of_it_imports_torch_in_the_browser() -> None:
    code = (
        "import sys\n"
        "from recompute_core.reinvest import admission, asked, driver, found, gates\n"
        "from recompute_core.reinvest import kept, recall, result\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    assert SIDES == ("plain", "recomputed")
