"""Words and number formats of the page; units stand in the heads of columns."""

from collections.abc import Sequence

from ...results import FigureKind, Outcome
from ...words import in_utc, scientific

VERDICTS = {"adopt": "adopt", "keep_original": "keep original", "undecided": "undecided"}
VERDICT_OUTCOME: dict[str, Outcome] = {
    "adopt": "pass",
    "keep_original": "fail",
    "undecided": "undecided",
}
"""The mark that a verdict is drawn with."""
KINDS: dict[FigureKind, str] = {
    "measured": "measured",
    "estimated": "estimated",
    "supplied": "supplied",
}
PARTS = {
    "output": "output",
    "loss": "loss",
    "input_grad": "gradient of an input",
    "grad": "gradient of a parameter",
    "buffer": "buffer",
    "rng": "random state",
    "weight": "weight after the step",
}
"""What a compared tensor is."""


def when(moment: str) -> str:
    """`29 Nov 2026, 16:47:05 UTC` from ISO 8601; what is none is shown as it is."""
    try:
        return f"{in_utc(moment):%-d %b %Y, %H:%M:%S} UTC"
    except ValueError:
        return moment


def gap(value: float | None) -> str:
    """`0`, `1e-4`, `2.8e-7`, `0.31`, `28.5`: a gap or its limit."""
    if value is None:
        return "–"
    if value == 0 or 0.01 <= value < 10_000:
        return f"{value:.3g}"
    return scientific(value)


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def limit(value: float) -> str:
    """`2.00`, `0.82`, `0.825`: a threshold of a ratio, as the axes write ratios."""
    return max(f"{value:.2f}", f"{value:g}", key=len)


def interval(edges: tuple[float, float] | None, is_ratio: bool, kind: FigureKind = "measured") -> str:
    """`1.260 to 1.330`; a point where the figure is exact, which of a supplied one nobody can say."""
    if edges is None:
        return "–"
    low, high = (ratio(edge) if is_ratio else gap(edge) for edge in edges)
    point = "one value, no interval" if kind == "supplied" else "exact"
    return point if low == high else f"{low} to {high}"


def plan_label(plan: str) -> str:
    """A plan's name with runs of blocks shortened: `blocks:0,1,2` reads `blocks:0–2`."""
    numbers = plan.removeprefix("blocks:").split(",") if plan.startswith("blocks:") else []
    if len(numbers) > 2 and all(n.isdecimal() for n in numbers):
        found = list(map(int, numbers))
        if found == list(range(found[0], found[-1] + 1)):
            return f"blocks:{found[0]}–{found[-1]}"
    return plan


def runs(names: Sequence[str], order: Sequence[str]) -> str:
    """Names in the order of forward, those that follow each other shortened: `blocks.0 to blocks.5`."""
    at = {name: number for number, name in enumerate(order)}
    known = sorted((name for name in names if name in at), key=at.__getitem__)
    found: list[list[str]] = []
    for name in known:
        if found and at[name] == at[found[-1][-1]] + 1:
            found[-1].append(name)
        else:
            found.append([name])
    said = []
    for run in found:
        said += run if len(run) < 3 else [f"{run[0]} to {run[-1]}"]
    return ", ".join([*said, *(name for name in names if name not in at)])
