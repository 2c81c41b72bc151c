"""Putting a plan on a model and taking it off again, leaving the very same model.

A plan shadows one method of each module it names on the instance: `_call_impl` for the variant `call`
(the module's hooks are recomputed too) or `forward` for the variant `forward` (hooks run once). No
module is wrapped, so FQNs, parameters and state dicts stay as they are. Selective regions use torch's
`create_selective_checkpoint_contexts`. A region of several modules runs them all when the first one is
called; the others then hand on what they are given, and raise where that is something else.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from ..errors import InputError
from ..spec import CheckpointSettings, Region
from .names import Regions

Call = Callable[..., Any]
Wrap = Callable[[Call], Call]
Applied = Callable[[], AbstractContextManager[None]]
"""Puts a plan on a model for as long as the context lasts."""
Telling = Callable[[Region, Wrap], Wrap]
"""Makes a region's wrap one of which others learn what becomes of it."""


def recompute(settings: CheckpointSettings, keep: tuple[str, ...] = ()) -> Wrap:
    """What turns a call into a recomputed one (`torch.utils.checkpoint`, non-reentrant).

    `keep` are the ops whose outputs a selective replay takes from the forward, as in `Region.keep`.
    Raises InputError when torch has none of them.
    """
    kept = _parse(keep)
    if keep and not kept:
        raise InputError(f"plan: torch has none of the ops to keep: {', '.join(keep)}")
    context: dict[str, Any] = {"context_fn": partial(_selective, kept)} if kept else {}

    def wrap(call: Call) -> Call:
        return partial(
            checkpoint,
            call,
            use_reentrant=False,
            preserve_rng_state=settings.rng == "preserve",
            early_stop=settings.early_stop,
            **context,
        )

    return wrap


@contextmanager
def applied(
    model: nn.Module,
    regions: Regions,
    settings: CheckpointSettings,
    wrap: Wrap | None = None,
    telling: Telling | None = None,
) -> Iterator[None]:
    """Within the context, the regions of `model` are recomputed in backward.

    `wrap` replaces the way a call is recomputed; the canary uses it to break one on purpose. `telling`
    replaces the way in which others learn what becomes of a region.
    Raises InputError for a module that the model does not have.
    """
    telling = telling or _telling
    method = "_call_impl" if settings.variant == "call" else "forward"
    with ExitStack() as stack:
        for region in reversed(regions):  # inner regions first: an outer one wraps what they have made
            modules = [module_named(model, name) for name in region.modules]
            told = telling(region, wrap or recompute(settings, region.keep))
            if len(modules) == 1:
                call = told(getattr(modules[0], method))
                stack.enter_context(shadowed(modules[0], method, call))
            else:
                stack.enter_context(_chained(region, modules, method, told))
        yield


def unchanging(modules: Iterable[nn.Module], put_on: Applied) -> Applied:
    """`put_on` of a plan on these modules, but the very same functions each time: what was compiled is
    guarded by who they are."""
    with put_on():
        found = [
            (module, method, vars(module)[method])
            for module in dict.fromkeys(modules)
            for method in ("_call_impl", "forward")
            if method in vars(module)
        ]

    @contextmanager
    def again() -> Iterator[None]:
        with ExitStack() as stack:
            for module, method, replacement in found:
                stack.enter_context(shadowed(module, method, replacement))
            yield

    return again


# --- whether it happened -------------------------------------------------------------------------


@dataclass
class Happened:
    """What became of a plan's regions in one update."""

    replays: Counter[Region] = field(default_factory=Counter)
    """How often a call of each region was run again: its own replays, not those of one around it."""
    kept: Counter[Region] = field(default_factory=Counter)
    """How many op outputs each selective region kept."""
    judged: int = 0
    """Ops that the policy of a selective region has looked at, in forward."""
    around: Applied = nullcontext
    """Entered for as long as a call of a region is run again."""


_WATCHING: list[Happened] = []


@contextmanager
def happening(around: Applied = nullcontext) -> Iterator[Happened]:
    """Within the context, what becomes of regions is counted, and `around` entered for each replay."""
    happened = Happened(around=around)
    _WATCHING.append(happened)
    try:
        yield happened
    finally:
        _WATCHING.remove(happened)


def _telling(region: Region, wrap: Wrap) -> Wrap:
    """`wrap`, with what becomes of the region told to those who watch."""

    def telling(call: Call) -> Call:
        def called(*args: Any, **kwargs: Any) -> Any:
            if not _WATCHING:
                return wrap(call)(*args, **kwargs)
            runs = 0

            def run(*given: Any, **named: Any) -> Any:
                nonlocal runs
                runs += 1
                with ExitStack() as stack:
                    for happened in _WATCHING:
                        happened.replays[region] += runs > 1
                        if runs > 1:
                            stack.enter_context(happened.around())
                    if region.keep:
                        stack.enter_context(hearing_kept(partial(_tell_kept, region)))
                    return call(*given, **named)

            return wrap(run)(*args, **kwargs)

        return called

    return telling


def _tell_kept(region: Region, _: Tensor) -> None:
    for happened in _WATCHING:
        happened.kept[region] += 1


def module_named(model: nn.Module, name: str) -> nn.Module:
    """The module of this FQN; raises InputError when there is none."""
    try:
        return model.get_submodule(name)
    except AttributeError:
        raise InputError(f"plan: the model has no module {name!r}") from None


@contextmanager
def shadowed(module: nn.Module, method: str, replacement: Call) -> Iterator[None]:
    """Within the context, `replacement` stands in for a method of this one instance."""
    earlier = vars(module).get(method)
    setattr(module, method, replacement)
    try:
        yield
    finally:
        if earlier is None:
            delattr(module, method)
        else:
            setattr(module, method, earlier)


# --- several modules as one ----------------------------------------------------------------------


@contextmanager
def _chained(region: Region, modules: list[nn.Module], method: str, wrap: Wrap) -> Iterator[None]:
    calls = [getattr(module, method) for module in modules]
    handed: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def all_of_them(x: Any, *rest: Any, **named: Any) -> Any:
        for call in calls:
            x = call(x, *rest, **named)
        return x

    whole = wrap(all_of_them)

    def first(x: Any, *rest: Any, **named: Any) -> Any:
        result = whole(x, *rest, **named)
        handed[:] = [(result, rest, named)]
        return result

    def later(name: str, last: bool, x: Any, *rest: Any, **named: Any) -> Any:
        result, *others = handed[0] if handed else (None, None, None)
        if x is not result or not _same(others, [rest, named]):
            raise RuntimeError(
                f"{name} is not called with the result of {region.modules[0]} and the same other "
                "arguments, so the two cannot be recomputed as one"
            )
        if last:
            handed.clear()
        return x

    with ExitStack() as stack:
        stack.enter_context(shadowed(modules[0], method, first))
        for name, module in zip(region.modules[1:], modules[1:], strict=True):
            passing = partial(later, name, name == region.modules[-1])
            stack.enter_context(shadowed(module, method, passing))
        yield


def _same(others: list[Any], given: list[Any]) -> bool:
    (rest, named), (rest_now, named_now) = others, given
    return (
        len(rest) == len(rest_now)
        and all(a is b for a, b in zip(rest, rest_now, strict=True))
        and named.keys() == named_now.keys()
        and all(named[key] is named_now[key] for key in named)
    )


# --- selective ------------------------------------------------------------------------------------

Kept = dict[Any, list[Callable[[int], bool]]]
"""Op -> what says whether its n-th call in the region is kept; one of them is enough."""


def _parse(keep: tuple[str, ...]) -> Kept:
    kept: Kept = {}
    for entry in keep:
        name, _, calls = entry.partition(":")
        operator = _operator(name)
        if operator is not None:
            kept.setdefault(operator, []).append(_chosen(calls))
    return kept


def _operator(name: str) -> Any:
    """torch's operator of this name, e.g. `aten.mm.default`; None where this build has none."""
    namespace, packet, overload = name.split(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(found, overload, None)


def _chosen(calls: str) -> Callable[[int], bool]:
    if not calls:
        return lambda number: True
    if calls in ("even", "odd"):
        return lambda number: number % 2 == (calls == "odd")
    numbers = frozenset(map(int, calls.split(",")))
    return numbers.__contains__


def _selective(kept: Kept) -> tuple[Any, Any]:
    """Fresh contexts for one call of a region: its calls of each op are numbered from 0."""
    seen: dict[Any, int] = {}

    def policy(
        call: SelectiveCheckpointContext, operator: Any, *args: Any, **kwargs: Any
    ) -> CheckpointPolicy:
        for happened in _WATCHING:
            happened.judged += 1
        if operator not in kept:
            return CheckpointPolicy.PREFER_RECOMPUTE
        number = seen.get(operator, 0)
        seen[operator] = number + 1
        if not any(chosen(number) for chosen in kept[operator]):
            return CheckpointPolicy.PREFER_RECOMPUTE
        for leaf in tree_leaves(call.op_output):
            if isinstance(leaf, Tensor):
                for hear in _HEARERS:
                    hear(leaf)
        return CheckpointPolicy.MUST_SAVE

    contexts: tuple[Any, Any] = create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]
    return contexts


_HEARERS: list[Callable[[Tensor], object]] = []


@contextmanager
def hearing_kept(hear: Callable[[Tensor], object]) -> Iterator[None]:
    """Within the context `hear` is told of each tensor that a selective region keeps.

    torch holds those beside the autograd graph, where no saved-tensor hook sees them.
    """
    _HEARERS.append(hear)
    try:
        yield
    finally:
        _HEARERS.remove(hear)
