"""The five steps of the demo: each draws one picture and says one finding beside it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go
import streamlit as st

from recompute_core.gates import deciding
from recompute_core.rerun import torn
from recompute_core.results import Measured, Memory
from recompute_core.words import count

from . import chrome, demo_charts, demo_gates, demo_words, markup, progress
from .data import Snapshot, board_of, spent_and_left
from .demo_charts import Look
from .demo_study import DEMO, Told, arrived, speed_up
from .demo_words import Said
from .still import Size, still
from .whatif import rejudge
from .words import UNFINISHED_SENTENCES, literal, plan_label, workload_label

_QUIET = {"displayModeBar": False}
_PLAYED_SINCE = "demo pairs played since"


@dataclass(frozen=True)
class Stage:
    """What a step draws from, and how large."""

    found: Snapshot
    told: Told
    look: Look
    picture: Size

    @property
    def ended(self) -> bool:
        return self.found.row.ended


def show(step: int, stage: Stage) -> None:
    """One step: the picture at the left, the words at the right; one below the other where narrow."""
    st.html(f'<p class="rs-demo-lead">{escape(demo_words.lead(step, stage.told.whole))}</p>')
    with st.container(key=f"stack-demo-{step}"):
        left, right = st.columns([2.2, 1], gap="medium")
    _STEPS[step - 1](stage, left, right)


Place = st.delta_generator.DeltaGenerator


def _chart(figure: go.Figure, key: str, alt: str) -> None:
    st.plotly_chart(figure, key=f"demo {key}", config=_QUIET, alt=alt)


def _say(said: Said, where: str = "") -> None:
    """A finding; `where` is its shape, in a picture of several."""
    name = ("The surprise" if said.surprising else "Measured here") + where
    css = " rs-demo-surprise" if said.surprising else ""
    text = said.text.replace(" MB", "\u00a0MB").replace(" GB", "\u00a0GB").replace(" %", "\u00a0%")
    st.html(
        f'<div class="rs-demo-said{css}" role="status"><b>{escape(name)}</b><p>{escape(text)}</p></div>'
    )


# --- 1 and 2: memory over an update ----------------------------------------------------------------


def _keeps(stage: Stage, left: Place, right: Place) -> None:
    plain = stage.told.plain
    if plain is None:
        _absent(1, stage, left)
        return
    with left:
        if plain.timeline is None:
            st.html(markup.strip(demo_words.no_timeline(plain), "plain"))
        else:
            alt = f"Memory in use over one plain update, in MB. {demo_words.keeps(plain).text}"
            timeline, look = plain.timeline, stage.look
            made = stage.found.once(
                ("demo kept", look), lambda: demo_charts.kept_chart(plain, timeline, look)
            )
            _chart(made, "kept", alt)
    with right:
        _say(demo_words.keeps(plain))
        _explain(plain)


def _comes_back(stage: Stage, left: Place, right: Place) -> None:
    told = stage.told
    plain, own = told.plain, told.own
    if plain is None or own is None:
        _absent(2, stage, left)
        return
    said = demo_words.comes_back(told.plan, plain, own, told.replays)
    with left:
        if plain.timeline is None or own.timeline is None:
            st.html(markup.strip(demo_words.no_timeline(own), "plain"))
        else:
            _chart(
                demo_charts.teeth_chart(
                    told.plan,
                    (plain, plain.timeline),
                    (own, own.timeline),
                    stage.look,
                ),
                "teeth",
                f"Memory in use over one update, plain and {plan_label(told.plan)}. {said.text}",
            )
    with right:
        _say(said)
        if teeth := demo_words.tooth(told.replays, told.whole, own):
            st.caption(teeth)
        _explain(own)


def _explain(memory: Memory) -> None:
    if memory.timeline and (passing := demo_words.passing(memory.timeline)):
        st.caption(passing)


# --- 3: pairs ----------------------------------------------------------------------------------------


def is_playing(study: str) -> bool:
    """Whether the pairs of this study are being played again in this browser."""
    return st.session_state.get(_PLAYED_SINCE, ("", 0))[0] == study


def _play(study: str) -> None:
    st.session_state[_PLAYED_SINCE] = (study, time.monotonic())


def stop_playing() -> None:
    """The pairs stand where they ended."""
    st.session_state.pop(_PLAYED_SINCE, None)


def _price(stage: Stage, left: Place, right: Place) -> None:
    told, study = stage.told, stage.found.row.id
    gate = stage.found.row.spec.thresholds.update_ratio
    if not told.pairs or (told.timing is None and stage.ended):
        _absent(3, stage, left)
        return
    shown = len(told.pairs)
    if is_playing(study):
        begun = st.session_state[_PLAYED_SINCE][1]
        shown = arrived(told.pairs, time.monotonic() - begun)
        if shown == len(told.pairs):
            stop_playing()
            st.rerun()
    complete = told.timing is not None and shown == len(told.pairs)
    ratios = told.ratios
    of = len(ratios) if told.timing else max(len(ratios), stage.found.row.spec.timing.min_pairs)
    said = demo_words.price(ratios, gate, told.work) if complete else demo_words.arriving(ratios[:shown])
    with left:
        _chart(
            demo_charts.price_chart(
                told.pairs[:shown], of, (min(ratios), max(ratios)), gate, stage.look
            ),
            "price",
            f"Recomputed over plain update time, {count(shown, 'pair')}, with interval. {said.text}",
        )
    with right:
        _say(said)
        shrank = demo_words.narrowing(ratios) if complete else None
        if shrank:
            st.caption(shrank)
        if told.timing:
            _replay_button(told, study)


def _replay_button(told: Told, study: str) -> None:
    playing = is_playing(study)
    faster = speed_up(told.pairs)
    if playing and faster > 1:
        st.caption(f"A replay, {faster:.1f} times as fast as they were timed.")
    if st.button("Stop" if playing else "Replay the pairs", key="demo replay"):
        if playing:
            stop_playing()
        else:
            _play(study)
        st.rerun()


# --- 4: the picture and its gates --------------------------------------------------------------------


def _middle(stage: Stage, left: Place, right: Place) -> None:
    found, told = stage.found, stage.told
    measured = [one.candidate for one in found.result.judged if isinstance(one.candidate, Measured)]
    if not measured:
        _absent(4, stage, left)
        return
    here = [one for one in measured if one.shape_key == told.shape_key]
    subject = next((one for one in here if one.plan == told.plan), None)
    with left:
        chart = st.container()
        asked = demo_gates.asked_gates(found.row)
    result = rejudge(found.result, asked)
    moved = asked != found.row.spec.thresholds
    with right:
        several = len({one.candidate.shape_key for one in found.result.judged}) > 1
        _say(demo_words.middle(here, subject, told.blocks), f", at {told.shape_key}" if several else "")
        st.html(markup.verdict_line(result.verdict, result.sentence, moved))
        if moved:
            st.button(
                "Back to the declared gates", key="demo reset", on_click=demo_gates.forget_moved,
                args=(found.row,),
            )  # fmt: skip
    with chart:
        still(found, result, stage.picture)


# --- 5: the decision ---------------------------------------------------------------------------------


def _decision(stage: Stage, left: Place, right: Place) -> None:
    found = stage.found
    result = found.result
    if result.verdict is None:
        _absent(5, stage, left)
        return
    best = deciding(result.judged)
    with left:
        st.html(markup.verdict_line(result.verdict, result.sentence))
        st.html(demo_gates.gate_cards(best.gates))
        st.caption(
            literal(f"The gates of {plan_label(best.candidate.plan)} at {best.candidate.shape_key}.")
        )
    with right:
        _say(demo_words.proof(best.candidate))
        said = demo_words.decided(result.verdict, best, result.judged)
        st.html(f'<p class="rs-demo-next">{escape(said)}</p>')
        study = {"study": found.row.id}
        if result.verdict == "undecided" and torn(result.judged):
            label = "Why, and measure longer, on Trade-off"
            st.page_link("tradeoff.py", label=label, icon=":material/timer:", query_params=study)
        label = "Sign it on Decision" if result.verdict == "adopt" else "Open Decision"
        st.page_link("decision.py", label=label, icon=":material/gavel:", query_params=study)


# --- what is not there -------------------------------------------------------------------------------


def _absent(step: int, stage: Stage, place: Place) -> None:
    """Why a step has nothing to show yet, or will never have, and what to do about it."""
    found = stage.found
    with place:
        candidate = stage.told.judged.candidate
        if not stage.ended and not candidate.troubles:
            waits = demo_words.not_yet(step)
            st.html(f'<div class="rs-demo-absent" role="status"><p>{escape(waits)}</p></div>')
            st.html(markup.step_row(progress.steps(found.result, board_of(found))))
            return
        why, todo = demo_words.missing(candidate, stage.ended, stage.told.failed)
        st.html(
            f'<div class="rs-demo-absent" role="status"><p>{escape(why)}</p><p>{escape(todo)}</p></div>'
        )
        with st.container(horizontal=True, vertical_alignment="center"):
            launch_button()
            st.page_link("live.py", label="Open it on Live", query_params={"study": found.row.id})


def launch_button() -> None:
    """Starts the study made for the demo and stays here, where it fills in step by step."""
    if st.button("Measure the demo", type="primary", key="demo launch") and chrome.launch_once(DEMO):
        demo_gates.leave_address()
        st.rerun()


def standing(found: Snapshot) -> str:
    """What a study that is not done is doing, or how it ended, in a line."""
    row = found.row
    what = workload_label(row.spec.workload.name)
    if row.ended:
        return f"{UNFINISHED_SENTENCES[row.status]} It can be resumed on Live."
    if row.status == "queued":
        return f"Queued: {what} starts as soon as the device is free."
    if not found.cells:
        return f"Starting {what}: torch is being loaded."
    done, total = progress.settled(board_of(found))
    _, still = spent_and_left(found)
    running = next((cell for cell in found.cells if cell.state == "running"), None)
    doing = f": {running.phase} of {plan_label(running.plan)}" if running else ""
    return f"Measuring {what}{doing}, {done} of {total} cells{still}."


_STEPS: tuple[Callable[[Stage, Place, Place], None], ...] = (
    _keeps, _comes_back, _price, _middle, _decision,
)  # fmt: skip
