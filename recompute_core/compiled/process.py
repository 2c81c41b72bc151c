"""Settings of a process that compiles."""

import os
from pathlib import Path

from ..spec import Backend
from .cache import cache_folder, check_compiler, compiler_version


def prepare_compiler(backend: Backend, home: Path) -> dict[str, str | None]:
    """Get this process ready to compile; returns the facts that compiled figures depend on.

    Raises InputError when this machine lacks a compiler. Kernels are compiled one after another, in this
    process: a pool of helpers would still be about while updates are timed.
    """
    check_compiler(backend)
    if backend != "inductor":
        return {}
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder(home).absolute())
    from torch._inductor import config

    config.compile_threads = 1
    return {"cxx": compiler_version()}
