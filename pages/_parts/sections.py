"""The tabs of the trade-off page: what was measured, over shapes, blocks and time, and its proof."""

from collections.abc import Callable

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recompute_core.plans.anatomy import anatomy_of
from recompute_core.results import StudyResult
from recompute_core.spec import StudySpec
from recompute_core.words import shape_labels

from . import charts, markup, planmap, tables, timelines
from .data import Snapshot
from .estimated import longer, tab_name
from .palette import Palette
from .words import literal, plan_label

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


def _over_shapes(found: Snapshot, unit: str, read: charts.Reading, colours: Palette) -> go.Figure:
    """Curves that no threshold changes are drawn once for each theme."""
    return found.once((read, colours), lambda: charts.over_shapes(found.result, unit, read, colours))


def curves(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Saved bytes and peak, plain and recomputed, over the shapes."""
    if _nothing(result):
        return
    left, right = pair_of_columns("curves")
    names = ("saved", "Saved for backward", charts.saved_mb), ("peak", "Peak", charts.peak_mb)
    for place, (key, title, read) in zip((left, right), names, strict=True):
        with place:
            st.markdown(f"**{title} (MB)**")
            st.plotly_chart(
                _over_shapes(found, "MB", read, colours),
                key=f"{key} over shapes",
                config=_QUIET,
                alt=f"{title} in MB over the shapes, plain and every measured plan",
            )
    st.caption("Measured here: saved once per storage, peak with the model's state included.")


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
    if plain.timeline is None or own.timeline is None:
        why = own.not_measured.get("timeline") or plain.not_measured.get("timeline")
        st.caption(literal(f"The timeline was not measured{f': {why}' if why else ''}."))
        return
    st.plotly_chart(
        timelines.timeline_chart(
            plan, (plain.timeline, plain.state_bytes), (own.timeline, own.state_bytes), colours
        ),
        key="timeline",
        config=_QUIET,
        alt=f"Bytes alive in MB over one update, plain and {plan} at {shape}, with both peaks",
    )
    st.caption(
        f"Measured here at {shape}: one update each under the profiler, which makes it slower than the "
        "updates that are timed. What lies under the dotted line is state, which no plan changes."
    )


def block_map(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """What a plan does to each part of each block."""
    regions = {one.candidate.plan: one.candidate.regions for one in result.judged}
    plan = _choose_plan(list(regions), "map")
    rows = planmap.plan_map(regions[plan], anatomy_of(result.spec.workload))
    st.html(markup.strip(planmap.summary(rows), "plain"))
    st.html(planmap.drawn(rows))
    st.caption("What is declared, not measured: point at a cell for what exactly happens in it.")


def selective(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Saved bytes, peak and step time against the number of recomputed blocks."""
    shapes = list(dict.fromkeys(one.candidate.shape_key for one in result.judged))
    curves_at = {shape: stops for shape in shapes if (stops := charts.selective(result, shape))}
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
        st.markdown("**Update time, with 95 % intervals**")
        st.plotly_chart(
            charts.selective_time(curves_at[shape], colours),
            key="selective time",
            config=_QUIET,
            alt=f"Update time, ratio to plain, against the number of recomputed blocks at {shape}",
        )
    st.caption(f"Measured here at {shape}. 0 blocks is plain.")


def step_time(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Step time with intervals, and its absolute value."""
    if _nothing(result):
        return
    left, right = pair_of_columns("time")
    with left:
        st.markdown("**Update time, with 95 % intervals**")
        st.plotly_chart(
            charts.ratio_over_shapes(result, colours),
            key="ratio over shapes",
            config=_QUIET,
            alt="Update time as a ratio to plain with 95 % intervals over the shapes, and the gate",
        )
    with right:
        st.markdown("**Median update time (ms)**")
        st.plotly_chart(
            _over_shapes(found, "ms", charts.step_ms, colours),
            key="time over shapes",
            config=_QUIET,
            alt="Median update time in ms over the shapes, plain and every measured plan",
        )
    st.caption(
        "Measured here: plain and recomputed updates in turn, in one process; the interval is of the "
        "median of the paired ratios."
    )


def parity(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """How far each candidate is from plain, the worst tensors, canary and legality."""
    gap = st.column_config.NumberColumn(format="%.2g", alignment="right")
    st.dataframe(
        found.once("parity", lambda: tables.parity_table(found.result.judged)),
        hide_index=True,
        column_config=dict.fromkeys(_GAPS, gap),
        alt="Parity of every candidate: gaps, noise floor and canary",
    )
    st.caption(
        "The noise floor is plain against plain. The canary is a replay broken on purpose, which "
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
                column_config={"Absolute gap": gap, "Relative gap": gap},
                alt=f"Worst tensors of {one.candidate.plan}",
            )
    lines = tables.legality_lines(result.judged)
    if lines:
        st.html(markup.lines("Legality", lines))
    else:
        st.caption("Legality: every block that a plan recomputes is legal, without conditions.")


def figures(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Every cost in one table."""
    costs = found.once("costs", lambda: tables.costs_table(found.result))
    if costs.empty:
        st.html(markup.strip("No candidate has been measured.", "plain"))
        return
    formats = {"MB": None, "ms": "%.1f", "GFLOP": "%.2f", "ratio": "%.3f", "Interval": "%.3f"}
    st.dataframe(
        tables.said_in_mb(costs),
        hide_index=True,
        column_config={
            name: st.column_config.NumberColumn(format=form, alignment="right")
            for name in costs.columns
            for unit, form in formats.items()
            if unit in name
        },
        alt="Every measured candidate with its costs",
    )


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
        "All figures": figures,
        "Environment": environment,
    }
