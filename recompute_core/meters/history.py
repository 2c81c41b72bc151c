"""The history of the CUDA allocator over one update, for PyTorch's viewer (pytorch.org/memory_viz).

The file is torch's own pickle, written by torch and never read here. It names source files of this
machine with their folders, so it stays beside the study and goes into no report; its digest does.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch

from .chrome import TraceNotKept

MOST_BYTES = 200_000_000
MOST_EVENTS = 200_000
"""Allocations and releases that are remembered; of more, the newest."""


def keep_history(run: Callable[[], object], path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Record `run` and keep what torch dumps of it; returns the file's digest.

    Raises TraceNotKept when the file would be larger than `most_bytes` or cannot be written.
    """
    memory = torch.cuda.memory
    part = path.with_name(f"{path.name}.partial")
    # Marks are ranges of record_function, which the history keeps as annotations; those of backward
    # come from autograd's own threads, hence `global`.
    memory._record_memory_history(
        stacks="python",
        max_entries=MOST_EVENTS,
        clear_history=True,
        global_record_annotations=True,
    )
    try:
        run()
        memory._dump_snapshot(str(part))  # type: ignore[no-untyped-call]
        size = part.stat().st_size
        if size > most_bytes:
            raise TraceNotKept(f"{size} bytes; at most {most_bytes} are kept")
        with part.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        part.replace(path)
    except OSError as error:
        raise TraceNotKept(f"it cannot be written: {error.strerror}") from None
    finally:
        memory._record_memory_history(enabled=None)
        part.unlink(missing_ok=True)
    return f"sha256:{digest}"
