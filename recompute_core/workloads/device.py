"""Where a job runs: the local accelerator through `torch.accelerator`, or the CPU."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..spec import Device, Precision
from .job import Job


def pick_device(asked: Device) -> torch.device:
    """The device to run on; raises InputError when the one asked for is not there."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if asked == "cpu" or (asked == "auto" and accelerator is None):
        return torch.device("cpu")
    if accelerator is None or asked not in ("auto", accelerator.type):
        there = accelerator.type if accelerator else "none"
        raise InputError(f"device: no {asked} on this machine (accelerator here: {there})")
    return accelerator


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocator had no more to give, the accelerator's or the CPU's."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(
        error
    )


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished what was queued on it; nothing to wait for on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def cast(job: Job, precision: Precision) -> Job:
    """The job with its parameters, its buffers and the floating tensors of its batch in `precision`.

    Replaces the model's tensors one by one, tied ones once: `Module.to` cannot do it on fake tensors.
    """
    dtype: torch.dtype = getattr(torch, precision)
    made: dict[Tensor, Tensor] = {}

    def converted(tensor: Tensor | None) -> Any:
        if tensor is None or not tensor.is_floating_point() or tensor.dtype == dtype:
            return tensor
        if tensor not in made:
            plain = tensor.detach().to(dtype)
            is_parameter = isinstance(tensor, nn.Parameter)
            made[tensor] = nn.Parameter(plain, tensor.requires_grad) if is_parameter else plain
        return made[tensor]

    for module in job.model.modules():
        for kept in (module._parameters, module._buffers):
            kept.update({name: converted(tensor) for name, tensor in kept.items()})
    return replace(job, batch=tuple(map(converted, job.batch)))


def move(job: Job, device: torch.device) -> Job:
    """The job with its model and batch on `device`."""
    if device.type == "cpu":
        return job
    return replace(job, model=job.model.to(device), batch=tuple(t.to(device) for t in job.batch))
