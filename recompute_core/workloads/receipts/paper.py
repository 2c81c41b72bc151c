"""The physical receipt: a bill drawn with Pillow on a strip of paper, and torn on one in fifty.

A tear takes everything below a ragged line that runs above the total, and bares white fibres along
it. It belongs to the paper, so every photo of that receipt shows it.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from .bills import Bill, bill_of, money
from .seeds import stream

WIDTH = 240
"""Pixels across the paper."""
MARGIN = 16
ONE_TORN_IN = 50


@dataclass(frozen=True)
class Paper:
    """Masks of the strip, or of what is left of it."""

    ink: NDArray[np.float32]  # [h, WIDTH], 1 where printed
    cover: NDArray[np.float32]  # [h, WIDTH], 1 where there is paper
    fibre: NDArray[np.float32]  # [h, WIDTH], 1 where a tear took the surface off
    total_y: int
    """Row where the total's line begins, or began."""


def is_torn(receipt: int) -> bool:
    """Whether a receipt is torn: exactly one of each fifty in a row is."""
    group, place = divmod(receipt, ONE_TORN_IN)
    return place == stream("torn", group).integers(ONE_TORN_IN)


def paper_of(receipt: int) -> Paper:
    """The paper of a receipt number, torn or whole."""
    bill = bill_of(receipt)
    ink, total_y = print_bill(bill)
    cover, fibre = np.ones_like(ink), np.zeros_like(ink)
    if is_torn(receipt):
        tear(cover, fibre, total_y, stream("tear", receipt))
    else:
        cut(cover)
    ink *= cover * (1 - fibre)
    left = int(cover.any(1).sum())  # rows
    return Paper(ink=ink[:left], cover=cover[:left], fibre=fibre[:left], total_y=total_y)


def print_bill(bill: Bill) -> tuple[NDArray[np.float32], int]:
    """The ink of a bill `[h, WIDTH]`, and the row where the total begins."""
    image = Image.new("L", (WIDTH, 900), 0)
    draw = ImageDraw.Draw(image)
    y = MARGIN

    def line(left: str, right: str = "", size: int = 20, centred: bool = False) -> None:
        nonlocal y
        if centred:
            draw.text((WIDTH // 2, y), left, fill=255, font=font(size), anchor="mt")
        else:
            draw.text((MARGIN, y), left, fill=255, font=font(size), anchor="lt")
            draw.text((WIDTH - MARGIN, y), right, fill=255, font=font(size), anchor="rt")
        y += round(size * 1.3)

    def rule() -> None:
        nonlocal y
        draw.line((MARGIN, y, WIDTH - MARGIN, y), fill=255, width=2)
        y += 12

    line(bill.shop, size=25, centred=True)
    line(bill.street, size=17, centred=True)
    line(f"{bill.at:%Y-%m-%d}", f"{bill.at:%H:%M}", size=17)
    rule()
    for item in bill.items:
        line(f"{item.quantity} x {item.name}", money(item.cents))
    rule()
    line("Subtotal", money(bill.subtotal_cents))
    line(f"Tax {bill.tax_permille / 10:g}%", money(bill.tax_cents))
    total_y = y
    line("TOTAL", money(bill.total_cents), size=28)
    rule()
    line(f"No. {bill.number:06d}", size=17, centred=True)
    bars = stream("bars", bill.number).random(WIDTH - 4 * MARGIN) < 0.5
    for x in np.flatnonzero(bars.repeat(2)[: bars.size]).tolist():
        draw.line((2 * MARGIN + x, y, 2 * MARGIN + x, y + 36), fill=255)
    y += 36 + MARGIN
    return np.asarray(image, dtype=np.float32)[:y] / np.float32(255), total_y


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def cut(cover: NDArray[np.float32]) -> None:
    """The printer's blade: a fine, even row of teeth along the lower edge."""
    teeth = np.abs((np.arange(WIDTH) % 8) - 4)  # [WIDTH], pixels
    rows = np.arange(cover.shape[0])[:, None]
    cover[rows >= cover.shape[0] - teeth] = 0


def tear(
    cover: NDArray[np.float32],
    fibre: NDArray[np.float32],
    total_y: int,
    rng: np.random.Generator,
) -> None:
    """Take away all below a ragged, slanting line above `total_y`; the surface goes a little sooner."""
    across = np.linspace(-1, 1, WIDTH)
    steps = rng.standard_normal(WIDTH).cumsum()
    steps -= np.linspace(steps[0], steps[-1], WIDTH)
    edge = rng.uniform(35, 75) * rng.choice((-1, 1)) * across + 1.8 * steps
    edge += rng.uniform(-12, 12, WIDTH // 8).repeat(8)
    edge += rng.uniform(0.62, 1.0) * total_y - 4 - edge.max()  # [WIDTH], rows
    depth = rng.uniform(5, 16, WIDTH // 6).repeat(6)  # [WIDTH], rows of bare fibre
    rows = np.arange(cover.shape[0])[:, None]
    cover[rows >= edge] = 0
    fibre[(rows >= edge - depth) & (rows < edge)] = 1
