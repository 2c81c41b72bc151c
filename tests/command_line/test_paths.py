"""Paths that a user gives: whatever they are, one line and exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from recompute_core.__main__ import cli
from recompute_core.errors import InputError
from recompute_core.studies.store import Store
from tests.pages import studies

ROOT = str(Path(__file__).parents[2])
LONG = "a" * 300


def run(home: Path | str, *words: str | bytes, **more: str | Path) -> subprocess.CompletedProcess[str]:
    """A command by itself, `cwd` its working directory."""
    place = more.pop("cwd", None)
    return subprocess.run(
        [sys.executable, "-m", "recompute_core", *words],
        env={**os.environ, "PYTHONPATH": ROOT, "RECOMPUTE_HOME": str(home), **more},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=240,
    )


def is_one_line(done: subprocess.CompletedProcess[str]) -> bool:
    return done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("named", ["", ".", "..", "/", LONG, "loop", "loop/x", "file/x"])
def test_where_nothing_can_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "home"))
    store = Store(tmp_path / "home")
    study = studies.filled(store)
    store.close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    there = sorted(path.name for path in tmp_path.iterdir())
    export = ["export", study, "--candidate", "every-block", "--to", "torch", "--out"]
    report = ["report", study, "--candidate", "every-block", "--key", "file", "--out"]
    for words in (["studies", "--json"], ["plans", "--json"], export, report, ["keys", "new", "--out"]):
        done = run(tmp_path / "home", *words, named)
        assert (done.returncode, is_one_line(done)) == (2, True), (words[0], done.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == there


@pytest.mark.parametrize(
    "words",
    [
        ["study", "{}"],
        ["gate", "{}"],
        ["verify", "{}"],
        ["recheck", "{}"],
        ["keys", "show", "{}"],
        ["keys", "list", "--signers", "{}"],
        ["keys", "trust", "{}", "--name", "ann"],
        ["report", "m.json", "--key", "{}", "--out", "new"],
        ["compare", "{}.json", "{}.json"],
    ],
)
@pytest.mark.parametrize("named", [LONG, "x" * 5000, ""])
def test_what_no_file_can_be_called_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], named: str
) -> None:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    asked = [word.format(named) for word in words]
    done = CliRunner().invoke(cli, asked, standalone_mode=False)
    assert getattr(done.exception, "exit_code", None) == 2, done.exception


@pytest.mark.parametrize("words", [["study", "--preset", "quick"], ["studies"], ["legality", "gpt"]])
def test_a_home_that_is_not_utf_8_is_refused_before_it_is_made(tmp_path: Path, words: list[str]) -> None:
    home = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    done = run(home, *words)
    assert (done.returncode, is_one_line(done)) == (2, True)
    assert done.stderr.startswith("error: RECOMPUTE_HOME: ") and "is not UTF-8" in done.stderr
    assert list(tmp_path.iterdir()) == []
    elsewhere = run(tmp_path / "home", *words, TMPDIR=home)
    assert (elsewhere.returncode, elsewhere.stderr.startswith("error: TMPDIR: ")) == (2, True)


def test_photos_in_a_folder_that_is_not_utf_8_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recompute_core.asking import asked

    place = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(place)
    monkeypatch.chdir(place)
    with pytest.raises(InputError, match=r"^workload\.images: .* is not UTF-8"):
        asked("quick", None, ("workload.images=photos",), (), "receipts")


def test_a_working_directory_that_was_removed_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    line = f"mkdir -p {gone} && cd {gone} && rmdir {gone} && {sys.executable} -m recompute_core"
    env = {**os.environ, "PYTHONPATH": ROOT, "RECOMPUTE_HOME": ""}
    done = subprocess.run(["bash", "-c", f"{line} studies"], env=env, capture_output=True, text=True)
    assert done.returncode == 4
    assert done.stderr == "error: the working directory: No such file or directory\n"
    fine = subprocess.run(["bash", "-c", f"{line} plans"], env=env, capture_output=True, text=True)
    assert (fine.returncode, fine.stderr) == (0, "")
