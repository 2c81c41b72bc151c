"""The check that a GPU is tried with, run dry to its end, and what becomes of a part that fails."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from recompute_core.plans.names import ATTENTION
from recompute_core.spec import Region, parse_spec
from tests.gpu_check import __main__ as check
from tests.gpu_check import studies
from tests.gpu_check.parts import PARTS, Part, Place
from tests.gpu_check.sizes import DRY, GPU
from tests.gpu_check.words import markdown


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a dry run that has ended well."""
    out = tmp_path_factory.mktemp("dry") / "out"
    command = [sys.executable, "-m", "tests.gpu_check", "--dry", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("[")] == [
        f"[{number}/9] {part.title}" for number, part in enumerate(PARTS, 1)
    ]
    assert done.stdout == f"{out / 'gpu-check.md'}: 9 of 9 parts went well\n"
    return out


@pytest.fixture(scope="module")
def whole(out: Path) -> dict[str, Any]:
    return json.loads((out / "gpu-check.json").read_text())  # type: ignore[no-any-return]


def found(whole: dict[str, Any], name: str) -> Any:
    return next(part["found"] for part in whole["parts"] if part["name"] == name)


def test_two_files_that_say_they_are_dry(out: Path, whole: dict[str, Any]) -> None:
    assert sorted(path.name for path in out.iterdir()) == ["gpu-check.json", "gpu-check.md"]
    assert whole["schema"] == "recompute-gpu-check/1"
    assert whole["note"] == "dry: no figure of a GPU"
    assert "**Dry: no figure of a GPU.**" in (out / "gpu-check.md").read_text()


def test_every_part_ran_within_its_box(whole: dict[str, Any]) -> None:
    assert [(part["name"], part["state"]) for part in whole["parts"]] == [
        (part.name, "done") for part in PARTS
    ]
    assert all(part["reason"] is None for part in whole["parts"])
    assert all(0 < part["seconds"] <= part["box_s"] for part in whole["parts"])


def test_the_machine(whole: dict[str, Any]) -> None:
    environment = found(whole, "machine")["environment"]
    assert environment["device"] == "cpu"
    assert environment["torch"] == torch.__version__


def test_parity_of_both_workloads_in_both_precisions(whole: dict[str, Any]) -> None:
    rows = found(whole, "parity")["rows"]
    assert len({(row["workload"], row["precision"], row["plan"]) for row in rows}) == 2 * 2 * 4
    for row in rows:
        assert row["passed"] and row["bitwise"] and row["canary_caught"] and row["back_to_plain"], row


def test_out_of_memory_is_one_cell_and_the_next_shape_is_measured(whole: dict[str, Any]) -> None:
    first, *after = found(whole, "memory")["cells"]
    assert (first["phase"], first["state"]) == ("reference", "failed")
    assert first["reason"].startswith("out of memory: ")
    assert [(cell["phase"], cell["state"]) for cell in after] == [
        (phase, "done")
        for phase in ("reference", "noise", "legality", "canary", "parity", "memory", "memory", "time")
    ]


def test_estimates_beside_what_was_measured(whole: dict[str, Any]) -> None:
    rows = found(whole, "estimates")["rows"]
    assert len(rows) == 2 * 7
    for row in rows:
        assert row["saved_bytes"] == row["estimated_saved_bytes"], "the CPU's kernels, exactly"
        assert row["error"] == row["estimated_peak_bytes"] / row["peak_bytes"] - 1
        assert -0.2 < row["error"] <= 0, "nothing but random states is left out"


def test_the_table(whole: dict[str, Any]) -> None:
    rows = found(whole, "table")["rows"]
    assert [row["shape"] for row in rows] == ["T=64 B=2", "T=128 B=2"]
    for row in rows:
        for side in (row["plain"], row["candidate"]):
            assert side["saved_bytes"] == side["cpu_saved_bytes"]
            assert side["timeline_peak_bytes"] == side["peak_bytes"]
            assert side["not_measured"] == {"peak_reserved_bytes": "the CPU has no caching allocator"}
        assert row["candidate"]["saved_bytes"] < row["plain"]["saved_bytes"] / 4
        assert row["plain_median_s"] > 0


def test_a_decision_was_signed_and_verified(whole: dict[str, Any]) -> None:
    decision = found(whole, "decision")
    assert decision["study"] == found(whole, "table")["study"]
    assert decision["verified"] is True


@pytest.mark.parametrize("part", ["compiled", "ranks"])
def test_trained_otherwise(whole: dict[str, Any], part: str) -> None:
    study = found(whole, part)
    assert study["bitwise"] is True and study["largest_gap"] == 0
    assert 0 < study["candidate_peak_bytes"] < study["plain_peak_bytes"]
    assert study["plain_median_s"] > 0
    assert ("the worst of 2 ranks" in study["sentence"]) == (part == "ranks")


def test_one_gpu_is_no_failure_of_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    place = Place(GPU, tmp_path, 60, lambda found: None, lambda line: None)
    said = {"not_tried": "2 ranks need 2 GPUs, and 1 is visible here"}
    assert studies.over_ranks(place) == (said, None)


def test_help_says_what_is_tried() -> None:
    asked = [sys.executable, "-m", "tests.gpu_check", "--help"]
    said = " ".join(subprocess.run(asked, capture_output=True, text=True).stdout.split())
    assert "a compiled study, DDP over two ranks where there are two GPUs" in said
    assert "Not FSDP2, not a Ray cluster, not `reinvest`." in said


def test_a_frontier_was_planned_and_some_of_it_measured(whole: dict[str, Any]) -> None:
    frontier = found(whole, "frontier")
    peaks = [point["estimated_peak_bytes"] for point in frontier["points"]]
    assert len(peaks) > 4
    assert peaks == sorted(peaks, reverse=True)
    plain, *others = frontier["measured"]
    assert plain["measured_peak_bytes"] is not None
    assert [one["parity"] for one in others] == ["bitwise"] * len(others)
    assert others[-1]["measured_peak_bytes"] < plain["measured_peak_bytes"]
    assert others[-1]["estimated_peak_bytes"] == peaks[-1]


def test_the_markdown_holds_what_the_json_does(out: Path, whole: dict[str, Any]) -> None:
    text = (out / "gpu-check.md").read_text()
    for part in PARTS:
        assert f"\n## {part.title}\n" in text
    for row in found(whole, "table")["rows"]:
        assert f"| {row['shape']} | plain |" in text
    assert f"| {found(whole, 'frontier')['points'][-1]['plan']} |" in text
    assert "| T=65536 B=2147483647 | none | reference | failed | out of memory: " in text
    assert "**Failed:**" not in text


# --- parts that fail ------------------------------------------------------------------------------


def test_a_part_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep = tmp_path / "asleep"
    asleep.write_text("#!/bin/sh\nexec sleep infinity\n")
    asleep.chmod(0o700)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*asked: Any, **named: Any) -> Any:
        started.append(popen(*asked, **named))
        return started[-1]

    monkeypatch.setattr(sys, "executable", str(asleep))
    monkeypatch.setattr(subprocess, "Popen", start)
    (tmp_path / "frontier.json").write_text(json.dumps({"found": {"points": [1]}, "reason": None}))
    row = check._one_part(Part("frontier", "a title", 5), tmp_path, True, 5.2)
    assert (row["state"], row["reason"]) == (
        "failed",
        "not finished after 5 s; what it had found is kept",
    )
    assert row["found"] == {"points": [1]}
    assert [one.returncode for one in started] == [-signal.SIGKILL]


def test_a_part_whose_process_dies(tmp_path: Path) -> None:
    row = check._one_part(Part("no such part", "a title", 60), tmp_path, True, 60)
    assert (row["state"], row["reason"], row["found"]) == ("failed", "its process ended with code 2", {})


@pytest.mark.parametrize("dry", [False, True])
def test_only_a_dry_run_has_wide_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry: bool
) -> None:
    boxes: list[float] = []

    def one_part(part: Part, home: Path, dry: bool, box_s: float) -> dict[str, Any]:
        boxes.append(box_s)
        row = {"name": part.name, "title": part.title, "seconds": 1, "found": {}}
        return row | {"state": "failed", "reason": "not tried"}

    monkeypatch.setattr(check, "_one_part", one_part)
    check._all_parts(tmp_path, dry)
    assert boxes[:-1] == [part.box_s * (10 if dry else 1) for part in PARTS[:-1]]


def test_a_part_without_time_is_not_begun(tmp_path: Path) -> None:
    row = check._one_part(PARTS[0], tmp_path, True, 4.9)
    assert (row["state"], row["reason"]) == ("failed", "no time was left for it")
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_runs_out_of_time_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over when its first canary begins."""
    said: list[str] = []
    timers: list[threading.Timer] = []

    class NotByTheClock(threading.Timer):
        def start(self) -> None:
            timers.append(self)

    def say(line: str) -> None:
        said.append(line)
        if line.endswith(" canary"):
            timers[0].function(*timers[0].args)

    monkeypatch.setattr(studies, "Timer", NotByTheClock)
    place = Place(DRY, tmp_path, 60, lambda found: None, say)
    store, result = studies._run(place, parse_spec({**DRY.sweep, "device": "cpu"}), 60)
    assert result.status == "cancelled"
    done = [cell.phase for cell in store.cells(result.study_id) if cell.state == "done"]
    assert done[:3] == ["reference", "noise", "legality"]
    assert "time" not in done
    assert said[-1] == "out of time; what was finished is kept"
    assert studies._trouble(result) == "the study is cancelled"


def test_a_part_that_raises_keeps_what_it_had_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(part: Part, place: Any) -> Any:
        place.tell({"rows": [1]})
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Part, "run", failing)
    argv = ["", "--dry", "--part", "parity", "--out", str(tmp_path / "kept"), "--home", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*argv, "--seconds", "9"])
    with pytest.raises(SystemExit) as ended:
        check.main()
    assert ended.value.code == 0
    kept = json.loads((tmp_path / "kept").read_text())
    assert kept == {"found": {"rows": [1]}, "reason": "out of memory: CUDA out of memory."}


def test_failed_parts_are_lines_with_their_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_part(part: Part, home: Path, dry: bool, box_s: float) -> dict[str, Any]:
        if part.name != "parity":
            assert json.loads((tmp_path / "gpu-check.json").read_text()) if part != PARTS[0] else True
        return {"name": part.name, "title": part.title, "box_s": 1, "seconds": 1, "found": {}} | (
            {"state": "failed", "reason": "it | broke"}
            if part.name == "table"
            else {"state": "done", "reason": None}
        )

    monkeypatch.setattr(check, "_one_part", one_part)
    monkeypatch.setattr(sys, "argv", ["", "--dry", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        check.main()
    assert ended.value.code == 4
    assert "8 of 9 parts went well; not so: Saved bytes" in capsys.readouterr().out
    assert "**Failed:** it \\| broke" in (tmp_path / "gpu-check.md").read_text()


def test_what_is_still_to_come_is_said() -> None:
    row = {"name": "machine", "title": "The machine", "state": "done", "reason": None, "seconds": 1}
    whole = check._result([row | {"found": {}}], "now", 1.0, False)
    assert whole["note"] is None
    assert "still to come: Parity, Out of memory" in markdown(whole)
    assert "Dry" not in markdown(whole)


# --- asking ---------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        check.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == "error: there is no CUDA device here; --dry runs the same parts on the CPU\n"
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["", "--dry", "--out", str(tmp_path / "file")])
    with pytest.raises(SystemExit) as ended:
        check.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_attention_is_kept_whichever_kernel_runs_it() -> None:
    cpu = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    regions = (
        Region(modules=("blocks.0",), keep=("aten.mm.default:0", f"{cpu}:0")),
        Region(modules=("blocks.1",)),
    )
    kept, whole = studies.whichever_attention(regions)
    assert kept.keep[:2] == ("aten.mm.default:0", f"{cpu}:0")
    assert kept.keep[2:] == tuple(f"{op}:0" for op in ATTENTION[1:4])
    assert whole == regions[1]
