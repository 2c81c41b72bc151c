"""The rendered set at a glance: a row of photos of each class, and a row of rejected ones."""

from pathlib import Path

from PIL import Image, ImageDraw

from .cache import RECEIPTS
from .dataset import Dataset, ensure_dataset
from .labels import LABELS, REASONS
from .paper import font

SHOWN = 8
"""Photos in a row, each of another receipt."""
TITLE, GAP = 76, 8
"""Pixels before a row's first photo, and between photos."""


def contact_sheet(home: Path, receipts: int = RECEIPTS) -> Image.Image:
    """The sheet, grey; the same for the same set. Makes the set in `home` if it is not there."""
    dataset = ensure_dataset(home, receipts=receipts)
    height, width = dataset.photos.shape[1:]
    sheet = Image.new("L", (TITLE + SHOWN * (width + GAP), (len(LABELS) + 1) * (height + 3 * GAP)), 255)
    draw = ImageDraw.Draw(sheet)
    for line, title in enumerate((*LABELS, "rejected")):
        top = line * (height + 3 * GAP) + GAP
        draw.text((GAP, top), title, fill=0, font=font(14))
        for column, image in enumerate(_shown(dataset, title)):
            left = TITLE + column * (width + GAP)
            sheet.paste(Image.fromarray(dataset.photos[image]), (left, top))
            note = dataset.reject_reasons[image] or f"no. {dataset.receipts[image]}"
            if note == "wrong label":
                note = f"not {dataset.labels[image]}"
            draw.text((left, top + height), note, fill=0, font=font(12))
    return sheet


def _shown(dataset: Dataset, title: str) -> list[int]:
    """The first photos of a class, or of each reason in turn, one a receipt."""
    first: dict[tuple[str, int], int] = {}
    for image, (label, receipt, reason) in enumerate(
        zip(dataset.labels, dataset.receipts, dataset.reject_reasons, strict=True)
    ):
        if (label if not reason else "rejected") == title:
            first.setdefault((reason, receipt), image)
    if title != "rejected":
        return list(first.values())[:SHOWN]
    by_reason = [[image for (why, _), image in first.items() if why == reason] for reason in REASONS]
    each = -(-SHOWN // len(REASONS))
    return [image for images in by_reason for image in images[:each]][:SHOWN]
