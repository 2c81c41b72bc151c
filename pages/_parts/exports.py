"""A plan as other trainers take it: asked of a process of its own where that needs an estimate."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import streamlit as st

from recompute_core.errors import InputError
from recompute_core.exporting import document, export, warning
from recompute_core.plans.export import TARGETS, Target
from recompute_core.plans.names import budget_of
from recompute_core.words import printable

from . import markup
from .data import Snapshot, get_store
from .words import literal

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 300.0
_ONE_AT_A_TIME = threading.Lock()
_TAKES: dict[Target, str] = {
    "torch": "A module with apply_plan(model) and remove_plan(model). It needs torch alone and does all "
    "that the plan does.",
    "transformers": "The nearest settings of a transformers Trainer.",
    "torchtitan": "The nearest settings of torchtitan.",
    "megatron": "The nearest arguments of Megatron-LM.",
}
_TAKES_BUDGET = (
    "One assignment, for a script that compiles its model: torch's compiler reads it at the model's "
    "first call. The file says how to undo it."
)
_MOST_LINES = 18
_LANGUAGES: dict[str, str] = {".py": "python", ".toml": "toml"}


def export_tabs(found: Snapshot, plan: str) -> None:
    """A tab a trainer; only the open one is asked for."""
    st.subheader("Export", anchor=False)
    missed = found.once(("missed", plan), lambda: warning(found.row, found.cells, plan))
    if missed is not None:
        st.html(markup.caution(f"Not adopted, and exported all the same: {missed}"))
    tabs = st.tabs(list(TARGETS), on_change="rerun", key="export to")
    for tab, to in zip(tabs, TARGETS, strict=True):
        if tab.open:
            with tab:
                _one(found, plan, to)


def _one(found: Snapshot, plan: str, to: Target) -> None:
    st.caption(takes(plan, to))
    try:
        with st.spinner("Estimating what the settings cost, in a process of its own"):
            said = found.once(("export", plan, to), lambda: exported(found, plan, to))
    except InputError as error:
        st.error(literal(f"Not exported: {error}"))
        return
    if said["exact"]:
        st.html('<div class="rs-finding">Exact: it recomputes what the plan recomputes.</div>')
    if said["cannot"]:
        st.html(markup.lines("What it cannot express, and what that costs (estimated)", said["cannot"]))
    if said["notes"]:
        st.html(markup.lines("To know when using it", said["notes"]))
    lines = said["text"].count("\n")
    name = _short(said["filename"])
    shown = st.expander(f"{name}, {lines} lines") if lines > _MOST_LINES else st.container()
    language = _LANGUAGES.get(Path(said["filename"]).suffix)
    shown.code(said["text"], language=language, wrap_lines=True)
    st.download_button(
        f"Download {name}",
        data=said["text"],
        file_name=said["filename"],
        mime="text/plain",
        on_click="ignore",
        key=f"export {to}",
    )


def takes(plan: str, to: Target) -> str:
    """What a tab hands out."""
    return _TAKES_BUDGET if to == "torch" and budget_of(plan) is not None else _TAKES[to]


def _short(name: str) -> str:
    return printable(name if len(name) <= 48 else f"{name[:40]}…{Path(name).suffix}")


def exported(found: Snapshot, plan: str, to: Target) -> dict[str, Any]:
    """`recompute-export/1`. Raises InputError in one line."""
    row = found.row
    if to == "torch":
        said = warning(row, found.cells, plan)
        return document(row, plan, to, export(row, plan, to, said), said)
    with _ONE_AT_A_TIME:
        return asked_elsewhere(get_store().home, row.id, plan, to)


def asked_elsewhere(home: Path, study: str, plan: str, to: Target) -> dict[str, Any]:
    """The same, from the command line: estimates load torch, which this process must not."""
    command = [sys.executable, "-m", "recompute_core", "export", study]
    places = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    try:
        done = subprocess.run(
            # What is being measured comes first.
            ["nice", "-n", "5", *command, f"--candidate={plan}", "--to", to, "--json", "-"],
            env={
                **os.environ,
                "RECOMPUTE_HOME": str(home),
                "PYTHONPATH": os.pathsep.join(filter(None, places)),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"no answer within {_PATIENCE_S:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        last = lines[-1] if lines else f"the process ended with {done.returncode}"
        raise InputError(last.removeprefix("error: "))
    found: dict[str, Any] = json.loads(done.stdout)
    return found
