"""The errors a user can cause or meet, each with the exit code the command line gives it.

Anything else that is raised is our own bug and keeps its traceback.
"""

LONGEST = 480
"""Letters of what an error says, at most."""


def printable(text: str) -> str:
    """Foreign text for one line: whoever wrote it may have written anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def in_one_line(text: str) -> str:
    """What is said on one line, whatever it quotes: printable, no breaks, cut in the middle, as what is
    wrong stands at the end as often as at the beginning."""
    text = printable(" ".join(text.split()))
    half = LONGEST // 2 - 2
    return text if len(text) <= LONGEST else f"{text[:half]} … {text[-half:]}"


def kind_and_words(error: BaseException) -> str:
    """What an error says, after its kind; an error of this package is a sentence by itself."""
    is_ours = type(error).__module__.partition(".")[0] == __package__
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


class Said(Exception):
    """An error whose message may quote what somebody else wrote, and is one short line all the same."""

    def __init__(self, said: str = "") -> None:
        super().__init__(in_one_line(said))


class InputError(Said, ValueError):
    """Bad input: the message says what is wrong, where, and what would be right."""

    exit_code = 2


class StoreError(Said, RuntimeError):
    """The store cannot be used: not ours, locked, read-only, or the disk is full."""

    exit_code = 4


class StudyError(StoreError):
    """One study of the store cannot be read; the others can."""


class EngineError(Said, RuntimeError):
    """The cluster that was to do a study cannot be used; what the study had finished is kept."""

    exit_code = 4


class Cancelled(Said, RuntimeError):
    """The study was stopped on request; what it had finished is kept."""

    exit_code = 4
