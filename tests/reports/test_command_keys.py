"""`keys …` as a user types it: what it prints, writes and asks, and how it exits."""

import errno
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from recompute_core.__main__ import main
from recompute_core.reports import command_keys, pkcs8
from recompute_core.reports.keys import fingerprint, load_key, public_pem, read_public_key
from recompute_core.reports.signers import load_signers
from tests.reports.signing import ANN, BOB

SECRET = "correct horse"
ROOT = str(Path(__file__).parents[2])
ANNS = fingerprint(ANN.public_key())


class Done(NamedTuple):
    code: int
    out: str
    error: str

    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command in this process, in an empty folder; no passphrase may ever show."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RECOMPUTE_KEY_PASSPHRASE", SECRET)
    monkeypatch.setattr(pkcs8.encrypted_pem, "__defaults__", (2,))

    def command(*words: str) -> Done:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["recompute_core", "keys", *words])
            try:
                main()
                code = 0
            except SystemExit as stop:
                code = int(stop.code or 0)
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        assert code == 0 or said.err.count("\n") == 1
        return Done(code, said.out, said.err)

    return command


@pytest.fixture
def public(tmp_path: Path) -> str:
    (tmp_path / "ann.pem").write_text(public_pem(ANN.public_key()))
    (tmp_path / "bob.pem").write_text(public_pem(BOB.public_key()))
    return "ann.pem"


# --- new and show ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["p256", "ed25519"])
def test_a_new_key_and_what_show_says_of_it(run: Run, kind: str) -> None:
    made = run("new", "--out", "safe/k", "--kind", kind, "--json", "-").document()
    assert made["fingerprint"] == fingerprint(load_key(Path("safe/k"), SECRET).public_key())
    assert (made["file"], made["public_file"], made["kind"]) == ("safe/k", "safe/k.pub.pem", kind)
    for file in ("safe/k", "safe/k.pub.pem"):
        shown = run("show", file)
        assert shown.out == f"fingerprint {made['fingerprint']}\nkind {kind}\n{made['public_key']}"
        assert run("show", file, "--json", "-").document() == {
            name: made[name] for name in ("fingerprint", "kind", "public_key")
        }
    Path("shown.pem").write_text(run("show", "safe/k").out)
    assert fingerprint(read_public_key(Path("shown.pem"))) == made["fingerprint"]


def test_what_new_prints(run: Run) -> None:
    done = run("new", "--out", "k", "--json", "k.json")
    assert done.code == 0
    assert json.loads(Path("k.json").read_text())["fingerprint"] in done.out
    assert "PRIVATE" not in done.out + Path("k.json").read_text()


@pytest.mark.parametrize("name", ["k", "k.pub.pem"])
def test_new_never_overwrites(run: Run, name: str) -> None:
    Path(name).write_text("mine")
    done = run("new", "--out", "k")
    assert (done.code, f"error: {name}: exists" in done.error) == (2, True)
    assert (os.listdir(), Path(name).read_text()) == ([name], "mine")


def test_a_key_without_its_public_half_is_not_left_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "k" * 250  # with .pub.pem too long for a file
    assert run("new", "--out", name).code == 2
    assert os.listdir() == []
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(command_keys, "write_whole", Mock(side_effect=full))
    assert (
        run("new", "--out", "k").error.strip()
        == "error: k.pub.pem: cannot be written: No space left on device"
    )
    assert os.listdir() == []


def test_a_name_is_no_mark_and_moves_no_cursor(run: Run, public: str) -> None:
    name = "[red]ann[/] [/b]"
    assert run("trust", public, "--name", name, "--yes", fingerprint(ANN.public_key())).code == 0
    assert name in run("list").out
    assert run("revoke", "\x1b[2J").error.strip().isprintable()


@pytest.mark.parametrize("name", [".", "", "/", "..", "none/.."])
def test_new_wants_the_name_of_a_file(run: Run, name: str) -> None:
    assert run("new", "--out", name).code == 2
    assert os.listdir() == []


def test_show_looks_at_the_file_before_it_asks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("new", "--out", "k")
    Path("k").chmod(0o640)
    monkeypatch.delenv("RECOMPUTE_KEY_PASSPHRASE")
    assert "chmod 600" in run("show", "k").error


def test_new_wants_a_long_passphrase(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_KEY_PASSPHRASE", "1234567")
    done = run("new", "--out", "k")
    assert (done.code, "at least 8 characters" in done.error) == (2, True)
    assert os.listdir() == []


def test_there_is_no_way_to_pass_a_passphrase_on_the_command_line(run: Run) -> None:
    for words in (["new", "--out", "k"], ["show", "k"]):
        assert run(*words, "--passphrase", "x").code == 2
        assert run(*words, "--passphrase-fd", "x").code == 2
        assert "--passphrase-fd N" in run(*words, "--help").out


def test_show_refuses_in_one_line(
    run: Run, public: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("new", "--out", "k")
    Path("link").symlink_to("k")
    plain = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519"], capture_output=True, check=True
    )
    Path("plain").write_bytes(plain.stdout)
    for file, problem in (
        ("link", "symbolic link"),
        ("none", "No such file"),
        ("plain", "not encrypted"),
        (".", "Is a directory"),
    ):
        done = run("show", file)
        assert (done.code, problem in done.error) == (2, True)
    Path("k").chmod(0o644)
    assert "chmod 600" in run("show", "k").error
    Path("k").chmod(0o600)
    monkeypatch.setenv("RECOMPUTE_KEY_PASSPHRASE", "another one")
    done = run("show", "k")
    assert (done.code, "wrong passphrase" in done.error) == (2, True)


# --- trust, revoke, list ---------------------------------------------------------------------


def test_trusting_listing_revoking(run: Run, public: str) -> None:
    assert "No signer is trusted yet" in run("list").out
    done = run("trust", public, "--name", "Ann", "--yes", ANNS, "--expires", "2999-12-31", "--json", "-")
    assert (done.code, done.document()["state"]) == (0, "trusted")
    assert done.document()["expires_at"] == "2999-12-31T23:59:59Z"
    assert run("trust", "bob.pem", "--name", "bob", "--yes", fingerprint(BOB.public_key())).code == 0
    listed = run("list", "--json", "-").document()
    assert [(one["name"], one["kind"], one["state"]) for one in listed] == [
        ("Ann", "p256", "trusted"),
        ("bob", "ed25519", "trusted"),
    ]
    assert run("revoke", "Ann").code == 0
    assert run("revoke", fingerprint(BOB.public_key()), "--json", "-").document()["state"] == "revoked"
    table = run("list").out
    assert ANNS in table and table.count("revoked") == 3
    assert len(load_signers(Path("home/signers.json")).signers) == 2
    for who in ("Ann", ANNS, "eve"):
        assert run("revoke", who).code == 2


def test_a_signers_file_of_ones_own(run: Run, public: str) -> None:
    assert run("list", "--signers", "mine.json").code == 2
    assert run("revoke", "ann", "--signers", "mine.json").code == 2
    assert run("trust", public, "--name", "ann", "--yes", ANNS, "--signers", "mine.json").code == 0
    assert ANNS in run("list", "--signers", "mine.json").out
    assert not Path("home").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--yes", "yes"], "is not the fingerprint"),
        (["--yes", fingerprint(BOB.public_key())], "is not the fingerprint"),
        (["--yes", ANNS[:20]], "is not the fingerprint"),
        ([], "no terminal to ask on"),
        (["--yes", ANNS, "--expires", "2020-01-01"], "is past"),
        (["--yes", ANNS, "--expires", "soon"], "expected a day such as"),
        (["--yes", ANNS, "--signers", "."], "Is a directory"),
        (["--yes", ANNS, "--json", "none/x.json"], "cannot be written"),
    ],
)
def test_trust_is_refused_in_one_line_and_nothing_is_written(
    run: Run, public: str, words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        done = run("trust", public, "--name", "ann", *words)
    assert (done.code, problem in done.error) == (2, True)
    assert sorted(os.listdir()) == ["ann.pem", "bob.pem"]


def test_a_private_key_is_not_what_is_trusted(run: Run) -> None:
    run("new", "--out", "k")
    done = run("trust", "k", "--name", "ann", "--yes", ANNS)
    assert (done.code, "holds a private key" in done.error) == (2, True)


def test_every_command_has_an_example(run: Run) -> None:
    for command in ("new", "show", "trust", "revoke", "list"):
        shown = run(command, "--help").out
        assert f"Example: python -m recompute_core keys {command}" in " ".join(shown.split())
        assert "--json FILE" in shown


# --- at a terminal ---------------------------------------------------------------------------

_CONTROLLING = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, "
    "[sys.executable, '-W', 'error', '-m', 'recompute_core', 'keys', *sys.argv[1:]])"
)


def at_a_terminal(folder: Path, words: list[str], *answers: tuple[str, str]) -> Done:
    """A command at a terminal of its own: each answer is typed once its question stands there.

    Ctrl-C is typed until it is heard: Python loses one that comes just before it waits for a line.
    """
    own, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLING, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": ROOT, "RECOMPUTE_HOME": str(folder / "home")},
    )
    os.close(theirs)
    shown, waiting, typed = b"", list(answers), ""
    while True:
        if select.select([own], [], [], 1.0)[0]:
            piece = _read(own)
            if not piece:
                break
            shown += piece
            if waiting and waiting[0][0].encode() in shown:
                typed = waiting.pop(0)[1]
                os.write(own, typed.encode())
        elif typed == "\x03":
            os.write(own, typed.encode())
    os.close(own)
    assert not waiting
    return Done(process.wait(60), shown.decode(), "")


def _read(terminal: int) -> bytes:
    """What stands there; nothing once the other end is closed, which Linux calls an error."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


FIRST, AGAIN = "Passphrase of the new key: ", "The same again: "


def test_the_passphrase_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
    typed = SECRET + "\n"
    done = at_a_terminal(tmp_path, ["new", "--out", "k"], (FIRST, typed), (AGAIN, typed))
    assert (done.code, SECRET in done.out) == (0, False)
    shown = at_a_terminal(tmp_path, ["show", "k"], ("Passphrase of the key: ", typed))
    assert (shown.code, SECRET in shown.out) == (0, False)
    assert fingerprint(load_key(tmp_path / "k", SECRET).public_key()) in shown.out


@pytest.mark.parametrize(
    ("answers", "code", "says"),
    [
        ([(FIRST, "correct horse\n"), (AGAIN, "correct horsE\n")], 2, "the two passphrases differ"),
        ([(FIRST, "1234567\n")], 2, "too short"),
        ([(FIRST, "\x04")], 2, "no passphrase was given"),
        ([(FIRST, "\x03")], 4, "stopped"),
        ([(FIRST, "correct horse\n"), (AGAIN, "\x03")], 4, "stopped"),
    ],
)
def test_no_key_without_a_passphrase(
    tmp_path: Path, answers: list[tuple[str, str]], code: int, says: str
) -> None:
    done = at_a_terminal(tmp_path, ["new", "--out", "k"], *answers)
    assert (done.code, says in done.out, "Traceback" in done.out) == (code, True, False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("\x03", 4)])
def test_trust_shows_the_fingerprint_and_asks(
    tmp_path: Path, public: str, answer: str, code: int
) -> None:
    words = ["trust", public, "--name", "ann"]
    done = at_a_terminal(tmp_path, words, ("told you, over another channel? [y/N]: ", answer))
    assert done.code == code
    assert re.search(f"{ANNS}.*told you", done.out, re.DOTALL)
    assert (tmp_path / "home" / "signers.json").exists() == (code == 0)


@pytest.mark.parametrize("patience", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_stopped_at_any_time_there_is_a_whole_key_or_none(tmp_path: Path, patience: float) -> None:
    """`patience` is the part of an undisturbed run after which Ctrl-C comes."""

    def start(name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "recompute_core", "keys", "new", "--out", str(tmp_path / name)],
            env={"RECOMPUTE_KEY_PASSPHRASE": SECRET, "PATH": os.environ["PATH"]},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    began = time.monotonic()
    assert start("whole").wait(60) == 0
    lasted = time.monotonic() - began
    process = start("k")
    time.sleep(patience * lasted)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    left = set(os.listdir(tmp_path)) - {"whole", "whole.pub.pem"}
    assert left in (set(), {"k"}, {"k", "k.pub.pem"})
    if left:
        key = load_key(tmp_path / "k", SECRET).public_key()
        assert left == {"k"} or (tmp_path / "k.pub.pem").read_text() == public_pem(key)


def test_the_command_line_loads_no_cryptography_and_signing_no_torch() -> None:
    for names, heavy in (
        ("__main__", {"cryptography", "torch"}),
        ("reports.envelope, recompute_core.reports.passphrase", {"torch", "streamlit"}),
    ):
        line = f"import sys, recompute_core.{names}; print(*{heavy} & set(sys.modules))"
        shown = subprocess.run([sys.executable, "-c", line], capture_output=True, check=True)
        assert shown.stdout.split() == []
