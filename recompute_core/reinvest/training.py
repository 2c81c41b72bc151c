"""One training run of the receipts encoder, stopped and resumed to the same bits.

Everything that decides the next update is in a checkpoint or follows from the seed: weights, AdamW's
moments, random states, how many updates are done. Which photos make an update is a function of the seed
and the update's number alone, so both settings see the same examples in the same order.
"""

import io
import json
import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import InputError
from ..plans.apply import Applied
from ..settings import ReceiptsSettings
from ..spec import Precision
from ..workloads.device import cast, move, synchronize
from ..workloads.job import Job, tensors_digest
from ..workloads.receipts.job import as_classes, as_photos
from ..workloads.receipts.labels import LABELS, RARE
from ..workloads.receipts.photo_set import PhotoSet, Row
from ..workloads.update import seed_everything
from ..writing import write_whole
from .accumulation import Microbatch, accumulate, by_examples
from .asked import Side, TrainingSettings
from .feed import drawn_rows, photo_job
from .found import Evaluation, Seen, TrainingRun, Update

Tell = Callable[..., None]
"""Hears `update` and `evaluation` records as they are made."""
_LOOK = 64
"""Validation photos in one forward; without gradients no memory is short."""


@dataclass(frozen=True)
class Run:
    """What one run trains, and how."""

    settings: ReceiptsSettings
    photos: PhotoSet
    training: TrainingSettings
    updates: int
    """In the whole run."""
    side: Side
    seed: int
    microbatch: int
    effective_batch: int
    precision: Precision
    device: torch.device
    checkpoint: Path


def train(run: Run, put_on: Callable[[Job], Applied], tell: Tell) -> TrainingRun:
    """Train to the end, from the checkpoint where there is one."""
    seed_everything(run.seed)
    job = _moved(run, photo_job(run.settings, run.photos, run.photos.train[:1], run.seed))
    optimizer = torch.optim.AdamW(
        job.model.parameters(), lr=run.training.lr, weight_decay=run.training.weight_decay
    )
    records = _resume(run, job, optimizer)
    for one in records.updates:
        tell("update", record=one.model_dump(), again=True)
    for look in records.evaluations:
        tell("evaluation", record=look.model_dump())
    applied = put_on(job)
    validation = _Validation(run)
    seen: tuple[Seen, ...] = ()
    while len(records.updates) < run.updates:
        number = len(records.updates) + 1
        done = _update(run, job, optimizer, applied, number)
        records.updates.append(done)
        tell("update", record=done.model_dump())
        is_last = number == run.updates
        if is_last or number % run.training.evaluate_every == 0:
            look, seen = validation.look(job, number)
            records.evaluations.append(look)
            tell("evaluation", record=look.model_dump())
        if not is_last and number % run.training.checkpoint_every == 0:
            _keep(run, job, optimizer, records)
    rare = [row for row in run.photos.train if row.accepted and row.label == RARE]
    return TrainingRun(
        side=run.side,
        seed=run.seed,
        microbatch=run.microbatch,
        effective_batch=run.effective_batch,
        updates=tuple(records.updates),
        evaluations=tuple(records.evaluations),
        seen=seen,
        weights_digest=tensors_digest(sorted(job.model.state_dict().items())),
        data_digest=run.photos.digest,
        rare_receipts=len({row.receipt for row in rare}),
        rare_photos=len(rare),
        stopped=records.stopped,
    )


def rate_at(number: int, updates: int, training: TrainingSettings) -> float:
    """Learning rate of update `number` of so many: rising in a line, then falling as a cosine that the
    update after the last would bring to zero."""
    warm = training.warmup * updates
    if number <= warm:
        return training.lr * number / warm
    share = (number - warm) / (updates + 1 - warm)
    return training.lr * 0.5 * (1 + math.cos(math.pi * share))


def _update(
    run: Run, job: Job, optimizer: torch.optim.Optimizer, applied: Applied, number: int
) -> Update:
    size = run.effective_batch
    rows = drawn_rows(run.photos, run.seed, (number - 1) * size, size)
    accepted = sum(row.accepted for row in rows)
    for group in optimizer.param_groups:
        group["lr"] = rate_at(number, run.updates, run.training)
    synchronize(run.device)
    started = time.perf_counter()
    loss: float | None = None
    if accepted:
        optimizer.zero_grad(set_to_none=False)
        with applied():
            loss = float(accumulate(_parts(run, job, rows), by_examples(accepted)))
        optimizer.step()
    synchronize(run.device)
    if loss is not None and not math.isfinite(loss):
        raise ArithmeticError(f"the loss of update {number} is {loss}")
    return Update(number=number, loss=loss, accepted=accepted, seconds=time.perf_counter() - started)


def _parts(run: Run, job: Job, rows: Sequence[Row]) -> Iterator[Microbatch]:
    """The microbatches of an update, each loaded when its turn comes."""
    for start in range(0, len(rows), run.microbatch):
        accepted = [row for row in rows[start : start + run.microbatch] if row.accepted]
        if accepted:
            yield Microbatch(_with_photos(run, job, accepted), len(accepted))


def _with_photos(run: Run, job: Job, rows: Sequence[Row]) -> Job:
    batch = as_photos(run.photos.pixels(rows)), as_classes(row.label for row in rows)
    fed = replace(job, batch=batch)
    dtype = getattr(torch, run.precision)

    def fitted(tensor: Tensor) -> Tensor:
        return tensor.to(run.device, dtype if tensor.is_floating_point() else None)

    return fed.with_batch(fitted)


def _moved(run: Run, job: Job) -> Job:
    return move(cast(job, run.precision), run.device)


class _Validation:
    """The accepted validation photos."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows = run.photos.validation

    def look(self, job: Job, after: int) -> tuple[Evaluation, tuple[Seen, ...]]:
        """Every photo in evaluation mode; the model's mode and the random states stay as they were."""
        was = job.model.training
        job.model.eval()
        losses, seen = 0.0, list[Seen]()
        with torch.no_grad():
            for start in range(0, len(self._rows), _LOOK):
                rows = self._rows[start : start + _LOOK]
                fed = _with_photos(self._run, job, rows)
                logits, _ = fed.forward()
                losses += float(F.cross_entropy(logits.float(), fed.batch[1], reduction="sum"))
                votes = [LABELS[place] for place in logits.argmax(dim=1).tolist()]
                seen += [
                    Seen(row=row.place, receipt=row.receipt, label=row.label, predicted=vote)
                    for row, vote in zip(rows, votes, strict=True)
                ]
        job.model.train(was)
        labels = [label for label in LABELS if any(one.label == label for one in seen)]
        look = Evaluation(
            after=after,
            loss=losses / len(seen),
            right={n: sum(s.label == n == s.predicted for s in seen) for n in labels},
            photos={n: sum(s.label == n for s in seen) for n in labels},
        )
        return look, tuple(seen)


# --- checkpoints -----------------------------------------------------------------------------


@dataclass
class _Records:
    updates: list[Update]
    evaluations: list[Evaluation]
    stopped: int


def _keep(run: Run, job: Job, optimizer: torch.optim.Optimizer, records: _Records) -> None:
    """Write all that decides the next update, whole or not at all."""
    state: dict[str, Any] = {
        "model": job.model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "photos": run.photos.digest,
        "records": json.dumps(
            {
                "updates": [one.model_dump() for one in records.updates],
                "evaluations": [one.model_dump() for one in records.evaluations],
                "stopped": records.stopped,
            }
        ),
    }
    if run.device.type != "cpu":
        state["device"] = torch.get_device_module(run.device).get_rng_state()
    written = io.BytesIO()
    torch.save(state, written)
    write_whole(run.checkpoint, written.getvalue())


def _kept_state(run: Run) -> dict[str, Any] | None:
    """The checkpoint of a run on these very photos. A damaged one is set aside: the run starts over."""
    if not run.checkpoint.exists():
        return None
    try:
        state = torch.load(run.checkpoint, map_location=run.device, weights_only=True)
        digest = state["photos"]
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError):
        run.checkpoint.replace(run.checkpoint.with_suffix(".damaged"))
        return None
    if digest != run.photos.digest:
        raise InputError("the photos have changed since this training run began")
    return dict(state)


def _resume(run: Run, job: Job, optimizer: torch.optim.Optimizer) -> _Records:
    """Put the checkpoint's state in place; nothing happens where there is none that can be read."""
    state = _kept_state(run)
    if state is None:
        return _Records([], [], 0)
    job.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"].cpu())
    if run.device.type != "cpu":
        torch.get_device_module(run.device).set_rng_state(state["device"].cpu())
    kept = json.loads(state["records"])
    return _Records(
        [Update.model_validate(one) for one in kept["updates"]],
        [Evaluation.model_validate(one) for one in kept["evaluations"]],
        kept["stopped"] + 1,
    )
