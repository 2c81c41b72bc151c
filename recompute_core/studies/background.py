"""What background work of the browser's shares: the machine to itself, and an end told in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import InputError, StoreError
from .locks import machine_lock

_PATIENCE_S = 3600.0


@contextmanager
def machine_to_itself() -> Iterator[None]:
    """Hold the machine once no study is being measured; raises InputError after an hour of waiting."""
    machine = machine_lock()
    if not machine.acquire(_PATIENCE_S):
        raise InputError("the machine was busy with studies for an hour; try again")
    try:
        yield
    finally:
        machine.release()


def in_one_line(error: Exception) -> str:
    """Why work ended: the message of an error that users can cause, or what kind another one is."""
    known = isinstance(error, InputError | StoreError)
    return one_line(str(error) if known else f"{type(error).__name__}: {error}")


def one_line(text: str) -> str:
    """A text without breaks, and cut."""
    return " ".join(text.split())[:280]
