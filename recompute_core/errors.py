"""The errors a user can cause or meet, each with the exit code the command line gives it.

Anything else that is raised is our own bug and keeps its traceback.
"""


def kind_and_words(error: BaseException) -> str:
    """What an error says, after its kind; an error of this package is a sentence by itself."""
    is_ours = type(error).__module__.partition(".")[0] == __package__
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


class InputError(ValueError):
    """Bad input: the message says what is wrong, where, and what would be right."""

    exit_code = 2


class StoreError(RuntimeError):
    """The store cannot be used: not ours, locked, read-only, or the disk is full."""

    exit_code = 4


class StudyError(StoreError):
    """One study of the store cannot be read; the others can."""


class EngineError(RuntimeError):
    """The cluster that was to do a study cannot be used; what the study had finished is kept."""

    exit_code = 4


class Cancelled(RuntimeError):
    """The study was stopped on request; what it had finished is kept."""

    exit_code = 4
