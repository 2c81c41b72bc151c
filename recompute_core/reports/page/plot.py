"""Drawing in percentages: a plot fills whatever width it is given, and its text keeps its size.

The drawing is an `<svg>` as wide as its box, with every place in percent of it; ticks and titles lie
outside, in the padding of the box. No script, no measuring.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from ...results import Outcome
from .markup import Child, Html, el

_STEPS = (1, 2, 5)
_MARKS: dict[str, str] = {
    "pass": "M-6,0a6,6 0 1 0 12,0a6,6 0 1 0 -12,0Z",
    "fail": "M-6,-4L-4,-6L0,-2L4,-6L6,-4L2,0L6,4L4,6L0,2L-4,6L-6,4L-2,0Z",
    "undecided": "M0,-7.5L7.5,0L0,7.5L-7.5,0Z",
    "not_run": "M-5,0a5,5 0 1 0 10,0a5,5 0 1 0 -10,0Z",
    "plain": "M-5.5,-5.5H5.5V5.5H-5.5Z",
    "recomputed": "M-4.5,0a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0 -9,0Z",
    "peak": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
}
"""Disc, cross, diamond, ring, square: around the origin, in pixels."""


@dataclass(frozen=True)
class Scale:
    """From a value to its share of an axis; what lies outside is put on the edge."""

    low: float
    high: float

    def share(self, value: float) -> float:
        if self.high <= self.low:
            return 0.5
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self, most: int = 6) -> tuple[float, ...]:
        """Round values within the axis, at most so many."""
        span = self.high - self.low
        if span <= 0:
            return (self.low,)
        power = 10.0 ** floor(log10(span / most))
        step = next((s * power for s in (*_STEPS, 10, 20) if span / (s * power) <= most), 20 * power)
        first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
        return tuple(number * step for number in range(first, last + 1))


@dataclass(frozen=True)
class Plot:
    """Two axes, and the places on them in percent."""

    across: Scale
    up: Scale

    def x(self, value: float) -> str:
        return percent(self.across.share(value))

    def y(self, value: float) -> str:
        return percent(1 - self.up.share(value))

    def width(self, low: float, high: float) -> str:
        """From one place across to another."""
        return percent(self.across.share(high) - self.across.share(low))

    def at(self, x: float, y: float, *inside: Child) -> Html:
        """What is drawn around a place, in pixels."""
        return el("svg", *inside, x=self.x(x), y=self.y(y), overflow="visible")

    def mark(self, x: float, y: float, kind: str, css: str) -> Html:
        return self.at(x, y, shape(kind, css))

    def line(self, start: tuple[float, float], end: tuple[float, float], css: str) -> Html:
        return el(
            "line",
            x1=self.x(start[0]), y1=self.y(start[1]), x2=self.x(end[0]), y2=self.y(end[1]), class_=css,
        )  # fmt: skip

    def bar(self, low: float, high: float, other: float, css: str, upright: bool = False) -> Html:
        """An interval with caps; its ends outside the plot have none. Nothing where it is a point."""
        scale = self.up if upright else self.across
        if scale.share(low) == scale.share(high):
            return Html()
        ends = [(other, v) if upright else (v, other) for v in (low, high)]
        cap = "M-4,0H4" if upright else "M0,-4V4"
        caps = [
            self.at(*end, el("path", d=cap, class_=css))
            for end, v in zip(ends, (low, high), strict=True)
            if scale.holds(v)
        ]
        return Html(self.line(ends[0], ends[1], css) + "".join(caps))

    def path(self, points: Iterable[tuple[float, float]], css: str) -> Html:
        """A line through many points."""
        places = [
            f"{self.across.share(x) * 1000:.1f},{(1 - self.up.share(y)) * 1000:.1f}" for x, y in points
        ]
        return el(
            "svg",
            el("path", d="M" + "L".join(places), class_=css, vector_effect="non-scaling-stroke"),
            viewBox="0 0 1000 1000", preserveAspectRatio="none", width="100%", height="100%",
            overflow="visible",
        )  # fmt: skip

    def grid(
        self, xs: Sequence[tuple[float, Sequence[str]]], ys: Sequence[tuple[float, Sequence[str]]]
    ) -> Html:
        """Ticks with their labels, one or two lines each, and faint lines at those that go up."""
        drawn: list[Html] = []
        for value, labels in ys:
            at = self.y(value)
            drawn.append(el("line", x1="0", x2="100%", y1=at, y2=at, class_="grid"))
            first = 4 if len(labels) < 2 else -3
            drawn += [
                el("text", label, x="0", y=at, dx="-8", dy=first + 13 * n, class_=_tick(n, "end"))
                for n, label in enumerate(labels)
            ]
        for value, labels in xs:
            at = self.x(value)
            drawn.append(
                el("svg", el("path", d="M0,0V5", class_="tick"), x=at, y="100%", overflow="visible")
            )
            share = self.across.share(value)
            anchor = "end" if share > 0.97 else "middle"
            drawn += [
                el("text", label, x=at, y="100%", dy=19 + 13 * n, class_=_tick(n, anchor))
                for n, label in enumerate(labels)
            ]
        drawn.append(el("line", x1="0", x2="100%", y1="100%", y2="100%", class_="axis"))
        return Html("".join(drawn))


def _tick(line: int, anchor: str) -> str:
    return f"label {anchor}" + " second" * (line > 0)


def percent(share: float) -> str:
    return f"{share * 100:.2f}%"


def shape(kind: str, css: str) -> Html:
    return el("path", d=_MARKS[kind], class_=css)


def mark(outcome: Outcome, word: str) -> Html:
    """An outcome's shape in its colour, and the word beside it."""
    drawn = el(
        "svg",
        shape(outcome, f"fill-{outcome}"),
        viewBox="-8 -8 16 16",
        class_="mark",
        aria_hidden="true",
    )
    return el("span", drawn, el("b", word), class_=f"outcome is-{outcome}")


def legend(items: Sequence[tuple[str, str, str]]) -> Html:
    """Shapes with what they mean: (shape, its class, words)."""
    drawn = [
        el(
            "li",
            el("svg", shape(kind, css), viewBox="-8 -8 16 16", class_="mark", aria_hidden="true"),
            words,
        )
        for kind, css, words in items
    ]
    return el("ul", drawn, class_="legend")


def drawing(inside: Sequence[Child], says: str, height: int, css: str = "") -> Html:
    """The box of a plot, `height` pixels high, and what it says to those who cannot see it."""
    return el(
        "div",
        el("svg", *inside, role="img", aria_label=says, width="100%", height="100%"),
        class_=f"plot {css}".strip(),
        style=f"height:{height}px",
    )
