"""Settings of a process that compiles."""

import os
from pathlib import Path

from ..spec import Backend
from .cache import check_compiler, kernel_makers, use_folder


def prepare_compiler(
    backend: Backend, home: Path, device: str = "cpu", trim: bool = False
) -> dict[str, str | None]:
    """Get this process ready to compile; returns the facts that compiled figures depend on. `trim`: the
    kernels that are kept may be thrown away before, if they have become too many.

    Raises InputError when this machine lacks a compiler. Kernels are compiled one after another, in this
    process: a pool of helpers would still be about while updates are timed.
    """
    check_compiler(backend)
    if backend != "inductor":
        return {}
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(use_folder(home, trim))
    from torch._inductor import config

    config.compile_threads = 1
    return kernel_makers(device)
