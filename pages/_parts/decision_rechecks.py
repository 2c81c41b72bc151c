"""The small history: how a report's parity held when it was run again on this machine."""

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from recompute_core.reports.bundle import REPORT, read_zip
from recompute_core.reports.recheck_history import folder, history, statement_digest
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
    found = [
        one
        for file in folder(home).glob("*.jsonl")
        if len(file.stem) == 64
        for one in history(home, f"sha256:{file.stem}")
        if (one.study_id, one.plan) == (study, plan)
    ]
    return sorted(found, key=lambda one: one.checked_at, reverse=True)


def of_report(home: Path, data: bytes) -> list[Recheck]:
    """The rechecks here of a report that verified, a .zip, newest first."""
    return list(reversed(history(home, statement_digest(read_zip(data).files[REPORT]))))


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
