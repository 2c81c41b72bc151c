"""Inputs of every kind from outside, made at random: `python -m tests.fuzz --inputs 1000`.

Prints for each kind how many inputs were tried and what went wrong; exits with 1 where anything did. The
seed is a new one each time, and printed; `--seed` tries the same once more.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .kinds import KINDS
from .run import Found

_COLUMNS = ("tried", "tracebacks", "hangs", "outside", "memory", "lines", "deaths")
_HEADER = ("inputs", "tracebacks", "hangs", "outside reads", "memory", "long lines", "deaths")


def fuzzed(names: Sequence[str], inputs: int, seed: int) -> list[Found]:
    """What came of these kinds, in one process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "note"
        command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.run", "|".join(names)]
        done = subprocess.run(
            [*command, str(inputs), str(seed), str(note)],
            capture_output=True,
            text=True,
            # Hypothesis would take the same inputs each time where it finds itself in CI.
            env={name: value for name, value in os.environ.items() if name != "CI"},
        )
        last = note.read_text() if note.exists() else ""
        return [*_told(done.stdout), *_death(names, done, last)]


def _told(out: str) -> list[Found]:
    return [Found(**json.loads(line)) for line in out.splitlines() if line.startswith("{")]


def _death(names: Sequence[str], done: "subprocess.CompletedProcess[str]", last: str) -> list[Found]:
    """What came of the kind that a process died in: a hang, if its own watchman ended it."""
    if not done.returncode:
        return []
    kind = dict(enumerate(names)).get(len(_told(done.stdout)), "after the last kind")
    what = f"the process ended with {done.returncode}: {done.stderr[-1000:]}"
    found = Found(kind, tried=1, faults={what: last or done.stderr[-2000:]})
    if "Timeout (" in done.stderr:  # faulthandler's word, of C code that heard no signal
        found.hangs = 1
    else:
        found.deaths = 1
    return [found]


def table(found: Sequence[Found]) -> str:
    """One line a kind, and under them each fault with the smallest input that was seen to cause it."""
    width = max(len(one.kind) for one in found)
    lines = ["  ".join([f"{'kind':{width}}", *_HEADER])]
    for one in found:
        cells = [
            f"{getattr(one, column):>{len(name)}}"
            for column, name in zip(_COLUMNS, _HEADER, strict=True)
        ]
        lines.append("  ".join([f"{one.kind:{width}}", *cells]))
    for one in found:
        lines += [f"\n{one.kind}: {what}\n  {given}" for what, given in one.faults.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", help=f"all, unless given: {', '.join(KINDS)}"
    )
    parser.add_argument("--inputs", type=int, default=1000, help="of each kind; of slow ones a share")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to try it once more")
    given = parser.parse_args()
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        names = given.kinds or list(KINDS)
        found: list[Found] = []
        for part in pool.map(lambda name: fuzzed([name], given.inputs, seed), names):
            found += part
            print(f"{part[0].kind}: {'good' if part[0].good else 'FAULTS'}", file=sys.stderr, flush=True)
    print(table(found))
    sys.exit(0 if all(one.good for one in found) else 1)


if __name__ == "__main__":
    main()
