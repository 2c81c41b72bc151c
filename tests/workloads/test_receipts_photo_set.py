"""What training reads of the rendered set, and the contact sheet: exact numbers on a small set."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from recompute_core.settings import ReceiptsSettings
from recompute_core.workloads.receipts import Dataset, ensure_dataset
from recompute_core.workloads.receipts.photo_set import PhotoSet, photo_set, resized
from recompute_core.workloads.receipts.sheet import SHOWN, TITLE, contact_sheet

SMALL = 100


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def small(home: Path) -> Dataset:
    return ensure_dataset(home, receipts=SMALL)


@pytest.fixture(scope="module")
def photos(home: Path, small: Dataset) -> PhotoSet:
    return photo_set(ReceiptsSettings(), home, SMALL)


def test_rows_are_those_of_the_set(photos: PhotoSet, small: Dataset) -> None:
    places = [row.place for row in photos.train]
    assert places == [i for i, side in enumerate(small.sides) if side == "train"]
    assert [row.place for row in photos.validation] == [
        i for i, side in enumerate(small.sides) if side == "validation" and small.accepted[i]
    ]
    for row in (*photos.train, *photos.validation):
        assert row.label == small.labels[row.place]
        assert row.receipt == str(small.receipts[row.place])
        assert row.accepted == small.accepted[row.place]
        assert row.reject_reason == small.reject_reasons[row.place]
    assert not all(row.accepted for row in photos.train)
    assert photos.digest == small.digest


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_pixels_are_those_asked_for_in_any_order(
    data: st.DataObject, photos: PhotoSet, small: Dataset
) -> None:
    rows = data.draw(st.lists(st.sampled_from((*photos.train, *photos.validation)), max_size=6))
    pixels = photos.pixels(rows)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (len(rows), 192, 96)
    for row, image in zip(rows, pixels, strict=True):
        assert np.array_equal(image, small.photos[row.place])


def test_another_size_is_made_photo_by_photo(home: Path, photos: PhotoSet) -> None:
    narrow = photo_set(ReceiptsSettings(height=64, image_width=32), home, SMALL)
    together = narrow.pixels(narrow.train[:5])
    assert together.shape == (5, 64, 32)
    for row, image in zip(narrow.train[:5], together, strict=True):
        assert np.array_equal(narrow.pixels([row])[0], image)
    exact = torch.from_numpy(photos.pixels(photos.train[:5])).float()[:, None]
    exact = F.interpolate(exact, (64, 32), mode="bilinear", align_corners=False, antialias=True)
    assert np.abs(exact[:, 0].numpy() - together).max() <= 0.5


def test_a_flat_photo_stays_flat() -> None:
    flat = np.full((2, 192, 96), 255, np.uint8)
    assert (resized(flat, 384, 80) == 255).all()
    assert resized(flat, 192, 96) is flat


def test_loading_imports_no_torch(home: Path, small: Dataset) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from recompute_core.settings import ReceiptsSettings; "
        "from recompute_core.workloads.receipts.photo_set import photo_set; "
        f"photos = photo_set(ReceiptsSettings(), Path({str(home)!r}), {SMALL}); "
        "assert photos.pixels(photos.train[:2]).any(); "
        "assert not {'torch', 'kornia', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_contact_sheet(home: Path, small: Dataset) -> None:
    sheet = contact_sheet(home, SMALL)
    assert sheet.mode == "L"
    assert sheet.tobytes() == contact_sheet(home, SMALL).tobytes()
    grey = np.asarray(sheet)
    for line, label in enumerate(("ok", "blurry", "faint", "glare", "cutoff", "torn")):
        first = next(i for i, found in enumerate(small.labels) if found == label and small.accepted[i])
        top = 8 + line * (192 + 24)
        assert np.array_equal(grey[top : top + 192, TITLE : TITLE + 96], small.photos[first])
    rejected = {small.photos[i].tobytes() for i, taken in enumerate(small.accepted) if not taken}
    top = 8 + 6 * (192 + 24)
    shown = [grey[top : top + 192, TITLE + 104 * c : TITLE + 104 * c + 96] for c in range(SHOWN)]
    assert {image.tobytes() for image in shown if image.min() < 250} <= rejected
