"""Searching for a study's best plans in a process of its own, which outlives whoever started it.

The answer lies in the study's folder, one file a shape. Beside it lies `.failed` from the start of a
search until its answer is kept, so that one that was killed or could not write is not forgotten.
Importing this imports no torch.
"""

import argparse
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ..errors import InputError, StoreError
from ..plans.anatomy import anatomy_of
from ..results import PlanResult
from ..settings import shape_key
from ..spec import StudySpec, check_not_compiled
from ..writing import check_writable, write_whole
from .background import in_one_line, machine_to_itself, named, one_line
from .launch import start_detached
from .locks import Lock, machine_lock
from .store import Store

_MODULE = "recompute_core.studies.searching"
INTERRUPTED = "it was interrupted, or could not write its answer"
"""What is said of a search that could not say more."""


@dataclass(frozen=True)
class Failed:
    """The last search ended without an answer."""

    why: str
    """In one line."""
    earlier: PlanResult | None = None
    """What a search before it has found."""


Progress = Literal["waiting", "running"]
SearchState = Literal["none"] | Progress | Failed | PlanResult


def search_state(store: Store, study: str, shape: str) -> SearchState:
    """How the search at a shape (by its key) stands."""
    try:
        # Asked twice: a search that starts just now has a `.failed` too.
        before = search_progress(store, study, shape)
        ended = None if before else _ended(store, study, shape)
        return before or search_progress(store, study, shape) or ended or "none"
    except OSError as error:
        return Failed(f"{error.filename}: {error.strerror}")
    except StoreError as error:
        return Failed(str(error))


def search_progress(store: Store, study: str, shape: str) -> Progress | None:
    """Whether a search at a shape runs, or waits while something else is measured on this machine,
    by whatever RECOMPUTE_HOME or command."""
    if not _lock(store, study, shape).is_held():
        return None
    works = _lock(store, study, shape, "turn").is_held() or not machine_lock().is_held()
    return "running" if works else "waiting"


def _ended(store: Store, study: str, shape: str) -> SearchState:
    answer = _answer(store, study, shape)
    try:
        why = _path(store, study, shape, "failed").read_text(errors="replace")
    except FileNotFoundError:
        return answer or "none"
    return Failed(one_line(why) or INTERRUPTED, answer)


def _answer(store: Store, study: str, shape: str) -> PlanResult | None:
    """The answer that is kept; None when there is none, or it is damaged or of another version."""
    try:
        found = PlanResult.model_validate_json(_path(store, study, shape, "json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return found if found.shape_key == shape and _is_sound(found, store.study(study).spec) else None


def _is_sound(found: PlanResult, spec: StudySpec) -> bool:
    """Whether an answer's figures can be drawn, and its plans are of this study's model."""
    points = (found.plain, found.floor, *found.points)
    names = {point.plan for point in found.points}
    modules = {m for point in found.points for region in point.regions for m in region.modules}
    anatomy = anatomy_of(spec.workload)
    return (
        all(0 < point.peak_bytes < 2**63 for point in points)
        and len(names) == len(found.points)
        and all(map(anatomy.has, modules))
    )


def searches(store: Store) -> list[tuple[str, str]]:
    """Study and shape of every search that runs, or waits for the machine; those that run first."""
    locks = (store.home / "studies").glob("*/plans *.lock")
    named = sorted((path.parent.name, path.stem.removeprefix("plans ")) for path in locks)
    found = [(one, progress) for one in named if (progress := search_progress(store, *one))]
    return [one for one, _ in sorted(found, key=lambda pair: pair[1] == "waiting")]


def start_search(store: Store, study: str, shape: str) -> None:
    """Search in the background; does nothing while a search at that shape runs."""
    check_not_compiled(at_shape(store.study(study).spec, shape), "a search for plans")
    lock = _lock(store, study, shape)
    try:
        store.folder(study).mkdir(parents=True, exist_ok=True)
        if not lock.acquire(patience_s=0.2):
            return
        check_writable(_path(store, study, shape, "json"))
        _path(store, study, shape, "failed").write_text(INTERRUPTED)
        log = store.folder(study) / "search.log"
        start_detached(_MODULE, (study, shape), store, log, lock)
    except OSError as error:
        raise StoreError(f"{store.folder(study)}: {error.strerror}") from None
    finally:
        lock.release()


def keep_answer(store: Store, study: str, answer: PlanResult) -> None:
    """Lay an answer beside a study, whole or not at all. A study that is gone is not made again."""
    path = _path(store, study, answer.shape_key, "json")
    try:
        write_whole(path, answer.model_dump_json(by_alias=True))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None


def at_shape(spec: StudySpec, shape: str) -> StudySpec:
    """The specification at one of its shapes alone; raises InputError when it has no such shape."""
    known = {shape_key(spec.at(sizes)): sizes for sizes in spec.shapes}
    if shape not in known:
        raise InputError(f"no shape {shape!r} in this study; it has {', '.join(known)}")
    return spec.model_copy(update={"shapes": (known[shape],)})


def _lock(store: Store, study: str, shape: str, ending: Literal["lock", "turn"] = "lock") -> Lock:
    """`lock` is held by a search from its start to its end; `turn` while it holds the machine."""
    return Lock(_path(store, study, shape, ending))


def _path(store: Store, study: str, shape: str, ending: str) -> Path:
    return store.folder(study) / f"plans {shape}.{ending}"


def search(store: Store, study: str, shape: str) -> None:
    """Search in this process, once no study is being measured; keeps the answer, or why there is none.

    Ops are timed, so the machine is held meanwhile.
    """
    from ..planning import Wish, plan

    turn = _lock(store, study, shape, "turn")
    failed = _path(store, study, shape, "failed")
    try:
        spec = at_shape(store.study(study).spec, shape)
        with machine_to_itself(f"a search for plans of {named(spec)} at {shape}"):
            turn.acquire(patience_s=1)  # refused where the study's folder is gone
            keep_answer(store, study, plan(spec, Wish(frontier=True)))
        failed.unlink(missing_ok=True)
    except Exception as error:
        traceback.print_exc()
        try:
            # In place: a folder that takes no new file may still let an old one be written.
            failed.write_text(in_one_line(error))
        except OSError as unwritten:
            print(f"{failed}: {unwritten.strerror}", file=sys.stderr)
    finally:
        turn.release()


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
