"""A disk that is full, and one that can be read only: a small file system of its own, mounted for it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from . import aftermath
from .ledger import Count
from .scene import VERDICTS, Scene, ended, scene

_SMALL_KB, _ROOMY_KB = 400, 64_000


def can_mount() -> bool:
    """Only root mounts, and not in every container."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        return False
    with scene() as here:
        done = _mount(here, _SMALL_KB)
        if done:
            _unmount(here)
    return done


def full(kilobytes: int = _SMALL_KB) -> Count:
    """A study whose store's disk fills up; with more room it goes on."""
    count = Count("disk full", runs=1)
    with scene() as here, _disk(here, kilobytes):
        said = ended(here.start_study())
        before = here.known()
        count.injected = int(said.code == 4 and "disk" in said.err)
        count.tracebacks += not said.is_plain
        _again(here, f"size={_ROOMY_KB}k")
        aftermath.look(here, count, before, said)
    return count


def read_only() -> Count:
    """Every command on a store that cannot be written to; then it can."""
    count = Count("store read-only", runs=1)
    with scene() as here, _disk(here, _ROOMY_KB):
        assert ended(here.start_study()).code in VERDICTS
        before, study = here.known(), here.study()
        assert study is not None
        _again(here, "ro")
        for command in (["studies"], ["longer", study], ["study", str(here.spec)]):
            said = here.run(*command)
            one_line = said.code in (2, 4) and said.err.strip().count("\n") == 0
            count.injected += one_line and "writable" in said.err
            count.tracebacks += not said.is_plain
            count.broken += not (one_line or said.code == 0)
        _again(here, "rw")
        aftermath.look(here, count, before)
    return count


@contextmanager
def _disk(here: Scene, kilobytes: int) -> Iterator[None]:
    if not _mount(here, kilobytes):
        raise RuntimeError("a file system cannot be mounted here")
    try:
        yield
    finally:
        here.orphans(0)
        _unmount(here)


def _mount(here: Scene, kilobytes: int) -> bool:
    return _succeeds("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(here.home))


def _again(here: Scene, option: str) -> None:
    assert _succeeds("mount", "-o", f"remount,{option}", str(here.home))


def _unmount(here: Scene) -> None:
    assert _succeeds("umount", "-l", str(here.home))


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
