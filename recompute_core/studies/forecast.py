"""How long a study will take and how much memory it needs: an estimate, shown before it is launched."""

import os
from dataclasses import dataclass

from ..spec import StudySpec
from ..workloads.sizes import sizes_of
from .flow import total_cells
from .store import Store

_FLOPS_PER_S_AND_CORE = 40e9
_WORKER_S = 0.4
_IMPORT_S = 4.0
_RECOMPUTED = 4 / 3
"""A recomputed update does the forward's third of the work once more."""


@dataclass(frozen=True)
class Forecast:
    """What a study will cost, estimated."""

    cells: int
    """Phases to be done when nothing is refused."""
    seconds: float | None
    """None for somebody's own model, whose work is not known before it is run; so is `peak_bytes`."""
    peak_bytes: int | None
    """Largest plain update, state included."""
    basis: str
    """Where the speed comes from."""


def forecast(spec: StudySpec, flops_per_s: float | None) -> Forecast:
    """The cost of `spec` at a speed from `measured_speed`, or at a rough one when that is None."""
    speed = flops_per_s or _FLOPS_PER_S_AND_CORE * (spec.threads or os.cpu_count() or 1)
    seconds, peak = _IMPORT_S, 0
    timing = spec.timing
    for shape in spec.shapes:
        sizes = sizes_of(spec.at(shape), spec.precision)
        if sizes is None:
            return Forecast(total_cells(spec), None, None, "not estimated: a model of your own")
        update_s = sizes.flops / speed
        peak = max(peak, sizes.plain_peak_bytes)
        pair_s = update_s * (1 + _RECOMPUTED)
        sampling_s = max(timing.min_pairs * pair_s, min(timing.budget_s, timing.max_pairs * pair_s))
        checks_s = update_s * (2 * _RECOMPUTED + 1) + pair_s
        seconds += 3.5 * update_s + 2 * _WORKER_S
        seconds += len(spec.plans) * (sampling_s + checks_s + 3 * _WORKER_S)
    basis = (
        "estimated from this machine's last study"
        if flops_per_s
        else "a rough estimate: nothing has been timed on this machine yet"
    )
    return Forecast(total_cells(spec), seconds, peak, basis)


def measured_speed(store: Store, workload: str) -> float | None:
    """Floating-point operations a second of the newest timed plain update of a workload."""
    for row in store.studies(limit=20):
        if row.spec.workload.name != workload:
            continue
        cells = store.cells(row.id)
        flops: dict[str, int] = {
            cell.shape_key: cell.payload["flops"]
            for cell in cells
            if cell.phase == "reference" and cell.payload
        }
        speeds: list[float] = [
            flops[cell.shape_key] / cell.payload["plain_median_s"]
            for cell in cells
            if cell.phase == "time" and cell.payload and cell.shape_key in flops
        ]
        if speeds:
            return sorted(speeds)[len(speeds) // 2]
    return None
