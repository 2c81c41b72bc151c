"""Figures that the user measured elsewhere, through the same gates; always labelled supplied."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, field_validator

from .errors import InputError
from .gates import MemoryRun, release_failures
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


class Supplied(Frozen):
    """A measurements file: plain and candidate, and thresholds if they are not the default ones."""

    plain: SuppliedRun
    candidate: SuppliedRun
    thresholds: Thresholds = Thresholds()


def read_supplied(path: Path, settings: Any) -> Supplied:
    """A measurements file; `settings`, if any, are laid over its thresholds. InputError in one line."""
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {str(error)[:120]}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: expected a mapping with plain and candidate")
    thresholds = raw.get("thresholds", {})
    if settings is not None:
        both = isinstance(thresholds, dict) and isinstance(settings, dict)
        raw["thresholds"] = {**thresholds, **settings} if both else settings
    try:
        return Supplied.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from None


def judge_supplied(supplied: Supplied) -> dict[str, Any]:
    """Which gates fail, and the verdict, as plain data for JSON: a missing figure is None."""
    plain, candidate, limits = supplied.plain, supplied.candidate, supplied.thresholds
    failures = release_failures(plain.run(), candidate.run(), limits)
    figures = {
        "gradient parity": (candidate.largest_gradient_gap, limits.gradient_gap),
        "memory saving": (
            _ratio(candidate.peak_allocated_mb, plain.peak_allocated_mb),
            limits.peak_ratio,
        ),
        "update latency": (
            _ratio(candidate.median_update_ms, plain.median_update_ms),
            limits.update_ratio,
        ),
    }
    return {
        "kind": "supplied",
        "verdict": "keep_original" if failures else "adopt",
        "failures": failures,
        "gates": [
            {
                "name": name,
                "outcome": "fail" if name in failures else "pass",
                "observed": observed if math.isfinite(observed) else None,
                "threshold": threshold,
            }
            for name, (observed, threshold) in figures.items()
        ],
    }


def _ratio(candidate: float, plain: float) -> float:
    return candidate / plain
