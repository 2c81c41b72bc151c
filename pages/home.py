"""Home: what is this, and what did the last study find?"""

import streamlit as st

from pages._parts import chrome, markup
from pages._parts.data import get_store, snapshot
from pages._parts.picture import points
from pages._parts.promise import quick_promised
from pages._parts.still import still, unfilled
from pages._parts.words import (
    UNFINISHED_SENTENCES,
    device_line,
    literal,
    shape_note,
    shapes_line,
    standing,
    when,
    workload_label,
)
from recompute_core.spec import Thresholds, parse_spec, preset
from recompute_core.studies.store import StudyRow
from recompute_core.words import MB_NOTE


def main() -> None:
    """Three sentences, one button, and the latest study."""
    store = get_store()
    rows = store.studies(limit=30)
    chrome.title("Recompute Studio", "What is this, and what did the last study find?")
    st.html(
        '<div class="rs-lead"><p>Training keeps every activation for the backward pass; recomputing '
        "some of them saves memory and costs time.</p><p>A study first proves that the recomputed "
        "update gives the same gradients as plain, then measures memory and update time on this very "
        "machine.</p><p>It ends in a verdict under thresholds you declare before the run: adopt, keep "
        "original, or undecided.</p></div>"
    )
    if not rows:
        st.html(
            markup.strip(
                f"Nothing has been measured on this machine yet. {quick_promised()}",
                "plain",
            )
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Run the quick study", type="primary", key="quick"):
            _launch_quick()
        st.page_link("setup.py", label="Set up your own study")
        st.page_link("demo.py", label="See it step by step")
        st.page_link(
            "setup.py", label="My run is out of memory: what fits?", query_params={"fit": "open"}
        )
    live = [row for row in rows if not row.ended]
    for row in live[:3]:
        _running(row)
    shown = next((row for row in rows if row.ended and row.verdict), None)
    if shown is not None:
        _latest(shown)
    elif rows and not live:
        _unfinished(rows[0])
    else:
        _how_to_read()


def _launch_quick() -> None:
    chrome.launch_and_watch(parse_spec(preset("quick")))


_READING = (
    "Across, the time of an update; up, its peak memory; both as ratios to plain, which sits in the "
    "corner. The dashed lines are the gates: a candidate whose whole interval lies in the filled "
    "region is adopted."
)


def _how_to_read() -> None:
    unfilled(Thresholds())
    st.caption(f"Candidates will appear here. {_READING}")


def _running(row: StudyRow) -> None:
    what = workload_label(row.spec.workload.name)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(
            markup.strip(
                f"{row.status.capitalize()} now: {what} at {shapes_line(row.spec)}.",
                "plain",
            ),
            width="content",
        )
        chrome.live_link(row)


def _latest(row: StudyRow) -> None:
    found = snapshot(get_store(), row.id)
    result = found.result
    st.subheader("The latest study", anchor=False)
    st.html(markup.verdict_line(result.verdict, result.sentence))
    if row.status == "incomplete":
        st.caption(f"{UNFINISHED_SENTENCES[row.status]} They can be measured again from Live.")
    if points(result.judged):
        still(found)
    device = literal(device_line(result.environment, row.spec.compile))
    st.caption(f"Measured here on {device}, {when(row.created_at)}. {shape_note(row.spec)} {MB_NOTE}")
    st.page_link("tradeoff.py", label="Open the trade-off", query_params={"study": row.id})


def _unfinished(row: StudyRow) -> None:
    what = workload_label(row.spec.workload.name)
    st.subheader("The latest study", anchor=False)
    st.html(markup.strip(f"{standing(row).capitalize()}: {what}.", "plain"))
    st.page_link("live.py", label="See how far it came", query_params={"study": row.id})


main()
