"""Which blocks somebody's own model has: asked of a process that may load torch and build the model.

Run as a module it is that process: settings as JSON on standard input, the answer in a named file, and
how many ranks are to share the model's batch, if any are.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pydantic import ValidationError

from ..errors import InputError
from ..processes import environment
from ..settings import OwnSettings
from ..spec import StudySpec, explain
from ..workloads.registered import factory_path

_PATIENCE_S = 180


def looked_up(spec: StudySpec) -> StudySpec:
    """The specification with its model's anatomy; ours have theirs by their settings.

    An anatomy that is given must be that of the model as it is now. Raises InputError in one line for
    another one, for a model that cannot be built, and for a batch that the study's ranks cannot share.
    """
    if not isinstance(spec.workload, OwnSettings):
        return spec
    asked = spec.workload.model_copy(update={"anatomy": None})
    brings_batch = asked.kind == "own"  # those of hf: and timm: are known by their sizes
    found = _looked(asked, spec.ranks.count if spec.ranks and brings_batch else None)
    if spec.workload.anatomy not in (None, found.anatomy):
        raise InputError(
            f"workload.anatomy: {spec.workload.name} is made of other modules now; leave the anatomy out"
        )
    return spec.model_copy(update={"workload": found})


def check_registered(spec: StudySpec) -> None:
    """Raises InputError when a study's model is made by a factory that is not registered here."""
    if isinstance(spec.workload, OwnSettings) and spec.workload.kind == "own":
        factory_path(spec.workload.name)


def _looked(settings: OwnSettings, ranks: int | None) -> OwnSettings:
    shared_by = [] if ranks is None else [str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        try:
            done = subprocess.run(
                [sys.executable, "-m", "recompute_core.studies.looking", str(answer), *shared_by],
                input=settings.model_dump_json(),
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                env=environment(),
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"{settings.name}: was not built within {_PATIENCE_S} s") from None
        try:
            said = json.loads(answer.read_text())
        except (OSError, ValueError):
            raise InputError(f"{settings.name}: building it ended the process, {_how(done)}") from None
    if "error" in said:
        raise InputError(said["error"])
    return OwnSettings.model_validate(said)


def _how(done: "subprocess.CompletedProcess[str]") -> str:
    """With which code or signal, and the last thing it said."""
    last = (done.stderr.strip().splitlines() or ["and said nothing"])[-1]
    code = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return f"{code}: {last[:200]}"


def _end_with(parent: int) -> None:
    """End this process when the one that asked has ended, however that happened."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Look at one model, without getting in the way of what is being measured."""
    os.nice(10)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    import torch

    from ..workloads.others import look

    torch.set_num_threads(1)
    try:
        settings = OwnSettings.model_validate_json(sys.stdin.read())
        ranks = int(sys.argv[2]) if sys.argv[2:] else None
        found = look(settings, ranks).model_dump_json()
    except ValidationError as error:
        found = json.dumps({"error": explain(error)})
    except InputError as error:
        found = json.dumps({"error": str(error)})
    Path(sys.argv[1]).write_text(found)


if __name__ == "__main__":
    main()
