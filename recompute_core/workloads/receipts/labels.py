"""The classes of a photo, in the order of the encoder's outputs, and the sides of a split."""

from typing import Literal

Label = Literal["ok", "blurry", "faint", "glare", "cutoff", "torn"]
Side = Literal["train", "validation"]

LABELS: tuple[Label, ...] = ("ok", "blurry", "faint", "glare", "cutoff", "torn")
SIDES: tuple[Side, ...] = ("train", "validation")
RARE: Label = "torn"
"""The class that must not be absent from validation."""
