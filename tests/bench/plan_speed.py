"""How long a frontier takes: 6 blocks and 48, torch's import left out. Nothing absolute is asserted."""

import time

from recompute_core.planning import Wish, plan
from recompute_core.spec import parse_spec

LIMITS_S = {6: 20, 48: 60}


def main() -> None:
    """Print the seconds."""
    import torch  # noqa: F401

    print("| blocks | points | seconds | aim |\n|---|---|---|---|")
    for blocks, limit in LIMITS_S.items():
        spec = parse_spec({"workload": {"name": "gpt", "blocks": blocks, "seq_len": 512}})
        started = time.perf_counter()
        found = plan(spec, Wish(frontier=True))
        spent = time.perf_counter() - started
        print(f"| {blocks} | {len(found.points)} | {spent:.1f} | {limit} |", flush=True)


if __name__ == "__main__":
    main()
