"""Where an undecided study leads on: why it is undecided, and the study that measures it longer."""

from collections.abc import Sequence

import streamlit as st

from recompute_core.rerun import longer, why_undecided
from recompute_core.results import Judged
from recompute_core.studies.store import seconds_apart_from_time

from . import chrome, markup
from .data import Snapshot
from .words import literal


def lead_on(found: Snapshot, judged: Sequence[Judged]) -> None:
    """Draws nothing where it is not the update time that leaves these candidates undecided."""
    why = why_undecided(judged, found.row.spec.timing)
    if why is None:
        return
    st.html(markup.strip(why, "plain"))
    more = longer(found.result, judged, seconds_apart_from_time(found.cells))
    if more is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button(
            "Measure longer",
            key="measure longer",
            type="primary",
            help="Nothing is added to this study: whoever goes on sampling until the result pleases "
            "finds what they like. The new one says that it repeats this one.",
        )
        st.caption(literal(more.words))
    if pressed:
        chrome.launch_and_watch(more.spec)
