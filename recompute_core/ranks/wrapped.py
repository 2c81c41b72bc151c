"""A job's model inside DDP or FSDP2, with the plan inside the wrapper: recompute first, then shard.

DDP calls the model from outside and knows nothing of blocks. FSDP2 shards every block, then what is left
of the model, by hooks on those modules, and a plan goes on afterwards and comes off again. What that
means for a replay, tried with torch 2.13:

- `forward` recomputes inside a block's hooks, and its parameters are collected once for replay and
  backward together.
- `call` has the hooks in the region. In the backward of that block FSDP2 knows that it is there and
  leaves parameters, casts and the reduction alone, so that nothing is collected or reduced twice.
- Blocks recomputed as one are collected again one by one in their replay, by their hooks, as in forward:
  that is a second collection of all but the last. With `forward` the replay would skip the hooks of all
  but the first and meet parameters that are not collected, so `ranks.admission` refuses it.
- Parts of blocks have no hooks of their own and lie inside their block's.

All of these gave gradients equal to plain's to the last bit; parity looks at each study's own plan.
"""

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ..spec import Ranks
from ..workloads.job import Job

UPDATES_BEFORE = 2
"""Updates after which memory repeats itself: DDP sorts its buckets anew in the second forward, FSDP2
makes room for collected parameters in the first."""


def wrapped(job: Job, ranks: Ranks) -> Job:
    """The job, trained together with those of the other ranks."""
    if ranks.kind == "ddp":
        return replace(job, called=DistributedDataParallel(job.model))
    mesh = init_device_mesh(job.device.type, (ranks.count,))
    for name in job.blocks:
        fully_shard(job.model.get_submodule(name), mesh=mesh)
    fully_shard(job.model, mesh=mesh)
    return job


def collected_parameters(job: Job) -> list[Tensor]:
    """FSDP2's whole parameters, as forward sees them: their storages are kept, and empty between uses.
    Nothing under DDP. Every rank has to ask."""
    return list(_collected(job))


def _collected(job: Job) -> Iterator[Tensor]:
    for module in job.model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
            yield from [p for p in module.parameters() if not isinstance(p, DTensor)]
            module.reshard()


def buckets_bytes(job: Job) -> int:
    """What DDP's buckets hold: a copy of every gradient, for as long as the model lives."""
    if job.called is None:
        return 0
    trained = [p for p in job.model.parameters() if p.requires_grad]
    return sum(p.numel() * p.element_size() for p in trained)
