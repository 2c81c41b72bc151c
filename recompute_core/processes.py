"""Processes of our own: forked from a server that has torch loaded, ended with whoever started them."""

import contextlib
import multiprocessing
import os
import signal
import sys
import sysconfig
import tempfile
import threading
from multiprocessing import resource_tracker, util
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

_PRELOAD = ["recompute_core.preload"]
_LONGEST_FOLDER = 103 - len("/pymp-12345678/listener-12345678")
"""Bytes of a temporary folder's path that leave room for a socket in it, on Linux and macOS."""


def fork_server() -> ForkServerContext:
    """Where processes with torch in memory come from.

    The server never hears Ctrl-C, which reaches all of a terminal's processes: while it loads torch it
    would answer with a traceback. Whoever started it ends it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    _keep_sockets_short()
    resource_tracker.ensure_running()  # else it starts with the server, and unblocks signals then
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what it starts with, it keeps
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return context


def _keep_sockets_short() -> None:
    """Where the temporary folder's path is too long for a socket, multiprocessing's own goes to /tmp."""
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_FOLDER:
        chosen, tempfile.tempdir = tempfile.tempdir, "/tmp"
        try:
            util.get_temp_dir()  # made once a process, and removed with it
        finally:
            tempfile.tempdir = chosen


def end_with_parent() -> None:
    """End this process when its parent dies, however that happens.

    A thread waits on the pipe that multiprocessing keeps open to the parent.
    """
    parent: Any = multiprocessing.parent_process()

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def be_the_first_to_go() -> None:
    """When memory runs out, the kernel is to pick this process before others (Linux)."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def how_ended(code: int) -> str:
    """How a process ended, from its exit code (a signal's is negative): what follows its name."""
    if code == -signal.SIGKILL:
        return "was killed (signal 9; the kernel does so when memory runs out)"
    if code < 0:
        return f"died of signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


def environment(**also: str) -> dict[str, str]:
    """Of a background process: this very package, and what this process can import beside what every
    Python of its kind can."""
    usual = tuple(sysconfig.get_paths().values())
    own = [place for place in sys.path if not place.startswith(usual)]
    places = [str(Path(__file__).parents[1]), *own, os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(dict.fromkeys(filter(None, places)))
    return {**os.environ, "PYTHONPATH": path, **also}
