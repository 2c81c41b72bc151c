"""Processes of our own: forked from a server that has torch loaded, ended with whoever started them."""

import multiprocessing
import os
import threading
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from typing import Any

_PRELOAD = ["recompute_core.preload"]


def fork_server() -> ForkServerContext:
    """Where processes with torch in memory come from; the server starts with the first of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
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
