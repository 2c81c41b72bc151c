"""What background work of the browser's shares: the machine to itself, and an end told in one line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import InputError, kind_and_words
from ..spec import StudySpec
from .locks import machine_holder, machine_lock

_PATIENCE_S = 3600.0


@contextmanager
def machine_to_itself(doing: str, tell: Callable[[str], None] = lambda words: None) -> Iterator[None]:
    """Hold the machine for what is to be done, once nothing else is measured; raises InputError after
    an hour of waiting. `tell` hears what it waits for."""
    machine = machine_lock(doing)
    if not machine.acquire():
        tell(f"waiting for {machine_holder() or 'what is being measured'} to end")
        if not machine.acquire(_PATIENCE_S):
            raise InputError("the machine was busy for an hour; try again")
    try:
        yield
    finally:
        machine.release()


def named(spec: StudySpec) -> str:
    """What is trained, for those who wait: another's model without its settings."""
    return spec.workload.name.partition("?")[0]


def in_one_line(error: Exception) -> str:
    """Why work ended: the message of an error that users can cause, or what kind another one is."""
    return one_line(kind_and_words(error))


def one_line(text: str) -> str:
    """A text without breaks, and cut."""
    return " ".join(text.split())[:280]
