"""How far a picture reaches so that intervals are whole in it. Pure."""

from collections.abc import Iterable

_LEAST = 0.1


def with_intervals(
    low: float, high: float, intervals: Iterable[tuple[float, float]]
) -> tuple[float, float]:
    """The range of `low` to `high`, where all points are, and of the ends of their intervals.

    An interval that reaches farther off on one side than the points are apart would squeeze them: the
    range ends there, and whoever draws it ends it in an arrow.
    """
    most = max(high - low, _LEAST)
    ends = list(intervals)
    lowest = min([low, *(one[0] for one in ends)])
    highest = max([high, *(one[1] for one in ends)])
    return max(lowest, low - most), min(highest, high + most)
