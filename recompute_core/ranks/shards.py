"""Each rank's share of a batch: cut along dimension 0 into equal parts, in the order of ranks."""

from dataclasses import replace

from torch import Tensor

from ..workloads.job import Job, with_tensors
from ..workloads.rows import rows_to_share


def shard(job: Job, rank: int, count: int) -> Job:
    """The job with the share of its batch that one of `count` ranks trains on.

    Targets that a loss refers to are cut alike if they are as long as the batch. Raises InputError for a
    batch that cannot be cut.
    """
    rows = rows_to_share(job.batch, count)
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
