"""The tab of sizes that this machine never measured: estimates of a helper process, never gated."""

from collections.abc import Sequence
from functools import lru_cache

import streamlit as st

from recompute_core.errors import InputError
from recompute_core.estimating import Field, fit_field
from recompute_core.estimator import Estimator
from recompute_core.results import Estimate, StudyResult
from recompute_core.settings import shape_key, size_fields
from recompute_core.spec import StudySpec
from recompute_core.words import MB_NOTE

from . import ask, beyond, markup
from .data import Snapshot
from .palette import Palette
from .tables import said_in_mb
from .words import MISSING, literal, plan_label

_QUIET = {"displayModeBar": False}
_FIRST: dict[Field, int] = {"seq_len": 8_192, "batch": 256}


@lru_cache(maxsize=1)
def estimator() -> Estimator:
    """The one of this server."""
    return Estimator()


def tab_name(spec: StudySpec) -> str:
    """`Longer sequences`, or what a workload without sequences has instead."""
    return "Longer sequences" if fit_field(spec) == "seq_len" else "Larger batches"


def longer(found: Snapshot, result: StudyResult, colours: Palette) -> None:
    """Estimated peaks at a size of one's choice, beside those that were measured; and what fits."""
    spec = result.spec.model_copy(update={"shapes": result.spec.shapes[-1:]})
    field = fit_field(spec)
    if why := beyond.not_estimated(spec):
        _measured_alone(spec, result, field, colours)
        st.html(markup.strip(why, "plain"))
        return
    try:
        _at_a_size(spec, result, field, colours)
        st.markdown("**Fit**")
        _fit(spec, field)
    except InputError as error:
        st.error(literal(str(error)))


def _measured_alone(spec: StudySpec, result: StudyResult, field: Field, colours: Palette) -> None:
    """The peaks of the study's own sizes, of a model whose sizes are ours to change."""
    if field not in size_fields(spec.workload):
        return
    measured = beyond.measured_peaks(result, field, _base(spec, result))
    if not measured:
        return
    st.plotly_chart(
        beyond.beyond_chart(measured, ("none", *spec.plans), {}, field, colours),
        key="beyond",
        config=_QUIET,
        alt=f"Peak in MB over {beyond.NAMES[field]}, measured at the study's",
    )
    st.caption(f"Measured here. Peaks include the model's state. {MB_NOTE}")


def _base(spec: StudySpec, result: StudyResult) -> dict[str, int]:
    """The sizes of the study's last shape."""
    settings = spec.at(spec.shapes[0])
    return {name: getattr(settings, name) for name in result.judged[0].candidate.shape}


_TIMES = (2, 4, 8)


def beyond_measured(
    found: Snapshot, plans: Sequence[str]
) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, float]]]:
    """Estimated MB saved and at the peak, by plan and size, at sizes beyond the largest measured."""
    spec = found.row.spec
    field = fit_field(spec)
    largest = max(found.result.judged, key=lambda one: one.candidate.shape[field]).candidate.shape
    saved: dict[str, dict[int, float]] = {}
    peak: dict[str, dict[int, float]] = {}
    try:
        with _waiting(f"Estimating {len(plans) + 1} plans at {len(_TIMES)} sizes"):
            for plan in ("none", *plans):
                for times in _TIMES:
                    size = largest[field] * times
                    estimate = estimator().ask(spec, {**largest, field: size}, plan)
                    saved.setdefault(plan, {})[size] = estimate.saved_bytes / 1e6
                    peak.setdefault(plan, {})[size] = estimate.peak_bytes / 1e6
    except InputError as error:
        st.error(literal(str(error)))
    return saved, peak


def _at_a_size(spec: StudySpec, result: StudyResult, field: Field, colours: Palette) -> None:
    size = st.select_slider(
        beyond.NAMES[field].capitalize(),
        beyond.stops(field),
        value=_FIRST[field],
        format_func=lambda n: f"{n:,}",
        key=f"longer {field}",
    )
    shape = {**spec.shapes[0], field: size}
    plans = ("none", *spec.plans)
    asked: dict[str, Estimate] = {}
    with _waiting(f"Estimating {len(plans)} plans at {shape_key(spec.at(shape))}"):
        for plan in plans:
            asked[plan] = estimator().ask(spec, shape, plan)
        advice = estimator().advice(spec, shape)
    measured = beyond.measured_peaks(result, field, _base(spec, result))
    hollow = {plan: {size: one.peak_bytes / 1e6} for plan, one in asked.items()}
    st.plotly_chart(
        beyond.beyond_chart(measured, plans, hollow, field, colours),
        key="beyond",
        config=_QUIET,
        alt=f"Peak in MB over {beyond.NAMES[field]}, measured at the study's and estimated at {size:,}",
    )
    st.dataframe(
        said_in_mb(beyond.estimates_table(asked)),
        hide_index=True,
        placeholder=MISSING,
        column_config=_numbers("Saved (MB)", "Peak (MB)") | _numbers("Peak ratio", form="%.3f"),
        alt=f"Estimates of every plan at {size:,}",
    )
    if advice:
        st.html(markup.lines("Before recomputing", advice))
    st.caption(
        f"Filled: measured here. Hollow, and the table: estimated at {shape_key(spec.at(shape))}, "
        "nothing allocated, for the CPU's kernels; gates judge measured figures alone. Peaks include "
        f"the model's state. {MB_NOTE}"
    )


def fit(spec: StudySpec) -> None:
    """How far plain and every plan of a study that is only asked for reach on a device."""
    shape = ask.largest_shape(spec)
    if why := beyond.not_estimated(spec):
        st.caption(why)
        return
    try:
        field = fit_field(spec)
        others = ", ".join(f"{name} {size:,}" for name, size in shape.items() if name != field)
        st.caption(
            f"The {beyond.LONGEST[field].lower()} of the model and the plans chosen below"
            f"{f', at {others},' if others else ''} whose update fits. Estimated: nothing is allocated "
            "or measured."
        )
        _fit(spec.model_copy(update={"shapes": (shape,)}), field)
    except InputError as error:
        st.error(literal(str(error)))


def _fit(spec: StudySpec, field: Field) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        budget_gb = st.number_input(
            "My device has (GB)", min_value=0.1, max_value=100_000.0, value=80.0, step=8.0, key="fit GB",
            width=200, help="0.1 to 100,000 GB (10⁹ bytes); the whole peak of an update must fit.",
        )  # fmt: skip
        wanted = (spec.digest(), budget_gb)
        if st.button(f"Find the {beyond.LONGEST[field].lower().split(' (')[0]}", key="fit"):
            st.session_state["fit asked"] = wanted
    if st.session_state.get("fit asked") != wanted:
        return
    plans = ("none", *spec.plans)
    reached = []
    for plan in plans:
        with _waiting(f"How far does {plan_label(plan)} reach?"):
            reached.append(estimator().largest(spec, plan, field, int(budget_gb * 1e9)))
    st.dataframe(
        said_in_mb(beyond.fit_table(field, plans, reached)),
        hide_index=True,
        placeholder=MISSING,
        column_config={
            **_numbers("Saved (MB)", "Peak (MB)"),
            beyond.LONGEST[field]: st.column_config.TextColumn(alignment="right"),
        },
        alt=f"How far each plan reaches in {budget_gb:g} GB",
    )
    st.caption(
        f"Estimated: the whole peak, state included, is at most {budget_gb:g} GB (10⁹ bytes). Room that "
        "an allocator or another program takes is not counted."
    )


def _waiting(text: str) -> "st.spinner":
    return st.spinner(text if estimator().is_warm else f"Starting the estimator. {text}")


def _numbers(*names: str, form: str | None = None) -> dict[str, object]:
    return {name: st.column_config.NumberColumn(format=form, alignment="right") for name in names}
