"""Names of models that are not ours: registered factories, `hf:` and `timm:`. No torch.

Factories are registered when a process starts, by its command line, by `RECOMPUTE_WORKLOADS`, or by the
entry points that installed packages declare; never from the browser. Processes that are started from
one that knows them know them too: the variable travels along.
"""

import os
from importlib.metadata import entry_points
from typing import Any

from ..errors import InputError
from ..plain_yaml import parse_yaml
from ..settings import OTHERS, OURS, is_own

VARIABLE = "RECOMPUTE_WORKLOADS"
GROUP = "recompute_workloads"
OWN = "own:"


def resolve(workload: str | None, factory: str | None) -> str:
    """The name of what is asked for: a workload of ours, `hf:…`, `timm:…` or `own:…`.

    `factory` is the path that a command line registers, for this process and those it starts. Raises
    InputError for what nobody knows.
    """
    if (workload is None) == (factory is None):
        raise InputError("give either a WORKLOAD or --workload package.module:function")
    if factory is not None:
        if not is_factory(factory):
            raise InputError(f"--workload {factory}: expected package.module:function")
        known = filter(None, (os.environ.get(VARIABLE), factory))
        os.environ[VARIABLE] = ",".join(dict.fromkeys(known))
        return OWN + factory
    assert workload is not None
    if workload in OURS or workload.startswith(("hf:", "timm:")):
        return workload
    name = workload.removeprefix(OWN)
    own = registered()
    if name not in own:
        if is_factory(name):
            raise InputError(f"unknown workload {name!r}; for a factory write --workload {name}")
        known_names = ", ".join((*OURS, *own, OTHERS))
        raise InputError(f"unknown workload {workload[:60]!r}; known: {known_names}")
    return OWN + name


def resolve_any(name: str) -> str:
    """`resolve`, where a factory's path stands for itself and is registered."""
    if is_factory(name) and not is_own(name) and name not in registered():
        return resolve(None, name)
    return resolve(name, None)


def factory_path(workload: str) -> str:
    """The factory that `own:NAME` stands for; raises InputError where it is not registered."""
    name = workload.removeprefix(OWN)
    own = registered()
    if name not in own:
        entry = name if is_factory(name) else f"{name}=package.module:function"
        raise InputError(f"{workload[:80]} is not registered here; set {VARIABLE}={entry}")
    return own[name]


def registered() -> dict[str, str]:
    """Factories as `package.module:function`, by name; the variable wins over entry points.

    An entry of the variable is `name=package.module:function`, or a path that is its own name.
    """
    found = {point.name: point.value for point in entry_points(group=GROUP)}
    for entry in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        name, equals, path = (part.strip() for part in entry.partition("="))
        path = path if equals else name
        if not name or not is_factory(path):
            raise InputError(f"{VARIABLE}: expected name=package.module:function, got {entry!r}")
        found[name] = path
    return found


def is_factory(path: str) -> bool:
    """Whether a text has the form `package.module:function`."""
    module, colon, function = path.partition(":")
    dotted = all(part.isidentifier() for text in (module, function) for part in text.split("."))
    return bool(colon) and dotted


def settings_of(name: str) -> tuple[str, dict[str, Any]]:
    """`hf:LlamaConfig?hidden_size=256` as what is built, and its settings; values are YAML."""
    what, _, query = name.partition(":")[2].partition("?")
    settings: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, text = part.partition("=")
        if not key.isidentifier() or not equals:
            raise InputError(f"{name}: expected ?setting=value&setting=value, got {part!r}")
        if key in settings:
            raise InputError(f"{name}: {key} is given twice")
        settings[key] = parse_yaml(text, f"{name}: {key}")
    if not what:
        raise InputError(f"{name}: expected a name after the colon, such as hf:LlamaConfig")
    return what, settings


def whole(name: str, key: str, value: Any) -> int:
    """The value of a setting that counts something; raises InputError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}: {key}: expected a whole number above 0, got {value!r}")
    return value
