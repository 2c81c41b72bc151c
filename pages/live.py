"""Live: what is happening, and what is known already?"""

from datetime import UTC, datetime
from html import escape

import streamlit as st

from pages._parts import chrome, markup, progress
from pages._parts.data import Snapshot, board_of, get_store, snapshot, spent_and_left
from pages._parts.measure_longer import lead_on
from pages._parts.pairs import pairs_chart
from pages._parts.picture import not_measured, points
from pages._parts.progress import PHASES_NOTE
from pages._parts.queue import Queue, queue_of, waiting_words
from pages._parts.still import still, unfilled
from pages._parts.words import (
    CELL_MEANING,
    STATUS_SENTENCES,
    duration,
    literal,
    plan_label,
    shape_note,
    training_line,
    workload_label,
)
from recompute_core.errors import InputError, StoreError
from recompute_core.studies.launch import resume
from recompute_core.words import MB_NOTE, count, interval_name

_QUIET = {"displayModeBar": False}


def main() -> None:
    """One fragment that redraws itself while the study runs.

    It is the page's first element on purpose: a redraw that crosses with a change of page then finds
    its place also where the page has just been emptied (Streamlit 1.67 fails for a later one, with
    "Bad delta path index").
    """
    found = chrome.current(live_first=True)
    if found is None:
        _title(None)
        chrome.nothing_yet()
        return
    st.fragment(_watch, run_every=None if found.row.ended else 1.0)(found.row.id, found.row.ended)


def _title(study: str | None) -> None:
    chrome.title("Live", "What is happening, and what is known already?", study)


@chrome.plainly
def _watch(study: str, was_ended: bool) -> None:
    found = snapshot(get_store(), study)
    if found.row.ended != was_ended:
        st.rerun()
    _title(study)
    live = not found.row.ended
    # What every browser shows of the same cells is made once for all of them.
    board = board_of(found)
    _head(found, board)
    if training := training_line(found.row.spec, found.result.environment):
        st.caption(literal(training))
    st.html(found.once("steps", lambda: markup.step_row(progress.steps(found.result, board))))
    with st.container(key="stack-live"):
        left, right = st.columns([2.1, 1], gap="medium")
    with left:
        _picture(found)
    with right:
        _newest(found)
    st.subheader("Cells", anchor=False)
    st.html(found.once("grid", lambda: markup.cell_grid(board)))
    st.caption(
        f"{CELL_MEANING}: a letter, by the names of the row above. "
        f"{literal(shape_note(found.row.spec))} "
        f"No memory or time is measured before parity has passed. {MB_NOTE}",
        help=PHASES_NOTE,
    )
    st.subheader("Gates", anchor=False)
    st.html(found.once("gates", lambda: markup.gate_table(found.result.judged, live)))
    with st.expander("Log"):
        _log(found)


def _head(found: Snapshot, board: list[progress.GridCell]) -> None:
    row = found.row
    if row.ended:
        _ended(found)
        return
    done, total = progress.settled(board)
    queue = queue_of(get_store()) if row.status == "queued" else None
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.strip(_standing(found, board, queue), "plain"))
        st.button("Cancel", key="cancel", disabled=row.cancel, on_click=_cancel, args=(row.id,))
    if queue and queue.running not in (None, row.id):
        ahead = {"study": queue.running}
        st.page_link("live.py", label="Watch the study ahead", query_params=ahead)
    st.progress(done / total if total else 0.0)


@chrome.plainly
def _cancel(study: str) -> None:
    get_store().ask_cancel(study)


def _standing(found: Snapshot, board: list[progress.GridCell], queue: Queue | None) -> str:
    row = found.row
    what = workload_label(row.spec.workload.name)
    if row.cancel:
        return f"Cancelling {what}: stopping after what is being written."
    if queue is not None:
        return waiting_words(queue, row.id, what)
    if not found.cells:
        return f"Starting {what}: torch is being loaded in a process of its own."
    if making := progress.preparing(found.events):
        return f"Once on this machine, {making}."
    done, total = progress.settled(board)
    spent, still = spent_and_left(found)
    return f"Measuring {what}: {done} of {total} cells, {duration(spent)} so far{still}."


def _ended(found: Snapshot) -> None:
    row, result = found.row, found.result
    if row.status in ("interrupted", "cancelled", "incomplete"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.html(markup.strip(f"{STATUS_SENTENCES[row.status]}.", "plain"))
            if st.button("Resume", key="resume", type="primary"):
                _resume(row.id)
    if result.verdict is not None:
        st.html(markup.verdict_line(result.verdict, result.sentence))
    if result.verdict == "undecided":
        lead_on(found, result.judged)
    st.page_link("tradeoff.py", label="Open the trade-off", query_params={"study": row.id})


def _resume(study: str) -> None:
    try:
        resume(get_store(), study)
    except (InputError, StoreError) as error:
        st.error(literal(str(error)))
        return
    st.rerun()


def _picture(found: Snapshot) -> None:
    """As on Trade-off, without the hand; candidates without figures stand in its margin."""
    if found.once("points", lambda: points(found.result.judged)):
        still(found)
        return
    if found.row.ended:
        st.html(markup.strip("No candidate has been measured in full, so there is no picture.", "plain"))
    else:
        st.caption("The picture grows here as soon as a candidate's memory and time are measured.")
        unfilled(found.result.thresholds)
    missing = not_measured(found.result.judged)
    if missing:
        st.html(markup.lines("Not measured", missing))


def _newest(found: Snapshot) -> None:
    st.markdown("**Newest finding**")
    said = progress.newest_finding(found.events, found.cells)
    st.html(f'<div class="rs-finding">{escape(said or "Nothing yet.")}</div>')
    pairs = progress.present_pairs(found.events)
    if pairs is None:
        if found.row.ended:
            return
        st.caption("Pairs of plain and recomputed updates appear here while time is measured.")
        return
    shape, plan, samples = pairs
    st.markdown("**Update time, pair by pair**")
    number = len(samples)
    said = f"{plan_label(plan)} at {shape}: {count(number, 'pair')}; band: {interval_name(number)}."
    st.caption(literal(said))
    colours, gate = chrome.colours(), found.result.thresholds.update_ratio
    st.plotly_chart(
        found.once(
            ("pairs", plan, shape, len(samples), colours),
            lambda: pairs_chart(samples, gate, colours),
        ),
        key="pairs",
        config=_QUIET,
        alt=f"Ratio of recomputed to plain of {len(samples)} pairs, with the interval of the median",
    )


def _log(found: Snapshot) -> None:
    st.html(found.once("log", lambda: _log_list(found)))  # pairs and progress add no line to it


def _log_list(found: Snapshot) -> str:
    lines = progress.log_lines(found.events, found.cells)[-200:]
    items = "".join(
        f"<li><time>{datetime.fromtimestamp(at, UTC):%H:%M:%S}</time>{escape(text)}</li>"
        for at, text in reversed(lines)
    )
    return f'<ol class="rs-log">{items}</ol>' if items else "<p>Nothing yet.</p>"


main()
