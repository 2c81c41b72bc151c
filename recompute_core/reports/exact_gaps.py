"""Exact gaps between two kept references, found in a process of its own.

Importing this imports no torch; the process has it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..processes import end_with_parent, fork_server
from ..results import Gap

_GAPS: TypeAdapter[tuple[Gap, ...]] = TypeAdapter(tuple[Gap, ...])


def exact_gaps(recorded: Path, digest: str, here: Path, digest_here: str) -> tuple[Gap, ...] | None:
    """Plain's update here against the recorded tensors; None where the file does not hold them."""
    if not recorded.is_file():
        return None
    context = fork_server()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_compare, args=(str(recorded), digest, str(here), digest_here, theirs), daemon=True
    )
    with _ended(process):
        theirs.close()
        try:
            said = ours.recv_bytes()
        except EOFError:
            return None
        finally:
            ours.close()
    return _GAPS.validate_json(said)


@contextmanager
def _ended(process: Any) -> Iterator[None]:
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join(10)


def _compare(recorded: str, digest: str, here: str, digest_here: str, pipe: Connection) -> None:
    """In a process of its own: says the gaps, or ends without a word."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it decides
    from ..checks.snapshot import compare, load

    try:
        gaps = compare(load(Path(recorded), digest), load(Path(here), digest_here))
    except Exception:  # another file under this name, or a damaged one
        os._exit(0)
    pipe.send_bytes(_GAPS.dump_json(gaps))
