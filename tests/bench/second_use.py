"""What a second use of saved memory finds on the receipts workload, and whether its encoder has learnt.

The `quick` preset is timed; the `full` one is trained to its end, about 40 minutes on two cores.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean

from recompute_core.reinvest.asked import SIDES
from recompute_core.reinvest.found import ReinvestResult, Training
from recompute_core.workloads.receipts.labels import RARE

QUICK_S = 180
ACCURACY = 0.80
RECALL = 0.6
RARE_RECALL = 0.7


def run(arguments: list[str], home: str) -> dict[str, object]:
    """The JSON that a command publishes; ends the bench where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        published = Path(folder) / "out.json"
        done = subprocess.run(
            [sys.executable, "-m", "recompute_core", *arguments, "--json", str(published)],
            env={**os.environ, "RECOMPUTE_HOME": home},
            capture_output=True,
            text=True,
        )
        if done.returncode not in (0, 1, 3):
            sys.exit(f"{arguments[0]} failed:\n{done.stderr}")
        return json.loads(published.read_text())  # type: ignore[no-any-return]


def learnt(training: Training) -> list[str]:
    """The lines of a table: what was reached of each target by each side."""
    sides = {side: min(training.accuracy[side]) for side in SIDES}
    rows = [("accuracy, worst seed", ACCURACY, sides["plain"], sides["recomputed"])]
    rows += [
        (
            f"recall of {one.label}",
            RARE_RECALL if one.label == RARE else RECALL,
            one.plain,
            one.recomputed,
        )
        for one in training.classes
    ]
    lines = []
    for name, least, plain, other in rows:
        reached = "yes" if min(plain, other) > least else "NO"
        lines.append(f"| {name} | {least} | {plain:.3f} | {other:.3f} | {reached} |")
    return lines


def main() -> None:
    """Print the seconds of `quick`, then what `full` found; keeps its files in RECOMPUTE_HOME if set."""
    with tempfile.TemporaryDirectory() as folder:
        home = os.environ.get("RECOMPUTE_HOME", folder)
        wanted = [
            "--preset",
            "receipt",
            "--set",
            "plans=[every-block]",
            "--set",
            "thresholds.update_ratio=2",
        ]
        study = str(run(["study", *wanted], home)["study_id"])
        started = time.perf_counter()
        run(["reinvest", study, "--preset", "quick"], home)
        print(f"quick: {time.perf_counter() - started:.0f} s (at most {QUICK_S}).\n", flush=True)
        started = time.perf_counter()
        found = ReinvestResult.model_validate(run(["reinvest", study, "--preset", "full"], home))
    minutes = (time.perf_counter() - started) / 60
    print(f"full: {minutes:.0f} min. {found.sentence}\n")
    for gate in found.gates:
        print(f"- {gate.id}: {gate.outcome}. {gate.sentence}")
    training, gap = found.training, found.accumulation
    if training is None or gap is None:
        sys.exit("the full preset trained nothing")
    print(f"- mean of means instead: gap {gap.mean_of_means_gap:.1e}")
    for side in SIDES:
        print(f"- accuracy, {side}: {fmean(training.accuracy[side]):.3f} of {training.accuracy[side]}")
    print("\n| on validation | more than | plain | under the plan | reached |\n|---|---|---|---|---|")
    print("\n".join(learnt(training)))


if __name__ == "__main__":
    main()
