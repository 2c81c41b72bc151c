"""A job that runs compiled: model and loss as one graph, under a plan that is traced into it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.traceback import annotate

from ..plans.apply import Applied, Call, Wrap, applied, shadowed, unchanging
from ..plans.names import Regions
from ..spec import CheckpointSettings, Compile, Region
from ..workloads.job import Job
from .backends import backend_of
from .graphs import BLOCK, PART, Graphs, break_replay, label_of

Tell = Callable[[int], None]
"""Told how far compiling a job has come, in percent."""
_HEARERS: list[Tell] = []


@contextmanager
def hearing_compiler(hear: Tell) -> Iterator[None]:
    """Within the context `hear` is told when a graph is traced and when one goes to the compiler: it may
    take minutes, in which nothing else is said."""
    _HEARERS.append(hear)
    try:
        yield
    finally:
        _HEARERS.remove(hear)


def _say(percent: int) -> None:
    for hear in _HEARERS:
        hear(percent)


@dataclass(frozen=True)
class CompiledJob:
    """A job whose forward is compiled at its first call, and what its graphs say."""

    job: Job
    put_on: Applied
    """Puts on what was traced, and is to be on whenever the job runs: the same functions each time."""
    graphs: Graphs


def compiled(
    job: Job,
    how: Compile,
    regions: Regions = (),
    checkpoint: CheckpointSettings | None = None,
    budget: int | None = None,
    broken: bool = False,
) -> CompiledJob:
    """`job` under a plan: regions, or a budget in percent. `broken` breaks every replay on purpose."""
    graphs = Graphs()

    def look(module: fx.GraphModule, is_backward: bool) -> None:
        _say(67 if is_backward else 33)
        if not is_backward:
            graphs.compiled += 1
            graphs.take_forward(module.graph)
            return
        graphs.take_backward(module.graph)
        if broken:
            if not break_replay(module.graph):
                raise RuntimeError(
                    "nothing is replayed in the backward graph, so no replay can be broken"
                )
            module.recompile()

    put_on = partial(_labelled, job, regions, checkpoint or CheckpointSettings())
    named = (*job.blocks, *(name for region in regions for name in region.modules))
    run = torch.compile(
        _whole(job), backend=backend_of(how.backend, budget, look), fullgraph=True, dynamic=False
    )
    return CompiledJob(
        job=replace(job, compiled=run),
        put_on=unchanging(map(job.model.get_submodule, named), put_on),
        graphs=graphs,
    )


def _whole(job: Job) -> Callable[..., tuple[Any, Tensor]]:
    """Model and loss as one function, of which dynamo makes one graph."""
    model, loss = job.model, job.loss

    def forward(*positional: Any, **named: Any) -> tuple[Any, Tensor]:
        output = model(*positional, **named)
        return output if loss is None else (output, loss(output))

    return forward


@contextmanager
def _labelled(job: Job, regions: Regions, checkpoint: CheckpointSettings) -> Iterator[None]:
    """The plan is on, and the ops of its regions and of all blocks are labelled as they are traced."""

    def telling(region: Region, wrap: Wrap) -> Wrap:
        label = label_of(regions, region)
        return lambda call: wrap(_labelling(label, call))

    with ExitStack() as stack:
        parts = (name for region in regions if len(region.modules) > 1 for name in region.modules)
        for kind, names in ((BLOCK, job.blocks), (PART, dict.fromkeys(parts))):
            for name in names:
                module = job.model.get_submodule(name)
                stack.enter_context(shadowed(module, "forward", _labelling(kind + name, module.forward)))
        stack.enter_context(applied(job.model, regions, checkpoint, telling=telling))
        yield


def _labelling(label: str, call: Call) -> Call:
    def labelling(*positional: Any, **named: Any) -> Any:
        with annotate({label: True}):
            return call(*positional, **named)

    return labelling
