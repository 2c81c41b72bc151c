"""The driver: asks what comes next, has a worker do it, and keeps what it says, until all is done.

One driver a study, one measuring driver a machine. What a worker says is written to the store line
by line, so a kill of anything loses at most the phase that was running.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import Cancelled, EngineError, InputError, StoreError
from ..plans.names import budget_of, regions_of
from ..results import Canary
from .artifacts import history_name, reference_name, trace_name
from .assemble import assemble
from .background import named
from .engine import TICK_S, Engine, Following, Garbled
from .engines import engine_for
from .environment import check_same_environment
from .flow import Book, CellKey, Task, next_task, read_record, ready_tasks, without_rollback
from .locks import Lock, machine_lock
from .looking import check_registered
from .store import Phase, Status, Store
from .worker import Assignment

Listener = Callable[[str, CellKey | None, dict[str, Any]], None]
"""Hears (kind, cell, data) of everything that is written to the store, and `asked` of a worker that was
asked for and has not begun."""


def unheard(kind: str, cell: CellKey | None, data: dict[str, Any]) -> None:
    """A listener that takes no notice."""


_NO_PLACE_S = 120.0
"""How long a study whose engine has no place for it waits for one."""


def drive(
    store: Store,
    study: str,
    lock: Lock | None = None,
    listener: Listener = unheard,
) -> None:
    """Do all that is left of a study and conclude it.

    Raises InputError when another driver has it, EngineError when it cannot be done where it was to be,
    Cancelled when asked to stop. `lock` is the study's driver lock when the caller holds it already.
    """
    spec = store.study(study).spec
    check_registered(spec)
    held = lock or store.claim(study)
    machine = machine_lock(f"the study {study} of {named(spec)}")
    try:
        driver = _Driver(store, study, listener)
        try:
            if spec.engine == "local":
                driver.wait_for(machine)
            driver.run()
        except (Cancelled, KeyboardInterrupt):
            driver.conclude("cancelled")
            store.ask_cancel(study, False)
            raise Cancelled(f"study {study} was cancelled; 'resume {study}' goes on") from None
        except EngineError as error:
            driver.conclude("incomplete", str(error))
            raise
    finally:
        machine.release()
        held.release()


@dataclass(frozen=True)
class _Running:
    """A task that a worker is doing."""

    task: Task
    following: Following
    listening: "_Listening"


class _Driver:
    def __init__(self, store: Store, study: str, listener: Listener) -> None:
        self._store = store
        self._study = study
        self._listen = listener
        self._spec = store.study(study).spec
        self._running: list[_Running] = []
        store.forget_unfinished(study)
        for cell in store.cells(study):
            if cell.phase == "reference" and not self._reference(cell.shape_key).exists():
                store.forget_cell(study, cell.shape_key, cell.plan, cell.phase)
        for key in without_rollback(self._spec, self._book()):
            store.forget_cell(study, *key)

    def wait_for(self, machine: Lock) -> None:
        """Queue until this study may measure on this machine: first come, first served."""
        self._store.set_status(self._study, "queued")
        told: int | None = None
        while True:
            self._stop_if_asked()
            ahead = [row.id for row in self._store.live() if row.spec.engine == "local"]
            ahead = ahead[: ahead.index(self._study)] if self._study in ahead else ahead
            if not ahead and machine.acquire():
                return
            if told != len(ahead):
                told = len(ahead)
                self._listen("queued", None, {"ahead": told})
            time.sleep(TICK_S)

    def run(self) -> None:
        engine = engine_for(self._spec, self._store.folder(self._study) / "worker.log")
        try:
            self._store.set_status(self._study, "running")
            self._do_all(engine)
        finally:
            with ExitStack() as ending:  # each is stopped, whatever becomes of another
                ending.callback(engine.close)
                for one in self._running:
                    ending.callback(one.listening.forget_begun)
                    ending.callback(one.following.stop)
        result = assemble(self._store.study(self._study), self._store.cells(self._study))
        failed = any(cell.state == "failed" for cell in self._store.cells(self._study))
        missed = any(getattr(j.candidate, "stopped_by", "") == "canary" for j in result.judged)
        self.conclude("incomplete" if failed or missed else "done")

    def _do_all(self, engine: Engine) -> None:
        """Keep every place of the engine busy until nothing is left that can be done."""
        self._begin(engine)
        since = time.monotonic()
        while self._running or next_task(self._spec, self._book()) is not None:
            if self._running:
                since = time.monotonic()
            elif time.monotonic() - since > _NO_PLACE_S:
                raise EngineError(f"nothing has taken what is left for {_NO_PLACE_S:.0f} s")
            else:
                self._stop_if_asked()
                time.sleep(TICK_S)
                self._begin(engine)
            for one in tuple(self._running):
                told = one.listening.told
                why = one.following.step(TICK_S / len(self._running))
                if why is not None:
                    one.listening.end(why)
                    self._running.remove(one)
                self._stop_if_asked()
                if why is not None or one.listening.told > told:
                    self._begin(engine)

    def _begin(self, engine: Engine) -> None:
        """Begin what can be begun now."""
        while len(self._running) < engine.places:
            busy = {(one.task.shape_key, one.task.plan) for one in self._running}
            task = next(ready_tasks(self._spec, self._book(), busy), None)
            if task is None:
                return
            canary = self._canary_of(task) if task.phases[0] == "canary" else None
            if canary is not None:
                self._take_over(task, canary)
            elif not self._start(engine, task):
                return

    def conclude(self, status: Status, why: str | None = None) -> None:
        """Write down how the study ended; `why` is said in the place of what it found."""
        result = assemble(self._store.study(self._study), self._store.cells(self._study))
        cancelled = "Cancelled; what was finished is kept." if status == "cancelled" else None
        sentence = why or cancelled or result.sentence
        self._store.conclude(self._study, status, result.verdict, sentence)
        self._listen("status", None, {"status": status, "sentence": sentence})

    def _book(self) -> Book:
        return Book.of(self._store.cells(self._study))

    def _start(self, engine: Engine, task: Task) -> bool:
        """Begin a task; whether there was a place for it."""
        worker = engine.start(
            Assignment(
                spec=self._spec,
                shape=task.shape,
                regions=regions_of(self._spec, task.plan),
                budget=budget_of(task.plan),
                phases=task.phases,
                home=self._store.home,
                reference=self._reference(task.shape_key),
                trace=self._store.folder(self._study) / trace_name(task.shape_key, task.plan),
                history=self._store.folder(self._study) / history_name(task.shape_key, task.plan),
                plain=self._book().reference(task.shape_key),
                environment=self._store.study(self._study).environment,
                proof=task.proof,
                noise_floor=task.noise_floor,
                canary=task.canary,
            )
        )
        if worker is None:
            return False
        listening = _Listening(self, task)
        following = Following(worker, listening.hear, self._spec.silence_s)
        self._running.append(_Running(task, following, listening))
        self._listen("asked", (task.shape_key, task.plan, task.phases[0]), {})
        return True

    def _canary_of(self, task: Task) -> Canary | None:
        return self._book().canary_of(task.canary) if task.canary else None

    def _take_over(self, task: Task, canary: Canary) -> None:
        """Let a canary that was caught earlier stand for this candidate's."""
        key: CellKey = (task.shape_key, task.plan, "canary")
        payload = canary.model_dump(mode="json", by_alias=True)
        self._store.begin_cell(self._study, *key)
        self._store.finish_cell(self._study, *key, payload)
        self._listen("done", key, {"payload": payload})

    def _reference(self, shape_key: str) -> Path:
        return self._store.folder(self._study) / reference_name(shape_key)

    def _stop_if_asked(self) -> None:
        if self._store.cancel_asked(self._study):
            raise Cancelled


class _Listening:
    """Writes one worker's lines to the store."""

    def __init__(self, driver: _Driver, task: Task) -> None:
        self._store, self._study, self._tell = driver._store, driver._study, driver._listen
        self._task = task
        engine = driver._spec.engine
        self._elsewhere = {} if engine == "local" else {"engine": engine}
        self._left = list(task.phases)
        self._begun: Phase | None = None
        self.told = 0
        """How many phases have ended."""

    def hear(self, said: dict[str, Any]) -> None:
        kind, phase = said.pop("kind"), said.pop("phase")
        key: CellKey = (self._task.shape_key, self._task.plan, phase)
        if kind == "start":
            self._store.begin_cell(self._study, *key)
            self._begun = phase
        elif kind == "done":
            read_record(phase, said["payload"])  # what cannot be read again is not kept
            self._store.finish_cell(self._study, *key, said["payload"])
            self._left.remove(phase)
            self.told += 1
        elif kind == "failed":
            self._store.fail_cell(self._study, *key, said["reason"])
            self._left.clear()
        elif kind == "environment":
            self._environment(said["data"])
        elif kind in ("pair", "progress", "placed"):
            self._store.add_event(self._study, kind, key, **said)
        else:
            raise Garbled(f"the worker said something unknown: {str(kind)[:80]!r}")
        self._tell(kind, key, said)

    def _environment(self, here: dict[str, Any]) -> None:
        """What this reference was measured on must be what another one was that ran beside it."""
        try:
            check_same_environment(self._store.study(self._study).environment, here)
        except RuntimeError as error:
            raise Garbled(str(error)) from None
        self._store.set_environment(self._study, here | self._elsewhere)

    def forget_begun(self) -> None:
        """The worker was stopped, so what it was doing is to be done again."""
        if self._begun in self._left:
            self._store.forget_cell(self._study, self._task.shape_key, self._task.plan, self._begun)

    def end(self, why: str) -> None:
        """The worker has ended; the phase it owed is a failure."""
        if self._left:
            key: CellKey = (self._task.shape_key, self._task.plan, self._left[0])
            if self._begun != self._left[0]:
                self._store.begin_cell(self._study, *key)
            self._store.fail_cell(self._study, *key, why)
            self._tell("failed", key, {"reason": why})


def main() -> None:
    """Drive one study detached from whoever started it; used by `launch`."""
    parser = argparse.ArgumentParser(prog="recompute_core.studies.driver", description=main.__doc__)
    parser.add_argument("study")
    parser.add_argument("--lock-fd", type=int, required=True)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        store = Store()
        lock = store.driver_lock(asked.study)
        lock.adopt(asked.lock_fd)
        drive(store, asked.study, lock)
    except (InputError, StoreError, EngineError, Cancelled) as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
