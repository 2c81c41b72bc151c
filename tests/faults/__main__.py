"""`python -m tests.faults [--runs N] [--seed N] [KIND …]`: every kind of fault, and what became of it.

Prints a table, and ends with exit code 1 if anything was lost, doubled, left behind or broken.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable

from recompute_core.words import count

from . import clocks, disks, files, kills, ray_nodes, servers, signing, workers
from .ledger import Count, table
from .saboteur import KINDS

Fault = Callable[[random.Random], Count]


def faults() -> dict[str, Fault]:
    """Every kind of fault, one run of each, but for those that are `left_out`."""
    found: dict[str, Fault] = {
        kind: lambda chance, kind=kind: kills.kill(kind, chance) for kind in kills.VICTIMS
    }
    found["server"] = servers.killed
    found["estimator"] = servers.estimator_killed
    found["two servers"] = servers.two_at_once
    for kind in KINDS:
        found[f"worker says {kind}"] = lambda _, kind=kind: workers.misbehave(kind)
    found["store corrupted"] = files.corrupt
    found["stopped while signing"] = lambda chance: signing.interrupted(chance, 4)
    found["Ray node"] = ray_nodes.killed
    found["disk full"] = lambda _: disks.full()
    found["store read-only"] = lambda _: disks.read_only()
    found["clock put back"] = clocks.put_back
    return {kind: one for kind, one in found.items() if kind not in left_out()}


def left_out() -> dict[str, str]:
    """The kinds that this machine cannot have, and why."""
    why = {}
    if not ray_nodes.is_there():
        why["Ray node"] = "Ray is not installed"
    if not disks.can_mount():
        why |= dict.fromkeys(("disk full", "store read-only"), "no file system can be mounted here")
    if not clocks.library():
        why["clock put back"] = "libfaketime is not installed"
    return why


_OFTEN = ("worker", "fork server", "driver", "server", "estimator", "Ray node", "store corrupted")
"""What comes at a random moment or place, and so is tried again and again."""


def main() -> None:
    """Try them all."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=main.__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--runs", type=int, default=50, help="of the kinds that come by chance, in all")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    asked = parser.parse_args()
    known = faults()
    kinds = asked.kinds or list(known)
    if unknown := [kind for kind in kinds if kind not in known]:
        parser.error(f"cannot be had here: {', '.join(unknown)}; there are {', '.join(known)}")
    often = [kind for kind in kinds if kind in _OFTEN]
    rounds = [often[number % len(often)] for number in range(asked.runs)] if often else []
    plan = rounds + [kind for kind in kinds if kind not in _OFTEN]
    print(f"{count(len(plan), 'run')}, seed {asked.seed}", flush=True)
    for kind, why in left_out().items():
        print(f"not tried: {kind}: {why}", flush=True)
    chance, begun = random.Random(asked.seed), time.monotonic()
    counts = {kind: Count(kind) for kind in kinds}
    for number, kind in enumerate(plan, 1):
        one = known[kind](chance)
        counts[kind].add(one)
        found = one if one.harm else "ok"
        print(f"{number}/{len(plan)} {kind}: {found}", file=sys.stderr, flush=True)
    print(table(counts.values()))
    print(f"{time.monotonic() - begun:.0f} s")
    sys.exit(not all(one.is_clean for one in counts.values()))


if __name__ == "__main__":
    main()
