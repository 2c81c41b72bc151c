"""What data parallel training computes, in one process and without any distributed code.

The truth that training over ranks is compared with. For each rank a fresh model runs forward and
backward on its share of the batch, under its own seed, as a trainer's ranks do; gradients are the mean
over ranks, and one step of the optimizer follows. What differs between ranks is kept for each of them,
under a name that ends with the rank.
"""

from torch import nn

from ..checks.parity import Build
from ..checks.snapshot import Observed, Snapshot, fixed_update
from ..spec import StudySpec
from ..words import count as count_of
from ..workloads.update import optimizer_of
from .shards import shard

SHARED = ("grad", "weight")
"""Parts of a snapshot that every rank has alike; all others are each rank's own. Buffers are too: DDP
broadcasts rank 0's before the next forward, and FSDP2 never does."""


def rank_seed(seed: int, rank: int) -> int:
    """The seed of a rank's random numbers: ranks of a trainer do not draw the same dropout."""
    return (seed + rank) % 2**63


def global_update(build: Build, spec: StudySpec, count: int) -> tuple[Observed, nn.Module]:
    """The first update of `count` ranks, and the model that the optimizer's step was made on.

    `build` makes the job of the whole batch. Raises RuntimeError where ranks call blocks differently.
    """
    tensors: Snapshot = {}
    means: Snapshot = {}
    calls: dict[str, int] = {}
    flops = 0
    for rank in range(count):
        found = fixed_update(shard(build(), rank, count), spec.optimizer, rank_seed(spec.seed, rank))
        calls = calls or found.block_calls
        _check_calls(found.block_calls, calls, rank)
        add_gradients(means, found.tensors, count)
        tensors |= {own_name(k, rank): kept for k, kept in found.tensors.items() if not is_shared(k)}
        flops += found.flops
        del found  # its model, gradients and moments: one rank's are alive at a time
    job = build()
    optimizer = optimizer_of(job, spec.optimizer)
    for name, parameter in job.model.named_parameters():
        mean = means.get(f"grad/{name}")
        parameter.grad = None if mean is None else mean.to(parameter.device)
    optimizer.step()
    tensors |= means
    for name, parameter in job.model.named_parameters():
        tensors[f"weight/{name}"] = parameter.detach().to("cpu", copy=True).contiguous()
    return Observed(tensors=tensors, block_calls=calls, flops=flops, optimizer=optimizer), job.model


def _check_calls(found: dict[str, int], first: dict[str, int], rank: int) -> None:
    for block, calls in found.items():
        if calls != first[block]:
            raise RuntimeError(
                f"{block} is called {count_of(calls, 'time')} on rank {rank} and "
                f"{count_of(first[block], 'time')} on rank 0: ranks whose work differs are not compared"
            )


def add_gradients(means: Snapshot, of_rank: Snapshot, count: int) -> None:
    """Add one rank's share to the mean of each gradient over `count` ranks.

    Each is divided by their number and then added up in the order of ranks, in its own type, as DDP
    does it.
    """
    for key, tensor in of_rank.items():
        if key.startswith("grad/"):
            part = tensor / count
            means[key] = means[key] + part if key in means else part


def is_shared(key: str) -> bool:
    """Whether every rank has this tensor alike."""
    return key.partition("/")[0] in SHARED


def own_name(key: str, rank: int) -> str:
    """`output/0` as `output/0 of rank 1`, `loss/` as `loss/of rank 1`."""
    part, _, name = key.partition("/")
    return f"{part}/" + f"{name} of rank {rank}".lstrip()


def view_of(reference: Snapshot, rank: int) -> Snapshot:
    """What one rank is compared with: what all have alike, and its own under the plain names."""
    mine: Snapshot = {}
    for key, tensor in reference.items():
        if is_shared(key):
            mine[key] = tensor
        elif key == own_name(plain := _plain_name(key), rank):
            mine[plain] = tensor
    return mine


def _plain_name(key: str) -> str:
    return key.rpartition("of rank ")[0].rstrip()
