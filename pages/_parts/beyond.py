"""Sizes that were not measured: peaks measured at the study's sizes beside those estimated. Pure."""

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from recompute_core.estimating import LIMITS, Field, reached_words
from recompute_core.gates import in_mb
from recompute_core.results import Estimate, StudyResult
from recompute_core.spec import StudySpec
from recompute_core.words import ranks_words

from .palette import Palette
from .words import KINDS, plan_label

NAMES: dict[Field, str] = {"seq_len": "sequence length (tokens)", "batch": "batch size"}
LONGEST: dict[Field, str] = {"seq_len": "Longest sequence (tokens)", "batch": "Largest batch"}
_TICKS = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]
_SHORTEST: dict[Field, int] = {"seq_len": 256, "batch": 1}


def not_estimated(spec: StudySpec) -> str | None:
    """Why nothing is estimated of a study that trains otherwise than estimates do, in a sentence."""
    if spec.compile is not None:
        return "Estimates are not made for compiled training."
    if spec.ranks is not None:
        over = ranks_words(spec.ranks.count, spec.ranks.kind)
        return f"Estimates are of one process, and this study trains over {over}: none is made of it."
    return None


def stops(field: Field) -> list[int]:
    """The sizes that can be asked for: powers of two, and for lengths one and a half times these."""
    found = [size for power in range(17) if (size := 2**power) >= _SHORTEST[field]]
    halves = [size * 3 // 2 for size in found[:-1]] if field == "seq_len" else []
    return sorted([*found, *halves])


def measured_peaks(
    result: StudyResult, field: Field, base: Mapping[str, int]
) -> dict[str, dict[int, float]]:
    """MB by plan (`none` is plain) and size, of the shapes that are like `base` but for `field`."""
    found: dict[str, dict[int, float]] = {}
    for one in result.judged:
        candidate = one.candidate
        if candidate.memory is None or any(
            candidate.shape[name] != size for name, size in base.items() if name != field
        ):
            continue
        pairs = ("none", candidate.memory.plain), (candidate.plan, candidate.memory.candidate)
        for plan, memory in pairs:
            if memory.peak_bytes is not None:
                found.setdefault(plan, {})[candidate.shape[field]] = memory.peak_bytes / 1e6
    return found


def beyond_chart(
    measured: Mapping[str, Mapping[int, float]],
    plans: Sequence[str],
    estimated: Mapping[str, Mapping[int, float]],
    field: Field,
    colours: Palette,
    height: int = 380,
) -> go.Figure:
    """Peak over size in MB: filled points are measured, hollow ones estimated, on logarithmic axes."""
    figure = go.Figure(
        layout={
            "height": height,
            "margin": {"l": 72, "r": 16, "t": 30, "b": 52},
            "dragmode": False,
            "hovermode": "closest",
            "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            "xaxis": {"title": {"text": NAMES[field], "standoff": 8}, "type": "log", "tickvals": _TICKS,
                      "tickformat": ",d", "zeroline": False},
            "yaxis": {"title": {"text": "peak, MB", "standoff": 8}, "type": "log", "tickvals": _TICKS,
                      "tickformat": ",d", "zeroline": False},
        }
    )  # fmt: skip
    if not estimated:  # sizes close to each other: hardly a power of ten lies between them
        sizes = sorted({size for points in measured.values() for size in points})
        figure.update_xaxes(type="linear", tickvals=sizes)
        figure.update_yaxes(type="linear", tickvals=None, tickformat=",", rangemode="tozero")
    for index, plan in enumerate(plans):
        colour = colours.plain if plan == "none" else colours.series[(index - 1) % len(colours.series)]
        symbol = "square" if plan == "none" else _MARKERS[(index - 1) % len(_MARKERS)]
        points = sorted(measured.get(plan, {}).items())
        hollow = sorted(estimated.get(plan, {}).items())
        both = [*points, *hollow]
        figure.add_trace(
            go.Scatter(
                x=[at for at, _ in both], y=[mb for _, mb in both], mode="lines",
                line={"color": colour, "width": 1.2, "dash": "dot"}, hoverinfo="skip", showlegend=False,
                legendgroup=plan,
            )
        )  # fmt: skip
        for kind, shown, filled in (("measured", points, True), ("estimated", hollow, False)):
            y = [mb for _, mb in shown]
            if shown:
                figure.add_trace(
                    go.Scatter(
                        x=[at for at, _ in shown], y=y, mode="markers", name=plan_label(plan),
                        legendgroup=plan, showlegend=filled or not points,
                        marker={"symbol": symbol if filled else f"{symbol}-open", "size": 10,
                                "color": colour, "line": {"width": 2, "color": colour}},
                        customdata=[in_mb(mb * 1e6) for mb in y],
                        hovertemplate=f"<b>{plan_label(plan)}</b><br>%{{x:,}}: "
                        f"peak %{{customdata}} MB<br><i>{KINDS[kind]}</i><extra></extra>",  # type: ignore[index]
                    )
                )  # fmt: skip
    return figure


_MARKERS = ("circle", "diamond", "triangle-up", "cross", "pentagon", "star")


def estimates_table(found: Mapping[str, Estimate]) -> pd.DataFrame:
    """Plain and every plan at one size."""
    plain = found["none"].peak_bytes
    return pd.DataFrame(
        {
            "Plan": [plan_label(plan) for plan in found],
            "Saved (MB)": [one.saved_bytes / 1e6 for one in found.values()],
            "Peak (MB)": [one.peak_bytes / 1e6 for one in found.values()],
            "Peak ratio": [one.peak_bytes / plain for one in found.values()],
            "Peak sits in": [one.peak_at.words for one in found.values()],
            "Kind": [KINDS[one.kind] for one in found.values()],
        }
    )


def fit_table(
    field: Field, plans: Sequence[str], reached: Sequence[tuple[int, Estimate] | None]
) -> pd.DataFrame:
    """How far each plan reaches under a budget; empty where not even the smallest size fits."""
    return pd.DataFrame(
        {
            "Plan": [plan_label(plan) for plan in plans],
            LONGEST[field]: [_size_words(field, found) for found in reached],
            "Peak (MB)": [found[1].peak_bytes / 1e6 if found else None for found in reached],
            "Saved (MB)": [found[1].saved_bytes / 1e6 if found else None for found in reached],
            "Kind": [KINDS["estimated"]] * len(plans),
        }
    )


def _size_words(field: Field, found: tuple[int, Estimate] | None) -> str:
    size = None if found is None else found[0]
    return reached_words(size, size == LIMITS[field])
