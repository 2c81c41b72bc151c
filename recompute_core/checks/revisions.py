"""Which code was run: digests of the source of a model's classes, and the commit it comes from.

A digest covers a class's own lines, those of the classes it inherits from, and the factory's: not the
functions that they call, nor what replaced a method afterwards. Names and versions stand for what comes
from installed packages; no record holds a folder.
"""

import hashlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from sysconfig import get_paths
from typing import Any

from torch import nn

from ..results import Revisions, SourceRevision
from ..settings import Settings


def factory_of(settings: Settings) -> str | None:
    """`package.module:function` of somebody's own model; None where a name alone makes it."""
    from ..workloads.registered import OWN, factory_path

    return factory_path(settings.name) if settings.name.startswith(OWN) else None


def revisions_of(model: nn.Module, blocks: Iterable[str], factory: str | None = None) -> Revisions:
    """The revisions of a model with these candidate blocks; `factory` is what made it."""
    inside = [module for name in blocks for module in model.get_submodule(name).modules()]
    classes = {
        cls
        for module in (model, *inside)
        for cls in type(module).__mro__
        if issubclass(cls, nn.Module) and cls is not nn.Module
    }
    sources = [_revision(_name(cls), cls) for cls in classes]
    made_by = _function(factory) if factory else None
    if factory:
        sources.append(_revision(factory, made_by))
    own = _file(made_by) if factory else _file(type(model))
    commit, changed = _commit(own) if own and not _is_installed(own) else (None, None)
    return Revisions(
        model=_name(type(model)),
        factory=factory,
        sources=tuple(sorted(sources, key=lambda one: (one.name, one.sha256 or ""))),
        git_commit=commit,
        git_changed=changed,
    )


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _function(factory: str) -> Callable[..., Any] | None:
    """The function behind a path whose module is loaded; None where there is none."""
    module, _, function = factory.partition(":")
    found: Any = sys.modules.get(module)
    for name in function.split("."):
        found = getattr(found, name, None)
    return found if callable(found) else None


def _revision(name: str, what: Any) -> SourceRevision:
    digest = reason = None
    try:
        digest = hashlib.sha256(inspect.getsource(what).encode()).hexdigest()
    except TypeError:
        reason = "it is not written in Python"
    except (OSError, SyntaxError, UnicodeDecodeError, IndexError):
        reason = "its text is in no file: typed in, or made by a program"
    path = _file(what)
    library, version = _package(name, path)
    return SourceRevision(
        name=name,
        file=path.name if path else None,
        sha256=digest,
        no_source=reason,
        library=library,
        version=version,
    )


def _file(what: Any) -> Path | None:
    """The file that holds a class or a function."""
    try:
        path = Path(inspect.getsourcefile(what) or "")
    except (TypeError, OSError):
        return None
    return path if path.is_file() else None


def _is_installed(path: Path) -> bool:
    return not _package_folders().isdisjoint(path.resolve().parents)


@cache
def _package_folders() -> frozenset[Path]:
    """Where packages are installed."""
    places = (Path(place) for place in (*get_paths().values(), *sys.path) if place)
    return frozenset(p.resolve() for p in places if p.name in ("site-packages", "dist-packages"))


def _package(name: str, path: Path | None) -> tuple[str | None, str | None]:
    """The installed package that a name comes from, with its version."""
    if path is None or not _is_installed(path):
        return None, None
    top = re.split(r"[.:]", name)[0]
    for package in _candidates(top):
        with suppress(metadata.PackageNotFoundError):
            return package, metadata.version(package)
    return None, None


def _candidates(top: str) -> Iterator[str]:
    """Packages that may hold a top-level module: its namesake, and only then, as it takes a second,
    those that list it among their files."""
    yield top
    yield from metadata.packages_distributions().get(top, ())


def _commit(path: Path) -> tuple[str | None, bool | None]:
    """The commit that holds a file, and whether the file differs from it; None for a file in none."""
    try:
        answer = subprocess.run(
            ["git", "status", "--porcelain=v2", "--branch", "--ignored", "--", path.name],
            cwd=path.parent,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    lines = answer.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    if answer.returncode != 0 or not commit.isalnum() or any(line[:1] in "?!" for line in lines):
        return None, None
    return commit, any(not line.startswith("#") for line in lines)
