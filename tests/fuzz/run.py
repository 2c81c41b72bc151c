"""One kind of input, tried many times: what went wrong, with the smallest input that shows it."""

import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from recompute_core.errors import Cancelled, EngineError, InputError, StoreError
from recompute_core.reports.refusal import Untrusted

from .guard import Hang, Watch, bound_memory, guarded

OURS = (InputError, StoreError, EngineError, Cancelled, Untrusted)
"""What an input may be refused with."""
LONGEST_LINE = 500
"""Printable letters of what is said of an input, at most."""
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Kind:
    """Something that comes from outside: what it may be, and how the product reads it."""

    name: str
    inputs: Callable[[], st.SearchStrategy[Any]]
    read: Callable[[Any, Path], Sequence[str]]
    """Reads an input, in a folder; returns what it says of it, each a line of its own."""
    lay: Callable[[Any, Path], None] = lambda given_input, folder: None
    """Lays an input into the folder, before anything is watched."""
    prepare: Callable[[Path], None] = lambda folder: None
    """Lays into the folder what every input needs; once, before anything is watched."""
    usual: Any = None
    """A harmless input: reading it loads what reading loads."""
    weight: float = 1.0
    """Share of the inputs that are asked for; less than 1 where one takes long."""


@dataclass
class Found:
    """What came of a kind."""

    kind: str
    tried: int = 0
    tracebacks: int = 0
    hangs: int = 0
    outside: int = 0
    memory: int = 0
    lines: int = 0
    deaths: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    """By what went wrong, the smallest input that was seen to lead to it."""

    @property
    def good(self) -> bool:
        return self.tried > 0 and not self.faults


def fault_of(kind: Kind, given_input: Any, folder: Path, watch: Watch) -> tuple[str, str] | None:
    """Which column of the table an input counts in and what went wrong; None where all is well."""
    said: Sequence[str] = ()
    kind.lay(given_input, folder)
    try:
        with guarded(watch, folder):
            said = kind.read(given_input, folder)
    except OURS as error:
        said = [str(error)]
    except Hang:
        watch.settle()
        return "hangs", "hang"
    except MemoryError:
        watch.settle()
        return "memory", "memory"
    except BaseException as error:
        watch.settle()
        return "tracebacks", _signature(error)
    if touched := watch.settle():
        return "outside", f"outside: {touched[0]}"
    for line in said:
        if len(line) > LONGEST_LINE or not line.isprintable():
            return "lines", f"line of {len(line)}: {line[:60]!a}"
    return None


def _signature(error: BaseException) -> str:
    """The error, and the last place of the product that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_ROOT)]
    product = [frame for frame in own if "/tests/" not in frame.filename] or own
    at = f"{Path(product[-1].filename).relative_to(_ROOT)}:{product[-1].name}" if product else "?"
    return f"{type(error).__name__} in {at}: {str(error)[:80]!a}"


def try_kind(kind: Kind, inputs: int, seed_value: int, watch: Watch, note: Path | None = None) -> Found:
    """Try so many inputs; `note` holds the one that is being read, for whoever finds us dead."""
    found = Found(kind.name)
    by_sort: dict[str, str] = {}
    with _folder(kind) as folder:
        if kind.usual is not None:
            kind.lay(kind.usual, folder)
            kind.read(kind.usual, folder)

        @seed(seed_value)
        @settings(
            max_examples=max(1, round(inputs * kind.weight)),
            deadline=None,
            database=None,
            derandomize=False,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(kind.inputs())
        def one(value: Any) -> None:
            if note is not None:
                note.write_text(f"{kind.name} {shown(value)}")
            found.tried += 1
            fault = fault_of(kind, value, folder, watch)
            if fault is None:
                return
            column, what = fault
            setattr(found, column, getattr(found, column) + 1)
            sort = what.partition(": '")[0].partition(': "')[0]
            name = by_sort.setdefault(sort, what)
            if name not in found.faults or len(shown(value)) < len(found.faults[name]):
                found.faults[name] = shown(value)

        one()
    return found


def shown(value: Any) -> str:
    """An input in ASCII, cut where it is long."""
    try:
        text = ascii(value)
    except ValueError:
        text = "a number too large to be written out, or a value that holds one"
    return text if len(text) <= 2000 else f"{text[:1200]} … {text[-700:]}"


class _folder:
    """A folder that everything a kind does stays in: the working directory, and where all is kept."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.around = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.folder = self.around / "own"

    def __enter__(self) -> Path:
        self.folder.mkdir()
        (self.around / "secret").write_text("nobody may read this")
        self.before = os.getcwd(), tempfile.tempdir, dict(os.environ)
        os.chdir(self.folder)
        tempfile.tempdir = str(self.folder)
        os.environ["RECOMPUTE_HOME"] = str(self.folder / "home")
        os.environ["HOME"] = str(self.folder)
        for name in ("RECOMPUTE_KEY", "RECOMPUTE_SIGNERS", "RECOMPUTE_WORKLOADS"):
            os.environ.pop(name, None)
        self.kind.prepare(self.folder)
        return self.folder

    def __exit__(self, *_: object) -> None:
        cwd, tempfile.tempdir, environment = self.before
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(self.around, ignore_errors=True)


def main(arguments: list[str]) -> None:
    """A process of its own: KINDS INPUTS SEED NOTE; says a line of JSON for each kind."""
    from .kinds import KINDS

    names, inputs, seed_value, note = arguments
    sys.dont_write_bytecode = True
    watch, is_bound = Watch(), False
    for name in names.split("|"):
        kind = KINDS[name]
        if not is_bound:
            bound_memory()
            is_bound = True
        found = try_kind(kind, int(inputs), int(seed_value), watch, Path(note))
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
