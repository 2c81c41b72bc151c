"""One task of a reinvestment, in a process of its own, telling what happens as JSON lines."""

import json
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import BaseModel, ConfigDict

from ..errors import InputError
from ..plans.names import regions_of
from ..results import Pair, ParityPassed, Record
from ..settings import ReceiptsSettings
from ..spec import StudySpec
from ..studies.environment import check_same_environment, describe_environment
from ..studies.worker import reason_of
from .asked import ReinvestSpec, Side, passes
from .found import Accumulation, Throughput, TrainingRun


class Assignment(BaseModel):
    """A task as it travels to the worker."""

    model_config = ConfigDict(frozen=True)

    task: Literal["accumulation", "throughput", "training"]
    asked: ReinvestSpec
    spec: StudySpec
    """The study's, at the one shape."""
    home: Path
    environment: dict[str, Any]
    """What the study was measured on."""
    data_digest: str | None
    """Of the photos that the study was measured on; None where it has no data set."""
    proof: ParityPassed
    """The candidate's parity, without which nothing of it is measured."""
    microbatch: int
    """Under the plan."""
    side: Side = "plain"
    seed: int = 0
    checkpoint: Path | None = None
    """Of a training run."""


def work(assignment: Assignment, out: TextIO) -> None:
    """Do the task; the last line is `done` with what was found, or `failed` with the reason."""

    def say(kind: str, **data: Any) -> None:
        out.write(json.dumps({"kind": kind, **data}, allow_nan=False) + "\n")
        out.flush()

    try:
        found = _do(assignment, say)
        say("done", payload=found.model_dump(mode="json", by_alias=True))
    except Exception as error:
        traceback.print_exc()
        say("failed", reason=reason_of(error))


def _do(task: Assignment, say: Callable[..., None]) -> Record:
    import torch

    from ..workloads.device import pick_device

    if task.spec.threads:
        torch.set_num_threads(task.spec.threads)
    device = pick_device(task.spec.device)
    here = describe_environment(device)
    check_same_environment(task.environment, here)
    say("environment", data=here)
    does = {"accumulation": _accumulation, "throughput": _throughput, "training": _training}
    return does[task.task](task, device, say)


def _accumulation(task: Assignment, device: Any, say: Callable[..., None]) -> Accumulation:
    from .accumulation import compare_accumulated
    from .feed import effective_job

    drawn = task.asked.effective_batch
    job, accepted = effective_job(task.spec, _settings(task), drawn, task.home, device, task.data_digest)
    sizes = (_plain_microbatch(task), task.microbatch)
    return compare_accumulated(job, accepted, sizes, _put_on(task, job), task.spec.seed)


def _throughput(task: Assignment, device: Any, say: Callable[..., None]) -> Throughput:
    from ..meters.timing import measure_pairs
    from ..workloads.update import allocate_state, optimizer_of, seed_everything
    from .accumulation import accumulate, by_examples, microbatches
    from .feed import effective_job

    asked = task.asked
    effective = partial(
        effective_job, task.spec, _settings(task), home=task.home, device=device, digest=task.data_digest
    )
    job, accepted = effective(drawn=asked.effective_batch)
    own, own_accepted = job, accepted
    if asked.recomputed_batch != asked.effective_batch:
        other, own_accepted = effective(drawn=asked.recomputed_batch)
        own = replace(job, batch=other.batch, loss=other.loss)
    optimizer = optimizer_of(job, task.spec.optimizer)
    seed_everything(task.spec.seed)
    allocate_state(optimizer)

    def update(job: Any, accepted: tuple[bool, ...], size: int) -> None:
        optimizer.zero_grad(set_to_none=False)
        accumulate(microbatches(job, accepted, size), by_examples(sum(accepted)))
        optimizer.step()

    plain_size = _plain_microbatch(task)
    timing = measure_pairs(
        partial(update, job, accepted, plain_size),
        partial(update, own, own_accepted, task.microbatch),
        _put_on(task, job),
        device,
        asked.timing,
        lambda pair: say("pair", **_pair(pair)),
    )
    return Throughput(
        timing=timing.model_copy(
            update={"source": "interleaved whole accumulated updates, one process, one model"}
        ),
        plain_examples=sum(accepted),
        recomputed_examples=sum(own_accepted),
        plain_microbatches=passes(asked.effective_batch, plain_size),
        recomputed_microbatches=passes(asked.recomputed_batch, task.microbatch),
    )


def _training(task: Assignment, device: Any, say: Callable[..., None]) -> TrainingRun:
    from contextlib import nullcontext

    from .feed import photos_of
    from .training import Run, train

    settings, asked = _settings(task), task.asked
    if not isinstance(settings, ReceiptsSettings) or task.checkpoint is None:
        raise RuntimeError("training was asked for without photos or without a place for checkpoints")
    is_plain = task.side == "plain"
    run = Run(
        settings=settings,
        photos=photos_of(settings, task.home, task.data_digest),
        training=asked.training,
        updates=asked.updates_of(task.side),
        side=task.side,
        seed=task.seed,
        microbatch=_plain_microbatch(task) if is_plain else task.microbatch,
        effective_batch=asked.batch_of(task.side),
        precision=task.spec.precision,
        device=device,
        checkpoint=task.checkpoint,
    )
    return train(run, lambda job: nullcontext if is_plain else _put_on(task, job), say)


def _settings(task: Assignment) -> Any:
    return task.spec.at(task.spec.shapes[0])


def _plain_microbatch(task: Assignment) -> int:
    batch = _settings(task).batch
    if batch is None:
        raise InputError(f"{task.spec.workload.name} has no batch size")
    return int(batch)


def _put_on(task: Assignment, job: Any) -> Any:
    from ..plans.apply import applied

    return partial(applied, job.model, regions_of(task.spec, task.asked.plan), task.spec.checkpoint)


def _pair(pair: Pair) -> dict[str, float]:
    return {"plain_s": pair.plain_s, "candidate_s": pair.candidate_s}
