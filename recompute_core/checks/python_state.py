"""What a training step may change beside tensors: attributes of modules and classes, globals, closures.

Looked at where the code of the model can reach it: the attributes of every module, and what the
functions of its classes, its hooks and the loss refer to by name. Values are compared by content, so
that a module which keeps an equal tensor anew has not changed.
"""

import hashlib
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_DEPTH = 4
_MOST_ITEMS = 4096
"""Items of one container that are looked at; its length always counts."""
_MODULE_INTERNALS = frozenset(vars(nn.Module()))
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_LIBRARIES = frozenset(
    {"torch", "numpy", "builtins", "functools", "contextlib", "typing", "collections"}
)


@dataclass(frozen=True)
class Place:
    """Somewhere a value is kept, by a name that the same place has in every run."""

    name: str
    value: Any
    put: Callable[[Any], None] | None = None
    """Makes it hold another object, where what looks after it outlives a run."""


def places(model: nn.Module, functions: Iterable[Any] = ()) -> dict[str, Place]:
    """Every place that the code of the model, its hooks and `functions` can change, by a stable key."""
    found: dict[str, Place] = {}
    reached: list[Any] = list(functions)
    for path, module in model.named_modules():
        where = f"{path}." if path else ""
        for key, value in vars(module).items():
            if key not in _MODULE_INTERNALS and not isinstance(value, nn.Module):
                found[f"{where}{key}"] = Place(f"{where}{key}", value)
        hooks = [hook for kind in _HOOKS for hook in vars(module).get(kind, {}).values()]
        found[f"{where}hooks"] = Place(f"the number of hooks of {path or 'the model'}", len(hooks))
        reached += hooks
        reached += [cls for cls in type(module).__mro__ if _is_users(cls)]
    for place in _reachable(reached):
        found.setdefault(place.name, place)
    return found


# --- what code can reach --------------------------------------------------------------------------


def _is_users(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").partition(".")[0] not in _LIBRARIES


def _reachable(start: list[Any]) -> Iterator[Place]:
    """Globals, closures and class attributes of functions and classes, and of those they refer to."""
    todo, seen = list(start), set[int]()
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, type):
            if _is_users(thing):
                for key, value in list(vars(thing).items()):
                    todo += _functions_of(value)
                    if not key.startswith("__") and _may_change(value):
                        yield Place(f"{thing.__qualname__}.{key}", value, partial(setattr, thing, key))
            continue
        for function in _functions_of(thing):
            for place in _referred(function):
                if isinstance(place.value, types.FunctionType | types.MethodType | type):
                    if _is_users(place.value):
                        todo.append(place.value)
                elif _may_change(place.value):
                    yield place
        bound = getattr(thing, "__self__", None)
        if bound is not None and _may_change(bound) and _is_users(type(bound)):
            yield Place(f"the {type(bound).__qualname__} of {thing.__qualname__}", bound)
        elif hasattr(thing, "__dict__") and _may_change(thing) and _is_users(type(thing)):
            todo.append(type(thing))  # an object that is called
            yield Place(f"a {type(thing).__qualname__}", thing)


def _functions_of(thing: Any) -> list[types.FunctionType]:
    """The Python functions behind a callable, a property, a static or a class method."""
    if isinstance(thing, property):
        inner = [thing.fget, thing.fset]
    elif hasattr(thing, "func") and hasattr(thing, "args"):  # functools.partial
        inner = [thing.func, *thing.args]
    else:
        inner = [getattr(thing, "__func__", None), getattr(thing, "__wrapped__", None), thing]
    return [one for one in inner if isinstance(one, types.FunctionType)]


def _referred(function: types.FunctionType) -> Iterator[Place]:
    """What a function's code reads from its globals and its closure."""
    codes = [function.__code__]
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    for name in dict.fromkeys(name for code in codes for name in code.co_names):
        if name in function.__globals__:
            put = partial(function.__globals__.__setitem__, name)
            yield Place(f"{function.__module__}.{name}", function.__globals__[name], put)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            put = partial(setattr, cell, "cell_contents")
            yield Place(f"{function.__qualname__}: {name}", cell.cell_contents, put)
        except ValueError:  # an empty cell
            continue


def _may_change(value: Any) -> bool:
    return not isinstance(
        value,
        types.ModuleType
        | types.FunctionType
        | types.BuiltinFunctionType
        | types.MethodType
        | staticmethod
        | classmethod
        | property
        | type
        | nn.Module,
    ) and not callable(getattr(type(value), "__get__", None))


# --- what a place holds ---------------------------------------------------------------------------


def content(value: Any, depth: int = _DEPTH) -> Any:
    """A value as plain data: numbers, texts, lengths, digests of tensors, states of generators."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, np.ndarray):
        return ("array", value.shape, str(value.dtype), digest(value.tobytes()).hex())
    if (state := _generator_state(value)) is not None:
        return ("generator", state)
    if depth == 0:
        return type(value).__name__
    if isinstance(value, dict):
        items = list(value.items())[:_MOST_ITEMS]
        return ("dict", len(value), [(_key(k), content(v, depth - 1)) for k, v in items])
    if isinstance(value, list | tuple | deque):
        items_ = list(value)[:_MOST_ITEMS]
        return (type(value).__name__, len(value), [content(item, depth - 1) for item in items_])
    if isinstance(value, set | frozenset):
        return (type(value).__name__, len(value), sorted(_key(item) for item in value))
    if isinstance(value, type | types.ModuleType | types.FunctionType | nn.Module):
        return type(value).__name__
    if hasattr(value, "__dict__"):
        inner = {key: content(item, depth - 1) for key, item in vars(value).items()}
        return (type(value).__name__, inner)
    return type(value).__name__


def _key(value: Any) -> str:
    return (
        repr(value)
        if isinstance(value, str | int | float | bool | bytes | tuple)
        else type(value).__name__
    )


def _tensor(value: Tensor) -> Any:
    facts = (tuple(value.shape), str(value.dtype), str(value.layout))
    if value.layout != torch.strided or value.device.type == "meta":
        return ("tensor", *facts)
    plain = value.detach().cpu().contiguous().reshape(-1)
    if plain.dtype.is_complex:
        plain = torch.view_as_real(plain).reshape(-1)
    return ("tensor", *facts, digest(plain.view(torch.uint8).numpy().data).hex())


def digest(data: Any) -> bytes:
    """SHA-256 of bytes, or of a text."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).digest()


def _generator_state(value: Any) -> str | None:
    if isinstance(value, torch.Generator):
        return digest(value.get_state().cpu().numpy().data).hex()
    if isinstance(value, random.Random):
        return str(hash(value.getstate()))
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    return None


# --- putting it back ------------------------------------------------------------------------------


def remembered(found: Iterable[Place]) -> Callable[[], None]:
    """Remembers what the places hold now; call the result to put it back, into the very same objects."""
    undo: list[Callable[[], None]] = []
    seen: set[int] = set()
    for place in found:
        _remember(place.value, undo, seen, _DEPTH)
        if place.put is not None:
            undo.append(partial(place.put, place.value))

    def restore() -> None:
        for put_back in undo:
            put_back()

    return restore


def _remember(value: Any, undo: list[Callable[[], None]], seen: set[int], depth: int) -> None:
    if id(value) in seen or depth == 0:
        return
    seen.add(id(value))
    inner: Iterable[Any] = ()
    if isinstance(value, list | deque):
        undo.append(_refill(value.clear, value.extend, list(value)))
        inner = value
    elif isinstance(value, dict):
        undo.append(_refill(value.clear, value.update, dict(value)))
        inner = value.values()
    elif isinstance(value, set):
        undo.append(_refill(value.clear, value.update, set(value)))
    elif isinstance(value, np.ndarray):
        if value.flags.writeable:
            undo.append(_assign(value, value.copy()))
    elif isinstance(value, torch.Generator):
        state = value.get_state()
        undo.append(partial(_set_state, value, state))
    elif isinstance(value, random.Random):
        drawn = value.getstate()
        undo.append(lambda: value.setstate(drawn))
    elif isinstance(value, tuple):
        inner = value
    elif hasattr(value, "__dict__") and not isinstance(
        value, type | types.ModuleType | types.FunctionType | nn.Module | Tensor
    ):
        undo.append(_refill(vars(value).clear, vars(value).update, dict(vars(value))))
        inner = vars(value).values()
    for item in list(inner)[:_MOST_ITEMS]:
        _remember(item, undo, seen, depth - 1)


def _set_state(generator: torch.Generator, state: Tensor) -> None:
    generator.set_state(state)


def _refill(clear: Callable[[], None], fill: Callable[[Any], None], kept: Any) -> Callable[[], None]:
    def put_back() -> None:
        clear()
        fill(kept)

    return put_back


def _assign(array: "np.ndarray[Any, Any]", kept: "np.ndarray[Any, Any]") -> Callable[[], None]:
    def put_back() -> None:
        array[...] = kept

    return put_back
