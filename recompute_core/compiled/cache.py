"""What inductor needs of a machine: a C++ compiler, and a folder for what it has compiled. No torch.

The folder is shared by the workers of all studies of one RECOMPUTE_HOME, so that plain's kernels are
made once. Only kernels are cached: every process traces its graphs anew, since they are looked at.
"""

import fcntl
import importlib
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ..errors import InputError
from ..spec import Backend

LARGEST_BYTES = 2 << 30
"""Above this the folder is emptied at the next reference phase of a compiled study."""
_IN_USE: dict[Path, int] = {}
"""By folder, the descriptor of the lock that this process holds on it until it ends."""


def check_compiler(backend: Backend) -> None:
    """Raises InputError when this machine lacks what the backend needs."""
    if backend == "inductor" and shutil.which(_compiler()) is None:
        raise InputError(
            f"compile.backend: inductor needs a C++ compiler and there is no {_compiler() or 'CXX'}; "
            "install it, name another in CXX, or take aot_eager"
        )


def kernel_makers(device: str) -> dict[str, str | None]:
    """What inductor makes its kernels with: the C++ compiler in its own words, and Triton on CUDA."""
    answer = subprocess.run([_compiler(), "--version"], capture_output=True, text=True, timeout=20)
    found = {"cxx": answer.stdout.split("\n")[0].strip() or None}
    if device == "cuda":
        found["triton"] = str(importlib.import_module("triton").__version__)
    return found


def _compiler() -> str:
    """As torch chooses it (torch._inductor.config.cpp.cxx), so that no other one is recorded."""
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")


def cache_folder(home: Path) -> Path:
    return home / "inductor"


def use_folder(home: Path, trim: bool, largest_bytes: int = LARGEST_BYTES) -> Path:
    """The folder, which nobody else empties until this process ends.

    `trim` empties it before when it has grown beyond `largest_bytes`, unless another process uses it.
    """
    folder = cache_folder(home).absolute()
    home.mkdir(parents=True, exist_ok=True)
    if folder not in _IN_USE:
        _IN_USE[folder] = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock = _IN_USE[folder]
    if trim:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _bytes_in(folder) > largest_bytes:
                shutil.rmtree(folder, ignore_errors=True)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return folder


def _bytes_in(folder: Path) -> int:
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # kernels are renamed as they are finished
                found += os.lstat(os.path.join(place, name)).st_size
    return found
