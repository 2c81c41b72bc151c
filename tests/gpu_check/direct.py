"""Parts that measure in their own process: the machine, parity, estimates against measured peaks."""

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from recompute_core.checks import parity as checks
from recompute_core.checks.snapshot import Observed, fixed_update
from recompute_core.estimating import estimate
from recompute_core.meters.memory import measure_memory
from recompute_core.plans.apply import applied
from recompute_core.plans.names import regions_of
from recompute_core.results import ParityPassed
from recompute_core.spec import StudySpec, parse_spec
from recompute_core.studies.environment import describe_environment
from recompute_core.workloads import build_blank
from recompute_core.workloads.device import cast, move, one_line, pick_device, repeat_itself
from recompute_core.workloads.job import Job
from recompute_core.workloads.update import optimizer_of, seed_everything

from .parts import Outcome, Place

PRECISIONS = ("float32", "bfloat16")
PROVEN = ("every-block", "keep-matmul-attention", "torchtitan-selective", "nested")
"""Plans of the parity part: whole, two selective, and regions inside regions."""
ESTIMATED = ("every-2nd-block", "mlp", *PROVEN)


def machine(place: Place) -> Outcome:
    device = pick_device(place.sizes.device)
    found: dict[str, Any] = {"environment": describe_environment(device)}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        found |= {"free_bytes": free, "total_bytes": total, "devices_visible": torch.cuda.device_count()}
    return found, None


def spec_of(place: Place, workload: dict[str, Any], precision: str) -> StudySpec:
    return parse_spec({"workload": workload, "precision": precision, "device": place.sizes.device})


def build(spec: StudySpec) -> Job:
    """The workload on the device, on a seeded batch that needs no data set."""
    blank = build_blank(spec.at(spec.shapes[0]), spec.seed)
    generator = torch.Generator().manual_seed(spec.seed)

    def filled(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return torch.rand(tensor.shape, generator=generator)
        return torch.randint(6, tensor.shape, generator=generator)

    return move(cast(blank.with_batch(filled), spec.precision), pick_device(spec.device))


def proofs(
    spec: StudySpec, make: Callable[[], Job], plans: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any], ParityPassed | None]]:
    """Each plan with a row on its parity, and the parity if it passed; plain against plain first."""
    if spec.device != "cpu":
        repeat_itself()
    reference: Observed = fixed_update(make(), spec.optimizer, spec.seed)
    noise = checks.check_noise(make(), spec, reference.tensors)
    canary = checks.check_canary(make, spec, reference.tensors, make().blocks[0])
    for plan in plans:
        row: dict[str, Any] = {
            "workload": spec.workload.name,
            "precision": spec.precision,
            "plan": plan,
            "noise_floor": noise.largest_relative_gap,
            "canary_caught": canary.caught,
        }
        try:
            found = checks.check_parity(
                make,
                spec,
                reference.tensors,
                regions_of(spec, plan),
                noise.largest_relative_gap,
                reference.block_calls,
            )
        except Exception as error:
            yield plan, row | {"passed": False, "problem": one_line(error)}, None
            continue
        row |= {
            "passed": found.passed and canary.caught,
            "bitwise": found.bitwise,
            "largest_gradient_gap": found.largest_gradient_gap,
            "largest_relative_gap": found.largest_relative_gap,
            "back_to_plain": found.rollback is not None and found.rollback.is_plain(found.noise_floor),
        }
        yield plan, row, found if isinstance(found, ParityPassed) else None


def parity(place: Place) -> Outcome:
    rows: list[dict[str, Any]] = []
    for workload in (place.sizes.gpt, place.sizes.receipts):
        for precision in PRECISIONS:
            spec = spec_of(place, workload, precision)
            place.say(f"{spec.workload.name} in {precision}")
            for _, row, _ in proofs(spec, partial(build, spec), PROVEN):
                rows.append(row)
                place.tell({"rows": rows})
    off = [f"{r['plan']} of {r['workload']} in {r['precision']}" for r in rows if not r["passed"]]
    return {"rows": rows}, f"parity did not pass: {', '.join(off)}" if off else None


def estimates(place: Place) -> Outcome:
    """Peaks alone: others ran in this process before, and what they reserved stays reserved."""
    rows: list[dict[str, Any]] = []
    missing = []
    for precision in PRECISIONS:
        spec = spec_of(place, place.sizes.gpt, precision)
        make = partial(build, spec)
        place.say(f"gpt in {precision}")
        found = list(proofs(spec, make, ESTIMATED))
        proof = next((passed for _, _, passed in found if passed is not None), None)
        if proof is None:
            return {"rows": rows}, f"no plan passed parity in {precision}"
        for plan, passed in (("none", proof), *((plan, passed) for plan, _, passed in found)):
            if passed is None:
                missing.append(f"{plan} in {precision} (parity)")
                continue
            rows.append({"precision": precision, "plan": plan, **_beside(spec, make(), plan, passed)})
            place.tell({"rows": rows})
    return {"rows": rows}, f"not measured: {', '.join(missing)}" if missing else None


def _beside(spec: StudySpec, job: Job, plan: str, proof: ParityPassed) -> dict[str, Any]:
    torch.use_deterministic_algorithms(False)  # as in a study, where costs have a process of their own
    gc.collect()
    guess = estimate(spec, spec.shapes[0], plan)
    optimizer = optimizer_of(job, spec.optimizer)
    seed_everything(spec.seed)
    put_on = partial(applied, job.model, regions_of(spec, plan), spec.checkpoint)
    found = measure_memory(job, optimizer, put_on, proof)
    above, peak = found.peak_above_state_bytes, found.peak_bytes
    assert above is not None
    assert peak is not None
    return {
        "estimated_saved_bytes": guess.saved_bytes,
        "saved_bytes": found.saved_bytes,
        "estimated_peak_bytes": guess.peak_bytes,
        "peak_bytes": peak,
        "error": guess.peak_bytes / peak - 1,
        "error_above_state": guess.peak_above_state_bytes / above - 1,
        "peak_samples": found.peak_samples,
        "peak_at": None if found.peak_at is None else found.peak_at.words,
        "not_measured": found.not_measured,
    }
