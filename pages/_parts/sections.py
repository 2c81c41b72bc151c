"""The tabs of the result page: curves, selective curve, step time, parity, figures, environment."""

from collections.abc import Callable

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recompute_core.results import StudyResult

from . import charts, markup, tables
from .data import Snapshot
from .palette import Palette
from .words import plan_label, shape_labels

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
    shape = next(iter(curves_at))
    if len(curves_at) > 1:
        labels = shape_labels(list(curves_at))
        picked = st.segmented_control(
            "Shape", list(curves_at), format_func=lambda key: labels[key], default=list(curves_at)[-1],
            key="selective shape", required=True,
        )  # fmt: skip
        shape = picked if picked in curves_at else shape
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
    formats = {"MB": "%.1f", "ms": "%.1f", "GFLOP": "%.2f", "ratio": "%.3f", "Interval": "%.3f"}
    st.dataframe(
        costs,
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


SECTIONS: dict[str, Callable[[Snapshot, StudyResult, Palette], None]] = {
    "Curves": curves,
    "Selective curve": selective,
    "Step time": step_time,
    "Parity": parity,
    "All figures": figures,
    "Environment": environment,
}
