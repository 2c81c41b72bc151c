"""Checking a workload's blocks in a process of its own, before anybody launches a study of it.

What is checked is the model at the smallest shape asked for, with the checkpoint settings: studies that
share those share the answer, which lies under `RECOMPUTE_HOME`/checks. Importing this imports no torch.
"""

import argparse
import hashlib
import json
import math
import traceback
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from .. import __version__
from ..checks.report import BlockReport
from ..errors import StoreError
from ..results import Record
from ..settings import OwnSettings, Settings, size_fields
from ..spec import StudySpec
from ..workloads.sizes import sizes_of
from ..writing import write_whole
from .background import in_one_line, machine_to_itself, named
from .launch import start_detached
from .locks import Lock
from .store import Store

_MODULE = "recompute_core.studies.checking"


class Checked(Record):
    """The answer: a report on every candidate block, with what each keeps for backward."""

    report: BlockReport
    activation_bytes: dict[str, int]
    """By FQN, at the shape that was checked."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Running:
    """A check on its way, and what it does now in a few words."""

    doing: str


@dataclass(frozen=True)
class Failed:
    """A check that ended without an answer, and why in one line."""

    why: str


CheckState = Literal["none"] | Running | Failed | Checked


def asked_check(spec: StudySpec) -> StudySpec:
    """What a check depends on: the model at its smallest shape, and how its blocks are replayed."""
    settings = min((spec.at(shape) for shape in spec.shapes), key=_size)
    return StudySpec(
        workload=settings,
        checkpoint=spec.checkpoint,
        precision=spec.precision,
        device=spec.device,
        seed=spec.seed,
        threads=spec.threads,
    )


def _size(settings: Settings) -> int:
    """What orders the shapes of one workload by size."""
    sizes = sizes_of(settings)
    if sizes is not None:
        return sizes.plain_peak_bytes
    return math.prod(getattr(settings, name) for name in size_fields(settings))


def check_state(store: Store, spec: StudySpec) -> CheckState:
    """How the check of a specification stands; one that was killed leaves no trace."""
    key = _key(spec)
    try:
        if _lock(store, key).is_held():
            return Running(_read(store, key, "doing") or "starting")
        if why := _read(store, key, "failed"):
            return Failed(why)
        answer = _read(store, key, "json")
        return Checked.model_validate_json(answer) if answer else "none"
    except ValidationError:  # by another version, or damaged
        return "none"
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from None


def start_check(store: Store, spec: StudySpec) -> None:
    """Check in the background; does nothing while that check runs."""
    key = _key(spec)
    lock = _lock(store, key)
    try:
        _folder(store).mkdir(parents=True, exist_ok=True)
        if not lock.acquire(patience_s=0.2):
            return
        for ending in ("failed", "doing"):
            _path(store, key, ending).unlink(missing_ok=True)
        write_whole(_path(store, key, "spec"), asked_check(spec).model_dump_json())
        start_detached(_MODULE, (key,), store, _folder(store) / "checks.log", lock)
    except OSError as error:
        raise StoreError(f"{_folder(store)}: {error.strerror}") from None
    finally:
        lock.release()


def check(store: Store, key: str) -> None:
    """Check in this process, once no study is being measured; keeps the answer, or why there is none."""
    try:
        spec = StudySpec.model_validate_json(_path(store, key, "spec").read_text())
        doing = f"a check of the blocks of {named(spec)}"
        with machine_to_itself(doing, lambda words: _tell(store, key, words)):
            _tell(store, key, "starting")
            write_whole(_path(store, key, "json"), _checked(store, key, spec).model_dump_json())
    except Exception as error:
        traceback.print_exc()
        write_whole(_path(store, key, "failed"), in_one_line(error))


def _checked(store: Store, key: str, spec: StudySpec) -> Checked:
    from ..safety import check as check_safety
    from ..safety import own_model

    own = own_model(spec, lambda done, total: None)
    theirs = isinstance(spec.workload, OwnSettings) and spec.precision != "float32"
    autocast = spec.precision if theirs else None
    found = check_safety(own, spec, autocast=autocast, progress=lambda doing: _tell(store, key, doing))
    return Checked(
        report=found.report, activation_bytes=found.activation_bytes, notes=tuple(found.notes)
    )


def _tell(store: Store, key: str, doing: str) -> None:
    write_whole(_path(store, key, "doing"), doing)


def _key(spec: StudySpec) -> str:
    asked = asked_check(spec).model_dump(mode="json")
    versions = [__version__, *(_version(name) for name in ("torch", "transformers", "timm"))]
    text = json.dumps([asked, versions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _folder(store: Store) -> Path:
    return store.home / "checks"


def _path(store: Store, key: str, ending: str) -> Path:
    return _folder(store) / f"{key}.{ending}"


def _lock(store: Store, key: str) -> Lock:
    return Lock(_path(store, key, "lock"))


def _read(store: Store, key: str, ending: str) -> str:
    """What a file of the check says; empty where there is none, or none that can be read as text."""
    try:
        return _path(store, key, ending).read_text(errors="replace")
    except FileNotFoundError:
        return ""


def main() -> None:
    """Check detached from whoever started it; used by `start_check`."""
    parser = argparse.ArgumentParser(prog=_MODULE, description=main.__doc__)
    parser.add_argument("key")
    parser.add_argument("--lock-fd", type=int, required=True)
    asked = parser.parse_args()
    store = Store()
    _lock(store, asked.key).adopt(asked.lock_fd)
    check(store, asked.key)


if __name__ == "__main__":
    main()
