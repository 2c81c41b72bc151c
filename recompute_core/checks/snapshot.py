"""One fixed update, everything it leaves behind, and the comparison of two such snapshots.

A comparison is relative to each tensor's own largest value: an absolute tolerance alone passes
anything once the loss is scaled down. A missing tensor, another shape or dtype, or a value that is
not finite is a difference by itself.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ..compiled.graphs import Graphs
from ..meters.flops import FORMULAS
from ..plans.apply import Applied, Call, shadowed
from ..results import BatchTensor, Fingerprint, Gap, OptimizerUsed
from ..spec import OptimizerSettings
from ..workloads.job import Job, named_tensors, same_bits, tensors_digest, whole
from ..workloads.update import optimizer_of, seed_everything, update

Snapshot = dict[str, Tensor]
"""`part/name` -> tensor, for the parts of `results.Gap`."""


@dataclass(frozen=True)
class Observed:
    """A snapshot with what the update did to get there."""

    tensors: Snapshot
    block_calls: dict[str, int]
    """Forward calls of each block, replays included, by FQN."""
    flops: int
    optimizer: torch.optim.Optimizer
    """After its step."""
    graphs: Graphs | None = None
    """What a compiled update ran; None of one that was not compiled."""


def fixed_update(
    job: Job,
    settings: OptimizerSettings,
    seed: int,
    put_on: Applied = nullcontext,
    graphs: Graphs | None = None,
) -> Observed:
    """Run the first update of a freshly built job under `seed` and keep what it leaves.

    `put_on` puts a plan on the job's model; without it the update is plain. `graphs` are those of a job
    that is compiled: they tell what counters in Python, which do not run then, would count.
    """
    job = job.with_batch(_differentiable if job.loss is None else _as_given)
    optimizer = optimizer_of(job, settings)
    calls = dict.fromkeys(job.blocks, 0)
    entering = _EnteringGradient(job.model.get_submodule(job.blocks[0]))
    counter = FlopCounterMode(display=False, custom_mapping=FORMULAS)
    # Counting comes first, so that a plan of the variant `forward` wraps it and replays are counted.
    with ExitStack() as stack:
        if graphs is None:
            stack.enter_context(_counted(job, calls))
        stack.enter_context(put_on())
        if graphs is None:
            stack.enter_context(entering)
            stack.enter_context(counter)
        seed_everything(seed)
        output, loss = update(job, optimizer)
    changed = next((name for name, given in named_tensors(job.batch) if given._version), None)
    if changed is not None:
        raise RuntimeError(
            f"the model changes its batch in place (input {changed}), so that no two updates are alike; "
            "change a copy"
        )
    tensors: Snapshot = {"loss/": loss.detach(), "rng/torch": torch.get_rng_state()}
    for index, leaf in enumerate(tree_leaves(output)):
        if isinstance(leaf, Tensor):
            tensors[f"output/{index}"] = leaf.detach()
    for name, given in named_tensors(job.batch):
        if given.grad is not None:
            tensors[f"input_grad/input {name}"] = given.grad
    if entering.gradient is not None:
        tensors[f"input_grad/input of {job.blocks[0]}"] = entering.gradient
    for name, parameter in job.model.named_parameters():
        tensors[f"weight/{name}"] = parameter.detach()
        if parameter.grad is not None:
            tensors[f"grad/{name}"] = parameter.grad
    for name, buffer in job.model.named_buffers():
        tensors[f"buffer/{name}"] = buffer.detach()
    if job.device.type != "cpu":
        tensors["rng/device"] = torch.get_device_module(job.device).get_rng_state()
    tensors["rng/random"] = _hashed(repr(random.getstate()))
    tensors["rng/numpy"] = _hashed(repr(np.random.get_state(legacy=False)))
    return Observed(
        tensors={key: _kept(tensor) for key, tensor in tensors.items()},
        block_calls={} if graphs else calls,
        flops=graphs.flops if graphs else counter.get_total_flops(),
        optimizer=optimizer,
        graphs=graphs,
    )


def describe_batch(job: Job) -> tuple[BatchTensor, ...]:
    """The shape and type of every tensor of a job's batch."""
    return tuple(
        BatchTensor(name=name, shape=tuple(given.shape), dtype=str(given.dtype).removeprefix("torch."))
        for name, given in named_tensors(job.batch)
    )


def describe_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> OptimizerUsed:
    """The optimizer's class and settings, and a digest of its state, named by the model's parameters."""
    state = [
        (f"{name}/{part}", value)
        for name, parameter in model.named_parameters()
        for part, value in sorted(optimizer.state.get(parameter, {}).items())
        if isinstance(value, Tensor)
    ]
    return OptimizerUsed(
        name=type(optimizer).__name__,
        settings={name: _plain(value) for name, value in optimizer.defaults.items()},
        state_digest=tensors_digest(sorted(state)),
    )


def _plain(value: Any) -> Any:
    """A setting as it can be written down."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    is_numbers = isinstance(value, tuple) and all(isinstance(one, int | float) for one in value)
    return value if is_numbers else str(value)


def fingerprints(tensors: Snapshot) -> tuple[Fingerprint, ...]:
    """A line for each tensor, from which another update's difference can be told and bounded."""
    return tuple(_fingerprint(name, tensor) for name, tensor in tensors.items())


def _fingerprint(name: str, tensor: Tensor) -> Fingerprint:
    norm = largest = None
    if tensor.is_floating_point() or tensor.is_complex():
        size = tensor.abs() if tensor.is_complex() else tensor
        norm = _finite(torch.linalg.vector_norm(size, dtype=torch.float64))
        largest = _finite(torch.stack(size.aminmax()).abs().max()) if size.numel() else 0.0
    digest = tensors_digest([("", tensor)]).removeprefix("sha256:")
    return Fingerprint(name=name, sha256=digest, norm=norm, largest=largest)


def _finite(value: Tensor) -> float | None:
    return float(value) if isfinite(value) else None


def _kept(tensor: Tensor) -> Tensor:
    """A copy of its own on the CPU: what is kept must share no memory."""
    return whole(tensor.detach()).to("cpu", copy=True).contiguous()


def save(tensors: Snapshot, path: Path) -> str:
    """Keep a snapshot as safetensors; returns its digest. Never leaves a half-written file."""
    partial = path.with_suffix(".partial")
    try:
        save_file(tensors, partial)
        partial.replace(path)
    except SafetensorError as error:
        raise OSError(f"the reference cannot be written; is the disk of {path.parent} full?") from error
    finally:
        partial.unlink(missing_ok=True)
    return tensors_digest(sorted(tensors.items()))


def load(path: Path, digest: str) -> Snapshot:
    """The snapshot kept by `save` under this digest; raises RuntimeError when it is another."""
    tensors: Snapshot = load_file(path)
    if tensors_digest(sorted(tensors.items())) != digest:
        raise RuntimeError(f"{path.name} is not the reference that this study recorded")
    return tensors


def compare(reference: Snapshot, found: Snapshot) -> tuple[Gap, ...]:
    """The gap of every tensor that either side has, in the reference's order."""
    keys = [*reference, *(key for key in found if key not in reference)]
    return tuple(_gap(key, reference.get(key), found.get(key)) for key in keys)


def _gap(key: str, reference: Tensor | None, found: Tensor | None) -> Gap:
    part, _, name = key.partition("/")
    if part == "buffer" and same_bits(reference, found):  # a mask may hold infinities
        return Gap(part=part, name=name, absolute=0.0, relative=0.0)
    problem = _incomparable(reference, found)
    if problem or reference is None or found is None:
        return Gap(part=part, name=name, absolute=None, relative=None, problem=problem)
    if torch.equal(reference, found):
        return Gap(part=part, name=name, absolute=0.0, relative=0.0)
    wide = torch.complex128 if reference.is_complex() else torch.float64
    absolute = float((reference.to(wide) - found.to(wide)).abs().max())
    scale = float(reference.to(wide).abs().max())
    if scale == 0:
        problem = f"all zero in the reference, up to {absolute:.2g} here"
        return Gap(part=part, name=name, absolute=absolute, relative=None, problem=problem)
    if not isfinite(absolute / scale):
        return Gap(part=part, name=name, absolute=None, relative=None, problem="gap beyond any number")
    return Gap(part=part, name=name, absolute=absolute, relative=absolute / scale)


def _incomparable(reference: Tensor | None, found: Tensor | None) -> str | None:
    if reference is None or found is None:
        return "missing" if found is None else "not in the reference"
    if reference.shape != found.shape:
        return f"shape {tuple(found.shape)} instead of {tuple(reference.shape)}"
    if reference.dtype != found.dtype:
        return f"dtype {found.dtype} instead of {reference.dtype}"
    if reference.is_floating_point() or reference.is_complex():
        if not torch.isfinite(found).all():
            return "not finite"
        if not torch.isfinite(reference).all():
            return "not finite in the reference"
    return None


def _as_given(tensor: Tensor) -> Tensor:
    """A copy. A mask or a target that required a gradient would send attention to another kernel."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _differentiable(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.detach().clone().requires_grad_()
    return tensor


def _hashed(text: str) -> Tensor:
    return torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)


class _EnteringGradient:
    """Keeps the gradient that arrives at a block's first floating input."""

    def __init__(self, block: nn.Module) -> None:
        self.gradient: Tensor | None = None
        self._block = block
        self._seen = False

    def __enter__(self) -> "_EnteringGradient":
        self._handle = self._block.register_forward_pre_hook(self._enter, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def _enter(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._seen:
            return
        self._seen = True
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                leaf.register_hook(self._keep)  # type: ignore[no-untyped-call]
                return

    def _keep(self, gradient: Tensor) -> None:
        self.gradient = gradient.detach().clone()


@contextmanager
def _counted(job: Job, calls: dict[str, int]) -> Iterator[None]:
    """Counts the forward calls of each block, replays included."""
    with ExitStack() as stack:
        for name in job.blocks:
            module = job.model.get_submodule(name)
            stack.enter_context(shadowed(module, "forward", _counting(name, module.forward, calls)))
        yield


def _counting(name: str, call: Call, calls: dict[str, int]) -> Call:
    def counting(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return call(*args, **kwargs)

    return counting
