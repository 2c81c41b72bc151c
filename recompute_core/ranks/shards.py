"""Each rank's share of a batch: cut along dimension 0 into equal parts, in the order of ranks."""

from dataclasses import replace

from torch import Tensor

from ..errors import InputError
from ..workloads.job import Job, named_tensors, with_tensors


def shard(job: Job, rank: int, count: int) -> Job:
    """The job with the share of its batch that one of `count` ranks trains on.

    Targets that a loss refers to are cut alike if they are as long as the batch. Raises InputError for a
    batch that cannot be cut.
    """
    rows = _rows(job, count)
    share = slice(rank * rows // count, (rank + 1) * rows // count)

    def cut(tensor: Tensor) -> Tensor:
        return tensor.detach()[share].clone().requires_grad_(tensor.requires_grad)

    def cut_target(tensor: Tensor) -> Tensor:
        return cut(tensor) if tensor.dim() and len(tensor) == rows else tensor

    return replace(
        job.with_batch(cut),
        loss=with_tensors(job.loss, cut_target),
        tokens=None if job.tokens is None else job.tokens // count,
    )


def _rows(job: Job, count: int) -> int:
    """How long the batch is along dimension 0."""
    lengths = {name: len(given) if given.dim() else 0 for name, given in named_tensors(job.batch)}
    first, rows = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != rows or not length:
            raise InputError(
                f"ranks: the batch cannot be cut along dimension 0, where input {first} has {rows} rows "
                f"and input {name} {length}"
            )
    if rows % count:
        raise InputError(f"ranks.count: a batch of {rows} cannot be cut into {count} equal parts")
    return rows
