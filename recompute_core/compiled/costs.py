"""Memory and time of compiled updates. Compiling is never part of a figure: each path has run before."""

from collections.abc import Callable
from pathlib import Path

import torch

from ..meters.memory import measure_memory
from ..meters.timing import measure_pairs
from ..results import INTERLEAVED, Memory, Pair, ParityPassed, Timing
from ..spec import TimingSettings
from ..workloads.update import allocate_state, update
from .job import CompiledJob


def compiled_memory(
    compiled: CompiledJob, optimizer: torch.optim.Optimizer, proof: ParityPassed, trace: Path | None
) -> Memory:
    """One update of a compiled job; raises RuntimeError when it was compiled more than once."""
    found = measure_memory(compiled.job, optimizer, compiled.put_on, proof, trace)
    _check_compiled_once(compiled)
    return found


def compiled_time(
    plain: CompiledJob,
    candidate: CompiledJob,
    optimizer: torch.optim.Optimizer,
    settings: TimingSettings,
    proof: ParityPassed,
    tell: Callable[[Pair], None] = lambda pair: None,
) -> Timing:
    """Pairs of compiled updates, plain's and the candidate's, of one model in one process.

    Raises RuntimeError when one of the two was compiled again: that pair would hold a compiler's time.
    """
    if not proof.passed:
        raise RuntimeError("time may be measured only after parity has passed")
    allocate_state(optimizer)

    def told(pair: Pair) -> None:
        _check_compiled_once(plain)
        _check_compiled_once(candidate)
        tell(pair)

    found = measure_pairs(
        lambda: update(plain.job, optimizer),
        lambda: update(candidate.job, optimizer),
        candidate.put_on,
        candidate.job.device,
        settings,
        told,
        plain_applied=plain.put_on,
    )
    return found.model_copy(update={"source": found.source.replace(INTERLEAVED, _BOTH_COMPILED)})


_BOTH_COMPILED = "interleaved whole updates, both compiled, one process"
"""In the place of `INTERLEAVED`; what the meter says of its clock stands behind it as ever."""


def _check_compiled_once(compiled: CompiledJob) -> None:
    if compiled.graphs.compiled != 1:
        raise RuntimeError(
            f"the update was compiled {compiled.graphs.compiled} times while it was measured: something "
            "in the model changes from update to update"
        )
