"""Starting and resuming studies in a driver of their own, which outlives whoever started it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from ..errors import InputError, StoreError
from ..processes import environment
from ..spec import StudySpec
from ..writing import open_log
from .admission import admit
from .engines import check_engine
from .locks import Lock
from .looking import check_registered
from .store import Store


def launch(store: Store, spec: StudySpec) -> str:
    """Admit a study, declare its thresholds, start it in the background; returns its id."""
    study = store.create(admit(spec, store.home))
    resume(store, study)
    return study


def resume(store: Store, study: str) -> None:
    """Go on with a study in the background; raises InputError when it is being driven already."""
    row = store.study(study)
    if row.status == "done":
        raise InputError(f"study {study} is done; there is nothing to resume")
    check_registered(row.spec)
    check_engine(row.spec)
    lock = store.claim(study)
    try:
        store.ask_cancel(study, False)
        store.set_status(study, "queued")
        log = store.folder(study) / "driver.log"
        start_detached("recompute_core.studies.driver", (study,), store, log, lock)
    except OSError as error:
        raise StoreError(f"{store.folder(study)}: {error.strerror}") from None
    finally:
        lock.release()


def start_detached(module: str, arguments: tuple[str, ...], store: Store, log: Path, lock: Lock) -> None:
    """Start `python -m module` in a session of its own, its output at the end of `log`.

    The lock travels to it as `--lock-fd`, so that at no moment work that is on its way looks abandoned.
    """
    assert lock.descriptor is not None
    try:
        descriptor = open_log(log)
    except OSError as error:
        raise StoreError(f"{log}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--lock-fd", str(lock.descriptor)],
            env=environment(RECOMPUTE_HOME=str(store.home)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(lock.descriptor,),
        )
    threading.Thread(target=process.wait, daemon=True).start()  # reap it when it ends
