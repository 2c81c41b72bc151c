"""Better plans, on Trade-off: search for them, look at them, measure them."""

import streamlit as st

from recompute_core.plans.anatomy import anatomy_of
from recompute_core.results import PlanPoint, PlanResult, StudyResult
from recompute_core.spec import shape_key
from recompute_core.studies.searching import Failed, search_state, start_search

from . import chrome, found, markup, planmap
from .data import Snapshot, get_store
from .words import count, duration, literal


def watch_searches(snapshot: Snapshot) -> None:
    """Show the page anew as soon as a search of this study ends.

    It draws nothing, so a tick that crosses with a change of page has no place to miss (see live.py).
    """
    running = _running(snapshot)
    if running:
        st.fragment(_tick, run_every=1.0)(snapshot, running)


@chrome.plainly
def _tick(snapshot: Snapshot, before: list[str]) -> None:
    if _running(snapshot) != before:
        st.rerun()


def _running(snapshot: Snapshot) -> list[str]:
    spec, study = snapshot.row.spec, snapshot.row.id
    shapes = [shape_key(spec.at(sizes)) for sizes in spec.shapes]
    return [shape for shape in shapes if search_state(get_store(), study, shape) == "running"]


def answer_at(study: str, shape: str) -> PlanResult | None:
    """What a search at a shape has found, if one has."""
    state = search_state(get_store(), study, shape)
    return state if isinstance(state, PlanResult) else None


def better_plans(snapshot: Snapshot, result: StudyResult, shape: str) -> None:
    """The row under the picture."""
    study = snapshot.row.id
    st.subheader("Better plans", anchor=False)
    state = search_state(get_store(), study, shape)
    if isinstance(state, PlanResult):
        _answered(snapshot, result, state)
        return
    if isinstance(state, Failed):
        st.error(literal(f"The search at {shape} failed: {state.why}"))
    if state == "running":
        st.html(markup.strip(searching_line(bool(get_store().live())), "plain"))
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Find the best plans", key="search"):
            start_search(get_store(), study, shape)
            st.rerun()
        st.caption(
            f"At {shape}: which parts to recompute for the lowest peak at each price in time, whatever "
            "the recipes say. Estimated; measure those you like."
        )


def searching_line(busy: bool) -> str:
    """What a search does now."""
    if busy:
        return "Searching as soon as the study that is being measured has ended."
    return "Searching: timing ops, then running plans on fake tensors; about half a minute."


def _answered(snapshot: Snapshot, result: StudyResult, answer: PlanResult) -> None:
    plans = found.plans_of(answer)
    if not plans:
        st.html(markup.strip(f"No better plan at {answer.shape_key}. {answer.sentence}", "plain"))
        _search_again(snapshot, answer)
        return
    anatomy = anatomy_of(snapshot.row.spec.workload)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        budget = st.number_input(
            "My budget (MB)", min_value=1.0, value=None, step=10.0, format="%.1f", key="budget MB",
            placeholder="none", width=200, help="The whole peak of an update, state included.",
        )  # fmt: skip
        sentence = found.budget_sentence(answer, budget * 1e6) if budget else answer.sentence
        st.html(markup.strip(sentence, "plain"))
    best = found.cheapest_within(answer, budget * 1e6) if budget else None
    st.html(found.plans_table(found.with_measured(answer, result), anatomy, best))
    with st.container(horizontal=True, vertical_alignment="center"):
        _search_again(snapshot, answer)
        st.caption(
            f"Estimated at {answer.shape_key}: peaks on fake tensors, time from ops timed here; no gate "
            "reads them."
        )
    with st.container(key="stack-better"):
        left, right = st.columns([1, 1.7], gap="medium")
    with left:
        names = {point.plan: point for point in plans}
        start = best or plans[len(plans) // 2]
        # The key holds the budget, so that another budget starts from its own plan.
        picked = st.selectbox(
            "Plan to measure", list(names), index=list(names).index(start.plan),
            key=f"found {answer.shape_key} {budget}", width=360,
        )  # fmt: skip
        _measure(snapshot, answer, names[picked])
    with right:
        rows = planmap.plan_map(names[picked].regions, anatomy)
        st.html(planmap.drawn(rows))
        st.caption(planmap.summary(rows))


def _search_again(snapshot: Snapshot, answer: PlanResult) -> None:
    if st.button("Search again", key="search", help="Times ops anew; what it finds replaces this."):
        start_search(get_store(), snapshot.row.id, answer.shape_key)
        st.rerun()


def _measure(snapshot: Snapshot, answer: PlanResult, point: PlanPoint) -> None:
    plans = found.plans_of(answer)
    with st.container(horizontal=True):
        one = st.button("Measure this plan", type="primary", key="measure one")
        every = st.button("Measure all of them", key="measure all")
    each_s = found.cell_seconds(snapshot.cells, answer.shape_key)
    st.caption(
        f"A new study at {answer.shape_key}, with the declared thresholds: parity first, then memory "
        f"and time.{forecast_words(len(plans), each_s)}"
    )
    if one or every:
        asked = found.measuring(snapshot.row.spec, answer, plans if every else [point])
        chrome.launch_and_watch(asked, answer)


def forecast_words(plans: int, each_s: float | None) -> str:
    """How long it takes to measure all plans, at the pace of this study's own."""
    if each_s is None:
        return ""
    many = count(plans, "plan")
    return (
        f" All of them: about {duration(plans * each_s)} ({many}, each as long as one of this study's)."
    )
