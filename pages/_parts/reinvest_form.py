"""What is asked for on Reinvest: a candidate, a batch, training, thresholds; and the launch."""

import re

import streamlit as st

from recompute_core.errors import InputError
from recompute_core.reinvest.admission import adopted_of
from recompute_core.reinvest.asked import (
    MOST_EXAMPLES,
    PRESETS,
    ReinvestSpec,
    ReinvestThresholds,
    TrainingSettings,
    first_effective_batch,
    preset,
)
from recompute_core.reinvest.driver import start
from recompute_core.reinvest.kept import runs
from recompute_core.reinvest.result import plain_microbatch, trains
from recompute_core.results import Measured
from recompute_core.spec import StudySpec

from . import address, chrome, markup, reinvest_ask
from .address import Number, OneOf, Texts
from .data import Snapshot, get_store
from .reinvest_data import LIVE, NEW, shown
from .reinvest_markup import changed_strip
from .words import duration, literal

JUST_LAUNCHED = "reinvestment just launched"
"""In the session until its page has begun at its top."""
_ASKED = ReinvestSpec.model_fields
_TRAINING = TrainingSettings.model_fields
_LIMITS = ReinvestThresholds.model_fields
_SEEDS = [str(seed) for seed in TrainingSettings().seeds]


def ask(found: Snapshot) -> None:
    """The fields, and the button that declares and launches; or why nothing can be asked for."""
    adopted = found.once("adopted", lambda: adopted_of(get_store(), found.row.id))
    why = reinvest_ask.why_not(found.row.spec, adopted)
    if why is not None:
        st.html(markup.strip(why, "plain"))
        if found.result.verdict is not None:
            st.html(markup.verdict_line(found.result.verdict, found.result.sentence))
        st.page_link("tradeoff.py", label="See why on Trade-off", query_params={"study": found.row.id})
        return
    missing = reinvest_ask.what_is_missing(found.row.spec)
    if missing is not None:
        st.html(markup.caution(missing))
    above = st.container()
    with st.container(key="stack-reinvest-form"):
        left, right = st.columns([1.25, 1], gap="large")
    with left:
        one = _candidate(found, adopted)
        address.look_at(fields(one, plain_microbatch(found.row.spec, one.shape_key)))
        name = _preset(found.row.spec)
        plain_batch = plain_microbatch(found.row.spec, one.shape_key)
        effective, other, microbatch = _batches(one, plain_batch)
        seeds, examples = _training(found, name)
    with right:
        thresholds = _thresholds(found)
    with above:
        address.say_faults()
    wanted = reinvest_ask.Wanted(
        study=found.row.id,
        plan=one.plan,
        shape=one.shape_key,
        preset=name,
        effective_batch=effective,
        recomputed_effective_batch=other,
        microbatch=microbatch,
        seeds=seeds,
        examples=examples,
        thresholds=thresholds,
    )
    try:
        asked = reinvest_ask.request_of(wanted)
    except InputError as error:
        st.error(literal(str(error)))
        return
    if asked.recomputed_effective_batch is not None:
        st.html(
            changed_strip(
                f"The training objective changes: an update will average {asked.recomputed_batch:,} "
                f"examples under the plan and {asked.effective_batch:,} in plain.",
                "Every figure of the run will say so.",
            )
        )
    _launch(found, one, asked)


def fields(one: Measured, plain_batch: int) -> address.Fields:
    """What the address may hold of a candidate's fields; each is bound to it under its key."""
    at = _at(one)
    examples = Number(1, _MOST_EXAMPLES_OF_A_RUN, whole=True)
    batch = Number(1, MOST_EXAMPLES, whole=True, may_be_empty=True)
    return {
        "preset": ("Preset", OneOf(list(PRESETS))),
        f"effective_{at}": ("Effective batch", Number(plain_batch, MOST_EXAMPLES, whole=True)),
        f"microbatch_{at}": ("Microbatch under the plan", batch),
        f"other_{at}": ("Effective batch under the plan", batch),
        "seeds": ("Seeds", Texts()),
        **{f"examples_{name}": ("Examples in each run", examples) for name in PRESETS},
        "gap": ("Accumulation gap, at most", Number(*_GAP)),
        "rate": ("Examples per second, at least", Number(*_RATE)),
        "loss": ("Rare recall lost, at most", Number(*_LOSS)),
    }


_MOST_EXAMPLES_OF_A_RUN = 10**9
_GAP, _RATE, _LOSS = (1e-12, 0.99), (0.01, 100.0), (0.0, 0.99)


def _at(one: Measured) -> str:
    """A shape as part of a name in the address: `T128B4`."""
    return re.sub(r"\W", "", one.shape_key)


def _candidate(found: Snapshot, adopted: list[Measured]) -> Measured:
    """The candidate that the address asks for, or the first; another is written into it."""
    st.subheader("Candidate", anchor=False)
    labels = reinvest_ask.candidates(adopted, found.result.judged)
    keys = list(labels)
    plans, shapes = ([key[part] for key in keys] for part in (0, 1))
    address.look_at({"plan": ("Candidate", OneOf(plans)), "shape": ("Shape", OneOf(shapes))})
    params = st.query_params
    asked = params.get("plan", plans[0]), params.get("shape", "")
    of_the_plan = [key for key in keys if key[0] == asked[0]]
    first = keys.index(asked if asked in keys else of_the_plan[0])
    picked = st.selectbox(
        "Candidate that passed, at its shape", keys, index=first, format_func=labels.__getitem__,
        key="reinvest candidate",
        help=f"{_ASKED['plan'].description} Plain's peak is the budget.",
    )  # fmt: skip
    for name, value, usual in zip(("plan", "shape"), picked, keys[0], strict=True):
        if picked == keys[0]:
            params.pop(name, None)
        elif params.get(name, usual) != value:
            params[name] = value
    return next(one for one in adopted if (one.plan, one.shape_key) == picked)


def _preset(spec: StudySpec) -> str:
    name = st.segmented_control(
        "Preset", list(PRESETS), default="quick", required=True, key="preset",
        bind="query-params",
        help="What it starts from; every number can be set below.",
    )  # fmt: skip
    name = name or "quick"
    st.caption(reinvest_ask.preset_words(name, spec))
    return name


def _batches(one: Measured, plain_batch: int) -> tuple[int, int | None, int | None]:
    """The effective batch, another for the recomputed side, the microbatch; keyed by the shape, so that
    another shape starts from its own."""
    at = _at(one)
    st.subheader("Batch", anchor=False)
    effective = st.number_input(
        "Effective batch (examples an update)", min_value=plain_batch, max_value=MOST_EXAMPLES,
        value=first_effective_batch(plain_batch), step=plain_batch,
        key=f"effective_{at}", bind="query-params", width=320,
        help=_ASKED["effective_batch"].description,
    )  # fmt: skip
    st.caption(
        f"Kept on both sides by accumulation: plain's microbatch is the study's batch, {plain_batch:,}."
    )
    with st.expander("Microbatch, and another effective batch"):
        left, right = st.columns(2)
        with left:
            microbatch = st.number_input(
                "Microbatch under the plan", min_value=1, max_value=MOST_EXAMPLES, value=None,
                placeholder="the largest", key=f"microbatch_{at}", bind="query-params",
                help=_ASKED["microbatch"].description,
            )  # fmt: skip
        with right:
            other = st.number_input(
                "Effective batch under the plan", min_value=1, max_value=MOST_EXAMPLES, value=None,
                placeholder="the same", key=f"other_{at}", bind="query-params",
                help=_ASKED["recomputed_effective_batch"].description,
            )  # fmt: skip
        st.caption(
            "Another effective batch is another training objective: every figure of the run will say so."
        )
    return effective, other, microbatch


def _training(found: Snapshot, name: str) -> tuple[list[str] | None, int | None]:
    if not trains(found.row.spec):
        return None, None
    st.subheader("Training", anchor=False)
    st.caption("Both settings, the same examples from the same seeds, then each class on validation.")
    left, right = st.columns([1.3, 1])
    with left:
        seeds = st.multiselect(
            "Seeds", _SEEDS, default=_SEEDS, accept_new_options=True, key="seeds", bind="query-params",
            placeholder="none: no training", help=_TRAINING["seeds"].description,
        )  # fmt: skip
    with right:
        examples = st.number_input(
            "Examples in each run", min_value=1, max_value=_MOST_EXAMPLES_OF_A_RUN,
            value=preset(name)["training"]["examples"], step=64,
            key=f"examples_{name}", bind="query-params", help=_TRAINING["examples"].description,
        )  # fmt: skip
    return list(seeds), examples


def _thresholds(found: Snapshot) -> dict[str, float]:
    usual = ReinvestThresholds()
    st.subheader("Thresholds", anchor=False)
    st.caption("Declared when it is launched. None of them touches the study's own verdict.")
    gap = st.number_input(
        "Accumulation gap, at most", min_value=_GAP[0], max_value=_GAP[1],
        value=usual.accumulation_gap, step=1e-5, format="%.0e", key="gap", bind="query-params",
        help=_LIMITS["accumulation_gap"].description,
    )  # fmt: skip
    st.caption("relative, any gradient of the accumulated update")
    rate = st.number_input(
        "Examples per second, at least", min_value=_RATE[0], max_value=_RATE[1],
        value=usual.rate_ratio, step=0.05, format="%.2f", key="rate", bind="query-params",
        help=_LIMITS["rate_ratio"].description,
    )  # fmt: skip
    st.caption(f"{rate:.2f} times plain's")
    limits = {"accumulation_gap": gap, "rate_ratio": round(rate, 9)}
    if not trains(found.row.spec):
        return limits
    loss = st.number_input(
        "Rare recall lost, at most", min_value=_LOSS[0], max_value=_LOSS[1],
        value=usual.rare_recall_loss, step=0.01, format="%.2f", key="loss", bind="query-params",
        help=_LIMITS["rare_recall_loss"].description,
    )  # fmt: skip
    st.caption(f"{100 * loss:.0f} % of the rare receipts")
    return {**limits, "rare_recall_loss": round(loss, 9)}


def _launch(found: Snapshot, one: Measured, asked: ReinvestSpec) -> None:
    known = [("Work", reinvest_ask.work_words(found.row.spec, asked))]
    expected = reinvest_ask.forecast_s(found.row.spec, one, asked)
    if expected is not None:
        known.append(("Duration, estimated", f"about {duration(expected)}"))
    with st.container(horizontal=True, vertical_alignment="center", key="reinvest-foot"):
        st.html(markup.facts(known))
        pressed = st.button(
            "Declare thresholds and launch", key="reinvest launch",
            type="primary" if trains(found.row.spec) else "secondary",
            help="The estimate is from this study's own updates. Closing the tab changes nothing.",
        )  # fmt: skip
    if pressed:
        launch_and_watch(asked)


@chrome.plainly
def launch_and_watch(asked: ReinvestSpec) -> None:
    """Launch a run, or go on with it, and show it; what was asked before is shown, not done again."""
    store = get_store()
    same = next((kept for kept in runs(store, asked.study) if kept.asked == asked), None)
    if same is not None and shown(same).result.status in (*LIVE, "done"):
        kept = same
    else:
        kept = start(store, asked)
    st.query_params["run"] = kept.run_id
    st.session_state[JUST_LAUNCHED] = False
    st.rerun()


def another(study: str) -> None:
    """The way to the fields from a run."""
    st.page_link(
        "reinvest.py", label="Set up another", icon=":material/add:",
        query_params={"study": study, "run": NEW},
    )  # fmt: skip
