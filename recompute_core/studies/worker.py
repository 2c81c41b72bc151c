"""The worker: does one task in a process of its own and says what happens as JSON lines."""

import json
import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict

from ..results import ParityPassed, Record, Reference, RngUsed
from ..spec import Region, StudySpec
from .environment import check_same_environment, describe_environment
from .flow import module_names
from .store import Phase


class Assignment(BaseModel):
    """One task as it travels to the worker."""

    model_config = ConfigDict(frozen=True)

    spec: StudySpec
    shape: dict[str, int]
    regions: tuple[Region, ...]
    """What the plan recomputes; empty for plain, and where a compiler chooses."""
    budget: int | None = None
    """The percentage of a plan that leaves it to the compiler what is recomputed."""
    phases: tuple[Phase, ...]
    home: Path
    reference: Path
    """Where the reference of this shape is kept."""
    trace: Path | None = None
    """Where the memory phase keeps its trace."""
    history: Path | None = None
    """Where it keeps the allocator's history, on CUDA."""
    plain: Reference | None = None
    """What the reference phase found; None while it is still to be run."""
    environment: dict[str, Any] = {}
    """What the study's earlier phases were measured on; empty before the first."""
    proof: ParityPassed | None = None
    noise_floor: float | None = None
    canary: str | None = None
    """FQN of the module whose replay is broken in the canary."""

    @property
    def reads(self) -> tuple[Path, ...]:
        """The files that it needs."""
        compared = {"noise", "canary", "parity"}.intersection(self.phases)
        return (self.reference,) if self.plain is not None and compared else ()

    @property
    def writes(self) -> tuple[Path, ...]:
        """The files that it may make."""
        kept = [self.reference] if "reference" in self.phases else []
        of_memory = [self.trace, self.history] if "memory" in self.phases else []
        return (*kept, *(path for path in of_memory if path is not None))

    def moved(self, home: Path, folder: Path) -> "Assignment":
        """The same task where another folder keeps its files."""
        files = {"reference": self.reference, "trace": self.trace, "history": self.history}
        there = {name: path and folder / path.name for name, path in files.items()}
        return self.model_copy(update={"home": home, **there})


def work(assignment: Assignment, out: TextIO) -> None:
    """Do every phase in order; stop at the first that fails."""

    def say(kind: str, **data: Any) -> None:
        out.write(json.dumps({"kind": kind, **data}, allow_nan=False) + "\n")
        out.flush()

    phases = list(assignment.phases)
    while phases:
        phase = phases.pop(0)
        together = _together(assignment, phase, phases)
        if together:
            if not _on_ranks(assignment, together, say):
                return
            del phases[: len(together) - 1]
            continue
        say("start", phase=phase)
        try:
            with _compiler_heard(assignment.spec, partial(say, phase=phase)):
                found = _do(phase, assignment, partial(say, phase=phase))
            if isinstance(found, Reference):
                assignment = assignment.model_copy(update={"plain": found})
            payload = found.model_dump(mode="json", by_alias=True)
            json.dumps(payload, allow_nan=False)
        except Exception as error:
            traceback.print_exc()
            say("failed", phase=phase, reason=reason_of(error))
            return
        say("done", phase=phase, payload=payload)


def _compiler_heard(spec: StudySpec, say: Callable[..., None]) -> AbstractContextManager[None]:
    """Progress of the compiler, which may be busy for longer than a worker may be silent."""
    if spec.compile is None:
        return nullcontext()
    from ..compiled.job import hearing_compiler

    return hearing_compiler(lambda percent: say("progress", what="compiling", percent=percent))


_OVER_RANKS: tuple[Phase, ...] = ("noise", "canary", "parity", "memory", "time")
"""The phases that are done by all ranks of a study that has them; the others by this process alone."""


def _together(task: Assignment, phase: Phase, later: Sequence[Phase]) -> tuple[Phase, ...]:
    """This phase and those right after it that one launch of the ranks does; none for our own.

    What each rank allocates is known in a fresh process alone, so memory is by itself.
    """
    if task.spec.ranks is None or phase not in _OVER_RANKS:
        return ()
    checks = takewhile(lambda one: one in ("canary", "parity"), later)
    return (phase, *checks) if phase in ("noise", "canary") else (phase,)


_RANK = f"{__package__}.rank_member"
"""The module that a rank runs."""


def _on_ranks(task: Assignment, phases: tuple[Phase, ...], say: Callable[..., None]) -> bool:
    """Have the ranks do these phases; whether they could."""
    from ..ranks.launch import RankFailed, run_ranks
    from ..ranks.starting import Starting

    assert task.spec.ranks is not None
    count = task.spec.ranks.count
    left = list(phases)
    begun = phases[0]
    say("start", phase=begun)  # starting the ranks belongs to it

    def heard(kind: str, phase: Phase, **data: Any) -> None:
        nonlocal begun
        if kind == "done":
            left.remove(phase)
        if kind != "start" or phase != begun:
            begun = phase
            say(kind, phase=phase, **data)

    def started(number: int) -> None:
        percent = 100 * number // count
        say("progress", phase=begun, what=f"starting {count} ranks", percent=percent)

    alone = task.model_copy(update={"phases": phases})
    starting = Starting(count, task.spec.silence_s, started)
    try:
        run_ranks(_RANK, alone.model_dump_json(), count, heard, starting.heard)
    except (RankFailed, OSError) as error:
        reason = str(error) if isinstance(error, RankFailed) else reason_of(error)
        if left and left[0] != begun:
            say("start", phase=left[0])
        if left:  # a rank that comes to grief with all its work done has still done it
            say("failed", phase=left[0], reason=reason)
    return not left


def set_threads(spec: StudySpec) -> None:
    """The threads that are asked for; without a word torch's own choice, shared out among ranks."""
    import torch

    if spec.threads:
        torch.set_num_threads(spec.threads)
    elif spec.ranks:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // spec.ranks.count))


def _do(phase: Phase, task: Assignment, say: Callable[..., None]) -> Record:
    from .. import workloads
    from ..workloads.device import cast, move, pick_device, repeat_itself

    spec = task.spec
    set_threads(spec)
    device = pick_device(spec.device)
    settings = spec.at(task.shape)

    def build() -> Any:
        return move(cast(workloads.build(settings, spec.seed, task.home), spec.precision), device)

    here = describe_environment(device, spec.ranks)
    if spec.compile is not None:
        from ..compiled.process import prepare_compiler

        is_first = phase == "reference"
        here |= prepare_compiler(spec.compile.backend, task.home, device.type, trim=is_first)
    check_same_environment(task.environment, here)
    if device.type != "cpu" and phase in ("reference", "noise", "canary", "parity"):
        repeat_itself()  # costs are measured with what the machine is set to
    if phase == "reference":
        if spec.ranks:
            from ..ranks.devices import check_devices

            check_devices(device, spec.ranks)
        say("environment", data=here)
        workloads.prepare(settings, task.home, _every_percent(say))
        return _reference(build, task)
    if phase == "legality":
        from ..checks.legality import check_legality

        inside = [name for plan in spec.plans for name in module_names(spec, plan)]
        return check_legality(build(), spec.checkpoint, spec.seed, inside)
    if phase in ("noise", "canary", "parity"):
        from ..checks import snapshot
        from .phases import check, plain_of, same_batch

        plain = plain_of(phase, task)
        reference = snapshot.load(task.reference, plain.digest)
        return check(phase, lambda: same_batch(build(), plain), spec, task, reference)
    return _cost(phase, build, task, say)


def _reference(build: Callable[[], Any], task: Assignment) -> Record:
    from ..checks.parity import plain_update
    from ..checks.revisions import factory_of, revisions_of
    from ..checks.snapshot import describe_batch, describe_optimizer, fingerprints, save

    spec = task.spec
    job = build()
    batch_digest, batch = job.batch_digest, describe_batch(job)
    parameters = sum(parameter.numel() for parameter in job.model.parameters())
    model = job.model
    if spec.ranks is None:
        found = plain_update(job, spec)
    else:
        from ..ranks.reference import global_update

        found, model = global_update(build, spec, spec.ranks.count)
    losses = [float(tensor) for key, tensor in found.tensors.items() if key.startswith("loss/")]
    loss = sum(losses) / len(losses)
    if not loss == loss or abs(loss) == float("inf"):
        raise ArithmeticError(f"the plain update itself gives a loss of {loss}")
    return Reference(
        loss=loss,
        tensors=len(found.tensors),
        digest=save(found.tensors, task.reference),
        batch_digest=batch_digest,
        data_digest=job.data_digest,
        parameters=parameters,
        block_calls=found.block_calls,
        flops=found.flops,
        envelope_flops=None if job.tokens is None else 6 * parameters * job.tokens,
        blocks=job.blocks,
        revisions=revisions_of(job.model, job.blocks, factory_of(spec.workload)),
        optimizer=describe_optimizer(model, found.optimizer),
        rng=RngUsed(policy=spec.checkpoint.rng, seed=spec.seed),
        batch=batch,
        fingerprints=fingerprints(found.tensors),
        compiled=found.graphs and found.graphs.record(),
    )


def _cost(phase: Phase, build: Callable[[], Any], task: Assignment, say: Callable[..., None]) -> Record:
    from ..meters.memory import measure_memory
    from ..meters.timing import measure_time
    from .phases import pairs_to, proof_of, ready

    proof = proof_of(phase, task)
    if task.spec.compile is not None:
        return _compiled_cost(phase, build(), task, proof, say)
    job = build()
    optimizer, put_on = ready(job, task, task.spec.seed)
    if phase == "memory":
        return measure_memory(job, optimizer, put_on, proof, task.trace, task.history)
    return measure_time(
        job,
        optimizer,
        put_on,
        task.spec.timing,
        proof,
        pairs_to(say),
    )


def _compiled_cost(
    phase: Phase, job: Any, task: Assignment, proof: ParityPassed, say: Callable[..., None]
) -> Record:
    from ..compiled.costs import compiled_memory, compiled_time
    from ..compiled.job import compiled
    from ..workloads.update import optimizer_of, seed_everything
    from .phases import pairs_to

    spec = task.spec
    assert spec.compile is not None
    optimizer = optimizer_of(job, spec.optimizer)
    candidate = compiled(job, spec.compile, task.regions, spec.checkpoint, task.budget)
    seed_everything(spec.seed)
    if phase == "memory":
        return compiled_memory(candidate, optimizer, proof, task.trace)
    return compiled_time(
        compiled(job, spec.compile),
        candidate,
        optimizer,
        spec.timing,
        proof,
        pairs_to(say),
    )


def _every_percent(say: Callable[..., None]) -> Callable[[int, int], None]:
    """Progress on the data set, said once a percent."""
    said = -1

    def progress(done: int, total: int) -> None:
        nonlocal said
        if (percent := 100 * done // total) > said:
            said = percent
            say("progress", what="making the receipt photos", percent=percent)

    return progress


def reason_of(error: BaseException) -> str:
    """Why a task failed, in one line."""
    from ..workloads.device import first_line, is_out_of_memory, one_line, out_of_memory_words

    cause = _beneath_compiler(error)
    if is_out_of_memory(cause):
        return out_of_memory_words(str(cause))
    if type(cause).__module__.startswith("torch._dynamo."):
        from torch._dynamo.exc import Unsupported

        if isinstance(cause, Unsupported):
            return f"the model does not compile as one graph: {first_line(str(cause))}"
    words = one_line(cause)
    if type(cause).__module__ == "torch._inductor.exc":
        words += _said_by_cxx(getattr(cause, "output", ""))
    return words if cause is error else f"the compiler failed: {words}"


def _beneath_compiler(error: BaseException) -> BaseException:
    """What went wrong while a graph was compiled, which the compiler wraps in errors of its own."""
    while isinstance(inner := getattr(error, "inner_exception", None), BaseException):
        error = inner
    return error


def _said_by_cxx(output: str) -> str:
    """The first error among what the C++ compiler said; else its first line."""
    lines = output.strip().splitlines()[:1000]
    said = next((line for line in lines if "error" in line.lower()), "".join(lines[:1]))
    return f": {said.strip()[:300]}" if said else ""
