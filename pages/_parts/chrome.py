"""The sidebar, the title with its link, and how a page finds its study."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import wraps
from html import escape
from typing import ParamSpec
from urllib.parse import urlencode, urlsplit

import streamlit as st
from streamlit.navigation.page import Page

from recompute_core.errors import InputError, StoreError
from recompute_core.results import PlanResult, StudyResult
from recompute_core.spec import StudySpec
from recompute_core.studies.launch import launch
from recompute_core.studies.searching import keep_answer
from recompute_core.studies.store import Store, StudyRow
from recompute_core.words import count

from .copy_link import copy_link
from .data import Snapshot, get_store, snapshot, want_study, wanted_study
from .login import account
from .palette import Palette, palette_of
from .promise import quick_promised
from .queue import device_words, queue_of
from .words import (
    device_line,
    literal,
    shapes_line,
    standing,
    study_label,
    threads_line,
    when,
    when_short,
)

Given = ParamSpec("Given")
_LAUNCHED = "launched last"
_ONE_WISH_S = 4.0


def colours() -> Palette:
    """The palette of the theme this browser shows."""
    return palette_of(st.context.theme.type)


def plainly(draw: Callable[Given, None]) -> Callable[Given, None]:
    """Shows a problem with the store or the input as one line, wherever it is met."""

    @wraps(draw)
    def drawn(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            draw(*args, **kwargs)
        except (InputError, StoreError) as error:
            st.error(literal(str(error)))

    return drawn


def sidebar(store: Store, groups: Mapping[str, Sequence[Page]], unknown: str | None) -> None:
    """The name, the device line, the pages in their groups and the study picker."""
    with st.sidebar:
        _name_and_device()  # first, as a fragment that redraws itself must be: see live.py
        study = None if unknown else wanted_study()
        for group, pages in groups.items():
            st.html(f'<div class="rs-group">{escape(group)}</div>')
            for page in pages:
                st.page_link(page, query_params={"study": study} if study else None)
        st.divider()
        _picker(store, unknown)
        account()


_PICKED = 12


def _picker(store: Store, unknown: str | None) -> None:
    """The newest studies as links. Not a selectbox: that tells its options apart by their labels, and
    these change when a study ends."""
    rows = store.studies(limit=_PICKED)
    if not rows:
        return
    asked = None if unknown else wanted_study()
    if asked is not None:
        want_study(asked)
    shown = next((row for row in rows if row.id == asked), None)
    if asked is not None and shown is None:
        shown = store.study(asked)
    st.html('<div class="rs-group">Study</div>')
    label = literal(picker_label(shown)) if shown else "Choose a study"
    # Another key is another list, shut: where one was chosen it would stay open, over the page.
    with st.popover(label, width="stretch", key=f"picker {asked}"), st.container(key="picker-links"):
        for row in rows:
            here = row.id == asked
            with st.container(key="picker-present") if here else nullcontext():
                st.page_link(
                    "tradeoff.py" if row.ended else "live.py",
                    label=literal(picker_label(row)),
                    query_params={"study": row.id},
                )
        st.page_link("studies.py", label="All studies")


def picker_label(row: StudyRow) -> str:
    """`gpt, 29 Nov 16:47, adopt`, `gpt, ddp ×2, 29 Nov 16:47, adopt`."""
    return f"{study_label(row.spec)}, {when_short(row.created_at)}, {standing(row)}"


@st.fragment(run_every=3)
@plainly
def _name_and_device() -> None:
    busy, text = device_words(queue_of(get_store()), wanted_study())
    css = "rs-side rs-busy" if busy else "rs-side"
    st.html(
        '<div class="rs-name">Recompute Studio<span>Recompute activations, or keep them?</span></div>'
        f'<div class="{css}" role="status" title="{escape(text)}"><span>{escape(text)}</span></div>'
    )


def title(text: str, question: str, study: str | None = None) -> None:
    """A page's title, the question it answers, and at the right the link to copy."""
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.title(text, anchor=False, width="content")
        copy_link(link(study))
    st.caption(question)


def link(study: str | None) -> str:
    """The address of the present page with its study and its choices."""
    base = urlsplit(st.context.url or "")
    params = {key: st.query_params.get_all(key) for key in st.query_params}
    if study is not None:
        params["study"] = [study]
    query = urlencode(params, doseq=True)
    return f"{base.scheme}://{base.netloc}{base.path}" + (f"?{query}" if query else "")


def current(live_first: bool = False) -> Snapshot | None:
    """The study of this page: the one in the address, or else the newest; None when there is none."""
    store = get_store()
    study = wanted_study()
    if study is None:
        live = store.live() if live_first else []
        newest = live[-1:] or store.studies(limit=1)
        if not newest:
            return None
        study = newest[0].id
        want_study(study)
    return snapshot(store, study)


def nothing_yet() -> None:
    """What a page about a study says when there is none."""
    st.info(f"Nothing has been measured on this machine yet. {quick_promised()}")
    with st.container(horizontal=True):
        st.page_link("home.py", label="Start with the quick study")
        st.page_link("setup.py", label="Set up your own")


def live_link(row: StudyRow) -> None:
    """Where to go on with a study that is not done."""
    label = "Resume it on Live" if row.ended else "Watch it live"
    st.page_link("live.py", label=label, query_params={"study": row.id})


def launch_and_watch(spec: StudySpec, answer: PlanResult | None = None) -> None:
    """Launch a study and show it live; `answer` as in `launch_once`."""
    study = launch_once(spec, answer)
    if study is not None:
        st.switch_page("live.py", query_params={"study": study})


def launch_once(spec: StudySpec, answer: PlanResult | None = None) -> str | None:
    """Launch a study that every page shows from now on. A double click is one wish and gives one study,
    and so do two browsers: what is queued or measured already is shown, and not launched again.

    `answer` is where its plans come from: it is laid beside the study, whose page shows it. None: it
    could not be launched, and why is said.
    """
    last = st.session_state.get(_LAUNCHED)
    if last is None or last[0] != spec.digest() or time.monotonic() - last[2] > _ONE_WISH_S:
        try:
            last = (spec.digest(), _under_way(spec) or launch(get_store(), spec), time.monotonic())
            st.session_state[_LAUNCHED] = last
            if answer is not None:
                keep_answer(get_store(), last[1], answer)
        except (InputError, StoreError) as error:
            st.error(literal(str(error)))
            return None
    study: str = last[1]
    want_study(study)
    return study


def _under_way(spec: StudySpec) -> str | None:
    """The study of just this specification that is queued or measured now."""
    return next((row.id for row in get_store().live() if row.spec.digest() == spec.digest()), None)


def study_facts(row: StudyRow, result: StudyResult) -> list[tuple[str, str]]:
    """The small facts under a verdict: what was measured, where, when declared."""
    apart = {name: fact for name, fact in result.environment.items() if name != "threads"}
    return [
        ("Workload", row.spec.workload.name),
        ("Shapes", shapes_line(row.spec)),
        ("Plans", count(len(row.spec.plans), "plan")),
        ("Device", device_line(apart, row.spec.compile)),
        ("Threads", threads_line(row.spec, result.environment)),
        ("Thresholds declared", when(row.declared_at)),
        ("Study", row.id),
        *(("Re-run of", one.study) for one in row.spec.follows[-1:]),
    ]
