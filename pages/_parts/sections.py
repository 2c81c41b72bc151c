"""The tabs of the trade-off page: what was measured, over shapes, blocks and time, and its proof."""

from collections.abc import Callable, Mapping
from functools import partial

import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recompute_core.estimating import fit_field
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.results import Memory, StudyResult, Timing
from recompute_core.spec import StudySpec
from recompute_core.studies.artifacts import history_name
from recompute_core.studies.flow import PLAIN
from recompute_core.words import (
    MB_NOTE,
    fewest_pairs,
    interval_name,
    noise_words,
    pairs_words,
    shape_labels,
)

from . import charts, choices, markup, planmap, published, tables, timelines
from .beyond import not_estimated
from .data import Snapshot, get_store
from .estimated import beyond_measured, longer, tab_name
from .pairs import pairs_chart
from .palette import Palette
from .words import MISSING, literal, plan_label

_QUIET = {"displayModeBar": False}
_GAPS = ("Largest gradient gap", "Largest relative gap", "Noise floor", "Canary's gap")


def pair_of_columns(key: str) -> tuple[DeltaGenerator, DeltaGenerator]:
    """Two columns that stand one above the other in a narrow window."""
    with st.container(key=f"stack-{key}"):
        return st.columns(2, gap="medium")


def _nothing(result: StudyResult) -> bool:
    """Whether no candidate has any cost to show; says so."""
    if any(one.candidate.memory or one.candidate.timing for one in result.judged):
        return False
    st.html(markup.strip("No candidate has been measured.", "plain"))
    return True


def curves(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Saved bytes, peak and update time, plain and recomputed, over the shapes."""
    if _nothing(found.result):
        return
    study, whole = found.row.id, found.result
    picked = {one.candidate.plan for one in result.judged}
    every = tuple(dict.fromkeys(one.candidate.plan for one in whole.judged))
    plans = charts.plans_shown(every, picked)
    axis = charts.shape_axis(whole)
    with st.container(horizontal=True, vertical_alignment="center"):
        log = axis.is_numeric and choices.switch(study, "Logarithmic axes", "axes", "log", False)
        may_estimate = axis.field == fit_field(whole.spec) and not not_estimated(whole.spec)
        longer_too = may_estimate and choices.switch(
            study, "Estimate beyond what was measured", "beyond", "on", False,
            help="Saved bytes and peak at two, four and eight times the largest size; nothing is "
            "allocated. Times are not estimated.",
        )  # fmt: skip
    look = charts.Look(colours, plans, frozenset(set(plans) - picked), log)
    saved, peak = beyond_measured(found, plans) if longer_too else ({}, {})
    drawn = (
        ("saved", "Saved for backward (MB)", "MB", charts.saved_mb, saved),
        ("peak", "Peak (MB)", "MB", charts.peak_mb, peak),
        ("time", "Update time (ms)", "ms", charts.step_ms(whole), {}),
    )
    places = [*pair_of_columns("curves"), *pair_of_columns("curves of time")]
    for place, (key, title, unit, read, more) in zip(places, drawn, strict=False):
        with place:
            st.markdown(f"**{title}**")
            st.plotly_chart(
                _drawn_once(
                    found,
                    f"{key} {bool(more)}",
                    look,
                    partial(charts.over_shapes, whole, unit, read, look, more),
                ),
                key=f"{key} over shapes",
                config=_QUIET,
                alt=f"{title} over the shapes, plain and every measured plan",
            )
    with places[3]:
        intervals = f"{interval_name(fewest_pairs(one.candidate.timing for one in whole.judged))}s"
        st.markdown(f"**Update time, ratio to plain, with {intervals}**")
        limit = result.thresholds.update_ratio
        what_if = limit != found.row.spec.thresholds.update_ratio
        st.plotly_chart(
            charts.ratio_over_shapes(whole, limit, "what-if" if what_if else "gate", look),
            key="ratio over shapes",
            config=_QUIET,
            alt=f"Update time as a ratio to plain with {intervals} over the shapes, and the gate",
        )
    left_out = len(every) - len(plans)
    st.caption(
        "Solid: measured here; saved once per storage, peak with the model's state included. Update "
        "times are plain's median over all pairs of a shape, times the ratio of the plan's own pairs: "
        "drift of the machine cancels out."
        + (" Dashed and hollow: estimated, never gated." if longer_too else "")
        + (
            f" {left_out} more plans have no line here: pick candidates to see theirs."
            if left_out
            else ""
        )
    )
    _published(found)


def _drawn_once(
    found: Snapshot, key: str, look: charts.Look, draw: Callable[[], go.Figure]
) -> go.Figure:
    """Curves that no threshold changes are drawn once, unless picked plans stand out in them."""
    return draw() if look.faded else found.once((key, look), draw)


def _published(found: Snapshot) -> None:
    """What others published for this very model, where the study measured it."""
    rows = found.once("published", lambda: published.beside(found.result))
    if not rows:
        return
    st.markdown("**Published figures of this model, next to ours**")
    st.html(markup.strip(published.sentence(rows), "plain"))
    st.html(published.table(rows))
    st.caption(
        "Published: supplied, not measured here. Naive: all tensors handed to saved_tensors_hooks, once "
        "per pointer, parameters and token ids included. Activations only: once per storage, without "
        "these. The published peak is of forward and backward above parameters and inputs; ours is of "
        f"the whole update above its state, gradients and AdamW's moments included. {MB_NOTE}"
    )


def _choose_shape(shapes: list[str], where: str) -> str:
    """One of the shapes, the last to start with; not asked where there is one only."""
    if len(shapes) == 1:
        return shapes[0]
    labels = shape_labels(shapes)
    picked = st.segmented_control(
        "Shape", shapes, format_func=lambda key: labels[key], default=shapes[-1],
        key=f"{where} shape", required=True,
    )  # fmt: skip
    return picked if picked in shapes else shapes[-1]


def _choose_plan(plans: list[str], where: str) -> str:
    """One of the plans; the choice goes along from tab to tab."""
    key = f"{where} plan"
    if st.session_state.get(key) not in plans:
        kept = st.session_state.get("chosen plan")
        st.session_state[key] = kept if kept in plans else plans[0]
    picked: str = st.selectbox("Plan", plans, format_func=plan_label, key=key, width=360)
    st.session_state["chosen plan"] = picked
    return picked


def timeline(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Bytes alive over one update, plain and one plan, with both peaks."""
    pairs = {
        (one.candidate.plan, one.candidate.shape_key): one.candidate.memory
        for one in result.judged
        if one.candidate.memory is not None
    }
    if not pairs:
        st.html(markup.strip("No candidate's memory has been measured.", "plain"))
        return
    with st.container(horizontal=True, vertical_alignment="top"):
        plan = _choose_plan(list(dict.fromkeys(plan for plan, _ in pairs)), "timeline")
        shape = _choose_shape([shape for name, shape in pairs if name == plan], "timeline")
    memory = pairs[plan, shape]
    plain, own = memory.plain, memory.candidate
    st.html(markup.strip(timelines.peak_sentence(plan, plain, own), "plain"))
    _snapshots(found.row.id, shape, {PLAIN: plain, plan: own})
    if plain.timeline is None or own.timeline is None:
        why = own.not_measured.get("timeline") or plain.not_measured.get("timeline")
        st.caption(literal(f"The timeline was not measured{f': {why}' if why else ''}."))
        return
    stacked = st.segmented_control(
        "Areas by kind",
        (plan, PLAIN),
        default=plan,
        required=True,
        format_func=plan_label,
        key=f"timeline areas of {plan}",
    )
    shown = (plain, plain.timeline) if stacked == PLAIN else (own, own.timeline)
    st.plotly_chart(
        timelines.timeline_chart(
            plan, (plain, plain.timeline), (own, own.timeline), colours, stacked == PLAIN
        ),
        key="timeline",
        config=_QUIET,
        alt=f"Bytes alive in MB over one update, plain and {plan} at {shape}, with both peaks; "
        f"{plan_label(stacked)} by kind",
    )
    st.caption(literal(timelines.explained(plan_label(stacked), *shown, colours)))
    st.caption(
        f"Measured here at {shape}: one update each under the profiler, which makes it slower than the "
        "updates that are timed."
    )


def _snapshots(study: str, shape: str, memories: Mapping[str, Memory]) -> None:
    """What PyTorch's own viewer takes, of a study on a GPU."""
    folder = get_store().folder(study)
    kept = {plan: folder / history_name(shape, plan) for plan, one in memories.items() if one.history}
    there = {plan: file for plan, file in kept.items() if file.is_file()}
    if not there:
        return
    with st.container(horizontal=True):
        for plan, file in there.items():
            st.download_button(
                f"Memory snapshot of {plan_label(plan)}",
                data=file.read_bytes,
                file_name=file.name,
                mime="application/octet-stream",
                on_click="ignore",
                key=f"snapshot of {plan}",
                help="The allocator's history over one update, for pytorch.org/memory_viz. It names "
                "source files of this machine with their folders.",
            )


def block_map(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """What a plan does to each part of each block."""
    regions = {one.candidate.plan: one.candidate.regions for one in result.judged}
    plan = _choose_plan(list(regions), "map")
    rows = planmap.plan_map(regions[plan], anatomy_of(result.spec.workload))
    st.html(markup.strip(planmap.summary(rows), "plain"))
    st.html(planmap.drawn(rows))
    st.caption("What is declared, not measured: point at a part for what exactly happens in it.")


def selective(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Saved bytes, peak and step time against the number of recomputed blocks."""
    whole = found.result
    shapes = list(dict.fromkeys(one.candidate.shape_key for one in whole.judged))
    curves_at = {shape: stops for shape in shapes if (stops := charts.selective(whole, shape))}
    if not curves_at:
        st.html(
            markup.strip(
                "This study has no selective curve: turn on “Selective curve” in Set up to "
                "recompute 0, 1, 2 … all blocks in turn.",
                "plain",
            )
        )
        return
    shape = _choose_shape(list(curves_at), "selective")
    left, right = pair_of_columns("selective")
    with left:
        st.markdown("**Memory (MB)**")
        st.plotly_chart(
            charts.selective_memory(curves_at[shape], colours),
            key="selective memory",
            config=_QUIET,
            alt=f"Saved bytes and peak in MB against the number of recomputed blocks at {shape}",
        )
    with right:
        here = (one.candidate for one in whole.judged if one.candidate.shape_key == shape)
        intervals = f"{interval_name(fewest_pairs(one.timing for one in here))}s"
        st.markdown(f"**Update time, with {intervals}**")
        st.plotly_chart(
            charts.selective_time(curves_at[shape], colours),
            key="selective time",
            config=_QUIET,
            alt=f"Update time, ratio to plain, against the number of recomputed blocks at {shape}",
        )
    st.caption(f"Measured here at {shape}. 0 blocks is plain.")


def step_time(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Every pair of updates of one candidate, and the interval that they narrow."""
    timed = {
        (one.candidate.plan, one.candidate.shape_key): one.candidate.timing
        for one in result.judged
        if one.candidate.timing is not None
    }
    if not timed:
        st.html(markup.strip("No update has been timed.", "plain"))
        return
    with st.container(horizontal=True, vertical_alignment="top"):
        plan = _choose_plan(list(dict.fromkeys(plan for plan, _ in timed)), "time")
        shape = _choose_shape([shape for name, shape in timed if name == plan], "time")
    timing = timed[plan, shape]
    low, high = timing.ratio_ci95
    st.html(
        markup.strip(
            f"{plan_label(plan)} at {shape}: an update takes {timing.update_s * 1e3:,.0f} ms, "
            f"plain {timing.plain_median_s * 1e3:,.0f} ms; the ratio is {timing.ratio_median:.3f} "
            f"({low:.3f} to {high:.3f}) over {pairs_words(timing)}, stopped: {timing.stopped}.",
            "plain",
        )
    )
    samples = [(pair.plain_s, pair.candidate_s) for pair in timing.samples]
    st.plotly_chart(
        pairs_chart(samples, result.thresholds.update_ratio, colours, 320),
        key="pairs of one candidate",
        config=_QUIET,
        alt=f"Ratio of each pair of updates of {plan} at {shape}, with the median so far, its "
        f"{interval_name(timing.pairs)} and the gate",
    )
    st.caption(
        f"Measured here: plain and recomputed updates in turn, {_where_timed(timing)}. Rings: the ratio "
        "of each pair. Line and band: the median so far and its interval. Dashed: the gate."
    )


def _where_timed(timing: Timing) -> str:
    """Of whom the times of pairs are."""
    if timing.ranks > 1:
        return f"{timing.ranks} ranks in step, each time that of the slowest rank"
    return "in one process"


def parity(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """How far each candidate is from plain, the worst tensors, canary and legality."""
    gap = st.column_config.NumberColumn(format="%.2g", alignment="right")
    ranks = result.spec.ranks.count if result.spec.ranks else 1
    st.dataframe(
        _of(found, result, found.once("parity", lambda: tables.parity_table(found.result.judged))),
        hide_index=True,
        placeholder=MISSING,
        column_config=dict.fromkeys(_GAPS, gap),
        alt="Parity of every candidate: gaps, noise floor and canary",
    )
    st.caption(
        f"The noise floor is {noise_words(ranks)}. The canary is a replay broken on purpose, which "
        "parity must catch."
    )
    for one in result.judged:
        proof = one.candidate.parity
        if proof is not None and proof.worst:
            st.markdown(
                f"**Worst tensors, {plan_label(one.candidate.plan)} at {one.candidate.shape_key}**"
            )
            st.dataframe(
                tables.worst_table(proof.worst),
                hide_index=True,
                placeholder=MISSING,
                column_config={"Absolute gap": gap, "Relative gap": gap},
                alt=f"Worst tensors of {one.candidate.plan}",
            )
    lines = tables.legality_lines(result.judged)
    if lines:
        st.html(markup.lines("Legality", lines))
    else:
        st.caption("Legality: every block that a plan recomputes is legal, without conditions.")


def _of(found: Snapshot, result: StudyResult, every: pd.DataFrame) -> pd.DataFrame:
    """The rows of those candidates of the study that are in this result."""
    wanted = {(one.candidate.plan, one.candidate.shape_key) for one in result.judged}
    judged = enumerate(found.result.judged)
    kept = [row for row, one in judged if (one.candidate.plan, one.candidate.shape_key) in wanted]
    return every.iloc[kept]


def environment(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Where this was measured, and the digests that pin it."""
    with st.expander("Environment and digests", expanded=False):
        st.dataframe(
            tables.environment_table(result),
            hide_index=True,
            column_config={"Value": st.column_config.TextColumn(width="large")},
            alt="Environment of the study and digests of its inputs",
        )
    with st.expander("What was asked", expanded=False):
        st.json(result.spec.model_dump(mode="json"), expanded=1)


Section = Callable[[Snapshot, StudyResult, Palette], None]


def sections_of(spec: StudySpec) -> dict[str, Section]:
    """The tabs by their names, in order."""
    return {
        "Curves": curves,
        "Timeline": timeline,
        "Block map": block_map,
        tab_name(spec): longer,
        "Selective curve": selective,
        "Step time": step_time,
        "Parity": parity,
        "Environment": environment,
    }
