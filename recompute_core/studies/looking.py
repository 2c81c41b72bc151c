"""Which blocks somebody's own model has: asked of a process that may load torch and build the model.

Run as a module it is that process: settings as JSON on standard input, the same with the anatomy out.
"""

import subprocess
import sys

from ..errors import InputError
from ..settings import OwnSettings
from ..spec import StudySpec

_PATIENCE_S = 600


def looked_up(spec: StudySpec) -> StudySpec:
    """The specification with its model's anatomy; ours have theirs by their settings.

    Raises InputError for a model that cannot be built, in one line.
    """
    if not isinstance(spec.workload, OwnSettings) or spec.workload.anatomy is not None:
        return spec
    from .launch import environment

    try:
        done = subprocess.run(
            [sys.executable, "-m", "recompute_core.studies.looking"],
            input=spec.workload.model_dump_json(),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{spec.workload.name}: was not built within {_PATIENCE_S} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"its process ended with code {done.returncode}"]
        name = spec.workload.name
        raise InputError(said[-1] if said[-1].startswith(name) else f"{name}: {said[-1]}")
    found = OwnSettings.model_validate_json(done.stdout.strip().splitlines()[-1])
    return spec.model_copy(update={"workload": found})


def main() -> None:
    """Look at one model; what it prints itself goes to standard error."""
    import contextlib

    from ..workloads.others import look

    settings = OwnSettings.model_validate_json(sys.stdin.read())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = look(settings)
    except InputError as error:
        sys.exit(str(error))
    print(found.model_dump_json())


if __name__ == "__main__":
    main()
