"""Compare: what changed between two studies, or between two machines?"""

import json

import streamlit as st

from pages._parts import chrome, compare_markup
from pages._parts.compare_picture import describe, dots, overlay
from pages._parts.compare_sides import FILE, SIDES, SideChosen, choose
from pages._parts.data import get_store
from recompute_core.comparing.compare import compare
from recompute_core.comparing.records import StudyComparison
from recompute_core.comparing.sentences import intervals_sentence
from recompute_core.words import MB_NOTE, count

_MOST_ROWS = 200
_KEPT = "comparison"


@chrome.plainly
def main() -> None:
    """Two fields; then what matters, the picture, what differs and the candidates."""
    store = get_store()
    rows = store.studies()
    head = st.container()
    if not rows:
        with head:
            _title()
        chrome.nothing_yet()
        return
    a, b = choose(store, rows)
    with head:
        _title()  # after the fields, so that the link to copy has what they hold
    if a is None or b is None:
        _open_side(len(rows))
        return
    found = _compared(a, b)
    _said(found, a, b)
    _picture(a, b)
    _candidates(found)
    _differences(found)
    st.download_button(
        "Download the comparison as JSON",
        data=lambda: json.dumps(found.model_dump(mode="json", by_alias=True), indent=1),
        file_name=f"comparison-{found.a.study_id[:40]}-{found.b.study_id[:40]}.json",
        mime="application/json",
        on_click="ignore",
    )


def _title() -> None:
    chrome.title("Compare", "What changed between two studies, or between two machines?")
    if FILE in [st.query_params.get(side) for side in SIDES]:
        st.caption("A link to this page does not carry the file: whoever opens it drops it again.")


def _open_side(studies: int) -> None:
    if studies == 1 and FILE not in [st.query_params.get(side) for side in SIDES]:
        st.info(
            "There is one study here so far. Run another, or choose “A file, from another machine” and "
            "drop the JSON that Trade-off or 'study --json' gave there."
        )
        with st.container(horizontal=True):
            st.page_link("setup.py", label="Set up another study")
    else:
        st.info(
            "Choose a study for A and one for B: two of this machine, or one of them from a file. "
            "Two rows of Studies lead here too."
        )
        with st.container(horizontal=True):
            st.page_link("studies.py", label="Open the studies")


def _compared(a: SideChosen, b: SideChosen) -> StudyComparison:
    """The comparison of two results, made once for as long as they stay the same."""
    kept = st.session_state.get(_KEPT)
    if kept is None or kept[0] is not a.result or kept[1] is not b.result:
        made = compare(a.result, b.result, (a.supplied, b.supplied))
        kept = st.session_state[_KEPT] = (a.result, b.result, made)
    found: StudyComparison = kept[2]
    return found


def _said(found: StudyComparison, a: SideChosen, b: SideChosen) -> None:
    st.html(compare_markup.headline(found))
    with st.container(key="stack-sides"):
        left, right = st.columns(2, gap="medium")
        left.html(compare_markup.side_facts("A", found.a, a.has_figures))
        right.html(compare_markup.side_facts("B", found.b, b.has_figures))
    if found.cautions:
        st.html(compare_markup.cautions(found))


def _picture(a: SideChosen, b: SideChosen) -> None:
    if not dots("a", a.result.judged) and not dots("b", b.result.judged):
        return
    st.plotly_chart(
        overlay(a.result, b.result, chrome.colours()),
        key="overlay",
        config={"displayModeBar": False},
        alt=describe(a.result, b.result),
    )
    st.caption(
        "A hollow and grey, B filled and blue; a disc passes every gate, a cross fails one, a diamond "
        "is undecided. A line leads from a candidate in A to the same one in B; where both have the "
        "same peak, A is drawn a little off it. An interval that leaves the picture ends in an arrow."
    )


def _candidates(found: StudyComparison) -> None:
    if found.pairings:
        st.subheader("Candidates in both", anchor=False)
        with st.container(horizontal=True, vertical_alignment="center"):
            view = st.segmented_control(
                "Figures",
                list(compare_markup.VIEWS),
                default="Summary",
                required=True,
                key="figures",
                bind="query-params",
                label_visibility="collapsed",
            )
            only = st.toggle("Only what moved beyond its interval", key="beyond", bind="query-params")
        figures = [
            figure
            for figure in compare_markup.VIEWS[view or "Summary"]
            if found.seconds_compared or figure not in ("update_s", "plain_update_s")
        ]
        shown = [
            one
            for one in found.pairings
            if not only or any((c := one.change(figure)) and c.beyond for figure in figures)
        ]
        if shown:
            st.html(compare_markup.candidates_table(shown[:_MOST_ROWS], figures))
        else:
            st.caption("None moved beyond its interval.")
        if len(shown) > _MOST_ROWS:
            st.caption(f"{len(shown) - _MOST_ROWS:,} more are in the JSON below.")
        st.caption(_how(found))
    if found.unpaired:
        st.subheader("Candidates in one study alone", anchor=False)
        st.html(compare_markup.alone(found.unpaired[:_MOST_ROWS]))
        if len(found.unpaired) > _MOST_ROWS:
            st.caption(f"{len(found.unpaired) - _MOST_ROWS:,} more are in the JSON below.")


def _how(found: StudyComparison) -> str:
    supplied = [
        side.upper()
        for side, one in zip(SIDES, (found.a, found.b), strict=True)
        if one.kind == "supplied"
    ]
    kind = f" The figures of {supplied[0]} are supplied: read from a file." if supplied else ""
    return (
        f"Differences are B minus A, as a figure and in percent of A, with their intervals.{kind} "
        f"An update ratio is the median of paired ratios. {intervals_sentence(found.pairings)} Each is "
        "taken by itself: among many, some lie off 0 by chance. Bytes are counted: exact where every "
        f"sample is the same, else from the extremes of both. {MB_NOTE}"
    )


def _differences(found: StudyComparison) -> None:
    st.subheader("What differs around them", anchor=False)
    if not found.differences:
        st.caption(
            "Nothing: the same specification, thresholds, environment, versions, source and data."
        )
        return
    asked = sum(one.asked is not None for one in found.differences)
    st.caption(
        f"Only what is not the same: {count(asked, 'fact was', 'facts were')} asked, "
        f"{len(found.differences) - asked:,} found."
    )
    st.html(compare_markup.differences_table(found.differences[:_MOST_ROWS]))


main()
