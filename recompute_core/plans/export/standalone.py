"""No plan yet: this is the text that an exported plan is written into."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)


class Region(NamedTuple):
    """What is recomputed as one: a module, or modules that hand their result to the next."""

    modules: tuple[str, ...]
    """FQNs, in the order they are called."""
    keep: tuple[str, ...] = ()
    """Ops whose outputs are kept: `aten.mm.default` for every call of it in the region, `:0,2` for those
    calls, `:even` and `:odd` for every second."""


# --- the plan -------------------------------------------------------------------------------------

VARIANT = "call"
"""`call`: a module's hooks are recomputed with it; `forward`: its forward alone."""
PRESERVE_RNG_STATE = True
"""A replay draws the random numbers of the first forward."""
EARLY_STOP = True
"""A replay stops once every tensor that backward needs is back."""
REGIONS: tuple[Region, ...] = ()
"""Outer regions before those inside them."""
BLOCKS: tuple[str, ...] = ()
"""All blocks of the model that the plan was made for, recomputed or not."""

# --- end of the plan ------------------------------------------------------------------------------


def apply_plan(model: nn.Module, prefix: str = "") -> None:
    """Recompute the regions of the plan in the backward passes of this model, from now on.

    `prefix` goes before every FQN, for a model inside another: `module.` under DistributedDataParallel.
    Modules, parameters and state dicts keep their names. Nothing is changed when it raises: ValueError
    for a module that the model lacks, RuntimeError for a model that has a plan on. Warns of a model that
    has more blocks than the plan was made for: those stay plain.
    """
    taken = [name or "the model" for name, module in model.named_modules() if _shadows(module)]
    if taken:
        raise RuntimeError(f"{taken[0]} has a plan on; remove_plan(model) takes it off")
    plan = [(region, _modules(model, region, prefix), _kept_by(region)) for region in REGIONS]
    if more := _further_blocks(model, prefix):
        warnings.warn(
            f"the plan was made for {len(BLOCKS)} blocks; the model has {len(more)} more of their class "
            f"beside them, which stay plain: {more[0]}{f' to {more[-1]}' if len(more) > 1 else ''}",
            stacklevel=2,
        )
    for region, modules, kept in reversed(plan):  # inner first: an outer one wraps what they have made
        calls: list[Callable[..., Any]] = [getattr(module, METHOD) for module in modules]
        if len(modules) == 1:
            _put_on(modules[0], _Alone(calls[0], kept))
            continue
        chain = _Chain(region.modules, calls, kept)
        for number, module in enumerate(modules):
            _put_on(module, _Link(chain, number))


def remove_plan(model: nn.Module) -> None:
    """Take the plan off; the model is what it was. Raises RuntimeError when none is on."""
    modules = [module for module in model.modules() if _shadows(module)]
    if not modules:
        raise RuntimeError("the model has no plan on")
    for module in modules:
        while shadows := _shadows(module):
            for method, shadow in shadows.items():
                delattr(module, method)
                if shadow.earlier is not None:
                    setattr(module, method, shadow.earlier)


METHOD = "_call_impl" if VARIANT == "call" else "forward"
"""What stands in for itself on each instance, so that no module is wrapped or renamed."""


# --- before anything is changed -------------------------------------------------------------------


def _before(prefix: str) -> str:
    return f"{prefix.rstrip('.')}." if prefix else ""


def _further_blocks(model: nn.Module, prefix: str) -> list[str]:
    """Siblings of the plan's blocks, of the same class, that the plan does not know."""
    named = dict(model.named_modules(remove_duplicate=False))
    known = {_before(prefix) + name for name in BLOCKS}
    kinds = {(name.rpartition(".")[0], type(named[name])) for name in known if name in named}
    return [
        name
        for name, module in named.items()
        if name not in known and (name.rpartition(".")[0], type(module)) in kinds
    ]


def _modules(model: nn.Module, region: Region, prefix: str) -> list[nn.Module]:
    named = dict(model.named_modules(remove_duplicate=False))
    before = _before(prefix)
    found = []
    for name in region.modules:
        module = named.get(before + name)
        if module is None:
            raise ValueError(f"the model has no module {before + name!r}{_advice(named, name)}")
        if VARIANT == "call" and module._compiled_call_impl is not None:
            raise ValueError(f"{before + name} is compiled, and would pass the plan by")
        found.append(module)
    return found


def _advice(named: dict[str, nn.Module], name: str) -> str:
    there = next((each for each in named if each.endswith(f".{name}")), None)
    return "" if there is None else f"; it has {there!r}: give prefix={there.removesuffix(name)!r}"


def _kept_by(region: Region) -> Kept:
    kept = parse(region.keep)
    if region.keep and not kept:
        raise ValueError(f"this torch has none of the ops to keep: {', '.join(region.keep)}")
    return kept


# --- what stands in for a method ------------------------------------------------------------------


class _Shadow:
    """Stands in for a method of one instance. Copied with its module, it calls the copy."""

    earlier: Any = None
    """What the instance had under the method's name; None: what its class has."""
    is_plan = True
    """By which a shadow is known, that of another exported plan too."""


class _Alone(_Shadow):
    """A module that is recomputed by itself."""

    def __init__(self, call: Callable[..., Any], kept: Kept) -> None:
        self.call, self.kept = call, kept

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _recomputed(self.call, self.kept, *args, **kwargs)


class _Chain:
    """Modules that are recomputed as one when the first of them is called."""

    def __init__(self, names: tuple[str, ...], calls: list[Callable[..., Any]], kept: Kept) -> None:
        self.names, self.calls, self.kept = names, calls, kept
        self.handed: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def all_of_them(self, x: Any, *rest: Any, **named: Any) -> Any:
        for call in self.calls:
            x = call(x, *rest, **named)
        return x


class _Link(_Shadow):
    """One module of a chain: the first runs them all, the others hand on what they are given."""

    def __init__(self, chain: _Chain, number: int) -> None:
        self.chain, self.number = chain, number

    def __call__(self, x: Any, *rest: Any, **named: Any) -> Any:
        chain = self.chain
        if self.number == 0:
            result = _recomputed(chain.all_of_them, chain.kept, x, *rest, **named)
            chain.handed[:] = [(result, rest, named)]
            return result
        if not chain.handed or not _same(chain.handed[0], (x, rest, named)):
            raise RuntimeError(
                f"{chain.names[self.number]} is not called with the result of {chain.names[0]} and the "
                "same other arguments, so the two cannot be recomputed as one"
            )
        if self.number == len(chain.names) - 1:
            chain.handed.clear()
        return x


def _same(handed: tuple[Any, Any, Any], given: tuple[Any, Any, Any]) -> bool:
    (x, rest, named), (x_now, rest_now, named_now) = handed, given
    return (
        x is x_now
        and len(rest) == len(rest_now)
        and all(a is b for a, b in zip(rest, rest_now, strict=True))
        and named.keys() == named_now.keys()
        and all(named[key] is named_now[key] for key in named)
    )


def _shadows(module: nn.Module) -> dict[str, Any]:
    """What stands in for methods of a module, by the method."""
    found = {method: vars(module).get(method) for method in ("_call_impl", "forward")}
    return {method: shadow for method, shadow in found.items() if getattr(shadow, "is_plan", False)}


def _put_on(module: nn.Module, shadow: _Shadow) -> None:
    shadow.earlier = vars(module).get(METHOD)
    setattr(module, METHOD, shadow)


def _recomputed(call: Callable[..., Any], kept: Kept, *args: Any, **kwargs: Any) -> Any:
    context: dict[str, Any] = {"context_fn": partial(keeping, kept)} if kept else {}
    return checkpoint(
        partial(call, **kwargs),  # so that a keyword such as `debug` is not taken for checkpoint's own
        *args,
        use_reentrant=False,
        preserve_rng_state=PRESERVE_RNG_STATE,
        early_stop=EARLY_STOP,
        **context,
    )


# --- keeping the outputs of some ops --------------------------------------------------------------

Kept = dict[Any, tuple[str, ...]]
"""Op -> which of its calls in a region are kept: one of the entries is enough."""


def parse(keep: tuple[str, ...]) -> Kept:
    """The ops that this torch has, with the calls of each that are kept."""
    kept: Kept = {}
    for entry in keep:
        name, _, calls = entry.partition(":")
        namespace, packet, overload = name.split(".")
        operator = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if operator is not None:
            kept[operator] = (*kept.get(operator, ()), calls)
    return kept


def is_chosen(calls: str, number: int) -> bool:
    """Whether the n-th call of an op is among `calls`; the first is 0."""
    if calls in ("even", "odd"):
        return number % 2 == (calls == "odd")
    return not calls or number in map(int, calls.split(","))


def keeping(kept: Kept) -> Any:
    """Fresh contexts for one call of a region, which count its calls of each op."""
    seen: dict[Any, int] = {}

    def policy(
        _: SelectiveCheckpointContext, operator: Any, *args: Any, **kwargs: Any
    ) -> CheckpointPolicy:
        if operator not in kept:
            return CheckpointPolicy.PREFER_RECOMPUTE
        number = seen.get(operator, 0)
        seen[operator] = number + 1
        if any(is_chosen(calls, number) for calls in kept[operator]):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]
