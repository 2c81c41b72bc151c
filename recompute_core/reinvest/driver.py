"""Does a reinvestment from its first phase to its verdict; what is finished is never done again.

Every phase is written to a file of its own as soon as it is finished, so that a kill of anything loses
at most the one that was running; a training run goes on from its last checkpoint.
"""

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import Cancelled, EngineError, InputError, StoreError
from ..estimating import LIMITS, Field
from ..results import Record
from ..settings import ReceiptsSettings, size_fields
from ..studies.background import in_one_line
from ..studies.engine import follow
from ..studies.flow import Book
from ..studies.launch import start_detached
from ..studies.local_engine import LocalEngine
from ..studies.locks import Lock, machine_lock
from ..studies.store import Store
from .admission import admit, candidate_of, spec_at
from .asked import SIDES, ReinvestSpec, Side
from .found import Accumulation, Reach, Throughput, TrainingRun, Tried, used_microbatch
from .kept import Kept, Now, declare, run_named, training_name
from .reaching import Search, asked_size, find_reach, try_size
from .result import findings_of, result_of, why_not_trained
from .worker import Assignment

Found = TypeVar("Found", bound=Record)
Listener = Callable[[Now], None]
"""Hears what is being done."""

_MODULE = "recompute_core.reinvest.driver"
_TICK_S = 0.2
_TOLD_S = 0.5
"""How often what is being done is written down at most."""
PHASES = 4
"""Phases besides the training runs: the two reaches, accumulation, throughput."""


# --- doing it --------------------------------------------------------------------------------


def drive(kept: Kept, held: Lock | None = None, listener: Listener = lambda now: None) -> None:
    """Do all that is left of a run. Raises InputError when it is being done already, Cancelled.

    `held` is the run's lock when the caller has it.
    """
    lock = held or kept.lock
    if held is None and not lock.acquire(patience_s=1):
        raise InputError(f"reinvestment {kept.run_id} is running already")
    doing = f"a second use of the memory that {kept.asked.plan} saves, of study {kept.asked.study}"
    machine, turn = machine_lock(doing), kept.turn
    try:
        if held is None:  # `start` has begun it already: a cancel since then is to be heard
            kept.begin()
        if result_of(kept).verdict is not None:
            return
        run = _Run(kept, listener)
        run.wait_for(machine)
        turn.acquire(patience_s=1)
        run.run()
    except (Cancelled, KeyboardInterrupt):
        kept.ask_cancel()
        raise Cancelled(
            f"reinvestment {kept.run_id} was cancelled; what was finished is kept; ask again to go on"
        ) from None
    except Exception as error:
        with contextlib.suppress(StoreError):  # on a full disk the reason itself is worth more
            kept.fail(in_one_line(error))
        raise
    finally:
        turn.release()
        machine.release()
        lock.release()


class _Failed(StoreError):
    """A phase could not be completed."""


class _Run:
    def __init__(self, kept: Kept, listener: Listener) -> None:
        self._kept, self._asked, self._listen = kept, kept.asked, listener
        store = kept.store
        self._spec = spec_at(store, self._asked)
        is_trained = why_not_trained(self._spec, self._asked) is None
        seeds = self._asked.training.seeds if is_trained else ()
        self._runs = [(side, seed) for seed in seeds for side in SIDES]
        self._candidate = candidate_of(store, self._asked)
        self._engine = LocalEngine(kept.folder / "worker.log")
        self._steps = PHASES + sum(self._asked.updates_of(side) for side, _ in self._runs)
        self._done, self._told, self._words = 0, 0.0, ""
        self._started, self._done_then = time.time(), 0
        row = store.study(self._asked.study)
        book = Book.of(store.cells(row.id))
        legality, reference = book.legality(self._asked.shape), book.reference(self._asked.shape)
        assert legality is not None and reference is not None, "an adopted candidate has both"
        self._legality, self._data_digest = legality, reference.data_digest
        self._environment = row.environment

    def wait_for(self, machine: Lock) -> None:
        """Queue until nothing else is measured on this machine."""
        while not machine.acquire():
            self._stop_if_asked()
            self._tell("waiting for the machine")
            time.sleep(_TICK_S)
        self._started = time.time()

    def run(self) -> None:
        self._set_aside()
        batch = self._reach("batch")
        if "seq_len" in size_fields(self._spec.workload):
            self._reach("seq_len")
        self._done = 2
        used = self._used(batch)
        if used is None or used.peak_bytes is None:
            return
        self._microbatch = used.size
        self._phase("accumulation", Accumulation, "the accumulated gradient at both microbatches")
        self._phase("throughput", Throughput, "whole updates in turn")
        self._train()

    def _set_aside(self) -> None:
        """Phases that do not fit what was asked, or each other, are done again."""
        found = findings_of(self._kept)
        phases = {"used": found.used, "accumulation": found.accumulation, "throughput": found.throughput}
        good = {name for name, phase in phases.items() if phase is not None}
        good |= {training_name(run.side, run.seed) for run in found.runs}
        every = {*phases, *(training_name(side, seed) for side, seed in self._runs)}
        batch = self._kept.read("batch", Reach)
        if batch is not None and batch.plain_size != self._spec.at(self._spec.shapes[0]).batch:
            self._kept.set_aside("batch")
        for name in every - good:
            self._kept.set_aside(name)

    # --- how far it goes ---------------------------------------------------------------------

    def _reach(self, field: Field) -> Reach:
        found = self._kept.read(field, Reach)
        if found is not None:
            return found
        search = self._search(field)
        asked = self._asked.microbatch if field == "batch" else None
        found = find_reach(search) if asked is None else asked_size(search, asked)
        self._kept.write(field, found)
        return found

    def _search(self, field: Field) -> Search:
        budget = self._candidate.memory.plain.peak_bytes
        if budget is None:
            raise InputError("reinvest: this device has no peak counter, so there is no budget to spend")
        most, limit = LIMITS[field], "the search stops there"
        if isinstance(self._spec.workload, ReceiptsSettings) and field == "batch":
            most = self._accepted_photos(self._spec.workload)
            limit = "there are no more accepted photos to train on"
        return Search(
            spec=self._spec,
            plan=self._asked.plan,
            field=field,
            budget_bytes=budget,
            legality=self._legality,
            proof=self._candidate.parity,
            home=self._kept.store.home,
            tell=self._tell,
            tick=self._stop_if_asked,
            most=most,
            limit=limit,
        )

    def _accepted_photos(self, settings: ReceiptsSettings) -> int:
        from ..workloads.receipts.photo_set import photo_set

        return sum(row.accepted for row in photo_set(settings, self._kept.store.home).train)

    def _used(self, reach: Reach) -> Tried | None:
        """The microbatch of whole updates, measured like any other; None where none is larger."""
        size = used_microbatch(self._asked, reach)
        if size is None:
            return None
        found = self._kept.read("used", Tried)
        if found is None:
            found = next((one for one in reach.tried if one.size == size), None)
            found = found or try_size(self._search("batch"), size)
            self._kept.write("used", found)
        return found

    # --- the other phases ----------------------------------------------------------------------

    def _train(self) -> None:
        self._started, self._done_then = time.time(), self._done
        for side, seed in self._runs:
            before = self._done
            name = training_name(side, seed)
            if self._kept.read(name, TrainingRun) is None:
                self._learn(name, side, seed)
            else:  # done by an earlier process: it says nothing of this one's speed
                self._done_then += self._asked.updates_of(side)
            self._done = before + self._asked.updates_of(side)

    def _learn(self, name: str, side: Side, seed: int) -> None:
        words = f"training {side}, seed {seed}"
        path = self._kept.checkpoint(side, seed)
        before = self._done
        with self._kept.log(side, seed).open("w") as log:

            def hear(said: dict[str, Any]) -> None:
                if said["kind"] in ("update", "evaluation"):
                    log.write(json.dumps(said) + "\n")
                    log.flush()
                if said["kind"] == "update":
                    if said.get("again"):
                        self._started, self._done_then = time.time(), before + said["record"]["number"]
                    self._done = before + said["record"]["number"]
                    self._tell(words)

            self._do(name, TrainingRun, words, hear, side=side, seed=seed, checkpoint=path)
        path.unlink(missing_ok=True)

    def _phase(self, name: str, kind: type[Found], words: str) -> None:
        if self._kept.read(name, kind) is None:
            self._do(name, kind, words, lambda said: None)
        self._done += 1

    def _do(
        self,
        name: str,
        kind: type[Found],
        words: str,
        hear: Callable[[dict[str, Any]], None],
        **also: Any,
    ) -> None:
        self._tell(words, now=True)
        task = Assignment.model_validate(
            {
                "task": "training" if kind is TrainingRun else name,
                "asked": self._asked,
                "spec": self._spec,
                "home": self._kept.store.home,
                "environment": self._environment,
                "data_digest": self._data_digest,
                "proof": self._candidate.parity,
                "microbatch": self._microbatch,
                **also,
            }
        )
        found: list[Found] = []
        failed: list[str] = []

        def heard(said: dict[str, Any]) -> None:
            if said["kind"] == "done":
                found.append(kind.model_validate(said["payload"]))
            elif said["kind"] == "failed":
                failed.append(said["reason"])
            elif said["kind"] == "environment":
                self._kept.set_environment(said["data"])
            else:
                hear(said)

        why = follow(self._engine.start(task), heard, self._spec.silence_s, self._stop_if_asked)
        if not found:
            raise _Failed(f"{words} could not be completed: {(failed or [why])[0]}")
        self._kept.write(name, found[0])

    # --- telling and being told ----------------------------------------------------------------

    def _stop_if_asked(self) -> None:
        if self._kept.cancel_asked():
            raise Cancelled

    def _tell(self, words: str, now: bool = False) -> None:
        moment = time.time()
        if not now and words == self._words and moment - self._told < _TOLD_S:
            return
        self._words, self._told = words, moment
        said = Now(
            words=words,
            done=self._done,
            total=self._steps,
            at=moment,
            started=self._started,
            done_then=self._done_then,
        )
        self._kept.tell(said)
        self._listen(said)


# --- in the background -----------------------------------------------------------------------


def start(store: Store, asked: ReinvestSpec) -> Kept:
    """Declare a run and do it in the background; goes on with one that was stopped."""
    admit(store, asked)
    kept = declare(store, asked)
    lock = kept.lock
    if not lock.acquire(patience_s=1):  # whoever looks whether it is held holds it for a moment
        raise InputError(f"reinvestment {kept.run_id} is running already")
    try:
        kept.begin()
        start_detached(_MODULE, (asked.study, kept.run_id), store, kept.folder / "driver.log", lock)
    except OSError as error:
        raise StoreError(f"{kept.folder}: {error.strerror}") from None
    finally:
        lock.release()
    return kept


def main() -> None:
    """Do a run detached from whoever started it; used by `start`."""
    parser = argparse.ArgumentParser(prog=_MODULE, description=main.__doc__)
    parser.add_argument("study")
    parser.add_argument("run")
    parser.add_argument("--lock-fd", type=int, required=True)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        kept = run_named(Store(), asked.study, asked.run)
        lock = kept.lock
        lock.adopt(asked.lock_fd)
        drive(kept, lock)
        print(result_of(kept).sentence)
    except (InputError, StoreError, EngineError, Cancelled) as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
