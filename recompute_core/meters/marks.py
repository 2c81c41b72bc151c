"""Marks that tell a meter what runs: a block's forward, its replay, its backward; a region's replay."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ..plans.apply import Call, happening, shadowed
from ..workloads.job import Job
from ..workloads.update import Mark

BLOCK, REPLAY, BACK, END = "block ", "replay ", "backward of ", "end of "
PHASES = ("zero_grad", "forward", "backward", "optimizer")
REGION, REGION_END = "a region again", "a region was run again"


@contextmanager
def marked_blocks(job: Job, mark: Mark) -> Iterator[None]:
    """Within the context `mark` is told when a block's forward, replay or backward begins, or that of a
    module outside the blocks that may be recomputed too.

    Put it on before a plan, so that a plan of the variant `forward` wraps the marks and replays show.
    """
    with ExitStack() as stack:
        for name in (*job.outside, *job.blocks):
            module = job.model.get_submodule(name)
            stack.enter_context(shadowed(module, "forward", _marking(name, module.forward, mark)))
        yield


def _marking(name: str, call: Call, mark: Mark) -> Call:
    seen = False

    def marking(*args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        first, seen = not seen, True
        mark((BLOCK if first else REPLAY) + name)
        result = call(*args, **kwargs)
        if first:
            mark(END + name)
            _mark_backward(name, result, mark)
        return result

    return marking


def _mark_backward(name: str, result: Any, mark: Mark) -> None:
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            leaf.register_hook(lambda _: mark(BACK + name))  # type: ignore[no-untyped-call]
            return


@contextmanager
def marked_replays(mark: Mark) -> Iterator[None]:
    """Within the context `mark` is told when the replay of a plan's region begins and when it ends."""

    @contextmanager
    def marking() -> Iterator[None]:
        mark(REGION)
        try:
            yield
        finally:  # a replay that has all it needs stops early, by an exception
            mark(REGION_END)

    with happening(marking):
        yield
