"""What must hold while an input is read: it ends in time, in little memory, and only files of its folder
are touched.

Python tells an audit hook of every file that is opened, before it is; so a name that leads out of the
folder is noticed whatever the file system then says. What C++ code opens by itself (Arrow's reader of
Parquet) it does not tell. Hooks cannot be taken off: whoever fuzzes does so in a process of its own.
"""

import faulthandler
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

DEADLINE_S = 5.0
"""Of this process's own time, for one input. Generous: what is read here is small."""
PATIENCE_S = 30.0
"""On the clock, however busy the machine is: who waits for something takes no time of its own."""
HEADROOM_BYTES = 1 << 30
"""Memory that all inputs of a kind may take beyond what the process had before them."""

_ROOT = Path(__file__).parents[2]
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.chmod": 1,
    "os.chown": 1,
    "os.utime": 1,
    "sqlite3.connect": 1,
}
"""Events that change a file, each with how many paths come first in it."""
_LOOKS = ("os.listdir", "os.scandir")
_NEVER = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "socket.connect",
    "socket.bind",
    "socket.getaddrinfo",
)
"""What no input may lead to."""


class Hang(BaseException):
    """Reading an input took longer than the deadline; no `except Exception` swallows it."""


class Watch:
    """What has been touched outside the folder, while it watches."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.outside: list[str] = []
        self._followed: tuple[str, str] | None = None
        readable = {_ROOT, Path(sys.prefix), Path(sys.base_prefix), Path("/usr/lib"), Path("/usr/share")}
        machine = {
            Path(one) for one in ("/proc", "/sys", "/dev/null", "/dev/urandom", "/etc/mime.types")
        }
        self._readable = tuple(os.path.realpath(path) for path in readable | machine)
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or getattr(_busy, "on", False):
            return
        _busy.on = True
        try:
            if event == "open":
                self._open(*arguments)
            elif event in _CHANGES:
                for path in arguments[: _CHANGES[event]]:
                    self._judge(event, path, writes=True, follows=event == "sqlite3.connect")
            elif event in _LOOKS:
                self._judge(event, arguments[0], writes=False, follows=True)
            elif event in _NEVER:
                self.outside.append(f"{event} {arguments[:2]!r}"[:200])
        finally:
            _busy.on = False

    def _open(self, path: Any, mode: str | None, flags: int) -> None:
        """`open` with an opener says so twice, and only `os.open` says whether a link is followed."""
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        waiting, self._followed = self._followed, None
        if waiting is not None and not (mode is None and waiting[0] == name):
            self.outside.append(waiting[1])
        writes, follows = bool(flags & _WRITES), not flags & os.O_NOFOLLOW
        said = self._fault("open", name, writes, follows)
        if said is not None and mode is not None and os.path.islink(name):
            self._followed = (name, said)
        elif said is not None:
            self.outside.append(said)

    def _judge(self, event: str, path: Any, writes: bool, follows: bool) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            said = self._fault(event, os.fsdecode(path), writes, follows)
            if said is not None:
                self.outside.append(said)

    def _fault(self, event: str, name: str, writes: bool, follows: bool) -> str | None:
        if "\0" in name or (event == "sqlite3.connect" and name == ":memory:"):
            return None
        where = os.path.realpath(name)
        if not follows:
            where = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
        assert self.folder is not None
        if _is_in(where, self.folder) or where == os.devnull:
            return None
        if not writes and any(_is_in(where, root) for root in self._readable):
            return None
        return f"{event} {where}"[:200]

    def settle(self) -> list[str]:
        """What was touched outside since the last time."""
        waiting, self._followed = self._followed, None
        found = self.outside + ([waiting[1]] if waiting else [])
        self.outside = []
        return found


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


_busy = threading.local()
_TIMERS = (
    (signal.SIGPROF, signal.ITIMER_PROF, DEADLINE_S),
    (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE_S),
)


@contextmanager
def guarded(watch: Watch, folder: Path) -> Iterator[None]:
    """While one input is read: `watch` hears of files, and Hang is raised at the deadline."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Hang

    for number, timer, seconds in _TIMERS:
        signal.signal(number, late)
        signal.setitimer(timer, seconds)
    faulthandler.dump_traceback_later(2 * PATIENCE_S, exit=True)  # C code that hears no signal
    watch.folder = os.path.realpath(folder)
    try:
        yield
    finally:
        watch.folder = None
        for _, timer, _ in _TIMERS:
            signal.setitimer(timer, 0)
        faulthandler.cancel_dump_traceback_later()


def bound_memory() -> None:
    """From now on this process may take HEADROOM_BYTES more; beyond it Python raises MemoryError."""
    with open("/proc/self/status") as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmData:"))
    most = 1024 * kilobytes + HEADROOM_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
