"""A block's verdict as a badge, and why, in a line. Pure."""

from recompute_core.checks.report import BlockVerdict, Verdict

from .palette import Mark

BADGES: dict[Verdict, tuple[Mark, str]] = {
    "legal": ("pass", "legal"),
    "no_saving": ("undecided", "no saving"),
    "illegal": ("fail", "illegal"),
    "parity_fail": ("fail", "parity fails"),
    "error": ("fail", "error"),
}
"""Mark and words of each verdict."""


def why(one: BlockVerdict) -> str:
    """The first reason or the conditions, without the block's name, which stands beside it."""
    sentences = [r.sentence for r in one.reasons[:1]] or [c.sentence for c in one.conditions]
    return " ".join(text.removeprefix(f"{one.block}: ").replace(one.block, "it") for text in sentences)
