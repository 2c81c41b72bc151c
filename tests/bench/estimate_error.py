"""Estimated against measured peak: ten plans at three shapes of each workload.

Measured by the CPU allocator's events over one whole update, state left out of both. Also the estimate
of a GPT of 6.6 billion parameters: seconds beyond torch's import, memory of the process.
"""

import json
import subprocess
import sys
import time
from functools import partial
from typing import Any

from recompute_core.plans.names import regions_of
from recompute_core.settings import shape_key
from recompute_core.spec import StudySpec, parse_spec

PLANS = (
    "none",
    "every-block",
    "every-2nd-block",
    "norms",
    "mlp",
    "attention-mlp-apart",
    "nested",
    "keep-matmul-attention",
    "keep-attention",
    "torchtitan-selective",
)
SPECS: dict[str, dict[str, Any]] = {
    "gpt": {"shapes": [{"seq_len": n} for n in (128, 256, 512)]},
    "receipts": {"shapes": [{"batch": n} for n in (4, 8, 16)]},
}
LIMITS = {"gpt": 0.005, "receipts": 0.02}
LARGE = {"blocks": 32, "width": 4096, "heads": 32, "vocab": 32000, "seq_len": 4096, "batch": 1}


def measured_peak(spec: StudySpec, shape: dict[str, int], plan: str) -> int:
    """Peak above the state of one real update, in bytes."""
    from recompute_core.meters.memory import measure_memory
    from recompute_core.plans.apply import applied
    from recompute_core.workloads import build_blank
    from recompute_core.workloads.update import make_optimizer, seed_everything
    from tests.core.records import passed

    job = build_blank(spec.at(shape), spec.seed)
    optimizer = make_optimizer(job.model, spec.optimizer)
    put_on = partial(applied, job.model, regions_of(spec, plan), spec.checkpoint)
    seed_everything(spec.seed)
    found = measure_memory(job, optimizer, put_on, passed())
    assert found.peak_above_state_bytes is not None
    return found.peak_above_state_bytes


def errors(workload: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Estimated and measured peak by shape and plan."""
    from recompute_core.meters.estimate import FakeUpdate
    from recompute_core.workloads import build_blank

    spec = parse_spec({"workload": workload, **SPECS[workload]})
    found = {}
    for shape in spec.shapes:
        fake = FakeUpdate(partial(build_blank, spec.at(shape), spec.seed), spec.optimizer)
        for plan in PLANS:
            estimate = fake.run(regions_of(spec, plan), spec.checkpoint).estimate
            measured = measured_peak(spec, shape, plan)
            found[shape_key(spec.at(shape)), plan] = estimate.peak_above_state_bytes, measured
    return found


def large() -> None:
    """Print what the estimate of a very large model takes; meant for a process of its own."""
    import torch  # noqa: F401

    started = time.perf_counter()
    from recompute_core.meters.estimate import FakeUpdate
    from recompute_core.meters.memory import process_peak_bytes
    from recompute_core.workloads import build_blank

    spec = parse_spec({"workload": {"name": "gpt", **LARGE}})
    fake = FakeUpdate(partial(build_blank, spec.workload, 0), spec.optimizer)
    found = fake.run(regions_of(spec, "every-block"), spec.checkpoint).estimate
    spent = time.perf_counter() - started
    parameters = sum(p.numel() for p in fake.job.model.parameters())
    memory = process_peak_bytes()
    print(json.dumps([parameters, spent, memory, found.peak_bytes]))


def main() -> None:
    """Print the errors, and the cost of a large estimate."""
    for workload, limit in LIMITS.items():
        found = errors(workload)
        shapes = list(dict.fromkeys(shape for shape, _ in found))
        print(f"| {workload} | " + " | ".join(shapes) + " |")
        print("|---|" + "---|" * len(shapes))
        worst = 0.0
        for plan in PLANS:
            cells = []
            for shape in shapes:
                estimated, measured = found[shape, plan]
                error = estimated / measured - 1
                worst = max(worst, abs(error))
                cells.append(f"{measured / 1e6:.1f} MB, {100 * error:+.2f} %")
            print(f"| {plan} | " + " | ".join(cells) + " |")
        print(f"\nLargest error {100 * worst:.2f} % (at most {100 * limit:g} %).\n")
    code = "from tests.bench.estimate_error import large; large()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    parameters, spent, memory, peak = json.loads(done.stdout)
    print(
        f"A GPT of {parameters / 1e9:.1f} billion parameters under every-block: peak "
        f"{peak / 1e9:.1f} GB, in {spent:.1f} s beyond torch's import (at most 6), "
        f"{memory / 1e6:.0f} MB of process memory (at most 1000)."
    )


if __name__ == "__main__":
    main()
