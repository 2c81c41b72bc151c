"""The threshold sliders: declared values to start from, anything else a what-if kept in the address."""

from collections.abc import Sequence

import streamlit as st

from recompute_core.errors import InputError
from recompute_core.spec import Thresholds, parse_spec
from recompute_core.studies.store import StudyRow

from . import gate_address
from .gate_address import PARAMS, ends_of
from .words import GATE_MEANINGS, figure, literal

_GAPS = [float(f"{m}e-{e}") for e in range(9, 0, -1) for m in (1, 2, 5)]


def asked_thresholds(row: StudyRow) -> Thresholds:
    """Draws the sliders and returns the thresholds they stand at."""
    declared = row.spec.thresholds
    ends = ends_of(declared)
    _start(row)
    with st.container(border=True):
        st.markdown("**Thresholds**")
        st.caption("Ratios are to plain. Move one, or its line in the picture: all is judged again.")
        peak = st.slider(
            "Peak, at most",
            *ends.peak,
            key="peak_ratio",
            step=0.01,
            help=GATE_MEANINGS["memory_saving"],
        )
        update = st.slider(
            "Update time, at most",
            *ends.update,
            key="update_ratio",
            step=0.01,
            help=GATE_MEANINGS["update_latency"],
        )
        gap = st.select_slider(
            "Gradient gap, at most",
            _stops(declared.gradient_gap, st.session_state["gradient_gap"]),
            key="gradient_gap",
            format_func=figure,
            help=GATE_MEANINGS["gradient_parity"],
        )
        relative = st.select_slider(
            "Relative gap, at most",
            _stops(declared.relative_gap, st.session_state["relative_gap"]),
            key="relative_gap",
            format_func=figure,
            help=Thresholds.model_fields["relative_gap"].description,
        )
        st.caption(
            f"Declared: peak {declared.peak_ratio:g}, update {declared.update_ratio:g}, gradient gap "
            f"{figure(declared.gradient_gap)}, relative gap {figure(declared.relative_gap)}."
        )
    asked = Thresholds(
        peak_ratio=round(peak, 6),
        update_ratio=round(update, 6),
        gradient_gap=gap,
        relative_gap=relative,
    )
    _keep(row, asked)
    return asked


def move_lines(row: StudyRow, peak: float, update: float) -> None:
    """Put the sliders where the lines of the picture were dragged, unless no threshold can be there."""
    declared = row.spec.thresholds
    given = {"peak_ratio": round(peak, 6), "update_ratio": round(update, 6)}
    try:
        asked = parse_spec({"thresholds": {**declared.model_dump(), **given}}).thresholds
    except InputError:
        return
    if ends_of(declared).hold(asked):
        st.session_state["peak_ratio"] = asked.peak_ratio
        st.session_state["update_ratio"] = asked.update_ratio


def forget_what_if(row: StudyRow) -> None:
    """Back to the declared thresholds."""
    for name in PARAMS:
        st.session_state[name] = getattr(row.spec.thresholds, name)


def _start(row: StudyRow) -> None:
    """Set the sliders: where this session left them, or as the address says, or as declared."""
    kept = st.session_state.setdefault("what-if", {})
    fresh = st.session_state.get("what-if study") != row.id
    if fresh and row.id not in kept:
        kept[row.id] = _from_address(row.spec.thresholds)
    for name in PARAMS:
        if fresh or name not in st.session_state:
            st.session_state[name] = getattr(kept[row.id], name)
    st.session_state["what-if study"] = row.id


def _from_address(declared: Thresholds) -> Thresholds:
    try:
        return gate_address.read(declared, PARAMS)
    except InputError as error:
        st.warning(literal(f"The thresholds in the address are not used: {error}"))
        return declared


def _keep(row: StudyRow, asked: Thresholds) -> None:
    st.session_state["what-if"][row.id] = asked
    gate_address.write(row.spec.thresholds, asked, PARAMS)


def _stops(*also: float) -> Sequence[float]:
    return sorted({*_GAPS, *also})
