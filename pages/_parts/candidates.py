"""The table under the picture: every candidate with its gates and costs, units in the headers. Pure."""

from collections.abc import Mapping, Sequence
from io import BytesIO

import pandas as pd

from recompute_core.gates import in_mb
from recompute_core.results import Judged, Measured, Proven
from recompute_core.words import OUTCOMES

from .palette import GLYPHS, VERDICT_MARK
from .plotted import candidate_id, reason
from .progress import is_open
from .words import KINDS, VERDICTS, figure, plan_label

ALWAYS = ("Plan", "Shape", "Verdict")
"""Columns that are never left out."""
GATE_COLUMNS = {
    "gradient_parity": "Gradient parity",
    "memory_saving": "Memory saving",
    "update_latency": "Update latency",
}


def costs(judged: Sequence[Judged], live: bool) -> pd.DataFrame:
    """What no threshold changes: figures, kind, and why there are none; a row for each candidate."""
    return pd.DataFrame([_costs(one, live) for one in judged])


def _costs(one: Judged, live: bool) -> dict[str, object]:
    candidate = one.candidate
    row: dict[str, object] = {
        "Plan": plan_label(candidate.plan),
        "Shape": candidate.shape_key,
        "Why not": _why(one, live),
    }
    parity, timing, memory = candidate.parity, candidate.timing, candidate.memory
    row |= {
        "Peak, ratio": memory.ratio if memory else None,
        "Update, ratio": timing.ratio_median if timing else None,
        "Update, low": timing.ratio_ci95[0] if timing else None,
        "Update, high": timing.ratio_ci95[1] if timing else None,
        "Peak (MB)": _mb(memory.candidate.peak_bytes) if memory else None,
        "Saved (MB)": _mb(memory.candidate.saved_bytes) if memory else None,
        "Update (ms)": timing.update_s * 1e3 if timing else None,
        "Pairs": timing.pairs if timing else None,
        "Peak, plain (MB)": _mb(memory.plain.peak_bytes) if memory else None,
        "Saved, plain (MB)": _mb(memory.plain.saved_bytes) if memory else None,
        "Update, plain (ms)": timing.plain_median_s * 1e3 if timing else None,
        "Gradient gap": parity.largest_gradient_gap if parity else None,
        "Relative gap": parity.largest_relative_gap if parity else None,
    }
    flops, calls = (
        (candidate.flops, candidate.block_calls) if isinstance(candidate, Measured) else ({}, None)
    )
    row |= {
        "GFLOP": _giga(flops.get("candidate")),
        "GFLOP, plain": _giga(flops.get("plain")),
        "Block calls": max(calls["candidate"].values(), default=0) if calls else None,
        "Kind": KINDS[timing.kind] if timing else "",
    }
    return row


def _why(one: Judged, live: bool) -> str:
    if not is_open(one):
        return reason(one)
    if not live:
        return "the study ended before it"
    return "still being measured" if isinstance(one.candidate, Proven) else "not yet"


def _mb(count: int | None) -> float | None:
    return None if count is None else count / 1e6


def _giga(count: int | None) -> float | None:
    return None if count is None else count / 1e9


def table(figures: pd.DataFrame, judged: Sequence[Judged], live: bool) -> pd.DataFrame:
    """`costs` with what the thresholds make of them, right after plan and shape.

    Why a candidate has no figures follows, before the figures that it does not have.
    """
    still = "not yet" if live else "not run"
    verdicts = [still if is_open(one) else VERDICTS[one.verdict] for one in judged]
    marks = ["not_run" if is_open(one) else VERDICT_MARK[one.verdict] for one in judged]
    judgements = {
        "Verdict": [f"{GLYPHS[mark]} {word}" for mark, word in zip(marks, verdicts, strict=True)]
    }
    for number, name in enumerate(GATE_COLUMNS.values()):
        outcomes = [one.gates[number].outcome for one in judged]
        judgements[name] = [f"{GLYPHS[outcome]} {OUTCOMES[outcome]}" for outcome in outcomes]
    left, right = figures.iloc[:, :2], figures.iloc[:, 2:]
    return pd.concat([left, pd.DataFrame(judgements, index=figures.index), right], axis=1)


def differences_only(
    frame: pd.DataFrame, always: Sequence[str] = ALWAYS
) -> tuple[list[str], dict[str, str]]:
    """The columns in which rows differ, and what all rows share: its value by the column's name.

    With fewer than two rows nothing can differ, and every column stays.
    """
    if len(frame) < 2:
        return list(frame.columns), {}
    shown, shared = [], {}
    for name in frame.columns:
        values = frame[name]
        first = values.iloc[0]
        same = values.isna().all() if pd.isna(first) else bool((values == first).all())
        if same and name not in always:
            shared[name] = "–" if pd.isna(first) or first == "" else said(name, first)
        else:
            shown.append(name)
    return shown, shared


def said(name: str, value: object) -> str:
    """A figure of a column in words, for the caption."""
    if not isinstance(value, float):
        return str(value)
    if name in ("Gradient gap", "Relative gap"):
        return figure(value)
    if name.endswith("(MB)"):
        return in_mb(value * 1e6)
    return f"{value:,.3f}" if "(" not in name else f"{value:,.1f}"


"""A column's name in a sentence, where its head alone would say nothing."""


def shared_sentence(shared: Mapping[str, str]) -> str:
    """`The same in all rows: Pairs 7.`; empty when nothing is. Their kind the caption says by itself."""
    known = [f"{name} {value}" for name, value in shared.items() if value != "–" and name != "Kind"]
    empty = [name for name, value in shared.items() if value == "–" and name != "Why not"]
    parts = ["The same in all rows: " + "; ".join(known) + "."] if known else []
    parts += ["No figure in any row: " + ", ".join(empty) + "."] if empty else []
    return " ".join(parts)


def rows_of(judged: Sequence[Judged], ids: Sequence[str]) -> list[int]:
    """The rows of candidates, for a selection."""
    wanted = set(ids)
    return [number for number, one in enumerate(judged) if candidate_id(one) in wanted]


# --- files -------------------------------------------------------------------------------------------


def as_csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def as_json(frame: pd.DataFrame) -> bytes:
    return frame.to_json(orient="records", indent=1, force_ascii=False, double_precision=15).encode()


def as_parquet(frame: pd.DataFrame) -> bytes:
    file = BytesIO()
    frame.to_parquet(file, index=False)
    return file.getvalue()
