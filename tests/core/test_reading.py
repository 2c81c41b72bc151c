"""Files that are read whole: regular ones, or what a shell hands over."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from recompute_core.__main__ import cli
from recompute_core.errors import InputError
from recompute_core.reading import read_at_most
from tests.reports.signing import SIGNERS


def _refusal(path: Path) -> str:
    with pytest.raises(InputError) as refused:
        read_at_most(path, 10, "is too large")
    return str(refused.value)


def test_small_files_are_read_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"0123456789")
    (tmp_path / "large").write_bytes(b"01234567890")
    os.mkfifo(tmp_path / "pipe")
    assert read_at_most(tmp_path / "small", 10, "") == b"0123456789"
    assert _refusal(tmp_path / "large").endswith("large: is too large")
    assert _refusal(tmp_path / "pipe").endswith("pipe: cannot be read: not a regular file")
    assert _refusal(Path("/dev/zero")) == "/dev/zero: cannot be read: not a regular file"
    assert _refusal(tmp_path).endswith("cannot be read: Is a directory")


def test_a_pipe_from_the_shell_is_read() -> None:
    out, into = os.pipe()
    os.write(into, b"here")
    os.close(into)
    try:
        assert read_at_most(Path(f"/dev/fd/{out}"), 10, "") == b"here"
    finally:
        os.close(out)


@pytest.mark.parametrize("words", [["verify", "{}"], ["verify", "x", "--signers", "{}"], ["gate", "{}"]])
def test_no_command_waits_for_a_pipe_that_nobody_writes_to(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path))
    (tmp_path / "signers.json").write_text(json.dumps(SIGNERS.document()))
    (tmp_path / "signers.json").chmod(0o644)  # whatever the umask
    os.mkfifo(tmp_path / "pipe")
    asked = [word.format(tmp_path / "pipe") for word in words]
    with pytest.raises(InputError, match="not a regular file"):
        CliRunner().invoke(cli, asked, standalone_mode=False, catch_exceptions=False)
