"""Better plans, on Trade-off: search for them, look at them, measure them."""

from contextlib import suppress

import streamlit as st

from recompute_core.errors import InputError, StoreError
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.results import PlanPoint, PlanResult, StudyResult
from recompute_core.settings import OwnSettings
from recompute_core.spec import StudySpec
from recompute_core.studies.locks import machine_holder
from recompute_core.studies.searching import (
    Failed,
    Progress,
    SearchState,
    search_progress,
    search_state,
    start_search,
)
from recompute_core.words import count

from . import chrome, found, markup, planmap
from .data import Snapshot, get_store, measured_in
from .words import duration, literal

_BUDGET = "budget MB"
_MOST_MB = 1_000_000.0


_SHOWN = "search shown"


def watch_searches(snapshot: Snapshot) -> None:
    """Show the page anew as soon as the search that it shows starts, gets its turn or ends.

    It draws nothing, so a tick that crosses with a change of page has no place to miss (see live.py).
    It ticks whether or not a search runs: one may be started in another tab, and a fragment that is
    drawn alone starts no other.
    """
    st.session_state.pop(_SHOWN, None)  # the page is being drawn anew: the first tick is at once
    st.fragment(_tick, run_every=2.0)(snapshot.row.id)


def _tick(study: str) -> None:
    shown = st.session_state.get(_SHOWN)
    with suppress(StoreError):
        if shown and shown[0] == study and search_progress(get_store(), study, shown[1]) != shown[2]:
            st.rerun()


def state_at(study: str, shape: str) -> SearchState:
    """How the search at a shape stands; noted as what the page shows."""
    state = search_state(get_store(), study, shape)
    progress = state if state == "running" or state == "waiting" else None
    st.session_state[_SHOWN] = (study, shape, progress)
    return state


def answer_in(state: SearchState) -> PlanResult | None:
    """What a search has found, the last one or one before it."""
    if isinstance(state, Failed):
        return state.earlier
    return state if isinstance(state, PlanResult) else None


def budget_mb() -> float | None:
    """The budget that was typed in, before its field is drawn."""
    asked: float | None = st.session_state.get(_BUDGET)
    return asked


def better_plans(snapshot: Snapshot, result: StudyResult, shape: str, state: SearchState) -> None:
    """The row under the picture."""
    st.subheader("Better plans", anchor=False)
    if isinstance(state, Failed):
        st.error(literal(f"The last search at {shape} failed: {state.why}"))
    if isinstance(snapshot.row.spec.workload, OwnSettings):
        st.caption("The search knows gpt and receipts; of another model the named plans are measured.")
        return
    if what := _beyond_the_search(snapshot.row.spec):
        st.caption(
            "The search speaks of updates in one process that are not compiled; of "
            f"{what} the named plans are measured."
        )
        return
    answer = answer_in(state)
    if answer is not None:
        _answered(snapshot, result, answer)
        return
    if state == "running" or state == "waiting":
        holder = machine_holder() or "something else that is measured"
        st.html(markup.strip(PROGRESS[state].format(holder), "plain"))
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        asked = st.button("Find the best plans", key="search")
        st.caption(
            f"At {shape}: which parts to recompute for the lowest peak at each price in time, whatever "
            "the recipes say. Estimated; measure those you like."
        )
    if asked:
        _search(snapshot, shape)


def _beyond_the_search(spec: StudySpec) -> str | None:
    """What a study is whose updates the search does not know."""
    if spec.compile is not None:
        return "a compiled study"
    return "a study over ranks" if spec.ranks is not None else None


def _search(snapshot: Snapshot, shape: str) -> None:
    try:
        start_search(get_store(), snapshot.row.id, shape)
    except (InputError, StoreError) as error:
        st.error(literal(str(error)))
    else:
        st.rerun()


PROGRESS: dict[Progress, str] = {
    "waiting": "Waiting: this machine is busy with {}. The search starts after it.",
    "running": "Searching: timing ops on this machine, then estimating plans without allocating them. "
    "About half a minute on an idle machine, longer for deep models.",
}


def _answered(snapshot: Snapshot, result: StudyResult, answer: PlanResult) -> None:
    plans = found.plans_of(answer)
    if not plans:
        st.html(markup.strip(f"No better plan at {answer.shape_key}. {answer.sentence}", "plain"))
        if _search_again():
            _search(snapshot, answer.shape_key)
        return
    anatomy = anatomy_of(snapshot.row.spec.workload)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        budget = st.number_input(
            "My budget (MB)", min_value=0.1, max_value=_MOST_MB, value=None, step=10.0, format="%g",
            key=_BUDGET, placeholder="none", width=200,
            help=f"The whole peak of an update, state included: 0.1 to {_MOST_MB:,.0f} MB (10⁶ bytes).",
        )  # fmt: skip
        sentence = found.budget_sentence(answer, budget) if budget else answer.sentence
        st.html(markup.strip(sentence, "plain"))
    best = found.cheapest_within(answer, budget) if budget else None
    st.html(found.plans_table(found.with_measured(answer, result), anatomy, best))
    st.caption(
        f"Estimated at {answer.shape_key}, nothing allocated; gates judge measured figures alone. Times "
        "come from ops timed once here and vary with the machine's load: measure before you decide."
    )
    _elsewhere(snapshot, answer)
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
        again = _search_again()
    with right:
        rows = planmap.plan_map(names[picked].regions, anatomy)
        st.html(planmap.drawn(rows))
        st.caption(planmap.summary(rows))
    if again:
        _search(snapshot, answer.shape_key)


def _search_again() -> bool:
    return st.button("Search again", key="search", help="Times ops anew; what it finds replaces this.")


def _elsewhere(snapshot: Snapshot, answer: PlanResult) -> None:
    """Links to the studies that have measured plans of the answer."""
    known = measured_in(snapshot.row, answer.shape_key)
    plans_in: dict[str, list[str]] = {}
    for point in found.plans_of(answer):
        if study := known.get(point.plan_hash):
            plans_in.setdefault(study, []).append(point.plan)
    for study, plans in plans_in.items():
        names = ", ".join(plans[:4]) + (f" and {len(plans) - 4} more" if len(plans) > 4 else "")
        st.page_link(
            "tradeoff.py",
            label=f"{literal(names)}: measured in study {study}",
            query_params={"study": study},
        )


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
