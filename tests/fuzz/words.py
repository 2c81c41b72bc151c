"""The command line: every command with arguments that somebody mistyped, or that a script got from a
stranger. What a command would measure is not measured here, what it reads is read."""

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import click
from hypothesis import strategies as st

from recompute_core import __main__ as command_line
from recompute_core.errors import InputError
from recompute_core.reports.bundle import write_bundle, zip_of
from recompute_core.reports.keys import public_pem, write_key
from recompute_core.reports.passphrase import VARIABLE
from recompute_core.reports.signers import change_signers
from recompute_core.studies.store import Store
from tests.pages import studies
from tests.reports import decisions, figures
from tests.reports.signing import ANN

from .asked import FRAGMENTS, SPEC, _not_looked, _written
from .inputs import texts
from .reports import _result
from .run import Kind

_FILES = (
    "spec.yaml",
    "m.json",
    "m.csv",
    "report",
    "report.zip",
    "signers.json",
    "signer.key",
    "public.pem",
    "study.json",
    "missing.json",
    "new",
    "new.zip",
    "folder",
    ".",
)
_WORDS = (
    "quick",
    "gpt",
    "every-block",
    "thresholds.peak_ratio=0.9",
    "workload.seq_len=64",
    "blocks",
    "seq_len=64,128",
    "torch",
    "local",
    "2030-01-01",
    "1",
    "-1",
    "nan",
    "T=128 B=4",
    "STUDY",
)
_HEAVY = ("estimate", "legality", "plan")
"""Their work loads torch, and an answer to a bad argument does too: tried in the tests of these."""


@cache
def _commands() -> dict[tuple[str, ...], click.Command]:
    def within(
        group: click.Group, names: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from within(command, (*names, name))
            else:
                yield (*names, name), command

    return {names: one for names, one in within(command_line.cli, ()) if names[0] not in _HEAVY}


def _argument(text: str) -> str:
    """As the system hands one over: no zero bytes, and what is not UTF-8 as halves of surrogates."""
    return os.fsdecode(text.replace("\0", "").encode("utf-8", "replace"))


def _values(parameter: click.Parameter) -> st.SearchStrategy[str]:
    if isinstance(parameter.type, click.Path) or parameter.name == "json_file":
        return st.sampled_from((*_FILES, "-"))
    raw = st.binary(max_size=5).map(
        lambda data: os.fsdecode(data.replace(b"\0", b"").replace(b"/", b""))
    )
    foreign = st.one_of(texts, st.sampled_from(FRAGMENTS)).map(_argument)
    usual = st.sampled_from((*_WORDS, *_FILES))
    if isinstance(parameter.type, click.Choice):
        return st.one_of(st.sampled_from(tuple(map(str, parameter.type.choices))), foreign)
    # What names a file is the user's own choice: other words here are none that lead to one.
    if isinstance(parameter, click.Argument):
        foreign = foreign.filter(lambda one: "/" not in one and not one.endswith((".json", ".csv")))
    return st.one_of(usual, usual, foreign, raw)


def _lines() -> st.SearchStrategy[list[str]]:
    @st.composite
    def line(draw: st.DrawFn) -> list[str]:
        names = draw(st.sampled_from(sorted(_commands())))
        said: list[str] = []
        for parameter in _commands()[names].params:
            wanted = parameter.required or draw(st.integers(0, 3)) == 0
            if not wanted or draw(st.integers(0, 15)) == 0:
                continue
            option = parameter.opts[0]
            if not isinstance(parameter, click.Option):
                said.append(draw(_values(parameter)))
            elif parameter.is_flag:
                said.append(option)
            else:
                said += [option, draw(_values(parameter))]
        if draw(st.integers(0, 9)) == 0:
            said.insert(
                draw(st.integers(0, len(said))), draw(st.one_of(st.just("--help"), texts.map(_argument)))
            )
        return [*names, *said]

    return line()


_STUDY: list[str] = []


def _prepare(folder: Path) -> None:
    files = folder / "kept"
    files.mkdir()
    store = Store(files / "home")
    _STUDY[:] = [studies.filled(store)]
    store.close()
    (files / "spec.yaml").write_bytes(_written({**SPEC, "ranks": None}))
    (files / "m.json").write_bytes(figures.as_bytes(figures.measurements()))
    (files / "m.csv").write_text(figures.CSV)
    write_bundle(files / "report", decisions.honest())
    (files / "report.zip").write_bytes(zip_of(decisions.honest()))
    now = datetime.now(UTC)
    change_signers(files / "signers.json", lambda known: known.with_trust(ANN.public_key(), "ann", now))
    write_key(files / "signer.key", ANN, "correct horse battery")
    (files / "public.pem").write_text(public_pem(ANN.public_key()))
    (files / "study.json").write_text(json.dumps(_result().document()))
    (files / "folder").mkdir()


def _lay(line: list[str], folder: Path) -> None:
    at = folder / "at"
    shutil.rmtree(at, ignore_errors=True)
    shutil.copytree(folder / "kept", at)
    os.chdir(at)


def _stopped(*_: Any, **__: Any) -> Any:
    raise InputError("nothing is measured here")


@contextlib.contextmanager
def _at_hand(folder: Path) -> Iterator[io.BytesIO]:
    """A command line of its own, and nothing that would be measured; yields standard error."""
    err = io.BytesIO()
    with contextlib.ExitStack() as stack:
        for what in (
            mock.patch.dict(
                os.environ,
                {"RECOMPUTE_HOME": str(folder / "at" / "home"), VARIABLE: "correct horse battery"},
            ),
            mock.patch.object(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8")),
            mock.patch.object(sys, "stderr", io.TextIOWrapper(err, encoding="utf-8")),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8")),
            mock.patch.object(command_line, "_drive", _stopped),
            mock.patch("recompute_core.asking.looked_up", _not_looked),
            mock.patch("recompute_core.studies.admission.looked_up", _not_looked),
            mock.patch("recompute_core.reports.recheck.recheck", _stopped),
            mock.patch("recompute_core.reinvest.driver.drive", _stopped),
            mock.patch("recompute_core.exporting.costs", _stopped),
            mock.patch("getpass.getpass", _stopped),
        ):
            stack.enter_context(what)
        yield err


def _read(line: list[str], folder: Path) -> list[str]:
    argv = ["recompute_core", *(_STUDY[0] if word == "STUDY" else word for word in line)]
    code: Any = None
    with _at_hand(folder) as err, mock.patch.object(sys, "argv", argv):
        try:
            command_line.main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush(), sys.stderr.flush()
        said = err.getvalue().decode("utf-8", "replace")
    assert code in (None, 0, 1, 2, 3, 4), f"exit code {code}"
    if "Traceback (most recent call last)" in said:
        raise AssertionError(said.strip().splitlines()[-1] + " " + _last_place(said))
    return [one for one in said.splitlines() if one.startswith("error: ")]


def _last_place(said: str) -> str:
    places = [one.strip() for one in said.splitlines() if "recompute_core/" in one]
    return places[-1].rpartition("recompute_core/")[2] if places else ""


KINDS = (Kind("command lines", _lines, _read, _lay, _prepare, ["studies"]),)
