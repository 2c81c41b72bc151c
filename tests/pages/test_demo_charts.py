"""The demo's pictures of memory: what is named where, and what no line crosses."""

import pytest

from pages._parts.demo_charts import Look, kept_chart, teeth_chart
from pages._parts.palette import DARK, LIGHT
from recompute_core.results import Memory, Timeline

MB = 10**6
LOOK = Look(LIGHT)


def update(state: int, *above: tuple[int, int, int], scale: int = MB) -> Memory:
    """An update of phases of 0.1 s; `above` the state at each moment: kept, brought back, passing."""
    line = Timeline(
        seconds=tuple(0.1 * number for number in range(len(above))),
        bytes=tuple((state + sum(one)) * scale for one in above),
        kept=tuple(kept * scale for kept, _, _ in above),
        back=tuple(back * scale for _, back, _ in above),
        marks=((0.0, "forward"), (0.15, "backward")),
    )
    peak = max(line.bytes) - state * scale
    return Memory(
        source="test", saved_bytes=1, naive_saved_bytes=1, state_bytes=state * scale,
        peak_samples=(peak,), timeline=line,
    )  # fmt: skip


PLAIN = update(80, (0, 0, 0), (50, 0, 2), (100, 0, 4), (40, 0, 4), (0, 0, 0))
OWN = update(80, (0, 0, 0), (2, 0, 2), (5, 15, 4), (3, 15, 4), (0, 0, 0))


def lines_of(memory: Memory) -> Timeline:
    assert memory.timeline is not None
    return memory.timeline


def named(figure) -> set[str]:
    return {str(one.text) for one in figure.layout.annotations}


def in_the_legend(figure) -> list[str]:
    return [str(trace.name) for trace in figure.data if trace.name and trace.showlegend is not False]


def test_kinds_are_named_where_they_are_and_the_thin_ones_in_the_legend() -> None:
    figure = kept_chart(PLAIN, lines_of(PLAIN), LOOK)
    assert named(figure) >= {"model, gradients, optimizer: 80.0 MB", "kept for backward"}
    assert in_the_legend(figure) == ["passing"]
    figure = teeth_chart("every-block", (PLAIN, lines_of(PLAIN)), (OWN, lines_of(OWN)), LOOK)
    assert "model, gradients, optimizer: 80.0 MB" in named(figure)
    assert in_the_legend(figure) == ["kept for backward", "brought back", "passing"]
    assert figure.layout.xaxis.title.text == "ms into the update; phases of every-block"


def test_an_update_whose_kinds_are_not_known_is_one_area_above_the_state() -> None:
    line = lines_of(PLAIN).model_copy(update={"kept": None, "back": None})
    figure = kept_chart(PLAIN, line, Look(DARK, 520, 20))
    assert named(figure) >= {"made by the update"}
    assert in_the_legend(figure) == []


@pytest.mark.parametrize("scale", [1, 7, 1_000, 30_000, MB, 17 * MB, 400 * MB])
def test_no_line_of_the_grid_crosses_the_names_of_the_phases(scale: int) -> None:
    memory = update(80, (0, 0, 0), (50, 0, 2), (100, 0, 4), (40, 0, 4), (0, 0, 0), scale=scale)
    figure = kept_chart(memory, lines_of(memory), LOOK)
    top, ticks = figure.layout.yaxis.range[1], figure.layout.yaxis.tickvals
    assert 3 <= len(ticks) <= 7 and ticks[0] == 0
    assert max(ticks) <= 0.9 * top
    assert named(figure) >= {"forward", "backward"}


def test_the_line_between_phases_ends_on_what_is_in_use_then() -> None:
    figure = kept_chart(PLAIN, lines_of(PLAIN), LOOK)
    (line,) = figure.layout.shapes
    assert (line.x0, line.y0, line.y1) == (150, 184.0, figure.layout.yaxis.range[1])
