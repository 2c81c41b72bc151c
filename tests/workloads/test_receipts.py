"""The rendered receipts, their split and cache, and the encoder: exact numbers on small sets."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensorMode

from recompute_core.errors import InputError
from recompute_core.settings import ReceiptsSettings
from recompute_core.workloads.receipts import (
    LABELS,
    Dataset,
    build,
    build_blank,
    dataset_ready,
    ensure_dataset,
)
from recompute_core.workloads.receipts import cache as cache_module
from recompute_core.workloads.receipts import dataset as dataset_module
from recompute_core.workloads.receipts.bills import bill_of, money
from recompute_core.workloads.receipts.cache import folder_of
from recompute_core.workloads.receipts.dataset import Progress, choose_batch, digest_of, rows_of
from recompute_core.workloads.receipts.encoder import Encoder
from recompute_core.workloads.receipts.labels import REASONS
from recompute_core.workloads.receipts.paper import WIDTH, is_torn, paper_of
from recompute_core.workloads.receipts.photos import (
    glare,
    label_of,
    photo_count,
    recorded_label,
    rejection,
    spoil,
    take,
)
from recompute_core.workloads.receipts.splitting import check_sides, divide, split_receipts

SMALL = 100
"""Receipts of the set the tests share: two of them torn."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def progress() -> list[tuple[int, int]]:
    """What the making of the small set reported."""
    return []


@pytest.fixture(scope="module")
def small(home: Path, progress: list[tuple[int, int]]) -> Dataset:
    return ensure_dataset(home, lambda *counts: progress.append(counts), receipts=SMALL)


@pytest.fixture
def small_home(home: Path, small: Dataset, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose default set is the small one."""
    monkeypatch.setattr(
        "recompute_core.workloads.receipts.photo_set.ensure_dataset", lambda home, receipts: small
    )
    return home


# --- paper -----------------------------------------------------------------------------------


def test_items_add_up_to_the_total() -> None:
    for receipt in range(1200):
        bill = bill_of(receipt)
        lines = sum(item.quantity * item.unit_cents for item in bill.items)
        assert 3 <= len(bill.items) <= 6
        assert lines == bill.subtotal_cents
        assert abs(bill.tax_cents - lines * bill.tax_permille / 1000) <= 0.5
        assert bill.total_cents == lines + bill.tax_cents


def test_a_known_bill() -> None:
    bill = bill_of(7)
    assert bill == bill_of(7) != bill_of(8)
    assert money(bill.total_cents) == f"{bill.total_cents / 100:.2f}"
    assert money(5) == "0.05"


def test_one_receipt_in_fifty_is_torn() -> None:
    torn = [receipt for receipt in range(1200) if is_torn(receipt)]
    assert len(torn) == 24
    assert [receipt // 50 for receipt in torn] == list(range(24))


def test_a_tear_runs_above_the_total() -> None:
    torn = [receipt for receipt in range(600) if is_torn(receipt)]
    for receipt in torn:
        paper = paper_of(receipt)
        left = len(paper.cover)
        assert 0.6 * paper.total_y < left < paper.total_y
        assert paper.cover[-1].any()
        lower_edge = paper.cover.sum(0)
        assert np.ptp(lower_edge) > 40  # slanting and ragged, unlike the blade's 4-pixel teeth
    whole = paper_of(next(receipt for receipt in range(50) if receipt not in torn))
    assert np.ptp(whole.cover.sum(0)) == 4
    assert whole.ink[whole.total_y :].any()
    assert not whole.fibre.any()


def test_a_tear_bares_ragged_fibres_along_its_edge() -> None:
    for receipt in (receipt for receipt in range(600) if is_torn(receipt)):
        paper = paper_of(receipt)
        rim = paper.fibre.sum(0)  # [WIDTH], rows
        assert 4 <= rim.min() < 8 < 13 < rim.max() <= 17
        assert not (paper.ink * paper.fibre).any()
        edge = paper.cover.sum(0)  # [WIDTH], rows
        for x in range(0, WIDTH, 40):
            bottom = int(edge[x])
            assert paper.fibre[bottom - int(rim[x]) : bottom, x].all()
        assert np.abs(np.diff(edge)).max() > 10  # teeth, not a slanting cut


# --- photos ----------------------------------------------------------------------------------


def test_a_photo_made_alone_has_the_bits_of_the_set(small: Dataset) -> None:
    for index in (0, 17, 101, 202, len(small.photos) - 1):
        alone = take(small.receipts[index], small.numbers[index])
        assert np.array_equal(alone, small.photos[index])


def test_a_photo_does_not_depend_on_thread_count() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = take(3, 0)
        torch.set_num_threads(2)
        assert np.array_equal(take(3, 0), one)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_photo_does_not_depend_on_the_process() -> None:
    code = (
        "import hashlib; from recompute_core.workloads.receipts.photos import take, label_of; "
        "print(label_of(11, 1), hashlib.sha256(take(11, 1).tobytes()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0].split()[0] == label_of(11, 1)


def test_each_receipt_has_two_to_four_photos_of_balanced_classes() -> None:
    counts = Counter(photo_count(receipt) for receipt in range(1200))
    assert set(counts) == {2, 3, 4}
    assert min(counts.values()) > 300
    labels = Counter(label_of(r, photo) for r in range(1200) for photo in range(photo_count(r)))
    total = sum(labels.values())
    assert labels["torn"] == sum(photo_count(r) for r in range(1200) if is_torn(r))
    assert 0.24 < labels["ok"] / total < 0.32
    for label in ("blurry", "faint", "glare", "cutoff"):
        assert 0.14 < labels[label] / total < 0.21


def sharpness(photo: NDArray[np.uint8]) -> float:
    """Variance of the Laplacian."""
    p = photo.astype(float)
    middle = -4 * p[1:-1, 1:-1]
    return float((middle + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]).var())


def burnt(photo: NDArray[np.uint8]) -> float:
    """Share of pixels at white."""
    return float((photo >= 254).mean())


def paper_touches_frame(photo: NDArray[np.uint8]) -> float:
    """The longest run, in pixels, of paper-bright pixels along one side of the frame."""
    sides = (photo[0], photo[-1], photo[:, 0], photo[:, -1])
    return float(max((side > 150).sum() for side in sides))


def print_contrast(photo: NDArray[np.uint8]) -> float:
    """Variation along rows, on the brightest third of the photo's rows' middles."""
    middle = photo[48:144, 24:72].astype(float)
    bright = middle[middle > np.quantile(middle, 0.1)]
    return float(np.quantile(bright, 0.9) - np.quantile(middle, 0.1))


def shares(small: Dataset, measure: Callable[[NDArray[np.uint8]], float]) -> dict[str, float]:
    """Median of a measure over the photos of each class."""
    values: dict[str, list[float]] = {label: [] for label in LABELS}
    for photo, label, accepted in zip(small.photos, small.labels, small.accepted, strict=True):
        if accepted:
            values[label].append(measure(photo))
    return {label: float(np.median(found)) for label, found in values.items()}


def test_the_defects_are_visible(small: Dataset) -> None:
    sharp = shares(small, sharpness)
    assert sharp["blurry"] < 0.35 * sharp["ok"]
    assert sharp["faint"] < 0.35 * sharp["ok"]
    white = shares(small, burnt)
    assert white["glare"] > 0.03 > 0.001 > white["ok"]
    edge = shares(small, paper_touches_frame)
    assert edge["cutoff"] > 20 > 1 > edge["ok"]
    contrast = shares(small, print_contrast)
    assert contrast["faint"] < 0.5 * contrast["ok"]


def test_a_lamp_burns_out_the_print_and_not_the_table() -> None:
    corners = np.array([(96, 0), (192, 0), (192, 384), (96, 384)], float)
    scene, cover = torch.full((1, 1, 384, 192), 0.3), torch.zeros(1, 1, 384, 192)
    cover[..., 96:] = 1  # paper on the right half
    lit = glare(scene, cover, corners, np.random.default_rng(0))
    assert (lit >= scene).all()
    assert (lit[..., 96:] == 1).float().mean() > 0.05
    assert lit[..., :96].max() < 0.6


# --- the intake step -------------------------------------------------------------------------


def test_rows_by_side_label_and_reason() -> None:
    rows = rows_of(1200)
    assert len(rows) == 3643
    accepted = Counter((side, label) for _, _, _, label, side, taken, _ in rows if taken)
    assert accepted == {
        ("train", "ok"): 798, ("train", "blurry"): 499, ("train", "faint"): 455,
        ("train", "glare"): 503, ("train", "cutoff"): 482, ("train", "torn"): 55,
        ("validation", "ok"): 200, ("validation", "blurry"): 125, ("validation", "faint"): 114,
        ("validation", "glare"): 125, ("validation", "cutoff"): 121, ("validation", "torn"): 14,
    }  # fmt: skip
    assert Counter((row[4], row[6]) for row in rows if not row[5]) == {
        ("train", "unreadable"): 37, ("train", "too small"): 41, ("train", "wrong label"): 42,
        ("validation", "unreadable"): 9, ("validation", "too small"): 11,
        ("validation", "wrong label"): 12,
    }  # fmt: skip


def test_every_torn_receipt_keeps_a_photo() -> None:
    for receipt in range(3000):
        if is_torn(receipt):
            assert rejection(receipt, 0) is None
        for photo in range(photo_count(receipt)):
            wrong = rejection(receipt, photo) == "wrong label"
            assert wrong == (recorded_label(receipt, photo) != label_of(receipt, photo))


def test_rejected_photos_show_why(small: Dataset) -> None:
    reasons = Counter(small.reject_reasons)
    assert min(reasons[reason] for reason in REASONS) > 0
    for photo, reason, accepted in zip(small.photos, small.reject_reasons, small.accepted, strict=True):
        assert accepted == (reason == "")
        thumbnail = photo[::8, ::8].repeat(8, 0).repeat(8, 1)
        assert np.array_equal(photo, thumbnail) == (reason == "too small")


def test_an_unreadable_photo_is_dark_or_out_of_order() -> None:
    image = take(0, 0)
    kinds = set()
    for seed in range(20):
        spoiled = spoil(image, "unreadable", np.random.default_rng(seed))
        assert spoiled.shape == image.shape and spoiled.dtype == np.uint8
        dark = spoiled.mean() < 0.4 * image.mean()
        kinds.add(bool(dark))
        if not dark:  # the same pixels, none of its bands of rows in its place
            assert np.array_equal(np.sort(spoiled, None), np.sort(image, None))
            assert (spoiled == image).mean() < 0.2
    assert kinds == {True, False}
    assert spoil(image, None, np.random.default_rng(0)) is image
    assert spoil(image, "wrong label", np.random.default_rng(0)) is image


# --- the split and the cache -----------------------------------------------------------------


def test_the_split_is_by_receipt(small: Dataset) -> None:
    train, validation = (
        {r for r, side in zip(small.receipts, small.sides, strict=True) if side == wanted}
        for wanted in ("train", "validation")
    )
    assert not train & validation
    assert len(train | validation) == SMALL
    assert 0.15 < small.sides.count("validation") / len(small.sides) < 0.25
    torn = Counter(
        side
        for side, label, accepted in zip(small.sides, small.labels, small.accepted, strict=True)
        if label == "torn" and accepted
    )
    assert torn["train"] > 0
    assert torn["validation"] > 0


def test_a_split_is_the_same_each_time() -> None:
    labels = ["ok", "torn", "blurry", "ok", "torn", "faint", "ok", "glare"] * 5
    receipts = [index // 2 for index in range(40)]
    assert split_receipts(labels, receipts) == split_receipts(labels, receipts)
    sides = split_receipts(labels, receipts)
    check_sides(labels, receipts, sides, [True] * 40)
    assert divide(labels, receipts, [True] * 40) == sides


@given(st.lists(st.booleans(), min_size=40, max_size=40), st.randoms())
def test_rejected_photos_do_not_move_the_split(accepted: list[bool], random: Random) -> None:
    """Whatever a rejected photo is labelled, the accepted ones are divided as if it were not there."""
    receipts = [index // 4 for index in range(40)]
    accepted[::4] = [True] * 10
    labels = [random.choice(LABELS) for _ in receipts]
    sides = divide(labels, receipts, accepted)
    kept = [i for i in range(40) if accepted[i]]
    alone = split_receipts([labels[i] for i in kept], [receipts[i] for i in kept])
    assert alone == tuple(sides[i] for i in kept)
    assert all(len(set(sides[i : i + 4])) == 1 for i in range(0, 40, 4))


def test_a_receipt_of_rejected_photos_alone_lies_in_training() -> None:
    labels, receipts = ["ok", "torn"] * 10, [index // 2 for index in range(20)]
    accepted = [receipt != 3 for receipt in receipts]
    assert divide(labels, receipts, accepted)[6:8] == ("train", "train")


def test_a_receipt_on_both_sides_is_an_error() -> None:
    with pytest.raises(ValueError, match="receipt 4 is on both sides"):
        check_sides(["torn", "torn"], [4, 4], ["train", "validation"], [True, True])
    for label, accepted in (("ok", True), ("torn", False)):
        with pytest.raises(ValueError, match="no accepted photo labelled torn on the validation side"):
            check_sides(["torn", label], [4, 5], ["train", "validation"], [True, accepted])


def test_the_set_is_kept_and_found_again(home: Path, small: Dataset) -> None:
    assert dataset_ready(home, SMALL)
    assert not dataset_ready(home)
    assert small.photos.dtype == np.uint8
    assert small.photos.shape == (len(small.labels), 192, 96)
    assert isinstance(small.photos, np.memmap)

    def never(done: int, total: int) -> None:
        raise AssertionError("made again")

    again = ensure_dataset(home, never, receipts=SMALL)
    assert again.digest == small.digest
    rows = rows_of(SMALL)
    assert small.digest == digest_of(small.photos, rows)
    rows[5] = (*rows[5][:4], "train" if rows[5][4] == "validation" else "validation", *rows[5][5:])
    assert small.digest != digest_of(small.photos, rows)


def test_progress_counts_photos_to_the_end(
    home: Path, small: Dataset, progress: list[tuple[int, int]]
) -> None:
    total = len(small.photos)
    assert progress[0] == (0, total)
    assert progress[-1] == (total, total)
    assert progress == sorted(progress)
    assert len(progress) == SMALL + 1
    folders = [path.name for path in (home / "datasets").iterdir() if path.is_dir()]
    assert folders == [f"receipts-v3-{SMALL}"]


def test_two_makers_make_one_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def slow(folder: Path, receipts: int, report: Progress) -> None:
        made.append(folder)
        time.sleep(0.2)

    monkeypatch.setattr(dataset_module, "_write", slow)
    monkeypatch.setattr(dataset_module, "_load", lambda folder: folder.is_dir())
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ensure_dataset, tmp_path) for _ in range(2)]
        assert all(future.result() for future in asked)
    assert len(made) == 1


def test_a_half_made_set_is_not_taken(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_dataset(tmp_path, stop, receipts=100)
    assert not dataset_ready(tmp_path, 100)
    partial = folder_of(tmp_path, 100).with_name(f".{folder_of(tmp_path, 100).name}.partial")
    assert not partial.exists()
    partial.mkdir()  # as a maker that was killed leaves it
    (partial / "photos.npy").write_bytes(b"half")
    assert not dataset_ready(tmp_path, 100)


def test_a_damaged_set_says_what_to_delete(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 100)
    folder.mkdir(parents=True)
    assert not dataset_ready(tmp_path, 100)
    with pytest.raises(InputError, match=r"damaged .*delete that folder"):
        ensure_dataset(tmp_path, receipts=100)
    facts = cache_module.Facts(photos=1, digest="sha256:0", sizes={"photos.npy": 10})
    (folder / "facts.json").write_text(facts.model_dump_json())
    (folder / "photos.npy").write_bytes(b"123456789")
    with pytest.raises(InputError, match=r"photos\.npy has 9 bytes, not 10"):
        ensure_dataset(tmp_path, receipts=100)
    (folder / "photos.npy").write_bytes(b"1234567890")
    with pytest.raises(InputError, match="damaged"):
        ensure_dataset(tmp_path, receipts=100)


def test_looking_for_the_set_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import recompute_core.workloads.receipts as r; "
        f"assert not r.dataset_ready(Path({str(tmp_path)!r})); "
        "assert not {'torch', 'kornia', 'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the batch -------------------------------------------------------------------------------


def test_the_batch_is_fixed_by_its_seed(small_home: Path, small: Dataset) -> None:
    settings = ReceiptsSettings()
    job = build(settings, 0, small_home)
    photos, labels = job.batch
    assert photos.shape == (16, 1, 192, 96)
    assert photos.dtype == torch.float32
    assert 0 <= photos.min() < photos.max() <= 1
    assert labels.dtype == torch.int64
    assert set(labels.tolist()) == set(range(6))  # the rare class too
    assert job.data_digest == small.digest
    assert job.blocks == tuple(f"blocks.{index}" for index in range(6))
    assert job.tokens == 16 * 72
    assert build(settings, 0, small_home).batch_digest == job.batch_digest
    assert build(settings, 1, small_home).batch_digest != job.batch_digest


def test_the_batch_comes_from_training(small_home: Path, small: Dataset) -> None:
    train = [
        i
        for i, (side, accepted) in enumerate(zip(small.sides, small.accepted, strict=True))
        if side == "train" and accepted
    ]
    size = len(train)
    photos, _ = build(ReceiptsSettings(batch=size), 0, small_home).batch
    expected = sorted(small.photos[i].tobytes() for i in train)
    pixels = (photos[:, 0] * 255).round().to(torch.uint8).numpy()
    assert sorted(photo.tobytes() for photo in pixels) == expected
    with pytest.raises(InputError, match=rf"{size + 1} photos asked for.*has {size}"):
        build(ReceiptsSettings(batch=size + 1), 0, small_home)


def test_a_small_batch_is_a_plain_draw() -> None:
    labels = ["ok"] * 98 + ["torn"] * 2
    assert sorted(choose_batch(labels, 100, 3)) == list(range(100))
    assert len(set(choose_batch(labels, 8, 3))) == 8
    for seed in range(20):
        assert any(place >= 98 for place in choose_batch(labels, 16, seed))


def test_photos_are_resized_to_the_shape_asked_for(small_home: Path) -> None:
    settings = ReceiptsSettings(height=64, image_width=32, batch=4)
    job = build(settings, 0, small_home)
    assert job.batch[0].shape == (4, 1, 64, 32)
    assert job.tokens == 4 * 8
    assert build(settings, 0, small_home).batch_digest == job.batch_digest


# --- the encoder -----------------------------------------------------------------------------


def test_parameter_count() -> None:
    model = Encoder(ReceiptsSettings())
    block = 4 * 192 * (192 + 1) + 8 * 192 * 192 + 5 * 192 + 2 * 2 * 192
    stem = (9 * 24 + 24) + (9 * 24 * 48 + 48) + (9 * 48 * 96 + 96) + (9 * 96 * 192 + 192)
    norms = 2 * (24 + 48 + 96)
    expected = 6 * block + stem + norms + 72 * 192 + 2 * 192 + 6 * 193
    assert sum(p.numel() for p in model.parameters()) == expected == 2_903_190


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize(("height", "width"), [(192, 96), (32, 48)])
def test_forward_and_backward(norm: str, height: int, width: int) -> None:
    settings = ReceiptsSettings.model_validate(
        {"norm": norm, "height": height, "image_width": width, "batch": 3, "blocks": 2}
    )
    job = build_blank(settings, 0)
    photos, labels = job.batch
    assert photos.shape == (3, 1, height, width)
    logits, loss = job.model(torch.rand_like(photos), labels)
    assert logits.shape == (3, 6)
    assert loss.shape == ()
    assert abs(loss.item() - np.log(6)) < 0.3
    loss.backward()
    for name, parameter in job.model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert [name for name in job.blocks if job.model.get_submodule(name)] == list(job.blocks)


def test_weights_follow_the_seed() -> None:
    settings = ReceiptsSettings(blocks=1, batch=1)
    first, again, other = (build_blank(settings, seed).model.state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["positions"], other["positions"])


def test_dropout_is_live_in_training_only() -> None:
    job = build_blank(ReceiptsSettings(blocks=1, batch=2), 0)
    photos = torch.rand_like(job.batch[0])

    def logits() -> torch.Tensor:
        found: torch.Tensor = job.model(photos, job.batch[1])[0]
        return found

    assert not torch.equal(logits(), logits())
    job.model.eval()
    assert torch.equal(logits(), logits())


def test_batch_norm_keeps_running_statistics_inside_the_blocks() -> None:
    job = build_blank(ReceiptsSettings(norm="batch", blocks=2, batch=2), 0)
    names = [name for name, _ in job.model.named_buffers() if name.endswith("running_mean")]
    assert names == [f"blocks.{i}.norm{j}.running_mean" for i in (0, 1) for j in (1, 2)]
    job.model(torch.rand_like(job.batch[0]), job.batch[1])
    assert all(job.model.get_buffer(name).any() for name in names)
    tracked = job.model.get_buffer("blocks.0.norm1.num_batches_tracked")
    assert tracked.item() == 1
    assert not list(build_blank(ReceiptsSettings(blocks=1, batch=1), 0).model.named_buffers())


def test_batch_norm_is_over_channels() -> None:
    job = build_blank(ReceiptsSettings(norm="batch", blocks=1, batch=2), 0)
    norm = job.model.get_submodule("blocks.0.norm1")
    x = torch.randn(2, 72, 192) * 3 + 1
    y = norm(x)
    assert y.shape == x.shape
    torch.testing.assert_close(y.mean((0, 1)), torch.zeros(192), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var((0, 1), correction=0), torch.ones(192), atol=1e-4, rtol=0)


def test_blank_photos_build_under_fake_tensors() -> None:
    settings = ReceiptsSettings(height=4096, image_width=4096, batch=64)
    with FakeTensorMode():
        job = build_blank(settings, 0)
        _, loss = job.model(*job.batch)
        loss.backward()
    assert job.tokens == 64 * 256 * 256
