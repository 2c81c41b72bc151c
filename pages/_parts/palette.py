"""Colours: the Okabe-Ito set, tuned for a light and a dark ground. Shape and word say the same.

Pass is bluish green, fail vermilion, undecided amber, plain grey, recomputed blue.
"""

from dataclasses import dataclass
from typing import Literal

from recompute_core.results import Outcome, Verdict


@dataclass(frozen=True)
class Palette:
    """The colours of one theme."""

    passed: str
    failed: str
    undecided: str
    plain: str
    ink: str
    ground: str
    """Of the page."""
    faint: str
    region: str
    series: tuple[str, ...]
    """One a plan; the first is recomputed blue."""


LIGHT = Palette(
    passed="#007d5c",
    failed="#c24700",
    undecided="#a06a00",
    plain="#66707c",
    ink="#1c2430",
    ground="#ffffff",
    faint="#8a94a0",
    region="rgba(0,125,92,0.09)",
    series=("#0072b2", "#b0568a", "#3f8fb8", "#8a6d00", "#5a4fa8", "#00736b"),
)
DARK = Palette(
    passed="#2fc29a",
    failed="#ff8145",
    undecided="#f2b632",
    plain="#9aa5b1",
    ink="#e6eaef",
    ground="#12161c",
    faint="#7b8794",
    region="rgba(47,194,154,0.11)",
    series=("#56b4e9", "#e397bf", "#8fd0d6", "#d9c24a", "#a79bf0", "#59c7b5"),
)


def faint(colour: str, alpha: float) -> str:
    """A colour to fill with: what lies under it is seen."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def palette_of(theme: str | None) -> Palette:
    """The palette of a theme as Streamlit names it."""
    return DARK if theme == "dark" else LIGHT


Mark = Literal["pass", "fail", "undecided", "not_run"]
VERDICT_MARK: dict[Verdict | None, Mark] = {
    "adopt": "pass",
    "keep_original": "fail",
    "undecided": "undecided",
    None: "not_run",
}
"""The shape a verdict is drawn with: the same as a gate's."""

STORED_MARK: dict[str | None, Mark] = {
    str(verdict) if verdict else None: mark for verdict, mark in VERDICT_MARK.items()
}
"""The same, for a verdict as the store gives it: plain text."""

SYMBOLS: dict[Outcome, str] = {
    "pass": "circle",
    "fail": "x",
    "undecided": "diamond",
    "not_run": "circle-open",
}
"""Plotly's names of the shapes: disc, cross, diamond, ring."""

GLYPHS: dict[Mark, str] = {"pass": "●", "fail": "✕", "undecided": "◆", "not_run": "○"}
"""The same shapes where only text can be shown."""
