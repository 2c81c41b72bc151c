"""What inductor needs of a machine: a C++ compiler, and a folder for what it has compiled. No torch.

The folder is shared by the workers of all studies of one RECOMPUTE_HOME, so that plain's kernels are
made once. Only kernels are cached: every process traces its graphs anew, since they are looked at.
"""

import os
import shutil
import subprocess
from pathlib import Path

from ..errors import InputError
from ..spec import Backend

LARGEST_BYTES = 2 << 30
"""Above this the folder is emptied before the next compiled study."""
_COMPILERS = ("g++", "clang++", "c++")


def check_compiler(backend: Backend) -> None:
    """Raises InputError when this machine lacks what the backend needs."""
    if backend == "inductor" and _compiler() is None:
        raise InputError(
            f"compile.backend: inductor needs a C++ compiler and finds none of {', '.join(_COMPILERS)}; "
            "install one or take aot_eager"
        )


def compiler_version() -> str | None:
    """The C++ compiler in its own words."""
    compiler = _compiler()
    if compiler is None:
        return None
    answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20)
    return answer.stdout.split("\n")[0].strip() or None


def _compiler() -> str | None:
    named = os.environ.get("CXX")
    return next(filter(None, map(shutil.which, ([named] if named else []) + list(_COMPILERS))), None)


def cache_folder(home: Path) -> Path:
    return home / "inductor"


def keep_small(home: Path, largest_bytes: int = LARGEST_BYTES) -> None:
    """Empty the folder when it has grown beyond `largest_bytes`."""
    folder = cache_folder(home)
    sizes = (path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    if sum(sizes) > largest_bytes:
        shutil.rmtree(folder, ignore_errors=True)
