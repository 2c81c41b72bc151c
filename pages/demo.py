"""Demo: what does recomputing cost and save, shown step by step?"""

import time
from pathlib import Path

import streamlit as st

from pages._parts import chrome, demo_steps, markup
from pages._parts.data import Snapshot, get_store, snapshot, want_study, wanted_study
from pages._parts.demo_charts import Look
from pages._parts.demo_gates import start_anew
from pages._parts.demo_study import DEMO, Told, choose, told
from pages._parts.demo_words import STEPS
from pages._parts.promise import promised
from pages._parts.still import Size
from pages._parts.words import device_line, literal, when, workload_label
from recompute_core.words import MB_NOTE, count, listed

_QUESTION = "What does recomputing cost and save, shown step by step?"
_DRAWN, _WROTE = "demo step", "demo address"
_ON_ITS_WAY_S = 3.0
_MOST_NAMED = 3
_STYLE = Path(__file__).parent / "_parts" / "demo.css"


def main() -> None:
    """One fragment, the page's first element, which redraws itself while there is something to watch."""
    asked = wanted_study()
    chosen = choose(get_store(), asked)
    if chosen is None:
        _nothing_yet()
        return
    row = chosen.found.row
    if asked is None:
        want_study(row.id)
    every = 1.0 if not row.ended else 0.4 if demo_steps.is_playing(row.id) else None
    st.fragment(_watch, run_every=every)(row.id, row.ended, chosen.note)


@chrome.plainly
def _watch(study: str, was_ended: bool, note: str) -> None:
    found = snapshot(get_store(), study)
    if found.row.ended != was_ended:
        st.rerun()
    st.html(_STYLE)
    step, large = _step(), _address("present") == "1"
    if step != 3 and demo_steps.is_playing(study):
        demo_steps.stop_playing()
        st.rerun()
    _head(step, large, study)
    _steps(step, large)
    if note:
        st.html(markup.strip(note, "plain"))
    look = Look(chrome.colours(), 520, 20) if large else Look(chrome.colours())
    picture = Size(1.5, 420) if large else Size(1.25, 380)
    subject = told(found.result, found.cells, found.events)
    demo_steps.show(step, demo_steps.Stage(found, subject, look, picture))
    if found.row.status != "done":
        st.html(markup.strip(demo_steps.standing(found), "plain"))
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        st.caption(literal(f"{_where(found, subject, step >= 4)} {MB_NOTE}"))
        st.button(
            "Leave the presenter's view" if large else "Presenter's view",
            key="demo present", type="tertiary", on_click=_present, args=(not large,),
            help=None if large else "Large, without the sidebar; Page Down and Page Up walk the steps",
        )  # fmt: skip


def _where(found: Snapshot, subject: Told, every_shape: bool) -> str:
    """What was measured, on what and when: at all shapes where a step speaks of all of them."""
    shapes = list(dict.fromkeys(one.candidate.shape_key for one in found.result.judged))
    if not every_shape or len(shapes) == 1:
        shapes = [subject.shape_key]
    at = f"{workload_label(found.row.spec.workload.name)} at {_several(shapes)}"
    if subject.plain is None:
        return f"Nothing of {at} has been measured{'' if found.row.ended else ' yet'}."
    device = device_line(found.result.environment, found.row.spec.compile)
    return f"Measured here: {at} on {device}, {when(found.row.created_at)}."


def _several(shapes: list[str]) -> str:
    return listed(shapes) if len(shapes) <= _MOST_NAMED else count(len(shapes), "shape")


def _head(step: int, large: bool, study: str) -> None:
    if large:
        st.html('<span class="rs-present"></span>')
        st.title(STEPS[step - 1], anchor=False)
    else:
        chrome.title(STEPS[step - 1], f"Demo, step {step} of {len(STEPS)}. {_QUESTION}", study)


# --- where one is --------------------------------------------------------------------------------------


def _step() -> int:
    """The step in the address; the first where it says nothing that can be."""
    asked = _address("step")
    return int(asked) if asked in ("1", "2", "3", "4", "5") else 1


def _address(name: str) -> str:
    """What the address says. A redraw that was on its way when something was pressed still brings the
    address of before: that is put right."""
    moment, value = st.session_state.get(_WROTE, {}).get(name, (-_ON_ITS_WAY_S, ""))
    if time.monotonic() - moment < _ON_ITS_WAY_S:
        _put(name, value)
    return st.query_params.get(name, "")


def _put(name: str, value: str) -> None:
    if st.query_params.get(name, "") == value:
        return
    if value:
        st.query_params[name] = value
    else:
        del st.query_params[name]


def _write(name: str, value: str) -> None:
    """Say something in the address; an empty value takes it out."""
    st.session_state.setdefault(_WROTE, {})[name] = (time.monotonic(), value)
    _put(name, value)


def _go(step: int) -> None:
    _write("step", str(step))
    if step != st.session_state[_DRAWN]:  # a press told twice must not take a slider from under a hand
        start_anew()


def _present(large: bool) -> None:
    _write("present", "1" if large else "")


def _steps(step: int, large: bool) -> None:
    """The names of all steps, the present one marked; back and next. Buttons all: a choice that is set
    from here comes back as it was before, with a redraw that was on its way, and would be taken for one
    of the reader's."""
    st.session_state[_DRAWN] = step
    with st.container(
        key="demo-steps", horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"
    ):
        with st.container(key="demo-names", horizontal=True, gap=None, width="content"):
            for number, name in enumerate(STEPS, 1):
                st.button(
                    f"{number}\u2002{name}", key=f"demo step {number}", on_click=_go, args=(number,),
                    type="secondary" if number == step else "tertiary",
                )  # fmt: skip
        with st.container(horizontal=True, gap="small", width="content"):
            st.button(
                "Back", key="demo back", disabled=step == 1, on_click=_go, args=(step - 1,),
                shortcut="PageUp" if large else None,
            )  # fmt: skip
            st.button(
                "Next", key="demo next", disabled=step == len(STEPS), on_click=_go, args=(step + 1,),
                type="secondary" if step == len(STEPS) else "primary",
                shortcut="PageDown" if large else None,
            )  # fmt: skip


# --- before anything was measured ------------------------------------------------------------------


def _nothing_yet() -> None:
    st.html(_STYLE)
    chrome.title("Demo", _QUESTION)
    st.html(
        '<p class="rs-demo-lead">Five steps show what recomputing saves and what it costs, in figures '
        "that this machine measures itself. Nothing that can be shown has been measured here yet.</p>"
    )
    st.html(f'<ol class="rs-demo-list">{"".join(f"<li>{name}</li>" for name in STEPS)}</ol>')
    demo_steps.launch_button()
    st.caption(
        f"A small model is measured under three plans, {promised(DEMO)}. "
        "The steps fill in while it runs."
    )


main()
