"""Is each block safe to recompute? On Set up: asked for, watched, and shown with a reason for each."""

from html import escape

import streamlit as st

from recompute_core.checks.report import BlockVerdict, Verdict
from recompute_core.gates import in_mb
from recompute_core.settings import shape_key
from recompute_core.spec import StudySpec
from recompute_core.studies.checking import (
    Checked,
    CheckState,
    Failed,
    Running,
    asked_check,
    check_state,
    start_check,
)
from recompute_core.words import count

from . import chrome, markup
from .badges import BADGES, why
from .data import get_store
from .words import literal


def safe_to_recompute(spec: StudySpec) -> None:
    """The section; while a check runs it draws itself anew every second."""
    state = check_state(get_store(), spec)
    every = 1.0 if isinstance(state, Running) else None
    st.fragment(_section, run_every=every)(spec, isinstance(state, Running))


@chrome.plainly
def _section(spec: StudySpec, was_running: bool) -> None:
    state = check_state(get_store(), spec)
    if was_running and not isinstance(state, Running):
        st.rerun()  # the whole page: this fragment's clock stops
    st.subheader("Safe to recompute?", anchor=False)
    if isinstance(state, Running):
        st.html(markup.strip(f"Checking: {state.doing}", "plain"))
        return
    if isinstance(state, Checked):
        st.html(markup.table(HEADS, rows(state)))
        st.caption(literal(sentence(state, spec)))
    elif isinstance(state, Failed):
        st.error(literal(f"The check failed: {state.why}"))
    _button(spec, state)


def _button(spec: StudySpec, state: CheckState) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        word = "Check again" if isinstance(state, Checked) else "Check the blocks"
        if st.button(word, key="check blocks"):
            start_check(get_store(), spec)
            st.rerun()
        if not isinstance(state, Checked):
            st.caption(
                "Recomputes every block at the smallest shape, under several seeds, and compares "
                "gradients and state. A study does its own; this tells beforehand."
            )


HEADS = [
    ("Block", False),
    ("Verdict", False),
    ("Keeps (MB)", True),
    ("Why, or on what it depends", False),
]


def rows(found: Checked) -> list[list[str]]:
    """One row a block, as markup; equal blocks with equal words stand in one row."""
    grouped: dict[tuple[Verdict, int | None, str], list[BlockVerdict]] = {}
    for one in found.report.blocks:
        key = (one.verdict, found.activation_bytes.get(one.block), why(one))
        grouped.setdefault(key, []).append(one)
    return [
        [
            _names(blocks),
            markup.mark(*BADGES[verdict]),
            "–" if kept is None else in_mb(kept),
            f'<div class="rs-wrap">{escape(words)}</div>',
        ]
        for (verdict, kept, words), blocks in grouped.items()
    ]


def _names(blocks: list[BlockVerdict]) -> str:
    names = [one.block for one in blocks]
    if len(names) <= 2:
        return escape(", ".join(names))
    return f'<span title="{escape(", ".join(names))}">{escape(names[0])} … {escape(names[-1])}</span>'


def _gap_words(gap: float | None) -> str:
    if gap is None:
        return "the gap could not be compared"
    return f"largest gap {gap:.1g} of a tensor's size"


def sentence(found: Checked, spec: StudySpec) -> str:
    """What was checked, in one line."""
    shape = shape_key(asked_check(spec).workload)
    notes = "".join(f" {note[:1].upper()}{note[1:]}." for note in found.notes)
    return (
        f"{count(len(found.report.blocks), 'block')} at {shape}, {found.report.steps} training steps; "
        f"{_gap_words(found.report.largest_relative_gap)}.{notes}"
    )
