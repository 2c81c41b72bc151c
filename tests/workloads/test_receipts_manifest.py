"""A user's own photos: each kind of bad row is named, and good folders become a batch."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from recompute_core.errors import InputError
from recompute_core.settings import ReceiptsSettings
from recompute_core.workloads.receipts import LABELS, build, check_images
from recompute_core.workloads.receipts.manifest import load_grey, read_manifest
from recompute_core.workloads.receipts.photo_set import Row as PhotoRow
from recompute_core.workloads.receipts.photo_set import photo_set

Row = dict[str, Any]


def rows(count: int = 20) -> list[Row]:
    """Two photos of each receipt, every class, a quarter of the receipts in validation."""
    return [
        {
            "image_path": f"shots/{index}.png",
            "receipt_id": f"r{index // 2}",
            "label": LABELS[-1 - (index // 2) % 6 if index // 2 % 4 == 3 else index % 6],
            "split": "validation" if index // 2 % 4 == 3 else "train",
            "accepted": "true",
        }
        for index in range(count)
    ]


@pytest.fixture
def good() -> list[Row]:
    table = rows()
    table[6]["label"] = "torn"  # receipt r3, in validation
    return table


def save(folder: Path, table: list[Row], kind: str = "csv") -> Path:
    (folder / "shots").mkdir(exist_ok=True)
    for index, row in enumerate(table):
        path = folder / str(row["image_path"])
        if path.suffix == ".png" and not path.exists():
            Image.new("L", (24, 48), index * 10).save(path)
    if kind == "csv":
        pd.DataFrame(table).to_csv(folder / "manifest.csv", index=False)
    else:
        pd.DataFrame(table).to_parquet(folder / "manifest.parquet", index=False)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        check_images(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_good_folder(tmp_path: Path, good: list[Row], kind: str) -> None:
    good[0]["accepted"] = "False"
    summary = check_images(save(tmp_path, good, kind))
    assert summary.manifest == f"manifest.{kind}"
    assert (summary.accepted, summary.rejected, summary.receipts) == (19, 1, 10)
    assert (summary.train, summary.validation, summary.split_made) == (15, 4, False)
    assert sum(summary.labels.values()) == 19
    assert tuple(summary.labels) == LABELS


def test_typed_parquet_columns(tmp_path: Path, good: list[Row]) -> None:
    for index, row in enumerate(good):
        row["receipt_id"] = index // 2
        row["accepted"] = index != 2
        row["captured_at"] = pd.Timestamp("2026-05-01 10:00")
    summary = check_images(save(tmp_path, good, "parquet"))
    assert (summary.accepted, summary.rejected) == (19, 1)
    assert read_manifest(tmp_path).photos[0].receipt == "0"


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("image_path", "a.png", "no such file 'a.png'"),
        ("image_path", "shots", "no such file 'shots'"),
        ("image_path", "", "empty image_path"),
        ("image_path", "/etc/hostname", "'/etc/hostname' leads out of the folder"),
        ("image_path", "shots/../../a.png", "'shots/../../a.png' leads out of the folder"),
        ("image_path", "notes.txt", "'notes.txt' is not an image (JPEG, PNG, WEBP, TIFF, BMP)"),
        ("image_path", "out.png.lnk", "'out.png.lnk' is a link that leads out of the folder"),
        ("image_path", "shots/0.png", "'shots/0.png' is row 2 already"),
        ("label", "blury", "unknown label 'blury' (known: ok, blurry, faint, glare, cutoff, torn)"),
        ("label", "", "unknown label ''"),
        ("receipt_id", "", "empty receipt_id"),
        ("split", "test", "unknown split 'test' (known: train, validation)"),
        ("split", "validation", "receipt 'r2' is in train here and in validation at row 6"),
        ("accepted", "maybe", "accepted is 'maybe', neither true nor false"),
        ("accepted", "", "accepted is '', neither true nor false"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, good: list[Row], column: str, value: str, fault: str
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "notes.txt").write_text("no pixels")
    Image.new("L", (4, 4)).save(tmp_path / "out.png")
    (inside / "out.png.lnk").symlink_to(tmp_path / "out.png")
    save(inside, good)
    good[4][column] = value
    pd.DataFrame(good).to_csv(inside / "manifest.csv", index=False)
    row = 7 if fault.startswith("receipt 'r2'") else 6  # the second of the two that differ
    assert refusal(inside).startswith(f"manifest.csv: 1 bad row: row {row}: {fault}")


def test_too_many_pixels(tmp_path: Path, good: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, good)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 48 - 1)
    assert "row 2: 'shots/0.png' has more than 1,151 pixels" in refusal(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow raises another error from twice on
    assert "row 2: 'shots/0.png' has more than 100 pixels" in refusal(tmp_path)


def test_five_bad_rows_are_named_and_all_are_counted(tmp_path: Path, good: list[Row]) -> None:
    for row in good[3:10]:
        row["label"] = "?"
    message = refusal(save(tmp_path, good))
    assert message.startswith("manifest.csv: 7 bad rows: row 5: unknown label '?'")
    assert message.count("unknown label") == 5
    assert message.endswith("; and 2 more")


def test_parquet_rows_count_from_one(tmp_path: Path, good: list[Row]) -> None:
    good[0]["label"] = None
    message = refusal(save(tmp_path, good, "parquet"))
    assert message.startswith(
        "manifest.parquet: 1 bad row (data rows counted from 1): row 1: unknown label ''"
    )


def test_blank_lines_keep_the_count(tmp_path: Path, good: list[Row]) -> None:
    good[2]["label"] = "x"
    save(tmp_path, good)
    lines = (tmp_path / "manifest.csv").read_text().splitlines()
    (tmp_path / "manifest.csv").write_text(
        "\n".join((lines[0], "", *lines[1:], "", "")), encoding="utf-8-sig"
    )
    assert "1 bad row: row 5: unknown label 'x'" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_path,label\na.png,ok\n", "missing column receipt_id; it needs image_path"),
        ("image_path,receipt_id,label\n", "no rows"),
        ("", "cannot be read: No columns to parse"),
        ("image_path,receipt_id,label\na,b,ok\na,b,ok,9\n", "Expected 3 fields in line 3, saw 4"),
        ("image_path,receipt_id,label\na,b,ok,9\n", "row 2 has more fields than the header"),
        ('image_path,receipt_id,label\na,"b,ok\n', "cannot be read: EOF inside string"),
        ("label,image_path,receipt_id, label\nok,a,b,ok\n", "a column is named twice"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.csv").write_text(text)
    found = refusal(tmp_path)
    assert found.startswith("manifest.csv: ")
    assert message in found


def test_files_that_are_not_tables(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "none")
    assert "has neither manifest.csv nor manifest.parquet" in refusal(tmp_path)
    (tmp_path / "manifest.parquet").write_bytes(b"PAR?")
    assert refusal(tmp_path).startswith("manifest.parquet: cannot be read: ")
    (tmp_path / "manifest.csv").write_bytes(b"image_path\n\xff\n")
    assert "has both" in refusal(tmp_path)
    (tmp_path / "manifest.parquet").unlink()
    assert refusal(tmp_path).startswith("manifest.csv: cannot be read: 'utf-8' codec")


def test_torn_must_be_in_validation(tmp_path: Path, good: list[Row]) -> None:
    for row in good:
        row["accepted"] = "false" if row["label"] == "torn" else "true"
    message = refusal(save(tmp_path, good))
    assert message.startswith("manifest.csv: no accepted photo labelled torn in validation")


def test_a_split_is_made_by_receipt(tmp_path: Path, good: list[Row]) -> None:
    for row in good:
        del row["split"]
    summary = check_images(save(tmp_path, good))
    assert summary.split_made
    assert summary.train + summary.validation == 20
    sides: dict[str, set[str]] = {}
    for photo in read_manifest(tmp_path).photos:
        sides.setdefault(photo.receipt, set()).add(photo.side)
    assert all(len(found) == 1 for found in sides.values())
    one = [{**row, "receipt_id": "r"} for row in good]
    assert "too few receipts" in refusal(save(tmp_path, one))


def test_the_batch_of_own_photos(tmp_path: Path, good: list[Row]) -> None:
    save(tmp_path, good)
    settings = ReceiptsSettings(images=str(tmp_path), height=64, image_width=64, batch=4)
    job = build(settings, 0, tmp_path / "home")
    photos, labels = job.batch
    assert photos.shape == (4, 1, 64, 64)
    assert labels.shape == (4,)
    assert not photos[:, :, :, :16].any()  # 24x48 becomes 32x64, black on both sides
    assert torch.equal(photos[:, :, :, 16:48], photos[:, :, :1, 16:17].expand(-1, -1, 64, 32))
    train = {row["image_path"]: row["label"] for row in good if row["split"] == "train"}
    for photo, label in zip(photos, labels, strict=True):
        index = round(photo[0, 0, 16].item() * 255 / 10)
        assert train[f"shots/{index}.png"] == LABELS[int(label)]
    assert not (tmp_path / "home").exists()
    with pytest.raises(InputError, match="17 photos asked for, but the training split has 16"):
        build(settings.model_copy(update={"batch": 17}), 0, tmp_path)


def test_the_digest_covers_rows_and_files(tmp_path: Path, good: list[Row]) -> None:
    first = read_manifest(save(tmp_path, good)).digest
    assert read_manifest(tmp_path).digest == first
    Image.new("L", (24, 48), 255).save(tmp_path / "shots/3.png")
    second = read_manifest(tmp_path).digest
    assert second != first
    good[3]["label"] = "ok" if good[3]["label"] != "ok" else "glare"
    assert read_manifest(save(tmp_path, good)).digest not in (first, second)


def test_a_truncated_image_is_named_when_it_is_used(tmp_path: Path, good: list[Row]) -> None:
    save(tmp_path, good)
    path = tmp_path / "shots/0.png"
    Image.fromarray(np.arange(48 * 24, dtype=np.uint8).reshape(48, 24)).save(path)
    path.write_bytes(path.read_bytes()[:-60])
    manifest = read_manifest(tmp_path)
    with pytest.raises(InputError, match=r"manifest\.csv: row 2: cannot decode 'shots/0\.png'"):
        load_grey(manifest, manifest.photos, 64, 32)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "LA", "I;16"])
def test_every_mode_becomes_grey(tmp_path: Path, good: list[Row], mode: str) -> None:
    save(tmp_path, good)
    if mode == "I;16":
        image = Image.fromarray(np.full((48, 24), 65535, np.uint16))
    else:
        image = Image.new("L", (24, 48), 255).convert(mode)
    image.save(tmp_path / "shots/0.png")
    manifest = read_manifest(tmp_path)
    pixels = load_grey(manifest, manifest.photos[:1], 48, 24)
    assert pixels.dtype == np.uint8
    assert (pixels == 255).all()


def test_a_turned_photo_is_set_upright(tmp_path: Path, good: list[Row]) -> None:
    save(tmp_path, good)
    lying = np.zeros((24, 48), np.uint8)
    lying[:, :24] = 255  # the left half; upright after a quarter turn it is the top
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(lying).save(tmp_path / "shots/0.png", exif=exif)
    manifest = read_manifest(tmp_path)
    pixels = load_grey(manifest, manifest.photos[:1], 48, 24)[0]
    assert (pixels[:24] == 255).all()
    assert (pixels[24:] == 0).all()


def test_checking_imports_no_torch(tmp_path: Path, good: list[Row]) -> None:
    for row in good:
        del row["split"]
    save(tmp_path, good)
    code = (
        "import sys; from pathlib import Path; "
        "from recompute_core.workloads.receipts import check_images; "
        f"assert check_images(Path({str(tmp_path)!r})).accepted == 20; "
        "assert not {'torch', 'kornia'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- rejected rows ---------------------------------------------------------------------------


def rejected(table: list[Row]) -> list[Row]:
    """The same rows; the third, of r1 in training, and the seventh, of r3 in validation, rejected."""
    for index, reason in ((2, "unreadable"), (6, "")):
        table[index] |= {"accepted": "false", "reject_reason": reason, "label": "ok"}
    table[7]["label"] = "torn"
    return table


def test_rejected_rows_stay_within_reach(tmp_path: Path, good: list[Row]) -> None:
    manifest = read_manifest(save(tmp_path, rejected(good)))
    assert [row.row for row in manifest.rows] == list(range(2, 22))
    assert [row.row for row in manifest.rows if not row.accepted] == [4, 8]
    assert manifest.photos == tuple(row for row in manifest.rows if row.accepted)
    assert manifest.rejected == 2
    assert [manifest.rows[index].reject_reason for index in (2, 3, 6)] == ["unreadable", "", ""]
    assert [manifest.rows[index].side for index in (2, 6)] == ["train", "validation"]
    digest = manifest.digest
    good[6]["reject_reason"] = "too small"
    assert read_manifest(save(tmp_path, good)).digest != digest


def test_a_rejected_row_lies_on_the_side_made_for_its_receipt(tmp_path: Path, good: list[Row]) -> None:
    for row in rejected(good):
        del row["split"]
    rows = read_manifest(save(tmp_path, good)).rows
    assert rows[2].side == rows[3].side
    assert rows[6].side == rows[7].side


def test_the_file_of_a_rejected_row_is_never_opened(tmp_path: Path, good: list[Row]) -> None:
    save(tmp_path, rejected(good))
    (tmp_path / "shots/2.png").write_bytes(b"lens covered")
    (tmp_path / "shots/6.png").unlink()
    assert check_images(tmp_path).rejected == 2
    photos = photo_set(ReceiptsSettings(images=str(tmp_path), height=64, image_width=64), tmp_path)
    pixels = photos.pixels(photos.train)
    assert [index for index, image in enumerate(pixels) if not image.any()] == [0, 2]  # 0 is black
    good[2]["image_path"] = "../2.png"
    pd.DataFrame(good).to_csv(tmp_path / "manifest.csv", index=False)
    assert "row 4: '../2.png' leads out of the folder" in refusal(tmp_path)


def test_the_photo_set_of_a_folder(tmp_path: Path, good: list[Row]) -> None:
    save(tmp_path, rejected(good))
    photos = photo_set(ReceiptsSettings(images=str(tmp_path), height=64, image_width=64), tmp_path)
    assert photos.digest == read_manifest(tmp_path).digest
    train = [index for index, row in enumerate(good) if row["split"] == "train"]
    assert [row.place for row in photos.train] == train
    assert [row.place for row in photos.validation] == [7, 14, 15]
    assert photos.train[2] == PhotoRow(2, "ok", "r1", accepted=False, reject_reason="unreadable")
    chosen = [photos.validation[2], photos.train[2], photos.train[1]]
    pixels = photos.pixels(chosen)
    assert pixels.shape == (3, 64, 64) and pixels.dtype == np.uint8
    assert pixels[:, 32, 32].tolist() == [150, 0, 10]
    assert photos.pixels([]).shape == (0, 64, 64)
    assert not (tmp_path / "datasets").exists()
