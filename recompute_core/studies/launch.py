"""Starting and resuming studies in a driver of their own, which outlives whoever started it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from ..errors import InputError, StoreError
from ..spec import StudySpec
from .admission import admit
from .store import Store


def launch(store: Store, spec: StudySpec) -> str:
    """Admit a study, declare its thresholds, start it in the background; returns its id."""
    admit(spec, store.home)
    study = store.create(spec)
    resume(store, study)
    return study


def environment_for(store: Store) -> dict[str, str]:
    """Of a background process: our store, and this very package wherever it was started from."""
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, places))
    return {**os.environ, "RECOMPUTE_HOME": str(store.home), "PYTHONPATH": path}


def resume(store: Store, study: str) -> None:
    """Go on with a study in the background; raises InputError when it is being driven already."""
    row = store.study(study)
    if row.status == "done":
        raise InputError(f"study {study} is done; there is nothing to resume")
    lock = store.claim(study)
    # The lock travels to the driver, so that at no moment a study that is on its way looks abandoned.
    assert lock.descriptor is not None
    try:
        store.ask_cancel(study, False)
        store.set_status(study, "queued")
        with open(store.folder(study) / "driver.log", "ab") as log:
            driver = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "recompute_core.studies.driver",
                    study,
                    "--lock-fd",
                    str(lock.descriptor),
                ],
                env=environment_for(store),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lock.descriptor,),
            )
        threading.Thread(target=driver.wait, daemon=True).start()  # reap it when it ends
    except OSError as error:
        raise StoreError(f"{store.folder(study)}: {error.strerror}") from None
    finally:
        lock.release()
