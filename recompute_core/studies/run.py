"""A whole study from Python, in the foreground."""

from pathlib import Path
from typing import Any

from ..results import StudyResult
from ..spec import StudySpec, parse_spec
from .admission import admit
from .assemble import assemble
from .driver import Listener, drive, unheard
from .store import Store


def run_study(
    spec: StudySpec | dict[str, Any], home: Path | None = None, listener: Listener = unheard
) -> StudyResult:
    """Run a study to its verdict and return the result.

    `spec` may be plain data, as in a YAML file. `home` is RECOMPUTE_HOME by default. Call it under
    `if __name__ == "__main__":` in a script, as with anything that starts worker processes.
    Raises InputError for a specification that cannot be run, StoreError when the store cannot be used.
    """
    checked = spec if isinstance(spec, StudySpec) else parse_spec(spec)
    store = Store(home)
    try:
        study = store.create(admit(checked, store.home))
        drive(store, study, listener=listener)
        return assemble(store.study(study), store.cells(study))
    finally:
        store.close()
