"""Figures that the user measured elsewhere, through the same gates; always labelled supplied.

Raw samples come as `recompute-measurements/1` (see `reports.measurements`). The three figures of the
receipt project, plain and candidate in one JSON object, are gated as they are: a median without samples
has no interval, so it is never undecided, and no report rests on it.
"""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, field_validator

from .errors import InputError
from .gates import GATE_NAMES, MemoryRun, release_failures, verdict_of
from .reading import read_at_most
from .reports.measurements import MOST_BYTES, Measurements, is_csv, read_measurements
from .reports.refusal import Untrusted
from .reports.supplied import gates_of_supplied, gather_supplied, supplied_sentence
from .results import GateId
from .settings import Frozen
from .spec import Thresholds, explain


class SuppliedRun(Frozen):
    """One path's figures. A figure that is null or NaN is taken as missing, and fails its gate."""

    model_config = ConfigDict(allow_inf_nan=True)

    peak_allocated_mb: Annotated[float, Field(gt=0)]
    """Peak allocated, MB (10^6 bytes)."""
    median_update_ms: Annotated[float, Field(gt=0)]
    """Median time of a whole update, ms."""
    largest_gradient_gap: Annotated[float, Field(ge=0)]
    """Largest absolute gap of any gradient against plain."""

    @field_validator("*", mode="wrap")
    @classmethod
    def _missing_is_nan(cls, value: Any, check: Any) -> Any:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return math.nan
        checked = check(value)
        if math.isinf(checked):
            raise ValueError("expected a finite number")
        return checked

    def run(self) -> MemoryRun:
        return MemoryRun(self.peak_allocated_mb, self.median_update_ms, self.largest_gradient_gap)


class ThreeFigures(Frozen):
    """Plain and candidate without samples, and thresholds if they are not the default ones."""

    plain: SuppliedRun
    candidate: SuppliedRun
    thresholds: Thresholds = Thresholds()


def read_supplied(path: Path, settings: Any = None) -> ThreeFigures | Measurements:
    """A file of figures; `settings`, if any, are laid over its thresholds. InputError in one line."""
    data = _bytes_of(path)
    raw = None if is_csv(path.name) else _leniently(data, path)
    if isinstance(raw, dict) and "schema" not in raw and raw.keys() & {"plain", "candidate"}:
        return _three_figures(raw, path, settings)
    given = _measurements(data, path)
    return given.model_copy(update={"thresholds": _overlaid(given.thresholds, settings)})


def evidence_of_file(path: Path, settings: Any = None) -> dict[str, bytes]:
    """The evidence of a report on a file of raw samples. InputError in one line."""
    given = read_supplied(path, settings)
    if isinstance(given, ThreeFigures):
        raise InputError(
            f"{path}: three figures without samples can be gated, but no report rests on them; "
            "'gate --recorder' prints a recorder of samples"
        )
    data = _bytes_of(path)
    try:
        return gather_supplied(data, path.name, given.thresholds, datetime.now(UTC))
    except Untrusted as error:
        raise InputError(str(error)) from None


def _bytes_of(path: Path) -> bytes:
    return read_at_most(path, MOST_BYTES, f"more than {MOST_BYTES} bytes; measurements are at most that")


def _measurements(data: bytes, path: Path) -> Measurements:
    try:
        return read_measurements(data, str(path))
    except Untrusted as error:
        raise InputError(str(error)) from None


def _leniently(data: bytes, path: Path) -> Any:
    """JSON as Python reads it: NaN, which in three figures is one that is missing, included."""
    if not data.strip():
        raise InputError(f"{path}: is empty")
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {str(error)[:120]}") from None


def _three_figures(raw: dict[str, Any], path: Path, settings: Any) -> ThreeFigures:
    thresholds = raw.get("thresholds", {})
    if settings is not None:
        both = isinstance(thresholds, dict) and isinstance(settings, dict)
        raw["thresholds"] = {**thresholds, **settings} if both else settings
    try:
        return ThreeFigures.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from None


def _overlaid(named: Thresholds, settings: Any) -> Thresholds:
    if settings is None:
        return named
    if not isinstance(settings, dict):
        raise InputError("--set thresholds: expected settings, such as thresholds.peak_ratio=0.9")
    try:
        return Thresholds.model_validate(named.model_dump() | settings)
    except ValidationError as error:
        raise InputError(f"--set thresholds.{explain(error)}") from None


# --- the gates -------------------------------------------------------------------------------


def judge_supplied(given: ThreeFigures | Measurements) -> dict[str, Any]:
    """Each gate and the verdict, `recompute-gate/1`: plain data for JSON, a missing figure is None."""
    found = _judged_samples(given) if isinstance(given, Measurements) else _judged_figures(given)
    return {
        "schema": "recompute-gate/1",
        "kind": "supplied",
        **found,
        "failures": [gate["name"] for gate in found["gates"] if gate["outcome"] == "fail"],
        "thresholds": given.thresholds.model_dump(mode="json"),
    }


def _judged_samples(given: Measurements) -> dict[str, Any]:
    gates = gates_of_supplied(given, given.thresholds)
    return {
        "verdict": verdict_of(gates),
        "sentence": supplied_sentence(given, gates),
        "workload": given.workload,
        "plan": given.plan,
        "shape": given.shape,
        "supplied_by": given.supplied_by,
        "gates": [{"name": GATE_NAMES[gate.id], **gate.model_dump(mode="json")} for gate in gates],
        "warnings": list(given.warnings),
    }


def _judged_figures(given: ThreeFigures) -> dict[str, Any]:
    plain, candidate, limits = given.plain, given.candidate, given.thresholds
    failures = release_failures(plain.run(), candidate.run(), limits)
    figures: dict[GateId, tuple[float, float]] = {
        "gradient_parity": (candidate.largest_gradient_gap, limits.gradient_gap),
        "memory_saving": (
            candidate.peak_allocated_mb / plain.peak_allocated_mb,
            limits.peak_ratio,
        ),
        "update_latency": (
            candidate.median_update_ms / plain.median_update_ms,
            limits.update_ratio,
        ),
    }
    failed = ", ".join(failures)
    return {
        "verdict": "keep_original" if failures else "adopt",
        "sentence": f"Keep the original, on supplied figures: {failed} failed."
        if failures
        else "Adopt, on supplied figures: every gate passes.",
        "gates": [
            {
                "name": GATE_NAMES[gate],
                "id": gate,
                "outcome": "fail" if GATE_NAMES[gate] in failures else "pass",
                "threshold": threshold,
                "observed": observed if math.isfinite(observed) else None,
                "ci95": None,
                "kind": "supplied",
                "sentence": "A single figure, without samples.",
            }
            for gate, (observed, threshold) in figures.items()
        ],
        "warnings": [
            "Three figures without samples: none has an interval.",
            "No relative gap was supplied, and an absolute one says too little: a loss that is scaled "
            "down makes any gap small.",
        ],
    }
