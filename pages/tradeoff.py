"""Trade-off: which plan, by what figures, and what if the thresholds were others?"""

from collections.abc import Sequence

import streamlit as st

from pages._parts import better, choices, chrome, markup, picks, plotted
from pages._parts.candidates_view import candidates_table, forget_filters, table_head
from pages._parts.data import Snapshot
from pages._parts.draggable import draggable, hand
from pages._parts.filters import Filters
from pages._parts.found import budget_in, estimated_points
from pages._parts.gate_address import ends_of
from pages._parts.gates_panel import asked_thresholds, forget_what_if, move_lines
from pages._parts.measure_longer import lead_on
from pages._parts.picture import not_measured
from pages._parts.sections import sections_of
from pages._parts.whatif import rejudge
from pages._parts.words import UNFINISHED_SENTENCES
from recompute_core.rerun import longer, repeated
from recompute_core.results import Judged, StudyResult
from recompute_core.studies.searching import SearchState
from recompute_core.studies.store import seconds_apart_from_time
from recompute_core.words import count, shape_labels

_MOST_PILLS = 6  # so many shapes stand side by side above the picture; more are a list


def main() -> None:
    """The verdict, the picture with its gates, the table, and the evidence below."""
    found = chrome.current()
    if found is None:
        _title(None)
        chrome.nothing_yet()
        return
    better.watch_searches(found)
    judged_view(found)


def _title(study: str | None) -> None:
    chrome.title("Trade-off", "Which plan, and why?", study)


@st.fragment
@chrome.plainly
def judged_view(found: Snapshot) -> None:
    """All that depends on the thresholds: a moved slider redraws this and nothing else."""
    head = st.container()
    with st.container(key="stack-picture"):
        chart, gates = st.columns([2.35, 1], gap="medium")
    with gates:
        asked = asked_thresholds(found.row)
    with chart:
        shapes = _chosen_shapes(found.result)
    state = better.state_at(found.row.id, shapes[-1])
    result = rejudge(found.result, asked)
    what_if = asked != found.row.spec.thresholds
    picked = picks.picked(found.row.id, _ids(found))
    table = st.container()
    with table:
        chosen = table_head(found.row.id, found.result.judged)
    with head:
        _title(found.row.id)  # after sliders and pills, so that the link to copy has their places
        _standing(found)
        _strip(found, result, what_if)
        st.html(markup.verdict_line(result.verdict, result.sentence, what_if))
        if result.verdict == "undecided" and not what_if:
            lead_on(found, result.judged)
        st.html(markup.facts(chrome.study_facts(found.row, result)))
    with chart:
        _picture(found, result, shapes, state, picked, chosen.filters)
    with table:
        candidates_table(found, result, shapes, picked, what_if, chosen)
    if result.verdict is not None:
        st.page_link("decision.py", label="Decide and sign", query_params={"study": found.row.id})
    if result.verdict == "adopt":
        st.page_link(
            "reinvest.py", label="See what the saved memory buys", query_params={"study": found.row.id}
        )
    _sections(found, result, picked, chosen.filters)
    better.better_plans(found, result, shapes[-1], state)


def _ids(found: Snapshot) -> set[str]:
    return found.once("ids", lambda: {plotted.candidate_id(one) for one in found.result.judged})


def _standing(found: Snapshot) -> None:
    """Of a study that is not done: why not, and where to go on with it."""
    row = found.row
    if row.status == "done":
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.strip(UNFINISHED_SENTENCES[row.status], "plain"), width="content")
        chrome.live_link(row)


def _strip(found: Snapshot, result: StudyResult, what_if: bool) -> None:
    """By which thresholds all is judged. As high in both cases: nothing jumps while a line moves."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if not what_if:
            words = "Judged by the declared thresholds. Drag a line of the picture to ask what if."
            st.html(markup.strip(words, "plain"), width="content")
            return
        st.html(
            markup.strip("What-if: thresholds differ from the declared ones", "whatif"),
            width="content",
        )
        st.button("Reset", key="reset", on_click=forget_what_if, args=(found.row,))
        if st.button(
            "Declare and re-run",
            key="declare",
            type="primary",
            help="Starts a new study of the same plans and shapes, with these thresholds declared "
            "before it runs. It records that it repeats this one, and how this one was declared.",
        ):
            _declare(found, result)


def _declare(found: Snapshot, result: StudyResult) -> None:
    """The same study under the thresholds of the what-if; longer where these leave it undecided."""
    more = longer(result, result.judged, seconds_apart_from_time(found.cells))
    if more is not None and result.verdict == "undecided":
        chrome.launch_and_watch(more.spec)
        return
    chrome.launch_and_watch(repeated(found.row.spec, found.row.id, result.thresholds))


def _chosen_shapes(result: StudyResult) -> list[str]:
    """The shapes to show, all unless some are chosen; kept in the address."""
    shapes = list(dict.fromkeys(one.candidate.shape_key for one in result.judged))
    if len(shapes) == 1:
        return shapes
    names = shape_labels(shapes)

    def draw(key: str) -> list[str]:
        if len(shapes) > _MOST_PILLS:
            return st.multiselect(
                "Shape", shapes, format_func=lambda one: names[one], key=key, placeholder="all shapes",
                label_visibility="collapsed",
            )  # fmt: skip
        return st.pills(
            "Shape", shapes, selection_mode="multi", format_func=lambda one: names[one], key=key,
            label_visibility="collapsed", help="Show only these shapes",
        )  # fmt: skip

    chosen = choices.several(result.study_id, "shape", shapes, draw, name="shapes")
    return [shape for shape in shapes if not chosen or shape in chosen]


def _picture(
    found: Snapshot,
    result: StudyResult,
    shapes: list[str],
    state: SearchState,
    picked: list[str],
    filters: Filters,
) -> None:
    answer, budget = better.answer_in(state), better.budget_mb()
    searched = estimated_points(answer) if answer else []
    line = budget_in(answer, budget, len(shapes) > 1) if answer and budget else None
    judged = tuple(one for one in result.judged if one.candidate.shape_key in shapes)
    ends = ends_of(found.row.spec.thresholds)
    shown = plotted.document(found, result, shapes, ends, searched, line, filters)
    if not (shown["points"] or shown["rings"]):
        empty = "No candidate has been measured in full, so the picture is empty."
        st.html(markup.strip(empty, "plain"))
        missing = not_measured(result.judged)
        if missing:
            st.html(markup.lines("Not measured", missing))
        return
    place = st.container()
    hidden = _below_the_picture(found.row.id, judged, picked, filters)
    hand = {"seq": st.session_state.get(_HEARD, 0), "picked": picked, "hidden": hidden}
    with place:
        draggable(shown | hand, lambda: _heard(found))


def _below_the_picture(
    study: str, judged: Sequence[Judged], picked: list[str], filters: Filters
) -> bool:
    """Whether dominated points are hidden; and what is selected, with a way back to all."""
    with st.container(horizontal=True, vertical_alignment="center"):
        hidden = choices.switch(
            study, "Hide dominated points", "dominated", "hidden", False,
            help="Dominated: another plan of the same shape is at most as high and as slow.",
        )  # fmt: skip
        st.caption(_selected(judged, picked, filters))
        # There whether or not it does anything, so that the table keeps its place under the hand.
        all_shown = not picked and not filters.narrow
        st.button("Show all", key="unpick", disabled=all_shown, on_click=_show_all, args=(study,))
    return hidden


def _selected(judged: Sequence[Judged], picked: list[str], filters: Filters) -> str:
    """What is bright in the picture, and why; the tabs show the same."""
    if picked:
        return f"{count(len(picked), 'candidate')} picked; the others fade, and tabs leave them out."
    if not filters.narrow:
        return "Pick points or rows: Shift or Ctrl for several, Escape for all."
    left, all_of_them = len(filters.kept(judged)), count(len(judged), "candidate")
    if not left:
        return f"The filters leave none of {all_of_them}; tabs show them all."
    return f"The filters leave {left:,} of {all_of_them}; the others fade, and tabs leave them out."


def _show_all(study: str) -> None:
    picks.pick(study, [])
    forget_filters(study)


_HEARD = "hand heard"


def _heard(found: Snapshot) -> None:
    """What the hand did on the picture becomes the sliders' places and the selection."""
    said = hand()
    if said is not None:
        st.session_state[_HEARD] = said.seq
        move_lines(found.row, said.peak, said.update)
        picks.pick(found.row.id, said.picked)


def _sections(found: Snapshot, result: StudyResult, picked: list[str], filters: Filters) -> None:
    """The tabs, of what is picked; else of what the filters leave, if that is anything."""
    wanted = [one for one in result.judged if plotted.candidate_id(one) in picked]
    if wanted := wanted or filters.kept(result.judged):
        result = result.model_copy(update={"judged": tuple(wanted)})
    sections = sections_of(result.spec)
    tabs = st.tabs(list(sections), on_change="rerun", key="section")
    for tab, show in zip(tabs, sections.values(), strict=True):
        if tab.open:
            with tab:
                show(found, result, chrome.colours())


main()
