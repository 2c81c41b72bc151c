"""What a training step may change beside tensors: attributes of modules and classes, globals, closures.

Looked at where the code of the model can reach it: the attributes of every module, and what the
functions of its classes, its hooks and the loss refer to by name, modules outside of the model
included. Values are compared by content, so that a module which keeps an equal tensor anew has not
changed. Not seen: what sits inside of other libraries, files, and generators written with `yield`.
"""

import hashlib
import itertools
import random
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor as is_wrapped
from torch.nn.modules import module as every_module
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

_DEPTH = 4
_MOST_ITEMS = 4096
"""Items of one container that are looked at; its length always counts."""
_MODULE_INTERNALS = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_LIBRARIES = frozenset({"torch", "numpy", *sys.stdlib_module_names}) - {"__main__"}
"""Whose code is not looked into; of other installed packages, the classes of the model's modules are."""
_OPAQUE = frozenset(
    {"asyncio", "concurrent", "io", "_io", "logging", "multiprocessing", "socket", "subprocess"}
    | {"threading", "weakref"}
)
"""Whose objects are alive by themselves: neither compared nor put back."""
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")
"""What torch.compile and its own checkpoint wrapper put into FQNs."""


@dataclass(frozen=True)
class Place:
    """Somewhere a value is kept, by a name that the same place has in every run."""

    name: str
    value: Any
    put: Callable[[Any], None] | None = None
    """Makes it hold another object."""
    hook: str | None = None
    """The module whose hook is what reaches it, where no other code does."""


def places(model: nn.Module, functions: Iterable[Any] = ()) -> dict[str, Place]:
    """Every place that the code of the model, its hooks and `functions` can change, by a stable key."""
    return _Reach(model, functions).found


def plain_name(name: str) -> str:
    """An FQN as it is without wrappers of torch's."""
    for wrapper in _WRAPPERS:
        name = f"{name}.".replace(wrapper, "").removesuffix(".")
    return name


# --- what code can reach --------------------------------------------------------------------------


class _Reach:
    """What can be reached from a model and from functions."""

    def __init__(self, model: nn.Module, functions: Iterable[Any]) -> None:
        self.found: dict[str, Place] = {}
        self.modules = list(model.modules())
        """Those of the model, then those outside of it that its code refers to."""
        self._own = len(self.modules)
        self._known: set[Hashable] = {id(module) for module in self.modules}
        self._todo: list[Any] = []
        self._hook: str | None = None
        hooked: dict[str, list[Any]] = {}
        touched = _names_in(hook for module in self.modules for hook in _hooks_of(module))
        for path, module in model.named_modules():
            path = plain_name(path)
            self._attributes(path, module, touched)
            hooks = list(_hooks_of(module))
            name = f"the number of hooks of {path or 'the model'}"
            self._add((id(module), "hooks"), Place(name, len(hooks)))
            hooked[path] = hooks
        hooked[""] += _hooks_on_every_module()
        self._todo += [function for function in functions if function is not None]
        self._go_on()
        for self._hook, hooks in hooked.items():
            self._todo += hooks
            self._go_on()

    def _attributes(self, path: str, module: nn.Module, touched: frozenset[str]) -> None:
        """Attributes that are neither parameters, buffers nor modules, and the code behind them."""
        own = _names_in([type(module).forward])
        for key, value in list(vars(module).items()):
            if key not in _MODULE_INTERNALS and not isinstance(value, nn.Module):
                hook = path if key in touched and key not in own else self._hook
                name = f"{path}.{key}" if path else key
                self._add((id(module), key), Place(name, value, _putting(vars(module), key), hook))
        for cls in type(module).__mro__:
            if _is_users(cls):
                self._todo.append(cls)
            elif _root(cls.__module__) not in _LIBRARIES and id(cls) not in self._known:
                self._known.add(id(cls))
                self._class(cls)  # of an installed package: itself, and no code that it leads to

    def _add(self, identity: Hashable, place: Place) -> None:
        """A new place, and what its value leads to."""
        if identity in self._known:
            return
        self._known.add(identity)
        self._follow(place.name, place.value)
        if _may_change(place.value):
            name, count = place.name, 1
            while name in self.found:
                name, count = f"{place.name} ({count + 1})", count + 1
            self.found[name] = Place(name, place.value, place.put, place.hook or self._hook)

    def _follow(self, name: str, value: Any) -> None:
        """Code, modules outside of the model, and classes of objects that a value leads to."""
        leaves = tree_leaves(value) if isinstance(value, dict | list | tuple | deque) else [value]
        for leaf in leaves[:_MOST_ITEMS]:
            if isinstance(leaf, nn.Module):
                self._module_outside(name, leaf)
            elif isinstance(leaf, type) or _functions_of(leaf):
                self._todo.append(leaf)
            elif not isinstance(leaf, Tensor) and _is_users(type(leaf)):
                self._todo.append(type(leaf))

    def _module_outside(self, name: str, module: nn.Module) -> None:
        for path, inner in module.named_modules():
            if id(inner) in self._known:
                continue
            self._known.add(id(inner))
            self.modules.append(inner)
            where = f"{name}.{path}" if path else name
            self._attributes(where, inner, frozenset())
            for key, buffer in inner._buffers.items():
                put = _putting(inner._buffers, key)
                self._add((id(inner), "buffer", key), Place(f"{where}.{key}", buffer, put))
            self._todo += _hooks_of(inner)

    def _go_on(self) -> None:
        while self._todo:
            thing = self._todo.pop()
            if id(thing) in self._known:
                continue
            if isinstance(thing, type):
                self._known.add(id(thing))
                if _is_users(thing):
                    self._class(thing)
                continue
            for function in _functions_of(thing):
                if id(function) not in self._known and _is_users(function):
                    self._known.add(id(function))
                    self._function(function)
            bound = getattr(thing, "__self__", None)
            if bound is not None and not isinstance(bound, type | types.ModuleType):
                self._object(bound)
            elif not isinstance(thing, types.FunctionType | types.MethodType):
                self._object(thing)

    def _object(self, value: Any) -> None:
        """An object that is called, or whose method is."""
        if isinstance(value, nn.Module):
            self._module_outside(type(value).__qualname__, value)
        elif _is_users(type(value)) and hasattr(value, "__dict__"):
            self._add(("object", id(value)), Place(f"a {type(value).__qualname__}", value))

    def _class(self, cls: type) -> None:
        for base in cls.__mro__[1:]:
            self._todo.append(base)
        for key, value in list(vars(cls).items()):
            if key == "__init__" and issubclass(cls, nn.Module):  # no forward runs it
                continue
            if not _is_users(cls):
                for function in _functions_of(value):
                    self._function(function)
            if not key.startswith("__") or isinstance(value, types.FunctionType):
                put = _putting(vars(cls), key, partial(setattr, cls))
                self._add((id(cls), key), Place(f"{cls.__qualname__}.{key}", value, put))

    def _function(self, function: types.FunctionType) -> None:
        """What its code reads from globals, closure, defaults and its own attributes."""
        named = _names_in([function])
        spaces = [(function.__module__, function.__globals__)]
        for name in sorted(named & function.__globals__.keys()):
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType) and _root(value.__name__) not in _LIBRARIES:
                spaces.append((value.__name__, vars(value)))
        for where, space in spaces:
            for name in sorted(named & space.keys()):
                place = Place(f"{where}.{name}", space[name], _putting(space, name))
                self._add((id(space), name), place)
        short = function.__qualname__.replace(".<locals>", "")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # an empty cell
                continue
            self._add(id(cell), Place(f"{name} of {short}", value, partial(_fill, cell)))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for number, value in enumerate(defaults):
            self._add((id(function), number), Place(f"a default argument of {short}", value))
        for key, value in list(vars(function).items()):
            put = _putting(vars(function), key)
            self._add((id(function), key), Place(f"{short}.{key}", value, put))


def _putting(
    space: Any, key: str, write: Callable[[str, Any], None] | None = None
) -> Callable[[Any], None]:
    """Makes a namespace hold an object again, where it does not."""

    def put(value: Any) -> None:
        if space.get(key, _NOTHING) is not value:
            (write or space.__setitem__)(key, value)

    return put


_NOTHING = object()


def _fill(cell: types.CellType, value: Any) -> None:
    cell.cell_contents = value


def _hooks_of(module: nn.Module) -> Iterator[Any]:
    for kind in _HOOKS:
        yield from (vars(module).get(kind) or {}).values()


def _hooks_on_every_module() -> list[Any]:
    return [
        hook
        for kind in ("_global_forward_hooks", "_global_forward_pre_hooks")
        for hook in getattr(every_module, kind).values()
    ]


def _root(name: str | None) -> str:
    return (name or "").partition(".")[0]


def _is_users(thing: Any) -> bool:
    root = _root(getattr(thing, "__module__", None))
    return root not in _LIBRARIES and not _is_installed(root)


@cache
def _is_installed(package: str) -> bool:
    """Whether a package comes from where packages are installed, and not from the user's own folders."""
    where = getattr(sys.modules.get(package), "__file__", None) or ""
    return bool({"site-packages", "dist-packages"} & set(Path(where).parts))


def _functions_of(thing: Any) -> list[types.FunctionType]:
    """The Python functions behind a callable, a property, a static or a class method."""
    if isinstance(thing, type | Tensor):
        return []
    if isinstance(thing, property):
        inner = [thing.fget, thing.fset]
    elif isinstance(thing, partial):
        inner = [thing.func, getattr(thing.func, "__func__", None), *thing.args]
    else:
        inner = [getattr(thing, "__func__", None), getattr(thing, "__wrapped__", None), thing]
    return [one for one in inner if isinstance(one, types.FunctionType)]


def _names_in(functions: Iterable[Any]) -> frozenset[str]:
    """Every name that the code of functions mentions, functions inside of them included."""
    codes = [one.__code__ for thing in functions for one in _functions_of(thing)]
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return frozenset(name for code in codes for name in code.co_names)


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
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | bytearray):
        return repr(value)
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, np.ndarray):
        return ("array", value.shape, str(value.dtype), digest(value.tobytes()).hex())
    if (state := _generator_state(value)) is not None:
        return ("generator", state)
    if isinstance(value, itertools.count):
        return repr(value)
    if isinstance(value, ContextVar):
        return ("context variable", content(value.get(None), depth))
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
    if (inner := _attributes_of(value)) is not None:
        return (type(value).__name__, {k: content(item, depth - 1) for k, item in inner.items()})
    return type(value).__name__


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object, slots included; None where it is not looked into."""
    kind = type(value)
    if isinstance(value, type | types.ModuleType | types.FunctionType | nn.Module | Tensor):
        return None
    if _root(kind.__module__) in _OPAQUE and not isinstance(value, threading.local):
        return None
    slots = [slot for cls in kind.__mro__ for slot in _slots(cls)]
    if not hasattr(value, "__dict__") and not slots:
        return None
    found = dict(getattr(value, "__dict__", {}))
    return found | {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    listed = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(slot for slot in listed if not slot.startswith("__")) if _is_users(cls) else ()


def _key(value: Any) -> str:
    return (
        repr(value)
        if isinstance(value, str | int | float | bool | bytes | tuple)
        else type(value).__name__
    )


def _tensor(value: Tensor) -> Any:
    if is_lazy(value):
        return ("tensor", "lazy")
    facts = (tuple(value.shape), str(value.dtype), str(value.layout))
    if value.layout != torch.strided or value.device.type == "meta" or is_wrapped(value):
        return ("tensor", *facts)
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
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


def remembered(model: nn.Module, functions: Iterable[Any] = ()) -> Callable[[], None]:
    """Remembers what can be reached now; call the result to put it back, into the very same objects."""
    reach = _Reach(model, functions)
    undo: list[Callable[[], None]] = []
    seen: set[int] = set()
    for module in reach.modules:
        _remember_module(module, undo, seen)
    for place in reach.found.values():
        if isinstance(place.value, itertools.count) and place.put is not None:
            undo.append(partial(_count_again, place.put, repr(place.value)))
            continue
        _remember(place.value, undo, seen, _DEPTH)
        if place.put is not None:
            undo.append(partial(_put, place.put, place.value))

    def restore() -> None:
        for put_back in undo:
            put_back()

    return restore


def _put(put: Callable[[Any], None], value: Any) -> None:
    put(value)


def _count_again(put: Callable[[Any], None], text: str) -> None:
    put(itertools.count(*(int(part) for part in text[len("count(") : -1].split(","))))


def _remember_module(module: nn.Module, undo: list[Callable[[], None]], seen: set[int]) -> None:
    """Its attributes and which there are, hooks, buffers and gradients."""
    _remember_dict(vars(module), undo)
    for kind in _HOOKS:
        _remember(vars(module).get(kind), undo, seen, 1)
    _remember_dict(module._buffers, undo)
    for buffer in module._buffers.values():
        _remember(buffer, undo, seen, 1)
    for parameter in module._parameters.values():
        if parameter is not None:
            undo.append(partial(setattr, parameter, "grad", parameter.grad))


def _remember(value: Any, undo: list[Callable[[], None]], seen: set[int], depth: int) -> None:
    if id(value) in seen or depth == 0:
        return
    seen.add(id(value))
    inner: Iterable[Any] = ()
    if isinstance(value, Tensor):
        _remember_tensor(value, undo)
    elif isinstance(value, list | deque):
        _remember_items(value, undo)
        inner = value
    elif isinstance(value, dict):
        _remember_dict(value, undo)
        inner = value.values()
    elif isinstance(value, set):
        _remember_items(value, undo)
    elif isinstance(value, bytearray):
        undo.append(partial(value.__setitem__, slice(None), bytes(value)))
    elif isinstance(value, np.ndarray):
        if value.flags.writeable:
            undo.append(partial(np.copyto, value, value.copy()))
    elif _generator_state(value) is not None:
        undo.append(_generator_back(value))
    elif isinstance(value, tuple):
        inner = value
    elif (attributes := _attributes_of(value)) is not None:
        if hasattr(value, "__dict__"):
            _remember_dict(vars(value), undo)
        for slot in attributes.keys() - getattr(value, "__dict__", {}).keys():
            undo.append(partial(object.__setattr__, value, slot, attributes[slot]))
        inner = attributes.values()
    for item in list(inner)[:_MOST_ITEMS]:
        _remember(item, undo, seen, depth - 1)


def _remember_tensor(tensor: Tensor, undo: list[Callable[[], None]]) -> None:
    if is_lazy(tensor) or tensor.layout != torch.strided or tensor.device.type == "meta":
        return
    kept, grad = tensor.detach().clone(), tensor.grad if tensor.is_leaf else None

    def put_back() -> None:
        if tensor.is_leaf:
            tensor.grad = grad
        if tensor.shape != kept.shape or not torch.equal(tensor.detach(), kept):
            tensor.data = kept.clone() if tensor.shape != kept.shape else tensor.data.copy_(kept)

    undo.append(put_back)


def _remember_items(value: Any, undo: list[Callable[[], None]]) -> None:
    kept = list(value)
    fill = value.update if isinstance(value, set) else value.extend

    def put_back() -> None:
        if not _same_objects(list(value), kept):
            value.clear()
            fill(kept)

    undo.append(put_back)


def _remember_dict(value: dict[Any, Any], undo: list[Callable[[], None]]) -> None:
    kept = dict(value)

    def put_back() -> None:
        now = [*value.keys(), *value.values()]
        if not _same_objects(now, [*kept.keys(), *kept.values()]):
            value.clear()
            value.update(kept)

    undo.append(put_back)


def _same_objects(mine: list[Any], theirs: list[Any]) -> bool:
    return len(mine) == len(theirs) and all(a is b for a, b in zip(mine, theirs, strict=True))


def _set_state(generator: torch.Generator, state: Tensor) -> None:
    generator.set_state(state)


def _generator_back(value: Any) -> Callable[[], None]:
    if isinstance(value, torch.Generator):
        drawn = value.get_state()
        return partial(_set_state, value, drawn)
    if isinstance(value, random.Random):
        state = value.getstate()
        return lambda: value.setstate(state)
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator.state
        return lambda: setattr(value.bit_generator, "state", bits)
    numbers = value.get_state()
    return lambda: value.set_state(numbers)
