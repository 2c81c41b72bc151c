"""Thresholds in the address: how far they may go, what is asked there, what is written back.

*Trade-off* and *Demo* show the same what-if of a study, and the session keeps one for both.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from recompute_core.errors import InputError
from recompute_core.spec import Thresholds, parse_spec

from .choices import put

Name = Literal["peak_ratio", "update_ratio", "gradient_gap", "relative_gap"]
PARAMS: dict[Name, str] = {
    "peak_ratio": "peak",
    "update_ratio": "update",
    "gradient_gap": "gap",
    "relative_gap": "relative",
}
"""Each threshold's name in the address."""
_LOWEST_PEAK, _HIGHEST_UPDATE = 0.05, 2.0


@dataclass(frozen=True)
class Ends:
    """How far the two lines go: sliders and picture alike."""

    peak: tuple[float, float]
    update: tuple[float, float]

    def hold(self, limits: Thresholds) -> bool:
        """Whether thresholds lie between them."""
        (low, high), (first, last) = self.peak, self.update
        return low <= limits.peak_ratio <= high and first <= limits.update_ratio <= last


def ends_of(declared: Thresholds) -> Ends:
    """The usual ends, or farther where a threshold was declared beyond them."""
    return Ends(
        (min(_LOWEST_PEAK, declared.peak_ratio), 1.0),
        (1.0, max(_HIGHEST_UPDATE, declared.update_ratio)),
    )


def read(declared: Thresholds, names: Collection[Name]) -> Thresholds:
    """The declared thresholds with what the address says of these; raises InputError in one line."""
    given = {name: st.query_params[PARAMS[name]] for name in names if PARAMS[name] in st.query_params}
    asked = parse_spec({"thresholds": {**declared.model_dump(), **given}}).thresholds
    if not ends_of(declared).hold(asked):
        raise InputError("they are beyond the sliders.")
    return asked


def write(declared: Thresholds, asked: Thresholds, names: Collection[Name]) -> None:
    """Put into the address which of these differ from the declared ones, and take the others out."""
    for name in names:
        value = getattr(asked, name)
        put(PARAMS[name], [] if value == getattr(declared, name) else [f"{value:g}"])
