"""`report` and `verify` as they are typed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from recompute_core.__main__ import cli
from recompute_core.reports.keys import fingerprint, write_key
from recompute_core.reports.signers import Signers
from recompute_core.studies.store import Store
from tests.pages import studies
from tests.reports.signing import ANN, NOW

PASSPHRASE = "correct horse battery"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A RECOMPUTE_HOME with a key and a signers file."""
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RECOMPUTE_KEY_PASSPHRASE", PASSPHRASE)
    monkeypatch.chdir(tmp_path)
    write_key(tmp_path / "ann.key", ANN, PASSPHRASE)
    trusted = Signers().with_trust(ANN.public_key(), "ann", NOW)
    (tmp_path / "signers.json").write_text(json.dumps(trusted.document()))
    (tmp_path / "signers.json").chmod(0o644)  # whatever the umask
    return tmp_path


def _study(make: Any) -> str:
    store = Store()
    try:
        found = make(store)
        return found if isinstance(found, str) else str(found.id)
    finally:
        store.close()


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, words, standalone_mode=False)


def _report(study: str, *words: str, plan: str = "every-block") -> Result:
    return _run("report", study, "--candidate", plan, "--key", "ann.key", "--out", "decision", *words)


def _code(result: Result) -> int:
    error = result.exception
    if error is None or isinstance(error, SystemExit):
        return result.exit_code
    found: int = error.exit_code  # type: ignore[attr-defined]
    return found


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("make", "plan", "code", "words"),
    [
        (studies.filled, "every-block", 0, "Adopt every-block at T=256 B=4"),
        (studies.refused_by_parity, "every-block", 1, "Keep the original rather than every-block"),
        (studies.failed, "every-2nd-block", 3, "Not measured in full, every-2nd-block"),
    ],
)
def test_report_ends_as_its_verdict_does_and_verifies(
    make: Any, plan: str, code: int, words: str
) -> None:
    said = _report(_study(make), plan=plan)
    assert _code(said) == code, said.exception
    assert words in said.output
    assert f"signed with {fingerprint(ANN.public_key())}" in said.output
    checked = _run("verify", "decision", "--signers", "signers.json")
    assert _code(checked) == 0, checked.output
    assert "Verified, signed by ann." in checked.output
    assert words in checked.output


def test_the_documents(home: Path) -> None:
    said = json.loads(_report(_study(studies.filled), "--json", "-").output)
    assert said["schema"] == "recompute-report/1"
    assert (said["plan"], said["verdict"], said["out"]) == ("every-block", "adopt", "decision")
    assert sorted(said["files"]) == sorted(
        str(path.relative_to(home / "decision"))
        for path in (home / "decision").rglob("*")
        if path.is_file()
    )
    checked = _run("verify", "decision", "--signers", "signers.json", "--json", "-")
    document = json.loads(checked.output)
    assert (document["schema"], document["verified"]) == ("recompute-verification/1", True)


def test_a_refused_report_ends_with_1_and_says_why(home: Path) -> None:
    _report(_study(studies.filled))
    (home / "decision" / "report.html").write_text("adopt!")
    found = _run("verify", "decision", "--signers", "signers.json")
    assert _code(found) == 1
    assert "FAIL  report.html  report.html was changed after it was signed." in found.output
    assert found.output.splitlines()[-1].startswith("Refused: ")


def test_a_zip(home: Path) -> None:
    study = _study(studies.filled)
    words = ("report", study, "--candidate", "every-block", "--key", "ann.key", "--out", "decision.zip")
    assert _code(_run(*words)) == 0
    assert _code(_run("verify", "decision.zip", "--signers", "signers.json")) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--candidate", "nested"), "has no candidate 'nested'"),
        (("--key", "nothing.key"), "nothing.key: cannot be read"),
        (("--key", "signers.json"), "is no key in PEM"),
        (("--out", "full"), "is not empty; give a new folder"),
        (("--json", "no/such/folder.json"), "cannot be written"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(home: Path, words: tuple[str, ...], said: str) -> None:
    (home / "full").mkdir()
    (home / "full" / "mine").write_text("")
    found = _report(_study(studies.filled), *words)
    assert _code(found) == 2
    assert said in str(found.exception)
    assert "\n" not in str(found.exception)
    assert not (home / "decision").exists()


@pytest.mark.usefixtures("home")
def test_studies_that_cannot_be_reported() -> None:
    found = _report("20260101-000000-0000")
    assert (_code(found), "no study" in str(found.exception)) == (2, True)
    found = _report(_study(studies.running))
    assert (_code(found), "a report is made of a finished study" in str(found.exception)) == (2, True)


@pytest.mark.usefixtures("home")
def test_a_wrong_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_KEY_PASSPHRASE", "wrong passphrase")
    found = _report(_study(studies.filled))
    assert (_code(found), "wrong passphrase" in str(found.exception)) == (2, True)


@pytest.mark.usefixtures("home")
def test_nothing_to_verify() -> None:
    found = _run("verify", "nothing", "--signers", "signers.json")
    assert (_code(found), "no such folder" in str(found.exception)) == (2, True)
    found = _run("verify", "decision", "--signers", "nobody.json")
    assert (_code(found), "nobody.json: no such file" in str(found.exception)) == (2, True)


def test_whoever_trusts_nobody_refuses_and_is_told_how_to_trust(home: Path) -> None:
    _report(_study(studies.filled))
    print_of = fingerprint(ANN.public_key())
    found = _run("verify", "decision")
    assert (_code(found), f"it names '{print_of}'" in found.output) == (1, True)
    assert "keys trust decision/public_key.pem --name WHO\n" in found.output
    again = _run("recheck", "decision")
    assert (_code(again), "no key that you trust" in again.output) == (1, True)
    (home / "nobody.json").write_text('{"schema": "recompute-signers/1", "signers": []}')
    (home / "nobody.json").chmod(0o644)
    found = _run("verify", "decision", "--signers", "nobody.json")
    assert "--name WHO --signers nobody.json\n" in found.output


@pytest.mark.usefixtures("home")
def test_a_file_of_a_report_is_no_report() -> None:
    _report(_study(studies.filled))
    found = _run("verify", "decision/report.intoto.jsonl", "--signers", "signers.json")
    assert _code(found) == 1
    assert found.output == (
        "Refused: Is no .zip, or a damaged one. Give a report's folder, or its .zip.\n"
    )


def test_a_name_cannot_move_the_cursor(home: Path) -> None:
    evil = "\x1b[2Jevil"
    spec = studies.spec_of(
        plans=[evil], custom_plans={evil: [{"modules": ["blocks.0"]}]}, shapes=[{"seq_len": 128}]
    )
    said = _report(_study(lambda store: studies.filled(store, spec)), plan=evil)
    found = _run("verify", "decision", "--signers", "signers.json")
    assert "\x1b" not in said.output + found.output
    assert "?[2Jevil" in found.output


def test_the_passphrase_comes_through_a_descriptor_too(home: Path) -> None:
    """In a process of its own, as a script would call it."""
    study = _study(studies.filled)
    given, written = os.pipe()
    os.write(written, PASSPHRASE.encode())
    os.close(written)
    env = {name: value for name, value in os.environ.items() if name != "RECOMPUTE_KEY_PASSPHRASE"}
    words = ["report", study, "--candidate", "every-block", "--key", "ann.key", "--out", "decision"]
    found = subprocess.run(
        [sys.executable, "-m", "recompute_core", *words, "--passphrase-fd", str(given)],
        env=env | {"PYTHONPATH": str(Path(__file__).parents[2])},
        pass_fds=[given],
        capture_output=True,
        text=True,
    )
    os.close(given)
    assert found.returncode == 0, found.stderr
    assert PASSPHRASE not in found.stdout + found.stderr
    assert _code(_run("verify", "decision", "--signers", "signers.json")) == 0
