"""Where the names beside points go, so that none covers another or a point, or a gate but where it must.

Pure. Plotly has no label layout of its own. Widths are guessed from the number of letters at a usual
size of the chart; a name that finds no room is left to the hover.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist

_WIDTH_PX = 530.0
_LETTER_PX, _LINE_PX, _GAP_PX = 6.2, 15.0, 5.0
_ONE_PLACE_PX = 3.0
_POSITIONS = (
    *("top right", "bottom right", "top left", "bottom left", "middle right", "middle left"),
    *("top center", "bottom center"),
)

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""


@dataclass(frozen=True)
class Named:
    """A point with its name, in the chart's units."""

    x: float
    y: float
    text: str


def place(
    points: Sequence[Named],
    across: tuple[float, float],
    up: tuple[float, float],
    lines: tuple[float, float],
    bars: Sequence[tuple[tuple[float, float], tuple[float, float]]] = (),
    height_px: float = 340.0,
) -> list[str | None]:
    """A Plotly text position for each point, or None where there is no room.

    `lines` are the vertical and the horizontal gate. Where there is no other room, a name may cross any
    of `bars`, which are drawn from one place to another, and where there is none even so a gate.
    """

    def pixel(x: float, y: float) -> tuple[float, float]:
        return (
            (x - across[0]) / (across[1] - across[0]) * _WIDTH_PX,
            (up[1] - y) / (up[1] - up[0]) * height_px,
        )

    centres = [pixel(point.x, point.y) for point in points]
    gate_x, gate_y = pixel(*lines)
    marks: list[Box] = [(x - 7, y - 7, x + 7, y + 7) for x, y in centres]
    named: list[Box] = []
    thin = [_around(pixel(*start), pixel(*end)) for start, end in bars]
    places: list[str | None] = []
    for point, centre in zip(points, centres, strict=True):
        choice = None
        # Not those that lie where this one does: no place beside it would be free of them.
        others = [
            *named,
            *(mark for mark, at in zip(marks, centres, strict=True) if dist(at, centre) > _ONE_PLACE_PX),
        ]
        avoiding = [(boxes, gates) for gates in (True, False) for boxes in ([*others, *thin], others)]
        tries = [(position, *avoided) for avoided in avoiding for position in _POSITIONS]
        for position, avoided, gates in tries if point.text else ():
            box = _box(position, centre, len(point.text) * _LETTER_PX)
            crosses = box[0] < gate_x < box[2] or box[1] < gate_y < box[3]
            if box[3] <= height_px and not (gates and crosses) and _free(box, avoided):
                choice = position
                named.append(box)
                break
        places.append(choice)
    return places


def _around(start: tuple[float, float], end: tuple[float, float]) -> Box:
    (left, right), (top, bottom) = (sorted(pair) for pair in zip(start, end, strict=True))
    return left - 1, top - 1, right + 1, bottom + 1


def _box(position: str, centre: tuple[float, float], width: float) -> Box:
    x, y = centre
    height, side = position.split(" ")
    left = {"right": x + _GAP_PX, "left": x - _GAP_PX - width, "center": x - width / 2}[side]
    # Plotly sets a name above its point a little further off than one below it.
    top = {"top": y - 24, "middle": y - _LINE_PX / 2, "bottom": y + 4}[height]
    return left, top, left + width, top + _LINE_PX


def _free(box: Box, taken: Sequence[Box]) -> bool:
    left, top, right, bottom = box
    if right > _WIDTH_PX + 10 or left < 0 or top < -20:
        return False
    return not any(
        left < other[2] and other[0] < right and top < other[3] and other[1] < bottom for other in taken
    )
