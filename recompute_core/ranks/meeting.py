"""The folder in which a launch and its ranks meet: names of files alone. No torch."""

from pathlib import Path


def task(folder: Path) -> Path:
    """What is to be done, as JSON."""
    return folder / "task.json"


def store(folder: Path) -> Path:
    """By which ranks find each other."""
    return folder / "store"


def said(folder: Path) -> Path:
    """The pipe that rank 0 writes its lines to."""
    return folder / "said"


def started(folder: Path, rank: int) -> Path:
    """Is there once a rank runs and has loaded what it needs."""
    return folder / f"started-{rank}"


def reason(folder: Path, rank: int) -> Path:
    """Why a rank failed, in one line."""
    return folder / f"reason-{rank}"
