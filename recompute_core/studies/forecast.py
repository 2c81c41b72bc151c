"""How long a study will take and how much memory it needs: an estimate, shown before it is launched."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ..settings import shape_key, size_fields
from ..spec import StudySpec
from ..workloads.sizes import sizes_of
from .flow import PLAIN, CellKey, total_cells
from .store import Phase, Store

_FLOPS_PER_S_AND_CORE = 40e9
IMPORT_S = 4.0
"""From the launch to the first phase: torch is loaded once."""
_WORKER_S = 0.4
"""A worker that starts."""
_TELLING_S = 0.03
"""A plain update that is shorter is mostly what every update costs whatever its size, and says nothing
of the speed of a larger one."""
_RECOMPUTED = 4 / 3
"""A recomputed update does the forward's third of the work once more."""
_UPDATES: dict[Phase, float] = {
    "reference": 1.5,
    "noise": 1.5,
    "legality": 1.2,
    "canary": 1.4,
    "parity": 3.5,
    "memory": 1.4,
}
"""What a phase does, in plain updates, as seen in studies on two threads; time goes by its pairs."""
_WORKERS: tuple[Phase, ...] = ("reference", "canary", "memory", "time")
"""Phases that begin with a worker of their own."""
_PLAIN: tuple[Phase, ...] = ("reference", "noise", "legality", "memory")
_CANDIDATE: tuple[Phase, ...] = ("canary", "parity", "memory", "time")


@dataclass(frozen=True)
class Forecast:
    """What a study will cost, estimated."""

    cells: int
    """Phases to be done when nothing is refused."""
    seconds: float | None
    """None where it is not known: for somebody's own model, whose work nobody knows before it is run,
    and for compiled studies, ranks and clusters; so is `peak_bytes`."""
    peak_bytes: int | None
    """Largest plain update, state included."""
    basis: str
    """Where the speed comes from."""
    costs: Mapping[CellKey, float]
    """Seconds of each phase; for somebody's own model only how they stand to one another."""


def forecast(spec: StudySpec, flops_per_s: float | None) -> Forecast:
    """The cost of `spec` at a speed from `measured_speed`, or at a rough one when that is None."""
    unknown = _why_unknown(spec)
    if unknown is not None:
        return Forecast(total_cells(spec), None, None, f"not estimated: {unknown}", {})
    speed = flops_per_s or _rough_speed(spec)
    costs: dict[CellKey, float] = {}
    peak: int | None = 0
    for shape in spec.shapes:
        settings = spec.at(shape)
        sizes = sizes_of(settings, spec.precision)
        if sizes is None or peak is None:
            peak = None
            # Its positions stand in for its work: shapes differ in nothing else.
            positions = prod(getattr(settings, name) for name in size_fields(settings))
            costs |= _costs(spec, shape_key(settings), positions, 0.0, 0.0)
        else:
            peak = max(peak, sizes.plain_peak_bytes)
            update_s = sizes.flops / speed
            costs |= _costs(spec, shape_key(settings), update_s, spec.timing.budget_s, _WORKER_S)
    if peak is None:
        return Forecast(total_cells(spec), None, None, "not estimated: a model of your own", costs)
    basis = (
        "estimated from what a study on this machine took"
        if flops_per_s
        else "a rough estimate: nothing long enough has been timed on this machine yet"
    )
    return Forecast(total_cells(spec), IMPORT_S + sum(costs.values()), peak, basis, costs)


def _why_unknown(spec: StudySpec) -> str | None:
    """Why what this machine is known to take for an update says nothing of a study."""
    if spec.engine != "local":
        return "the machines of a cluster are others, and do several cells at once"
    if spec.compile is not None:
        return "compiling takes what it takes"
    return "ranks start anew for every phase" if spec.ranks is not None else None


def _costs(
    spec: StudySpec, shape: str, update_s: float, budget_s: float, worker_s: float
) -> dict[CellKey, float]:
    """Seconds of each phase at a shape whose plain update takes so long."""
    timing, pair_s = spec.timing, update_s * (1 + _RECOMPUTED)
    sampling_s = max(timing.min_pairs * pair_s, min(budget_s, timing.max_pairs * pair_s))
    seconds: dict[Phase, float] = {phase: updates * update_s for phase, updates in _UPDATES.items()}
    seconds["time"] = pair_s + sampling_s
    for phase in _WORKERS:
        seconds[phase] += worker_s
    found = {(shape, PLAIN, phase): seconds[phase] for phase in _PLAIN}
    return found | {(shape, plan, phase): seconds[phase] for plan in spec.plans for phase in _CANDIDATE}


def slowest_pair_s(spec: StudySpec, flops_per_s: float | None) -> float | None:
    """Seconds of a pair of updates, plain and recomputed, at the shape with most work. None where the
    seconds of a forecast are."""
    if _why_unknown(spec) is not None:
        return None
    sizes = [sizes_of(spec.at(shape), spec.precision) for shape in spec.shapes]
    flops = [one.flops for one in sizes if one is not None]
    if len(flops) < len(sizes):
        return None
    return max(flops) / (flops_per_s or _rough_speed(spec)) * (1 + _RECOMPUTED)


def _rough_speed(spec: StudySpec) -> float:
    return _FLOPS_PER_S_AND_CORE * (spec.threads or os.cpu_count() or 1)


def measured_speed(store: Store, workload: str) -> float | None:
    """Floating-point operations a second of the newest plain updates of a workload that were long enough
    to tell; None where there are none."""
    for row in store.studies(limit=20):
        if row.spec.workload.name != workload or _why_unknown(row.spec) is not None:
            continue
        cells = store.cells(row.id)
        flops: dict[str, int] = {
            cell.shape_key: cell.payload["flops"]
            for cell in cells
            if cell.phase == "reference" and cell.payload
        }
        speeds: list[float] = [
            flops[cell.shape_key] / update_s
            for cell in cells
            if cell.phase == "time" and cell.payload and cell.shape_key in flops
            if (update_s := cell.payload["plain_median_s"]) >= _TELLING_S
        ]
        if speeds:
            return sorted(speeds)[len(speeds) // 2]
    return None
