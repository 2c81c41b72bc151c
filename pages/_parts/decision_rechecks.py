"""The small history: how a report's parity held when it was run again on this machine."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import streamlit as st

from recompute_core.reports.recheck_history import folder, history
from recompute_core.reports.recheck_record import Recheck, RecheckOutcome

from .decision import outcome_table
from .palette import Mark
from .words import duration, when

_MARKS: dict[RecheckOutcome, tuple[Mark, str]] = {
    "same": ("pass", "same"),
    "holds_drifted": ("pass", "holds, drifted"),
    "lost": ("fail", "lost"),
    "cannot_tell": ("undecided", "cannot tell"),
}
_MOST = 10
_HOW = (
    "`python -m recompute_core recheck REPORT.zip` runs a signed report's parity again on this machine."
)


def of_plan(home: Path, study: str, plan: str) -> list[Recheck]:
    """Every recheck here of a report on this plan, whoever signed it, newest first."""
    files = [
        (file.stem, file.stat().st_size) for file in folder(home).glob("*.jsonl") if len(file.stem) == 64
    ]
    found = [one for file in files if _about(home, *file) == (study, plan) for one in _kept(home, *file)]
    return sorted(found, key=lambda one: one.checked_at, reverse=True)


@lru_cache(maxsize=10_000)
def _about(home: Path, statement: str, size: int) -> tuple[str, str] | None:
    """Study and plan of all rechecks in a file: they are of one statement."""
    found = _kept(home, statement, size)
    return (found[0].study_id, found[0].plan) if found else None


@lru_cache(maxsize=64)
def _kept(home: Path, statement: str, size: int) -> tuple[Recheck, ...]:
    """The rechecks of a statement, read once for each size of their file, which only grows."""
    return history(home, f"sha256:{statement}")


def of_report(home: Path, statement: str) -> list[Recheck]:
    """The rechecks here of a statement, by its digest, newest first."""
    return list(reversed(history(home, statement)))


def rechecks(found: Sequence[Recheck]) -> None:
    """The section."""
    st.subheader("Rechecks", anchor=False)
    if found:
        st.html(recheck_table(found[:_MOST]))
        more = f" The last {_MOST} of {len(found)} are shown." if len(found) > _MOST else ""
        st.caption(f"{_HOW}{more}")
    else:
        st.caption(f"Not run again on this machine yet. {_HOW}")


def recheck_table(found: Sequence[Recheck]) -> str:
    """One row a recheck; what changed on the machine stands under what it found."""
    rows = [(when(one.checked_at), _MARKS[one.outcome], one.sentence, _below(one)) for one in found]
    return outcome_table(("Rerun", "Outcome", "What it found"), rows)


def _below(one: Recheck) -> str:
    changed = dict.fromkeys(change.what.replace("_", " ") for change in one.all_changes)
    since = f"Changed since: {', '.join(changed)}." if changed else "Nothing recorded has changed."
    return f"Took {duration(one.seconds)}. {since}"
