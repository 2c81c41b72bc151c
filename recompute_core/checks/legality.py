"""Is each block safe to replay? Found by replaying it, never by its class name.

Each block is run again on the inputs of a plain forward, and everything a second forward may
disturb is compared: buffers, what Python code can change (`python_state`), inputs, random generators,
and its own output. Covers one plain training forward; contexts left before backward are not covered
here, parity has to catch what they do, and `blocks.check_blocks` tries them.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from ..results import BlockLegality, Legality, Reason
from ..spec import CheckpointSettings
from ..workloads.device import is_out_of_memory
from ..workloads.job import Job, same_bits
from ..workloads.update import seed_everything
from . import python_state
from .causes import GENERATORS, STATISTICS

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def check_legality(
    job: Job, settings: CheckpointSettings, seed: int, inside: Iterable[str] = ()
) -> Legality:
    """The verdict on every candidate block, and on what may be recomputed outside them.

    Where a block is not legal, those of the modules `inside` that lie in it have a verdict of their own.
    The job's model is used up by it.
    """
    found = check_modules(job, (*job.outside, *job.blocks), settings, seed)
    refused = [f"{one.block}." for one in found if one.verdict != "legal"]
    finer = tuple(name for name in dict.fromkeys(inside) if name.startswith(tuple(refused)))
    return Legality(blocks=(*found, *check_modules(job, finer, settings, seed)))


def check_modules(
    job: Job, names: tuple[str, ...], settings: CheckpointSettings, seed: int
) -> tuple[BlockLegality, ...]:
    """The verdict on each of these modules."""
    if not names:
        return ()
    arguments = _captured_arguments(job, names, seed)
    return tuple(_check_block(job, name, arguments.get(name), settings) for name in names)


def _captured_arguments(job: Job, names: tuple[str, ...], seed: int) -> dict[str, Arguments]:
    """What each block is called with in one plain forward, copied."""
    captured: dict[str, Arguments] = {}

    def capturing(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            captured.setdefault(name, tree_map(_copied, (args, kwargs)))

        return hook

    with ExitStack() as stack, torch.no_grad():
        for name in names:
            block = job.model.get_submodule(name)
            handle = block.register_forward_pre_hook(capturing(name), with_kwargs=True)
            stack.callback(handle.remove)
        seed_everything(seed)
        job.forward()
    return captured


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _check_block(
    job: Job, name: str, arguments: Arguments | None, settings: CheckpointSettings
) -> BlockLegality:
    model, device = job.model, job.device
    block = model.get_submodule(name)
    call = block.forward if settings.variant == "forward" else block
    if arguments is None:
        reason = Reason(code="not_called", block=name, sentence=f"{name} is not called in forward.")
        return BlockLegality(block=name, verdict="error", reasons=(reason,))
    args, kwargs = arguments
    before = _State(model)
    versions = _versions(arguments)
    try:
        with _random_state_kept(device) as changed, torch.no_grad():
            first = tree_map(_copied, call(*args, **kwargs))
            drawn = changed()
        after = _State(model)
        with _random_state_kept(device), torch.no_grad():
            second = call(*args, **kwargs)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        sentence = f"{name}: running it again raises {type(error).__name__}: {_first_line(error)}"
        reason = Reason(code="replay_raises", block=name, sentence=sentence)
        return BlockLegality(block=name, verdict="error", reasons=(reason,))
    reasons = [
        *_changed_buffers(name, before, after),
        *_changed_places(name, before, after),
    ]
    if _versions(arguments) != versions:
        sentence = (
            f"{name} changes its input in place, so a replay starts from other values; "
            "make the change out of place."
        )
        reasons.append(Reason(code="input_changed", block=name, sentence=sentence))
    for generator in ("random", "numpy"):
        if generator in drawn:
            sentence = (
                f"{name} draws from {GENERATORS[generator]}, whose state checkpoint does not "
                "restore; a replay draws other numbers. Use torch's generator."
            )
            reasons.append(Reason(code="foreign_generator", block=name, sentence=sentence))
    if not reasons and not _same(first, second):
        sentence = f"{name} gives another output when it is run again under the same random state."
        reasons.append(Reason(code="not_repeatable", block=name, sentence=sentence))
    conditions = list(_hooks(name, block, settings))
    if "torch" in drawn:
        sentence = f"{name} draws random numbers: legal with the random state preserved."
        conditions.append(Reason(code="rng_preserved", block=name, sentence=sentence))
    return BlockLegality(
        block=name,
        verdict="illegal" if reasons else "legal",
        reasons=tuple(reasons),
        conditions=tuple(conditions),
    )


def _changed_buffers(name: str, before: "_State", after: "_State") -> Iterator[Reason]:
    names = {**before.buffers, **after.buffers}
    changed = [key for key in names if not same_bits(before.buffers.get(key), after.buffers.get(key))]
    norms = dict.fromkeys(key.rpartition(".")[0] for key in changed if _is_statistic(key))
    if norms:
        sentence = (
            f"{name}: the running statistics of {' and '.join(norms)} move on every forward, so a "
            "replay moves them twice; recompute around them, or use a norm without running statistics."
        )
        yield Reason(code="running_statistics", block=name, sentence=sentence)
    for key in changed:
        if not _is_statistic(key):
            sentence = (
                f"{name}: the buffer {key} changes on every forward, so a replay changes it twice; "
                "move it out of the block."
            )
            yield Reason(code="buffer_changed", block=name, sentence=sentence)


def _is_statistic(buffer: str) -> bool:
    return buffer.rpartition(".")[2] in STATISTICS


def _changed_places(name: str, before: "_State", after: "_State") -> Iterator[Reason]:
    for place in {**before.places, **after.places}:
        old, new = before.places.get(place), after.places.get(place)
        if (None if old is None else old[0]) != (None if new is None else new[0]):
            by_hook = (new or old or ("", None))[1]
            what = "changes on every forward (a counter, cache or tracker)"
            if by_hook is not None:
                where = by_hook or "the model"
                what = f"is changed by a hook on {where}, which fires again in every replay"
            sentence = f"{name}: {place} {what}, so a replay changes it twice; move it out of the block."
            code = "attribute_changed" if by_hook is None else "hook_repeats"
            yield Reason(code=code, block=name, sentence=sentence)


def _hooks(name: str, block: nn.Module, settings: CheckpointSettings) -> Iterator[Reason]:
    for path, module in block.named_modules():
        if path == "" and settings.variant == "forward":
            continue
        if module._forward_hooks or module._forward_pre_hooks:
            where = f"{name}.{path}" if path else name
            sentence = (
                f"{where} has a hook, which fires again in every replay; nothing that is seen changes."
            )
            yield Reason(code="hooks_repeat", block=name, sentence=sentence)


class _State:
    """Buffers of a whole model, and what Python code can change, by content."""

    def __init__(self, model: nn.Module) -> None:
        self.buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        self.places = {
            name: (python_state.content(place.value), place.hook)
            for name, place in python_state.places(model).items()
        }


def _versions(arguments: Arguments) -> tuple[str, list[tuple[int, int]]]:
    """What shows that arguments were changed: their structure, which leaves, tensor versions."""
    leaves, structure = tree_flatten(arguments)
    stamps = [(id(leaf), leaf._version if isinstance(leaf, Tensor) else 0) for leaf in leaves]
    return repr(structure), stamps


def _same(first: Any, second: Any) -> bool:
    pairs = zip(tree_leaves(first), tree_leaves(second), strict=True)
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
        for a, b in pairs
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


@contextmanager
def _random_state_kept(device: torch.device) -> Iterator[Callable[[], set[str]]]:
    """Put every random state back at the end; yields a function naming those that have moved."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    numpy_repr = repr(np.random.get_state(legacy=False))
    on_device = device.type != "cpu"
    kind = device.type if on_device else "cuda"
    with torch.random.fork_rng([device] if on_device else [], device_type=kind):
        torch_states = _torch_states(device)

        def changed() -> set[str]:
            moved = set()
            if any(
                not torch.equal(a, b) for a, b in zip(torch_states, _torch_states(device), strict=True)
            ):
                moved.add("torch")
            if random.getstate() != python_state:
                moved.add("random")
            if repr(np.random.get_state(legacy=False)) != numpy_repr:
                moved.add("numpy")
            return moved

        try:
            yield changed
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def _torch_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state(device))
    return states
