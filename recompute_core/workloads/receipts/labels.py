"""The classes of a photo, in the order of the encoder's outputs, the sides of a split, and why a photo
was rejected at intake."""

from typing import Literal

Label = Literal["ok", "blurry", "faint", "glare", "cutoff", "torn"]
Side = Literal["train", "validation"]
Reason = Literal["unreadable", "too small", "wrong label"]

LABELS: tuple[Label, ...] = ("ok", "blurry", "faint", "glare", "cutoff", "torn")
SIDES: tuple[Side, ...] = ("train", "validation")
REASONS: tuple[Reason, ...] = ("unreadable", "too small", "wrong label")
RARE: Label = "torn"
"""The class that must not be absent from validation."""
