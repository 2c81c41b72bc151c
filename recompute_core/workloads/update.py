"""The one update that every check and every meter runs, the same for plain and candidate.

Gradients stay allocated between updates and are zeroed in place, as in every microbatch but the
first of an accumulated update: they belong to the state and not to the activations.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..results import StateParts
from ..spec import OptimizerSettings
from .job import Job, own_share

Mark = Callable[[str], None]
"""Told when a phase or a block begins."""


def unmarked(label: str) -> None:
    """A mark that nobody looks at."""


def seed_everything(seed: int) -> None:
    """Seed torch on every device, NumPy and `random`."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trainable, lr=settings.lr, weight_decay=settings.weight_decay)


def optimizer_of(job: Job, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """The job's own optimizer, or AdamW with these settings."""
    return job.optimizer(job.model) if job.optimizer else make_optimizer(job.model, settings)


def allocate_state(optimizer: torch.optim.Optimizer) -> None:
    """Make gradients and the optimizer's moments exist without moving a weight.

    So that their allocation, which the first real update would do, is not taken for activations.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def update(job: Job, optimizer: torch.optim.Optimizer, mark: Mark = unmarked) -> tuple[Any, Tensor]:
    """One whole update; returns output and loss. `mark` is told when each phase begins."""
    output, loss = gradients(job, optimizer, mark)
    mark("optimizer")
    optimizer.step()
    return output, loss


def gradients(job: Job, optimizer: torch.optim.Optimizer, mark: Mark = unmarked) -> tuple[Any, Tensor]:
    """The update up to the optimizer's step; returns output and loss."""
    mark("zero_grad")
    optimizer.zero_grad(set_to_none=False)
    mark("forward")
    output, loss = job.forward()
    mark("backward")
    loss.backward()  # type: ignore[no-untyped-call]
    return output, loss


def state_tensors(job: Job, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Everything alive between updates: parameters, gradients, moments, buffers, inputs."""
    return [tensor for part in _state(job, optimizer) for tensor in part]


def state_parts(job: Job, optimizer: torch.optim.Optimizer) -> StateParts:
    """Bytes of what is alive between updates; a storage that two parts share counts in the first."""
    seen: set[int] = set()
    sizes = []
    for part in _state(job, optimizer):
        fresh = [tensor for tensor in part if storage_of(tensor) not in seen]
        sizes.append(storage_bytes(fresh))
        seen.update(map(storage_of, fresh))
    return StateParts(parameters=sizes[0], gradients=sizes[1], optimizer=sizes[2], other=sizes[3])


def _state(job: Job, optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], ...]:
    """This process's share of parameters; gradients; what the optimizer keeps; buffers and inputs."""
    parameters: list[Tensor] = list(job.model.parameters())
    gradients = [own_share(p.grad) for p in parameters if p.grad is not None]
    moments = [
        own_share(value)
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]
    return [*map(own_share, parameters)], gradients, moments, [*job.model.buffers(), *job.inputs]


def storage_bytes(tensors: list[Tensor]) -> int:
    """Bytes of the distinct storages behind `tensors`."""
    return sum({storage_of(t): t.untyped_storage().nbytes() for t in tensors}.values())


def storage_of(tensor: Tensor) -> int:
    """The identity of a tensor's storage; a data pointer would do, but a fake tensor has none."""
    return int(tensor.untyped_storage()._cdata)
