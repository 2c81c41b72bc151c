"""A training run in this process: what decides an update, and a run that was broken off."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from recompute_core.errors import InputError
from recompute_core.plans.apply import applied
from recompute_core.reinvest.asked import TrainingSettings
from recompute_core.reinvest.feed import drawn_rows, photos_of
from recompute_core.reinvest.found import TrainingRun
from recompute_core.reinvest.training import Run, rate_at, train
from recompute_core.settings import ReceiptsSettings
from recompute_core.spec import CheckpointSettings, Region
from recompute_core.workloads.job import Job
from recompute_core.workloads.receipts.photo_set import PhotoSet, photo_set

from .photos import photos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos(tmp_path_factory.mktemp("own") / "photos")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(folder: Path, dropout: float = 0.2) -> ReceiptsSettings:
    return ReceiptsSettings(
        blocks=2,
        width=32,
        heads=2,
        height=32,
        image_width=32,
        batch=4,
        dropout=dropout,
        images=str(folder),
    )


def run_of(folder: Path, checkpoint: Path, **changes: Any) -> Run:
    own = settings(folder, changes.pop("dropout", 0.2))
    facts: dict[str, Any] = {
        "settings": own,
        "photos": photo_set(own, folder),
        "training": TrainingSettings(
            seeds=(0,), examples=96, evaluate_every=3, checkpoint_every=2, lr=3e-3
        ),
        "updates": 8,
        "side": "plain",
        "seed": 0,
        "microbatch": 4,
        "effective_batch": 12,
        "precision": "float32",
        "device": torch.device("cpu"),
        "checkpoint": checkpoint,
    }
    return Run(**facts | changes)


def plain(job: Job) -> Any:
    return nullcontext


def silent(*_: object, **__: object) -> None:
    """Nobody listens."""


class Broken(Exception):
    """Where a run was broken off."""


def trained(run: Run, breaking_after: int | None = None) -> TrainingRun:
    def tell(kind: str, record: dict[str, Any], again: bool = False) -> None:
        if kind == "update" and record["number"] == breaking_after and not again:
            raise Broken

    return train(run, plain, tell)


@pytest.mark.parametrize("after", [1, 2, 5, 7])
def test_a_run_that_was_broken_off_ends_with_the_same_bits(
    folder: Path, tmp_path: Path, after: int
) -> None:
    whole = trained(run_of(folder, tmp_path / "whole"))
    run = run_of(folder, tmp_path / "broken")
    with pytest.raises(Broken):
        trained(run, after)
    resumed = trained(run)
    assert resumed.weights_digest == whole.weights_digest
    assert resumed.seen == whole.seen
    assert resumed.evaluations == whole.evaluations
    assert [one.loss for one in resumed.updates] == [one.loss for one in whole.updates]
    assert [one.number for one in resumed.updates] == list(range(1, 9))
    assert resumed.stopped == (after > 2)
    assert whole.stopped == 0


def test_a_damaged_checkpoint_is_set_aside_and_the_run_starts_over(folder: Path, tmp_path: Path) -> None:
    whole = trained(run_of(folder, tmp_path / "whole"))
    run = run_of(folder, tmp_path / "damaged")
    with pytest.raises(Broken):
        trained(run, 5)
    kept = run.checkpoint.read_bytes()
    for damaged in (b"", kept[: len(kept) // 2], b"nonsense"):
        run.checkpoint.write_bytes(damaged)
        again = trained(run)
        assert (again.weights_digest, again.stopped) == (whole.weights_digest, 0)


def test_other_photos_than_the_checkpoints_are_refused(folder: Path, tmp_path: Path) -> None:
    run = run_of(folder, tmp_path / "changed")
    with pytest.raises(Broken):
        trained(run, 5)
    others = replace(run.photos, digest="sha256:" + "0" * 64)
    with pytest.raises(InputError, match="the photos have changed"):
        trained(replace(run, photos=others))


def test_dropout_is_part_of_what_a_checkpoint_restores(folder: Path, tmp_path: Path) -> None:
    """Without the random state the test above would not pass: two dropouts give other weights."""
    one = trained(run_of(folder, tmp_path / "a"))
    other = trained(run_of(folder, tmp_path / "b", dropout=0.0))
    assert one.weights_digest != other.weights_digest


def test_both_settings_see_the_same_examples_and_reject_the_same(folder: Path, tmp_path: Path) -> None:
    @contextmanager
    def on(job: Job) -> Iterator[None]:
        plan = (Region(modules=("blocks.0.mlp",)), Region(modules=("blocks.1.mlp",)))
        with applied(job.model, plan, CheckpointSettings()):
            yield

    one = train(run_of(folder, tmp_path / "a", dropout=0.0), plain, silent)
    other = train(
        run_of(folder, tmp_path / "b", dropout=0.0, side="recomputed", microbatch=12),
        lambda job: lambda: on(job),
        silent,
    )
    assert [u.accepted for u in one.updates] == [u.accepted for u in other.updates]
    assert any(update.accepted < 12 for update in one.updates)
    for mine, theirs in zip(one.updates[:3], other.updates[:3], strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-4)
    assert [(s.row, s.label) for s in one.seen] == [(s.row, s.label) for s in other.seen]


def test_an_epoch_is_every_row_once_in_an_order_of_its_own(folder: Path) -> None:
    found: PhotoSet = photo_set(settings(folder), folder)
    rows = len(found.train)
    first, second = (drawn_rows(found, 0, start, rows) for start in (0, rows))
    everything = sorted(row.place for row in found.train)
    assert sorted(row.place for row in first) == sorted(row.place for row in second) == everything
    assert first != second != drawn_rows(found, 1, rows, rows)
    across = drawn_rows(found, 0, rows - 3, 7)
    assert across == [*first[-3:], *second[:4]]


def test_a_learnt_class_shows_in_the_recall(folder: Path, tmp_path: Path) -> None:
    training = TrainingSettings(seeds=(0,), examples=1200, evaluate_every=100, lr=3e-3)
    run = run_of(folder, tmp_path / "c", training=training, updates=100, dropout=0.0)
    found = train(run, plain, silent)
    assert found.evaluations[-1].accuracy > 0.8
    assert found.updates[-1].loss < found.updates[0].loss / 3
    assert found.rare_receipts == 3 and found.rare_photos <= 6


def test_an_update_of_rejected_photos_alone_does_nothing(folder: Path, tmp_path: Path) -> None:
    found = trained(run_of(folder, tmp_path / "d", effective_batch=1, microbatch=1, updates=40))
    nothing = [update for update in found.updates if update.accepted == 0]
    assert nothing and all(update.loss is None for update in nothing)
    assert all(update.loss for update in found.updates if update.accepted)


def test_the_rate_rises_then_falls_to_nothing() -> None:
    training = TrainingSettings(lr=1.0, warmup=0.1)
    rates = [rate_at(number, 100, training) for number in range(1, 101)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == rates[9] == 1.0
    assert all(a > b for a, b in pairwise(rates[9:]))
    assert 0 < rates[-1] < 1e-3
    assert rate_at(1, 1, TrainingSettings(lr=1.0, warmup=0.0)) == pytest.approx(0.5)


def test_photos_that_the_study_was_not_measured_on_are_refused(folder: Path) -> None:
    own = settings(folder)
    assert photos_of(own, folder, photo_set(own, folder).digest).train
    with pytest.raises(InputError, match="not those that the study was measured on"):
        photos_of(own, folder, "sha256:" + "0" * 64)
