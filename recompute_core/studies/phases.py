"""What a phase of a task needs before it may run, and its checks: in a worker and on each rank."""

from collections.abc import Callable
from functools import partial

import torch

from ..checks import parity
from ..checks.snapshot import Snapshot
from ..plans.apply import Applied, applied
from ..results import Canary, Noise, Pair, Parity, ParityPassed, Reference
from ..spec import StudySpec
from ..together import ALONE, Together
from ..workloads.job import Job
from ..workloads.update import optimizer_of, seed_everything
from .store import Phase
from .worker import Assignment


def plain_of(phase: Phase, task: Assignment) -> Reference:
    """What the reference phase found; raises RuntimeError where it is still to be run."""
    if task.plain is None:
        raise RuntimeError(f"{phase} was asked for without a reference")
    return task.plain


def proof_of(phase: Phase, task: Assignment) -> ParityPassed:
    """The parity that allows a cost to be measured; raises RuntimeError without one."""
    if task.proof is None or task.proof.rollback is None:
        raise RuntimeError(f"{phase} was asked for without a proof of parity and of the way back")
    return task.proof


def same_batch(job: Job, plain: Reference) -> Job:
    """The job, if its batch is the reference's; raises RuntimeError."""
    if job.batch_digest != plain.batch_digest:
        raise RuntimeError(
            "the batch is another one each time it is made; seed what it is drawn from (torch, random "
            "and NumPy are seeded before)"
        )
    return job


def check(
    phase: Phase,
    build: Callable[[], Job],
    spec: StudySpec,
    task: Assignment,
    reference: Snapshot,
    together: Together = ALONE,
) -> Noise | Canary | Parity:
    """Noise, canary or parity against `reference`; `spec` is the task's, with a rank's seed there."""
    plain = plain_of(phase, task)
    if phase == "noise":
        return parity.check_noise(build(), spec, reference, together)
    if phase == "canary":
        if task.canary is None:
            raise RuntimeError("canary was asked for without a module to break")
        return parity.check_canary(build, spec, reference, task.canary, together)
    return parity.check_parity(
        build,
        spec,
        reference,
        task.regions,
        task.noise_floor,
        plain.block_calls,
        together,
        task.budget,
        plain.compiled.replayed_ops if plain.compiled else 0,
    )


def pairs_to(say: Callable[..., None]) -> Callable[[Pair], None]:
    """Says each pair of updates as it is timed."""
    return lambda pair: say("pair", plain_s=pair.plain_s, candidate_s=pair.candidate_s)


def ready(job: Job, task: Assignment, seed: int) -> tuple[torch.optim.Optimizer, Applied]:
    """The job's optimizer and its plan, to be put on, with every random number generator seeded."""
    optimizer = optimizer_of(job, task.spec.optimizer)
    seed_everything(seed)
    return optimizer, partial(applied, job.model, task.regions, task.spec.checkpoint)
