"""The fields of Set up that say how the job trains: over several devices, compiled, on a cluster."""

from collections.abc import Sequence
from typing import Any, get_args

import streamlit as st

from recompute_core.errors import InputError
from recompute_core.ranks.admission import check_ranks
from recompute_core.spec import Backend, Compile, EngineName, Ranks, StudySpec
from recompute_core.studies.engines import is_configured

from . import address
from .address import Number, OneOf, SomeOf

_ONE, _EAGER = "one process", "not compiled"
_KINDS = (_ONE, *get_args(Ranks.model_fields["kind"].annotation))
_BACKENDS = (_EAGER, *get_args(Backend))
_MOST_RANKS = 64
_BUDGETS = ("25", "50", "75")

FIELDS: address.Fields = {
    "ranks": ("Data parallel", OneOf(_KINDS)),
    "rank_count": ("Ranks", Number(2, _MOST_RANKS, whole=True)),
    "compile": ("Compiled", OneOf(_BACKENDS)),
    "budgets": ("Memory budgets", SomeOf(_BUDGETS)),
}


def job() -> tuple[dict[str, Any], list[str]]:
    """What the specification says of it, and the plans that only a compiled job has."""
    engines = get_args(EngineName) if is_configured() else ("local",)
    address.look_at({"engine": ("Engine", OneOf(engines))})
    with st.expander("Devices and compiler"):
        left, right = st.columns([1.4, 1])  # half of a page of 1440 px has room for no third field
        with left:
            kind = st.selectbox(
                "Data parallel", _KINDS, key="ranks", bind="query-params",
                help=f"{Ranks.__doc__} {Ranks.model_fields['kind'].description}",
            )  # fmt: skip
        with right:
            count = st.number_input(
                "Ranks", min_value=2, max_value=_MOST_RANKS, value=2, step=1, key="rank_count",
                bind="query-params", disabled=kind == _ONE,
                help=Ranks.model_fields["count"].description,
            )  # fmt: skip
        backend = st.selectbox(
            "Compiled", _BACKENDS, key="compile", bind="query-params",
            help=f"{Compile.__doc__} {Compile.model_fields['backend'].description}",
        )  # fmt: skip
        budgets = st.pills(
            "Memory budgets (%)", _BUDGETS, selection_mode="multi", key="budgets",
            bind="query-params", disabled=backend == _EAGER,
            help="Plans of a compiled job: the compiler chooses what is recomputed, so that at most "
            "this share of what it would keep by itself is kept (torch's activation_memory_budget).",
        )  # fmt: skip
        engine = _engine(engines)
    said: dict[str, Any] = {"engine": engine}
    if kind != _ONE:
        said["ranks"] = {"kind": kind, "count": int(count)}
    if backend != _EAGER:
        said["compile"] = {"backend": backend}
    return said, [f"memory-budget-{percent}" for percent in budgets] if backend != _EAGER else []


def _engine(engines: Sequence[str]) -> str:
    if len(engines) == 1:
        return engines[0]
    return st.selectbox(
        "Engine", engines, key="engine", bind="query-params",
        help=StudySpec.model_fields["engine"].description,
    )  # fmt: skip


def refused(spec: StudySpec) -> str | None:
    """Why no study over these ranks would start, in the names of these fields where it is they that
    exclude each other: what admission says, before somebody asks."""
    if spec.ranks is not None and spec.compile is not None:
        ranks, compiled = FIELDS["ranks"][0], FIELDS["compile"][0]
        return (
            f"“{ranks}” and “{compiled}” exclude each other: training over ranks is not compiled here. "
            f"Choose “{_ONE}” in the one or “{_EAGER}” in the other."
        )
    try:
        check_ranks(spec)
    except InputError as error:
        return str(error)
    return None
