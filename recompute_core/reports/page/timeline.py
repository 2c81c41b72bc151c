"""Bytes alive over one update, plain and recomputed on one time line, both peaks marked."""

from collections.abc import Sequence

from ...gates import in_mb, megabytes
from ...results import Memory, MemoryPair, Timeline
from .markup import Html, el, join, paragraph
from .plot import Plot, Scale, drawing, legend, percent
from .view import ReportView, ShapeView
from .words import plan_label

_HEIGHT, _SMALL, _ROW = 270, 150, 22
_ROOM_FOR_NAME = 0.16
"""Share of the width that a phase's name needs."""
_MOST_SMALL = 6
_PROFILED = (
    "Recorded under the profiler, which slows an update down: its times are not those of the gate on "
    "update time, which are measured without it."
)


def timelines(view: ReportView) -> Html:
    """The main shape's time line, large, and those of other shapes after it."""
    kept = [one for one in view.shapes if _both(one)]
    if all(one.memory is None for one in view.shapes):
        return paragraph("Memory was not measured at any shape.")
    if not kept:
        return paragraph("No time line of memory was recorded on this device.")
    main = view.main if _both(view.main) else kept[-1]
    others = [one for one in kept if one is not main]
    shown = others[-_MOST_SMALL:]
    rest = len(others) - len(shown)
    more = f"The time lines of {rest} more shapes are among the files of evidence." if rest else ""
    return join(
        _figure(view, main, _HEIGHT),
        el("div", [_figure(view, one, _SMALL) for one in reversed(shown)], class_="panels")
        if shown
        else None,
        paragraph(more) if more else None,
        paragraph(_PROFILED, css="note"),
    )


def _both(one: ShapeView) -> bool:
    return one.memory is not None and None not in (
        one.memory.plain.timeline,
        one.memory.candidate.timeline,
    )


def peak_sentence(plan: str, memory: MemoryPair) -> str:
    """Where both peaks sit, in one sentence."""
    plain, own = memory.plain, memory.candidate
    if plain.peak_bytes is None or own.peak_bytes is None:
        return "The peak was not measured on this device."
    return (
        f"Plain peaks at {megabytes(plain.peak_bytes)}{_where(plain)}; {plan_label(plan)} at "
        f"{megabytes(own.peak_bytes)}{_where(own)}."
    )


def _where(memory: Memory) -> str:
    return f" in {memory.peak_at.words}" if memory.peak_at else ""


def _figure(view: ReportView, one: ShapeView, height: int) -> Html:
    assert one.memory is not None
    plain, own = one.memory.plain, one.memory.candidate
    assert plain.timeline is not None
    assert own.timeline is not None
    lines = (("plain", plain.timeline), ("recomputed", own.timeline))
    longest = max(line.seconds[-1] for _, line in lines) * 1e3
    highest = max(max(line.bytes) for _, line in lines) / 1e6
    plot = Plot(Scale(0, longest), Scale(0, highest * 1.14))
    inside = [
        plot.grid(
            [(at, [f"{at:,g}"]) for at in plot.across.ticks(6 if height == _HEIGHT else 4)],
            [(at, [f"{at:,g}"]) for at in plot.up.ticks(5)],
        ),
        _state(plot, own.state_bytes),
    ]
    inside += [_line(plot, line, kind) for kind, line in lines]
    inside += [_peak(plot, line, kind, longest) for kind, line in lines]
    sentence = peak_sentence(view.plan, one.memory)
    names = {"plain": "plain", "recomputed": plan_label(view.plan)}
    return el(
        "figure",
        el("figcaption", el("b", one.shape_key), ". ", sentence),
        legend([("plain", "fill-plain", "plain"), ("recomputed", "fill-recomputed", names["recomputed"]),
                ("peak", "fill-ink", "peak")]),
        paragraph("MB alive", css="axis-title"),
        drawing(inside, sentence, height),
        paragraph("ms into the update", css="axis-title across"),
        el("div", [_phases(plot, line, kind, names[kind]) for kind, line in lines], class_="phases"),
        class_="timeline",
    )  # fmt: skip


def _line(plot: Plot, line: Timeline, kind: str) -> Html:
    places = zip(line.seconds, line.bytes, strict=True)
    return plot.path([(at * 1e3, alive / 1e6) for at, alive in places], f"curve thin line-{kind}")


def _state(plot: Plot, state: int) -> Html:
    """What is alive before and after: no plan changes it."""
    y = plot.y(state / 1e6)
    return Html(
        el("line", x1="0", x2="100%", y1=y, y2=y, class_="state")
        + el("text", f"state {in_mb(state)}", x="100%", y=y, dx="-4", dy="15", class_="name soft end")
    )


def _peak(plot: Plot, line: Timeline, kind: str, longest: float) -> Html:
    number = max(range(len(line.bytes)), key=line.bytes.__getitem__)
    at, peak = line.seconds[number] * 1e3, line.bytes[number] / 1e6
    left = at > 0.7 * longest
    name = el(
        "text", f"peak {in_mb(line.bytes[number])}", x=-9 if left else 9, y=-7,
        class_=f"name strong text-{kind}{' end' if left else ''}",
    )  # fmt: skip
    return Html(plot.mark(at, peak, "peak", f"fill-{kind} edged") + plot.at(at, peak, name))


def _phases(plot: Plot, line: Timeline, kind: str, name: str) -> Html:
    """One row: which phase the update is in."""
    drawn: list[Html] = []
    found = line.phases
    for phase, begin, end in found:
        left, right = plot.across.share(begin), plot.across.share(end)
        drawn.append(
            el("rect", x=percent(left), width=percent(right - left), y="1", height=_ROW - 2,
               class_=f"phase line-{kind}")
        )  # fmt: skip
        if right - left >= _ROOM_FOR_NAME:
            middle = percent((left + right) / 2)
            drawn.append(el("text", phase, x=middle, y=_ROW / 2 + 4, class_="label middle ink"))
    said = ", ".join(f"{phase} {end - begin:,.0f} ms" for phase, begin, end in found)
    return _strip(drawn, f"{name}: {said}")


def _strip(inside: Sequence[Html], says: str) -> Html:
    return el(
        "div",
        el("svg", *inside, role="img", aria_label=says, width="100%", height=_ROW),
        paragraph(says, css="phase-words"),
    )
