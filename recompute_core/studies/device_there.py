"""Is the accelerator that a study asks for on this machine? Asked of a process that may load torch.

Run as a module it is that process, with the device's name as its argument: it prints why not, or
nothing.
"""

import subprocess
import sys

from ..errors import InputError
from ..processes import environment, how_ended
from ..spec import StudySpec

_PATIENCE_S = 60


def check_device(spec: StudySpec) -> None:
    """Raises InputError when a study asks for an accelerator that this machine has not; where a cluster
    does its cells, what is here says nothing."""
    if spec.device in ("auto", "cpu") or spec.engine != "local":
        return
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, spec.device],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"device: no {spec.device} was found within {_PATIENCE_S} s") from None
    if done.stdout:
        raise InputError(done.stdout.strip())
    if done.returncode:
        how = how_ended(done.returncode)
        raise InputError(f"device: the process that looked for {spec.device} {how}")


def main() -> None:
    from ..workloads.device import pick_device

    try:
        pick_device(sys.argv[1])  # type: ignore[arg-type]
    except InputError as error:
        print(error)


if __name__ == "__main__":
    main()
