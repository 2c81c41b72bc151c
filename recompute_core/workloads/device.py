"""Where a job runs: the local accelerator through `torch.accelerator`, or the CPU."""

import os
import re
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..errors import InputError, kind_and_words
from ..spec import Device, Precision
from .job import Job, with_tensors


def pick_device(asked: Device) -> torch.device:
    """The device to run on; raises InputError when the one asked for is not there."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if asked == "cpu" or (asked == "auto" and accelerator is None):
        return torch.device("cpu")
    if accelerator is None or asked not in ("auto", accelerator.type):
        there = accelerator.type if accelerator else "none"
        raise InputError(f"device: no {asked} on this machine (accelerator here: {there})")
    return accelerator


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator had no more to give, the accelerator's or the CPU's."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        said in str(error) for said in _SAID_WITHOUT_A_CLASS
    )


_SAID_WITHOUT_A_CLASS = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
"""By the CPU's allocator; by the driver beside torch's allocator; by cuBLAS and cuDNN."""
_ASKED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
_THERE = re.compile(r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free")


def out_of_memory_words(text: str) -> str:
    """What was asked for and what there was, where the allocator says so; else its own first line."""
    asked, there = _ASKED.search(text), _THERE.search(text)
    if asked and there:
        return f"out of memory: {asked[1]} asked for, {there[2]} of {there[1]} free"
    return f"out of memory: {first_line(text)}"


def one_line(error: BaseException) -> str:
    """The first line of what an error says, after its kind where it is none of ours."""
    return first_line(kind_and_words(error))


def first_line(text: str) -> str:
    return text.strip().split("\n")[0][:300]


CHECKS_WORKSPACE = os.environ.get("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""cuBLAS's workspace in checks: without a fixed one its products may differ from run to run."""


def repeat_itself() -> None:
    """From now on equal updates in this process give equal bits, as far as the device's kernels can.

    Called before the first product, which starts cuBLAS: it reads its workspace then. What has no
    deterministic kernel warns and runs; plain against plain shows how much that is.
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = CHECKS_WORKSPACE
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False


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

    def converted(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point() or tensor.dtype == dtype:
            return tensor
        if tensor not in made:
            made[tensor] = tensor.detach().to(dtype)
        return made[tensor]

    if precision == "float32" and job.loss is not None:
        return job  # somebody's own model has the types it was made with, unless others are asked for
    replace_tensors(job.model, converted)
    return replace(job.with_batch(converted), loss=with_tensors(job.loss, converted))


def replace_tensors(model: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Put `change(tensor)` in the place of every parameter and buffer; a parameter stays a parameter.

    Tied ones stay tied if `change` gives the same for the same.
    """
    parameters: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, old in module._parameters.items():
            if old is not None:
                if old not in parameters:
                    new = change(old)
                    parameters[old] = old if new is old else nn.Parameter(new, old.requires_grad)
                module._parameters[name] = parameters[old]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = change(buffer)


def move(job: Job, device: torch.device) -> Job:
    """The job with its model and batch on `device`."""
    if device.type == "cpu":
        return job

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device)

    job = replace(job.with_batch(moved), loss=with_tensors(job.loss, moved))
    return replace(job, model=job.model.to(device))
