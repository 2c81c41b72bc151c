"""Searching for a study's best plans in a process of its own, which outlives whoever started it.

The answer lies in the study's folder, one file a shape. Importing this imports no torch.
"""

import argparse
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ..errors import InputError, StoreError
from ..results import PlanResult
from ..spec import StudySpec, shape_key
from ..writing import write_whole
from .launch import start_detached
from .locks import Lock, machine_lock
from .store import Store

_MODULE = "recompute_core.studies.searching"
_PATIENCE_S = 3600.0


@dataclass(frozen=True)
class Failed:
    """A search that ended without an answer, and why in one line."""

    why: str


SearchState = Literal["none", "running"] | Failed | PlanResult


def search_state(store: Store, study: str, shape: str) -> SearchState:
    """How the search at a shape (by its key) stands; one that was killed leaves no trace."""
    if _lock(store, study, shape).is_held():
        return "running"
    try:
        if (failed := _path(store, study, shape, "failed")).exists():
            return Failed(failed.read_text())
        return PlanResult.model_validate_json(_path(store, study, shape, "json").read_bytes())
    except (FileNotFoundError, ValidationError):  # never searched, or by another version
        return "none"
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from None


def searches(store: Store) -> list[tuple[str, str]]:
    """Study and shape of every search that runs, or waits for the machine."""
    locks = (store.home / "studies").glob("*/plans *.lock")
    named = sorted((path.parent.name, path.stem.removeprefix("plans ")) for path in locks)
    return [(study, shape) for study, shape in named if _lock(store, study, shape).is_held()]


def start_search(store: Store, study: str, shape: str) -> None:
    """Search in the background; does nothing while a search at that shape runs."""
    at_shape(store.study(study).spec, shape)
    lock = _lock(store, study, shape)
    try:
        store.folder(study).mkdir(parents=True, exist_ok=True)
        if not lock.acquire(patience_s=0.2):
            return
        _path(store, study, shape, "failed").unlink(missing_ok=True)
        log = store.folder(study) / "search.log"
        start_detached(_MODULE, (study, shape), store, log, lock)
    except OSError as error:
        raise StoreError(f"{store.folder(study)}: {error.strerror}") from None
    finally:
        lock.release()


def keep_answer(store: Store, study: str, answer: PlanResult) -> None:
    """Lay an answer beside a study, whole or not at all."""
    _write(_path(store, study, answer.shape_key, "json"), answer.model_dump_json(by_alias=True))


def at_shape(spec: StudySpec, shape: str) -> StudySpec:
    """The specification at one of its shapes alone; raises InputError when it has no such shape."""
    known = {shape_key(spec.at(sizes)): sizes for sizes in spec.shapes}
    if shape not in known:
        raise InputError(f"no shape {shape!r} in this study; it has {', '.join(known)}")
    return spec.model_copy(update={"shapes": (known[shape],)})


def _lock(store: Store, study: str, shape: str) -> Lock:
    return Lock(_path(store, study, shape, "lock"))


def _path(store: Store, study: str, shape: str, ending: str) -> Path:
    return store.folder(study) / f"plans {shape}.{ending}"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None


def search(store: Store, study: str, shape: str) -> None:
    """Search in this process, once no study is being measured; keeps the answer, or why there is none.

    Ops are timed, so the machine is held meanwhile.
    """
    from ..planning import Wish, plan

    machine = machine_lock()
    try:
        spec = at_shape(store.study(study).spec, shape)
        if not machine.acquire(_PATIENCE_S):
            raise InputError("the machine was busy with studies for an hour; try again")
        keep_answer(store, study, plan(spec, Wish(frontier=True)))
    except Exception as error:
        traceback.print_exc()
        known = isinstance(error, InputError | StoreError)
        why = str(error) if known else f"{type(error).__name__}: {error}"
        _write(_path(store, study, shape, "failed"), " ".join(why.split())[:280])
    finally:
        machine.release()


def main() -> None:
    """Search detached from whoever started it; used by `start_search`."""
    parser = argparse.ArgumentParser(prog="recompute_core.studies.searching", description=main.__doc__)
    parser.add_argument("study")
    parser.add_argument("shape")
    parser.add_argument("--lock-fd", type=int, required=True)
    asked = parser.parse_args()
    store = Store()
    _lock(store, asked.study, asked.shape).adopt(asked.lock_fd)
    search(store, asked.study, asked.shape)


if __name__ == "__main__":
    main()
