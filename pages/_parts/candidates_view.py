"""The table of candidates on the page: filters, differences, files, and rows that are picked."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recompute_core.gates import GATE_NAMES
from recompute_core.results import Judged, StudyResult, Verdict
from recompute_core.spec import Thresholds
from recompute_core.words import MB_NOTE, fewest_pairs, interval_note

from . import candidates, choices, markup, picks
from .data import Snapshot
from .filters import Filters
from .plotted import candidate_id
from .words import MISSING, TALL_ROW_PX, VERDICTS, figure, literal, plan_label

_KEY = "table of candidates"
_ROWS_SHOWN = 12
_ROW_PX = 35
_BAR_PX = 10
"""Below the rows, for the bar of a table that is wider than the page."""
_LONG = 30
"""Letters of a plan's name, or of a reason, that one line has room for."""
_WIDE_PX = 220
_WHY = "Why not"


@dataclass(frozen=True)
class Head:
    """What is chosen above the table."""

    filters: Filters
    differences: bool
    files: DeltaGenerator
    """Where files of the table are offered."""


def table_head(study: str, judged: Sequence[Judged]) -> Head:
    """Title, filters and switches; drawn before the picture, which the filters narrow too."""
    st.subheader("Candidates", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        filters = _filters(study, judged)
        differences = choices.switch(
            study, "Differences only", "differences", "off", True,
            help="Leaves out the columns in which all rows agree; the caption names them.",
        )  # fmt: skip
        files = st.container(width="content")
    return Head(filters, differences, files)


def candidates_table(
    found: Snapshot,
    result: StudyResult,
    shapes: Sequence[str],
    picked: Sequence[str],
    what_if: bool,
    head: Head,
) -> None:
    """Every candidate of these shapes that the filters leave."""
    study = found.row.id
    everything = found.once("costs", lambda: candidates.costs(found.result.judged, not found.row.ended))
    kept = [
        number
        for number, one in enumerate(result.judged)
        if one.candidate.shape_key in shapes and head.filters.keep(one)
    ]
    judged = [result.judged[number] for number in kept]
    if not judged:
        st.html(markup.strip("No candidate is left by these filters.", "plain"))
        return
    frame = candidates.table(everything.iloc[kept].reset_index(drop=True), judged, not found.row.ended)
    with head.files:
        _files(found, frame)
    shown, shared = candidates.differences_only(frame) if head.differences else (list(frame.columns), {})
    _rows(study, frame[shown], judged, picked)
    alike = literal(candidates.shared_sentence(shared))
    note = interval_note(fewest_pairs(one.candidate.timing for one in judged))
    st.caption(f"{alike} {_judged_by(result.thresholds, what_if)} {note}")


def _filters(study: str, judged: Sequence[Judged]) -> Filters:
    known: list[Verdict] = ["adopt", "keep_original", "undecided"]
    verdicts = choices.several(
        study, "verdict", known,
        lambda key: st.pills(
            "Verdict", known, selection_mode="multi", format_func=lambda v: VERDICTS[v], key=key,
            help="What filters leave out fades in the picture, and tabs leave it out.",
        ),
    )  # fmt: skip
    plans = list(dict.fromkeys(one.candidate.plan for one in judged))
    if len(plans) == 1:
        return Filters(tuple(verdicts))
    chosen = choices.several(
        study, "plan", plans,
        lambda key: st.multiselect(
            "Plan", plans, format_func=plan_label, key=key, placeholder="all plans", width=320
        ),
    )  # fmt: skip
    return Filters(tuple(verdicts), tuple(chosen))


def forget_filters(study: str) -> None:
    """Show the candidates of all verdicts and plans again."""
    choices.forget(study, "verdict")
    choices.forget(study, "plan")


def _rows(study: str, frame: pd.DataFrame, judged: Sequence[Judged], picked: Sequence[str]) -> None:
    """The table itself; its rows are picked where the picture's points are, and the other way."""
    ids = [candidate_id(one) for one in judged]
    rows = candidates.rows_of(judged, picked)
    before = st.session_state.get(_KEY)
    if before is None or sorted(before["selection"]["rows"]) != rows:
        st.session_state[_KEY] = {"selection": {"rows": rows, "columns": [], "cells": []}}
    long = any(frame[name].str.len().max() > _LONG for name in ("Plan", _WHY) if name in frame)
    row_px, shown = (TALL_ROW_PX, _ROWS_SHOWN // 2) if long else (_ROW_PX, _ROWS_SHOWN)
    st.dataframe(
        frame,
        hide_index=True,
        placeholder=MISSING,
        height=_ROW_PX + row_px * min(len(frame), shown) + 3 + _BAR_PX,
        row_height=row_px if long else None,  # text of a tall row is wrapped
        column_config=_columns(frame),
        key=_KEY,
        on_select=partial(_picked_rows, study, tuple(ids)),
        selection_mode="multi-row",
        alt="Every candidate with its verdict, gates and costs; selected rows are picked everywhere",
    )


def _picked_rows(study: str, ids: tuple[str, ...]) -> None:
    rows = st.session_state[_KEY]["selection"]["rows"]
    hidden = [one for one in picks.now(study) if one not in ids]
    picks.pick(study, [*hidden, *(ids[row] for row in rows if 0 <= row < len(ids))])


def _columns(frame: pd.DataFrame) -> dict[str, object]:
    width = _WIDE_PX if frame["Plan"].str.len().max() > _LONG else None
    found: dict[str, object] = {
        "Plan": st.column_config.TextColumn(pinned=True, width=width),
        _WHY: st.column_config.TextColumn(width=_WIDE_PX),
    }
    for name in frame.columns:
        if "ratio" in name or name in ("Update, low", "Update, high"):
            form = "%.3f"
        elif "gap" in name:
            form = "%.2g"
        elif "(MB)" in name or name.startswith("GFLOP"):
            form = _decimals(frame[name].min())
        elif "(ms)" in name:
            form = "%.1f"
        elif name in ("Pairs", "Block calls"):
            form = "%d"
        else:
            continue
        found[name] = st.column_config.NumberColumn(format=form, alignment="right")
    return found


def _decimals(smallest: float) -> str:
    """So many that the smallest of a column has the three digits that it has everywhere else."""
    return "%.1f" if smallest >= 10 else "%.2f" if smallest >= 1 else "%.3f"


def _judged_by(limits: Thresholds, what_if: bool) -> str:
    kind = "what-if thresholds" if what_if else "the declared thresholds"
    said = (
        f"{GATE_NAMES['gradient_parity']} {figure(limits.gradient_gap)}, "
        f"{GATE_NAMES['memory_saving']} {limits.peak_ratio:g}, "
        f"{GATE_NAMES['update_latency']} {limits.update_ratio:g}"
    )
    return f"Figures measured here, judged by {kind}: {said}, each at most. {MB_NOTE}"


def _files(found: Snapshot, frame: pd.DataFrame) -> None:
    """Bytes are made when they are asked for."""
    study = found.row.id
    with st.popover("Download"):
        st.caption("The rows of the table with every column, figures in full.")
        for name, make, mime in (
            ("CSV", candidates.as_csv, "text/csv"),
            ("JSON", candidates.as_json, "application/json"),
            ("Parquet", candidates.as_parquet, "application/vnd.apache.parquet"),
        ):
            st.download_button(
                f"Table as {name}",
                data=partial(make, frame),
                file_name=f"candidates-{study}.{name.lower()}",
                mime=mime,
                on_click="ignore",
                key=f"table as {name}",
            )
        st.download_button(
            "Whole result as JSON",
            data=lambda: json.dumps(found.result.document(), indent=1, allow_nan=False),
            file_name=f"study-{study}.json",
            mime="application/json",
            on_click="ignore",
            help="The published document, judged by the declared thresholds, raw samples included.",
        )
