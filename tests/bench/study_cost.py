"""What a whole study costs, against the bare steps it cannot do without.

Bare: 8 plain and 8 recomputed forward-and-backward steps at each length of `gpt-sweep`, half of them
before the study and half after it, so that a machine that drifts favours neither.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recompute_core.spec import parse_spec, preset

LIMIT = 1.6


def bare_steps_s(steps: int) -> dict[str, float]:
    """Seconds of `steps` plain and `steps` recomputed steps at each length, by shape key."""
    from recompute_core.plans.apply import applied
    from recompute_core.plans.names import regions_of
    from recompute_core.settings import shape_key
    from recompute_core.workloads import build

    spec = parse_spec(preset("gpt-sweep"))
    seconds = {}
    for shape in spec.shapes:
        settings = spec.at(shape)
        job = build(settings, spec.seed, Path())
        started = time.perf_counter()
        for _ in range(steps):
            for plan in ("none", "every-block"):
                job.model.zero_grad(set_to_none=False)
                with applied(job.model, regions_of(spec, plan), spec.checkpoint):
                    _, loss = job.model(*job.batch)
                    loss.backward()
        seconds[shape_key(settings)] = time.perf_counter() - started
    return seconds


def main() -> None:
    """Print the ratio of the study's cost to that of the bare steps."""
    before = bare_steps_s(4)
    with tempfile.TemporaryDirectory() as home:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "recompute_core", "study", "--preset", "gpt-sweep"],
            env={"RECOMPUTE_HOME": home, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        study_s = time.perf_counter() - started
    after = bare_steps_s(4)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"the study failed:\n{done.stderr}")
    print("| length | 8 plain and 8 recomputed steps, s |\n|---|---|")
    for key in before:
        print(f"| {key} | {before[key] + after[key]:.1f} |")
    bare_s = sum(before.values()) + sum(after.values())
    drift = sum(after.values()) / sum(before.values())
    print(f"\nBare steps {bare_s:.0f} s, their second half {drift:.2f} times the first.")
    print(f"Whole study {study_s:.0f} s: ratio {study_s / bare_s:.2f} (at most {LIMIT}).")
    print(done.stdout.splitlines()[-2])


if __name__ == "__main__":
    main()
