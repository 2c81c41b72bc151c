"""Names of models that are not ours: registered factories, `hf:` and `timm:`. No torch.

Factories are registered when a process starts, by its command line, by `RECOMPUTE_WORKLOADS`, or by the
entry points that installed packages declare; never from the browser.
"""

import os
from importlib.metadata import entry_points
from typing import Any, Literal

import yaml

from ..errors import InputError
from ..spec import WORKLOADS

VARIABLE = "RECOMPUTE_WORKLOADS"
GROUP = "recompute_workloads"
LIBRARIES = ("hf", "timm")


class Named(str):
    """What is to be built, and who builds it: a factory in a module called `hf` is still a factory."""

    kind: Literal["ours", "library", "factory"]


def _named(kind: Literal["ours", "library", "factory"], name: str) -> Named:
    named = Named(name)
    named.kind = kind
    return named


def resolve(workload: str | None, factory: str | None) -> Named:
    """What is to be built: a workload of ours, `hf:…`, `timm:…`, or a factory's path.

    `factory` is what a command line registers. Raises InputError for what nobody knows.
    """
    if (workload is None) == (factory is None):
        raise InputError("give either a WORKLOAD or --workload package.module:function")
    if factory is not None:
        if not is_factory(factory):
            raise InputError(f"--workload {factory}: expected package.module:function")
        return _named("factory", factory)
    assert workload is not None
    if workload in WORKLOADS:
        return _named("ours", workload)
    if workload.partition(":")[0] in LIBRARIES and ":" in workload:
        return _named("library", workload)
    own = registered()
    if workload not in own:
        if is_factory(workload):
            raise InputError(f"unknown workload {workload!r}; for a factory write --workload {workload}")
        known = ", ".join((*WORKLOADS, *own, "hf:CONFIG", "timm:MODEL"))
        raise InputError(f"unknown workload {workload[:60]!r}; known: {known}")
    return _named("factory", own[workload])


def registered() -> dict[str, str]:
    """Factories as `package.module:function`, by name; the variable wins over entry points."""
    found = {point.name: point.value for point in entry_points(group=GROUP)}
    for entry in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        name, equals, path = (part.strip() for part in entry.partition("="))
        if not name or not equals or not is_factory(path):
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
        try:
            settings[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise InputError(f"{name}: {key}: not a value: {text!r}") from None
    if not what:
        raise InputError(f"{name}: expected a name after the colon, such as hf:LlamaConfig")
    return what, settings


def size_setting(name: str, settings: dict[str, Any], key: str, default: int) -> int:
    """Take a size of ours, such as `batch`, out of the settings."""
    return whole(name, key, settings.pop(key, default))


def whole(name: str, key: str, value: Any) -> int:
    """The value of a setting that counts something; raises InputError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}: {key}: expected a whole number above 0, got {value!r}")
    return value
