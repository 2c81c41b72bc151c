"""Every module of torch.nn that trains on a CPU, each recomputed in a small block: which misbehave?"""

import time
import warnings
from collections import Counter

from tests import nn_zoo


def main() -> None:
    """Print the misbehaving, with the reason."""
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    started = time.perf_counter()
    print("| module | verdict | why |\n|---|---|---|")
    for name in sorted(nn_zoo.KINDS):
        found = nn_zoo.check(name)
        counts[found.verdict] += 1
        if found.verdict != "legal":
            print(f"| {name} | {found.verdict} | {found.reasons[0].sentence} |", flush=True)
    spent = time.perf_counter() - started
    print(f"\n{dict(counts)} of {len(nn_zoo.KINDS)} modules, {spent:.0f} s.")
    left_out = ", ".join(f"{name} ({why})" for name, why in nn_zoo.LEFT_OUT.items())
    print(f"Not tried: {left_out}.")


if __name__ == "__main__":
    main()
