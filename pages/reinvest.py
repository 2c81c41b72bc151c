"""Reinvest: what does the saved memory buy?"""

import json
import time
from collections.abc import Sequence

import streamlit as st

from pages._parts import chrome, markup, reinvest_ask, reinvest_form, reinvest_markup, reinvest_sections
from pages._parts import reinvest_words as words
from pages._parts.data import Snapshot, get_store
from pages._parts.reinvest_data import Shown, chosen, shown
from pages._parts.words import device_line, literal, plan_label, when
from recompute_core.reinvest.kept import Kept, run_named, runs

# How often a run under way is looked at: looking costs the processor that is being measured.
_LIVE_S = 3.0
_SHORT_S = 0.3


@chrome.plainly
def main() -> None:
    """A run of the study's as it stands, or the fields for one.

    A run is one fragment that redraws itself, and the page's first element: see live.py.
    """
    found = chrome.current()
    if found is None:
        _title(None)
        chrome.nothing_yet()
        return
    known = runs(get_store(), found.row.id)
    asked = st.query_params.get("run")
    run = chosen(known, asked)
    if run is None:
        _asking(found, known)
        return
    if asked is not None and asked != run.run_id:
        st.warning(literal(f"This study has no reinvestment {asked[:40]!r}; shown is {run.run_id}."))
    if asked != run.run_id:
        st.query_params["run"] = run.run_id
    if reinvest_form.JUST_LAUNCHED in st.session_state:
        st.fragment(_at_the_top, run_every=_SHORT_S)(found.row.id)
        return
    is_live = shown(run).is_live
    st.fragment(_watch, run_every=_LIVE_S if is_live else None)(found.row.id, run.run_id, is_live)


def _title(study: str | None) -> None:
    chrome.title("Reinvest", "What does the saved memory buy?", study)


def _at_the_top(study: str) -> None:
    """A page of two lines for a moment: one as long as the form would open where its button was, far
    down. A browser scrolls up where there is nothing to scroll."""
    _title(study)
    st.html(markup.strip("Starting: the thresholds are declared.", "plain"))
    if st.session_state[reinvest_form.JUST_LAUNCHED]:
        del st.session_state[reinvest_form.JUST_LAUNCHED]
        st.rerun()
    st.session_state[reinvest_form.JUST_LAUNCHED] = True  # it has been drawn once


def _asking(found: Snapshot, known: Sequence[Kept]) -> None:
    _title(found.row.id)
    _choice(found.row.id, known, None)
    if not found.row.ended:
        st.html(markup.strip("This study is still being measured: nothing is saved yet.", "plain"))
        chrome.live_link(found.row)
        return
    st.html(f'<div class="rs-lead"><p>{reinvest_ask.lead(found.row.spec)}</p></div>')
    reinvest_form.ask(found)
    reinvest_sections.photos(found.row.spec)


def _choice(study: str, known: Sequence[Kept], present: Shown | None) -> None:
    """The runs of this study as links (see `chrome._picker`), and the way to another."""
    if not known:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        label = words.run_label(present) if present else "Earlier reinvestments"
        with st.popover(literal(label)):
            for kept in known:
                st.page_link(
                    "reinvest.py",
                    label=literal(words.run_label(shown(kept))),
                    query_params={"study": study, "run": kept.run_id},
                )
        if present is not None:
            reinvest_form.another(study)


@chrome.plainly
def _watch(study: str, run: str, was_live: bool) -> None:
    store = get_store()
    one = shown(run_named(store, study, run))
    if one.is_live != was_live:
        st.rerun()
    _title(study)
    _choice(study, runs(store, study), one)
    result = one.result
    if result.objective is not None:
        st.html(reinvest_markup.changed_strip(result.objective))
    _head(one)
    st.html(markup.facts(_facts(one)))
    if one.is_live:
        reinvest_sections.curves(one)
    st.subheader("Gates", anchor=False)
    st.html(reinvest_markup.gate_table(result.gates, one.is_live))
    st.caption(
        f"Figures measured here, judged by the thresholds declared {when(result.declared_at)}, before "
        "the run. They are apart from the study's own gates, which they never touch."
    )
    reinvest_sections.how_far(one)
    reinvest_sections.same_objective(one)
    reinvest_sections.what_it_buys(one)
    reinvest_sections.rare_defects(one)
    if not one.is_live:
        reinvest_sections.curves(one)
    reinvest_sections.photos(one.spec)
    if not one.is_live:
        _leave(one)


def _head(one: Shown) -> None:
    """How it stands: the progress, or what ended it, or the verdict."""
    result = one.result
    if one.is_live:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.html(markup.strip(words.standing(one, time.time()), "plain"))
            st.button(
                "Cancel",
                key="reinvest cancel",
                disabled=one.kept.cancel_asked(),
                on_click=_cancel,
                args=(one.kept,),
                help="What was finished is kept; a training run goes on from its last checkpoint.",
            )
        st.progress(words.share_done(one.now))
        st.html(markup.step_row(words.steps(one)))
        return
    if result.verdict is None:
        reinvest_sections.failure(one)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.html(markup.strip(words.STATUS_SENTENCES[result.status], "plain"))
            if st.button("Go on", key="reinvest resume", type="primary"):
                reinvest_form.launch_and_watch(one.kept.asked)
        st.html(markup.step_row(words.steps(one)))
        return
    st.html(markup.verdict_line(result.verdict, result.sentence))


@chrome.plainly
def _cancel(kept: Kept) -> None:
    kept.ask_cancel()


def _facts(one: Shown) -> list[tuple[str, str]]:
    result, asked = one.result, one.kept.asked
    own = "not known yet" if result.microbatch is None else f"{result.microbatch:,}"
    batch = f"{asked.effective_batch:,} examples"
    if asked.recomputed_batch != asked.effective_batch:
        batch = f"{asked.effective_batch:,} in plain, {asked.recomputed_batch:,} under the plan"
    return [
        ("Plan", f"{plan_label(asked.plan)} at {asked.shape}"),
        ("Microbatch, plain", f"{result.plain_microbatch:,}"),
        ("Microbatch, recomputed", own),
        ("Effective batch", batch),
        ("Device", device_line(result.environment)),
        ("Thresholds declared", when(result.declared_at)),
        ("Run", result.run_id),
    ]


def _leave(one: Shown) -> None:
    """What can be taken away, and where it leads."""
    result = one.result
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "Download the result as JSON",
            data=lambda: json.dumps(result.document(), indent=1, allow_nan=False),
            file_name=f"reinvest-{result.asked.study}-{result.run_id}.json",
            mime="application/json",
            on_click="ignore",
            help="The published document, recompute-reinvest/1, raw samples included.",
        )
        st.page_link(
            "decision.py",
            label="Decide and sign",
            query_params={"study": result.asked.study, "plan": result.asked.plan},
        )


main()
