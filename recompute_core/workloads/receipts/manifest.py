"""A user's own photos: a folder with a manifest, checked row by row. No torch.

`manifest.csv` or `manifest.parquet` has the columns `image_path, receipt_id, label` and may have
`split, captured_at, device, accepted, reject_reason`; other columns are left alone. Rows are
counted as an editor shows them: the header of a CSV is row 1 (a quoted field that spans lines
counts as one); data rows of a parquet file count from 1. Checking opens each image as far as its
header; pixels are decoded only for the photos that are used. The file of a rejected row is never opened.
Colour is not used, and all accepted rows weigh alike.
"""

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ...errors import InputError
from .labels import LABELS, RARE, SIDES, Side
from .splitting import divide

REQUIRED = ("image_path", "receipt_id", "label")
OPTIONAL = ("split", "captured_at", "device", "accepted", "reject_reason")
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP")
SHOWN = 5
"""Bad rows named in full; the rest are counted."""


@dataclass(frozen=True)
class Photo:
    """One row."""

    row: int
    image_path: str
    """As written, relative to the manifest's folder."""
    receipt: str
    label: str
    side: Side
    accepted: bool
    reject_reason: str
    """As written; empty for an accepted photo."""


@dataclass(frozen=True)
class Manifest:
    """A checked manifest: every photo, on its side of the split."""

    file: Path
    rows: tuple[Photo, ...]
    """All of them, in the manifest's order; a rejected one lies on its receipt's side."""
    split_made: bool
    """Whether the split was made here, for want of a column."""

    @property
    def photos(self) -> tuple[Photo, ...]:
        """The accepted ones."""
        return tuple(row for row in self.rows if row.accepted)

    @property
    def rejected(self) -> int:
        """Rows with `accepted` false."""
        return len(self.rows) - len(self.photos)

    @property
    def digest(self) -> str:
        """`sha256:` over the rows and the bytes of accepted ones' files, all of them read now."""
        sha = hashlib.sha256()
        for photo in self.rows:
            if photo.accepted:
                with (self.file.parent / photo.image_path).open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            else:
                content = f"rejected {photo.reject_reason}"
            fields = (photo.image_path, photo.receipt, photo.label, photo.side, content)
            sha.update(("\0".join(fields) + "\n").encode())
        return "sha256:" + sha.hexdigest()


@dataclass(frozen=True)
class Summary:
    """What a checked folder holds, for a page or a log."""

    manifest: str
    accepted: int
    rejected: int
    receipts: int
    labels: dict[str, int]
    """Accepted photos of each class, in the classes' order."""
    train: int
    """Accepted photos on the training side: the largest possible batch."""
    validation: int
    split_made: bool


def check_images(folder: Path) -> Summary:
    """Check a folder of photos before a study; raises InputError, one line, naming the bad rows."""
    manifest = read_manifest(folder)
    labels = Counter(photo.label for photo in manifest.photos)
    sides = Counter(photo.side for photo in manifest.photos)
    return Summary(
        manifest=manifest.file.name,
        accepted=len(manifest.photos),
        rejected=manifest.rejected,
        receipts=len({photo.receipt for photo in manifest.photos}),
        labels={label: labels[label] for label in LABELS},
        train=sides["train"],
        validation=sides["validation"],
        split_made=manifest.split_made,
    )


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, every row of it checked; raises InputError."""
    file = _find(folder)
    rows = _read(file)
    if not rows:
        raise InputError(f"{file.name}: no rows; each photo needs one")
    missing = [name for name in REQUIRED if name not in rows[0][1]]
    if missing:
        raise InputError(
            f"{file.name}: missing column {', '.join(missing)}; "
            f"it needs {', '.join(REQUIRED)} and may have {', '.join(OPTIONAL)}"
        )
    faults = _faults(folder, rows)
    if faults:
        raise InputError(_sentence(file, faults))

    accepted = [_accepted(row) for _, row in rows]
    split_made = "split" not in rows[0][1]
    labels = [row["label"] for _, row in rows]
    if not split_made:
        sides = tuple(cast(Side, row["split"]) for _, row in rows)
    else:
        try:
            sides = divide(labels, [row["receipt_id"] for _, row in rows], accepted)
        except ValueError as error:
            raise InputError(f"{file.name}: {error}") from None
    if (RARE, "validation", True) not in zip(labels, sides, accepted, strict=True):
        raise InputError(
            f"{file.name}: no accepted photo labelled {RARE} in validation, "
            "so its recall could not be told; add one, or move one there"
        )
    return Manifest(
        file=file,
        rows=tuple(
            Photo(
                row=number,
                image_path=row["image_path"],
                receipt=row["receipt_id"],
                label=row["label"],
                side=side,
                accepted=taken,
                reject_reason="" if taken else row.get("reject_reason", ""),
            )
            for (number, row), side, taken in zip(rows, sides, accepted, strict=True)
        ),
        split_made=split_made,
    )


def load_grey(manifest: Manifest, photos: Iterable[Photo], height: int, width: int) -> NDArray[np.uint8]:
    """The pixels of `photos`, `[n, height, width]` grey: turned upright, fitted in, black around.

    Raises InputError naming the row of a file that cannot be decoded.
    """
    loaded = []
    for photo in photos:
        try:
            with _open(manifest.file.parent / photo.image_path) as image:
                grey = _grey(ImageOps.exif_transpose(image))
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            raise InputError(
                f"{manifest.file.name}: row {photo.row}: cannot decode "
                f"{_quoted(photo.image_path)}: {' '.join(str(error).split())}"
            ) from None
        fitted = ImageOps.pad(grey, (width, height), Image.Resampling.BILINEAR)
        loaded.append(np.asarray(fitted))
    return np.stack(loaded)


# --- reading ---------------------------------------------------------------------------------

Fields = dict[str, str]
"""A row by column, every value as stripped text."""


def _find(folder: Path) -> Path:
    if not folder.is_dir():
        raise InputError(f"workload.images: no such folder {str(folder)!r}")
    found = [file for file in (folder / "manifest.csv", folder / "manifest.parquet") if file.is_file()]
    if len(found) != 1:
        has = "both" if found else "neither"
        raise InputError(
            f"workload.images: {str(folder)!r} has {has} manifest.csv "
            f"{'and' if found else 'nor'} manifest.parquet; it needs one of them"
        )
    return found[0]


def _read(file: Path) -> list[tuple[int, Fields]]:
    """Numbered rows, blank lines of a CSV skipped but counted."""
    import pandas as pd

    try:
        if file.suffix == ".csv":
            table = pd.read_csv(
                file,
                dtype=str,
                keep_default_na=False,
                skip_blank_lines=False,
                encoding="utf-8-sig",
            )
        else:
            table = pd.read_parquet(file)
    except (OSError, ValueError) as error:  # pandas' and pyarrow's errors are ValueErrors
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise InputError(f"{file.name}: cannot be read: {reason}") from None
    first = 2 if file.suffix == ".csv" else 1
    if file.suffix == ".csv" and not isinstance(table.index, pd.RangeIndex):
        raise InputError(f"{file.name}: row 2 has more fields than the header")
    table.columns = [str(name).strip() for name in table.columns]
    if not table.columns.is_unique:
        raise InputError(f"{file.name}: a column is named twice")
    rows = []
    for number, record in enumerate(table.to_dict("records"), start=first):
        fields = {str(name): _text(value) for name, value in record.items()}
        if "accepted" in fields:
            fields["accepted"] = fields["accepted"].lower()
        if any(fields.values()):
            rows.append((number, fields))
    return rows


def _text(value: Any) -> str:
    missing = value is None or value != value
    return "" if missing else str(value).strip()


# --- checking --------------------------------------------------------------------------------


def _faults(folder: Path, rows: list[tuple[int, Fields]]) -> list[tuple[int, str]]:
    """What is wrong, by row number; the first fault of a row stands for it."""
    root = os.path.realpath(folder)
    seen: dict[str, int] = {}
    split_of: dict[str, tuple[int, str]] = {}
    faults = []
    for number, row in rows:
        fault = (
            _path_fault(row["image_path"])
            or (_accepted(row) and _image_fault(root, row["image_path"]))
            or _repeat_fault(number, row, seen)
            or _label_fault(row)
            or _split_fault(number, row, split_of)
        )
        if fault:
            faults.append((number, fault))
    return faults


def _accepted(row: Fields) -> bool:
    """Also where `accepted` is neither true nor false, which is a fault of its own."""
    return row.get("accepted", "true") != "false"


def _path_fault(image_path: str) -> str | None:
    name = _quoted(image_path)
    if not image_path:
        return "empty image_path"
    if os.path.isabs(image_path) or ".." in Path(image_path).parts or "\0" in image_path:
        return f"{name} leads out of the folder; paths are relative to it"
    return None


def _image_fault(root: str, image_path: str) -> str | None:
    name = _quoted(image_path)
    path = os.path.realpath(os.path.join(root, image_path))
    if os.path.commonpath((root, path)) != root:
        return f"{name} is a link that leads out of the folder"
    if not os.path.isfile(path):
        return f"no such file {name}"
    try:
        _open(path).close()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return f"{name} has more than {Image.MAX_IMAGE_PIXELS:,} pixels"
    except (OSError, SyntaxError, ValueError):
        return f"{name} is not an image ({', '.join(FORMATS)})"
    return None


def _repeat_fault(number: int, row: Fields, seen: dict[str, int]) -> str | None:
    first = seen.setdefault(os.path.normpath(row["image_path"]), number)
    return None if first == number else f"{_quoted(row['image_path'])} is row {first} already"


def _label_fault(row: Fields) -> str | None:
    if row["label"] not in LABELS:
        return f"unknown label {_quoted(row['label'])} (known: {', '.join(LABELS)})"
    if not row["receipt_id"]:
        return "empty receipt_id"
    if row.get("accepted", "true") not in ("true", "false"):
        return f"accepted is {_quoted(row['accepted'])}, neither true nor false"
    return None


def _split_fault(number: int, row: Fields, split_of: dict[str, tuple[int, str]]) -> str | None:
    if "split" not in row:
        return None
    if row["split"] not in SIDES:
        return f"unknown split {_quoted(row['split'])} (known: {', '.join(SIDES)})"
    first, split = split_of.setdefault(row["receipt_id"], (number, row["split"]))
    if split != row["split"]:
        return (
            f"receipt {_quoted(row['receipt_id'])} is in {row['split']} here "
            f"and in {split} at row {first}"
        )
    return None


def _sentence(file: Path, faults: list[tuple[int, str]]) -> str:
    count = f"{len(faults)} bad row{'s' if len(faults) > 1 else ''}"
    if file.suffix != ".csv":
        count += " (data rows counted from 1)"
    shown = "; ".join(f"row {number}: {fault}" for number, fault in faults[:SHOWN])
    more = len(faults) - SHOWN
    return f"{file.name}: {count}: {shown}{f'; and {more} more' if more > 0 else ''}"


def _quoted(text: str) -> str:
    """`text` quoted on one line, shortened."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


# --- images ----------------------------------------------------------------------------------


def _open(path: str | Path) -> Image.Image:
    """An image, its header read; one of more pixels than Pillow's limit raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(path, formats=FORMATS)


def _grey(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):  # convert() would clip it at 255
        return Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
    return image.convert("L")
