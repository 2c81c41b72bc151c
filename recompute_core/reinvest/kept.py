"""Where a reinvestment lies: a folder in its study's, one file a finished phase. No torch.

The folder is named by what was asked, so asking the same again goes on with it, or shows what it found.
`asked.json` is written first, with the time at which the thresholds were declared. Each phase's file
appears whole or not at all; `log` files hold what a training run has said so far.
"""

import contextlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ..errors import InputError, StoreError
from ..results import Record
from ..studies.background import one_line
from ..studies.locks import Lock
from ..studies.store import Store, now
from ..writing import write_whole
from .asked import (
    ReinvestSpec,
    Side,
)
from .found import (
    Evaluation,
    Update,
)

Found = TypeVar("Found", bound=Record)
_FOLDER = "reinvest"


class Now(Record):
    """What a run is doing."""

    words: str
    done: int
    """Updates and steps done, of `total`."""
    total: int
    at: float
    """When, in seconds since 1970."""
    started: float
    """When the present process began to work."""
    done_then: int
    """How much was done then, so that the time left is of this process's own speed."""


@dataclass(frozen=True)
class Kept:
    """One run on disk."""

    store: Store
    asked: ReinvestSpec
    declared_at: str
    folder: Path

    @property
    def run_id(self) -> str:
        return self.folder.name

    def read(self, name: str, kind: type[Found]) -> Found | None:
        """What a phase found; None where it has not been done or its file is damaged."""
        try:
            return kind.model_validate_json((self.folder / f"{name}.json").read_bytes())
        except (OSError, ValidationError, RecursionError):
            return None

    def write(self, name: str, found: Record) -> None:
        self._write(f"{name}.json", found.model_dump_json(by_alias=True))

    def set_aside(self, name: str) -> None:
        """A phase's file that is damaged or does not fit; nothing where there is none."""
        path = self.folder / f"{name}.json"
        with contextlib.suppress(FileNotFoundError):
            path.replace(path.with_suffix(".damaged"))

    def environment(self) -> dict[str, Any]:
        """The machine it is measured on; empty before anything was."""
        try:
            found = json.loads((self.folder / "environment.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def set_environment(self, environment: dict[str, Any]) -> None:
        self._write("environment.json", json.dumps(environment))

    # --- how it stands ---------------------------------------------------------------------------

    @property
    def lock(self) -> Lock:
        """Held by whoever does the run."""
        return Lock(self.folder / "lock")

    @property
    def turn(self) -> Lock:
        """Held while the run has the machine."""
        return Lock(self.folder / "turn")

    def status(self, is_done: bool) -> str:
        """`running`, `waiting`, `done`, `failed`, `cancelled` or `interrupted`."""
        if self.lock.is_held():
            return "running" if self.turn.is_held() else "waiting"
        if is_done:
            return "done"
        if self.failure() is not None:
            return "failed"
        return "cancelled" if self.cancel_asked() else "interrupted"

    def ask_cancel(self) -> None:
        self._write("cancel", "")

    def cancel_asked(self) -> bool:
        return (self.folder / "cancel").exists()

    def failure(self) -> str | None:
        """Why the last try could not be completed, in one line."""
        try:
            return one_line((self.folder / "failed").read_text(errors="replace"))
        except OSError:
            return None

    def fail(self, why: str) -> None:
        self._write("failed", why)

    def begin(self) -> None:
        """Forget that an earlier try was cancelled or failed."""
        for name in ("cancel", "failed"):
            (self.folder / name).unlink(missing_ok=True)

    def tell(self, now: Now) -> None:
        self._write("now.json", now.model_dump_json())

    def now(self) -> Now | None:
        return self.read("now", Now)

    # --- training runs ---------------------------------------------------------------------------

    def checkpoint(self, side: Side, seed: int) -> Path:
        return self.folder / f"{training_name(side, seed)}.checkpoint"

    def log(self, side: Side, seed: int) -> Path:
        return self.folder / f"{training_name(side, seed)}.log"

    def said(self, side: Side, seed: int) -> tuple[list[Update], list[Evaluation]]:
        """What a training run has said so far; a half-written last line is left out."""
        updates, looks = [], []
        try:
            lines = self.log(side, seed).read_bytes().split(b"\n")
        except FileNotFoundError:
            return [], []
        for line in lines[:-1]:
            try:
                said = json.loads(line)
                if said["kind"] == "update":
                    updates.append(Update.model_validate(said["record"]))
                elif said["kind"] == "evaluation":
                    looks.append(Evaluation.model_validate(said["record"]))
            except (ValueError, KeyError, TypeError):
                continue
        return updates, looks

    def _write(self, name: str, text: str) -> None:
        try:
            write_whole(self.folder / name, text)
        except OSError as error:
            raise StoreError(f"{self.folder / name}: {error.strerror}") from None


def training_name(side: Side, seed: int) -> str:
    """Name of a training run's files: `training plain 0`."""
    return f"training {side} {seed}"


def declare(store: Store, asked: ReinvestSpec) -> Kept:
    """Where a run lies, its thresholds declared now unless they were before."""
    folder = store.folder(asked.study) / _FOLDER / asked.run_id
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "asked.json").exists():
            text = json.dumps({"asked": asked.model_dump(mode="json"), "declared_at": now()})
            write_whole(folder / "asked.json", text)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from None
    found = _kept(store, folder)
    if found is None or found.asked != asked:
        raise StoreError(f"{folder}: asked.json is damaged or was changed; delete that folder")
    return found


def is_moment(said: Any) -> bool:
    """Whether a time is one as `store.now` writes it."""
    try:
        return isinstance(said, str) and datetime.fromisoformat(said).utcoffset() == timedelta(0)
    except ValueError:
        return False


def runs(store: Store, study: str) -> list[Kept]:
    """The runs of a study, those declared last first; damaged ones are left out."""
    folders = (store.folder(study) / _FOLDER).glob("*/asked.json")
    found = [kept for path in folders if (kept := _kept(store, path.parent)) is not None]
    return sorted(found, key=lambda kept: kept.declared_at, reverse=True)


def run_named(store: Store, study: str, run_id: str) -> Kept:
    """One run of a study; raises InputError when there is none of that name."""
    found = next((kept for kept in runs(store, study) if kept.run_id == run_id), None)
    if found is None:
        raise InputError(f"study {study} has no reinvestment {run_id!r}")
    return found


def _kept(store: Store, folder: Path) -> Kept | None:
    try:
        raw = json.loads((folder / "asked.json").read_bytes())
        asked = ReinvestSpec.model_validate(raw["asked"])
        declared_at = raw["declared_at"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not is_moment(declared_at) or asked.run_id != folder.name:
        return None  # damaged, or changed after it was declared
    return Kept(store, asked, declared_at, folder)
