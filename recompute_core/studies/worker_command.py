"""The worker as a command: `python -m recompute_core.studies.worker_command FOLDER`.

For an engine that cannot fork one. The assignment is the first line of standard input, what happens goes
to standard output, and what is printed to standard error. It ends with whoever holds its standard input,
and then removes FOLDER, where the task has its files, as nobody else is left to do so.
"""

import os
import shutil
import signal
import sys
import threading

from ..processes import be_the_first_to_go
from .worker import Assignment, work


def main() -> None:
    """Do one task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    be_the_first_to_go()
    told = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_the_asker, args=(sys.argv[1],), daemon=True).start()
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # what somebody's model prints is not ours to say
        work(Assignment.model_validate_json(told), out)


def _end_with_the_asker(folder: str) -> None:
    os.read(0, 1)  # not through a buffer, whose lock a thread would hold when the interpreter ends
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
