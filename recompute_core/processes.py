"""Processes of our own: forked from a server that has torch loaded, ended with whoever started them."""

import multiprocessing
import os
import signal
import threading
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from typing import Any

_PRELOAD = ["recompute_core.preload"]


def fork_server() -> ForkServerContext:
    """Where processes with torch in memory come from.

    The server never hears Ctrl-C, which reaches all of a terminal's processes: while it loads torch it
    would answer with a traceback. Whoever started it ends it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    resource_tracker.ensure_running()  # else it starts with the server, and unblocks signals then
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what it starts with, it keeps
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return context


def end_with_parent() -> None:
    """End this process when its parent dies, however that happens.

    A thread waits on the pipe that multiprocessing keeps open to the parent.
    """
    parent: Any = multiprocessing.parent_process()

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
