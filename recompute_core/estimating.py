"""What a plan would keep and how high it would climb, what else would help, and how far it reaches.

Everything here is estimated on fake tensors (`meters.estimate`) and allocates nothing, so that a model
or a length may be larger than this machine. Importing this imports no torch.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError

from .errors import InputError
from .gates import megabytes
from .plans.names import Regions, plan_hash, regions_of
from .processes import end_with_parent
from .results import Estimate
from .settings import OwnSettings, Settings, size_fields
from .spec import (
    CheckpointSettings,
    OptimizerSettings,
    Precision,
    StudySpec,
    check_not_compiled,
    explain,
)

if TYPE_CHECKING:
    from .meters.estimate import FakeUpdate

T = TypeVar("T")
Field = Literal["seq_len", "batch"]

LIMITS: dict[Field, int] = {"seq_len": 1_048_576, "batch": 65_536}
"""The largest sizes that `largest` looks at; an answer that is one of these is a lower bound."""
_FINE, _STEP = 256, 64
"""Sequence lengths above `_FINE` are multiples of `_STEP`."""
_SMALL_CEILING = 1 / 3
_LOSS_CHUNKS = 8
_DEVICES = 8
_GUESSES = 8
"""Measures after which `last_that_fits` halves the interval."""


def estimate(spec: StudySpec, shape: dict[str, int], plan: str) -> Estimate:
    """One update of the workload at `shape` under a plan; `none` is plain.

    Raises InputError for a plan or a size that cannot be, and for a compiled study.
    """
    check_not_compiled(spec, "an estimate")
    return _estimated(
        _sized(spec, shape), spec.precision, spec.optimizer, regions_of(spec, plan), spec.checkpoint
    )


def estimates(spec: StudySpec, shape: dict[str, int], plans: Sequence[str]) -> tuple[Estimate, ...]:
    """`estimate` for several plans, as many at a time as there are cores."""
    check_not_compiled(spec, "an estimate")
    for plan in plans:
        regions_of(spec, plan)
    _fake_update(_sized(spec, shape), spec.precision, spec.optimizer)  # what the forked processes share
    return _in_processes(partial(estimate, spec, shape), plans)


def reach(
    spec: StudySpec, plans: Sequence[str], field: Field, budget_bytes: int
) -> tuple[tuple[int, Estimate] | None, ...]:
    """`largest` for several plans, as many at a time as there are cores."""
    return _in_processes(partial(_largest_under, spec, field, budget_bytes), plans)


def _in_processes(work: Callable[[str], T], plans: Sequence[str]) -> tuple[T, ...]:
    """`work` on each plan in processes forked from this one, which has torch and the model already."""
    with ProcessPoolExecutor(mp_context=get_context("fork"), initializer=end_with_parent) as pool:
        return tuple(pool.map(work, plans))


def _sized(spec: StudySpec, shape: dict[str, int]) -> Settings:
    try:
        return spec.at(shape)
    except ValidationError as error:
        raise InputError(explain(error)) from None


@lru_cache(maxsize=256)
def _estimated(
    settings: Settings,
    precision: Precision,
    optimizer: OptimizerSettings,
    regions: Regions,
    checkpoint: CheckpointSettings,
) -> Estimate:
    try:
        return _fake_update(settings, precision, optimizer).run(regions, checkpoint).estimate
    except InputError:
        raise
    except Exception as error:  # whatever a model of theirs does with tensors that have no values
        if not isinstance(settings, OwnSettings):
            raise
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"{settings.name}: cannot be estimated without values: {text[:200]}") from None


@lru_cache(maxsize=8)
def _fake_update(settings: Settings, precision: Precision, optimizer: OptimizerSettings) -> "FakeUpdate":
    from .meters.estimate import FakeUpdate
    from .workloads import build_blank
    from .workloads.device import cast

    return FakeUpdate(lambda: cast(build_blank(settings, 0), precision), optimizer)


# --- advice ----------------------------------------------------------------------------------


def advice(spec: StudySpec, shape: dict[str, int], plain: Estimate) -> tuple[str, ...]:
    """What to know before recomputing, in sentences; empty where the blocks' activations make the peak.

    The first says what the peak is made of, the others what would lower it instead, each estimated.
    """
    if plain.ceiling >= _SMALL_CEILING:
        return ()
    return (_diagnosis(spec, plain), *_remedies(spec, shape, plain))


def _diagnosis(spec: StudySpec, plain: Estimate) -> str:
    name, size = _largest_part(spec, plain)
    what = (
        f"{size / plain.peak_bytes:.0%} of plain's peak of {megabytes(plain.peak_bytes)} is {name}: "
        f"recomputing can touch {plain.ceiling:.0%}"
    ).replace("%", " %")
    if plain.ceiling < 1 - spec.thresholds.peak_ratio:
        return (
            f"Do not recompute here. {what}, and no plan can bring the peak to "
            f"{spec.thresholds.peak_ratio:g} of plain's."
        )
    return f"{what}."


def _largest_part(spec: StudySpec, plain: Estimate) -> tuple[str, int]:
    """The largest part of the peak that recomputing blocks leaves as it is, in words and in bytes."""
    outside = {"gpt": "embedding, head, logits and loss", "receipts": "stem, head and loss"}
    what = outside.get(spec.workload.name, "embeddings, head and loss")
    parts = plain.parts
    return max(
        ("state (parameters, gradients, AdamW's moments)", parts.state),
        (f"made outside the blocks ({what})", parts.outside),
        ("gradients on their way through backward", parts.backward),
        ("temporaries of the optimizer's step", parts.optimizer),
        key=lambda part: part[1],
    )


def _remedies(spec: StudySpec, shape: dict[str, int], plain: Estimate) -> list[str]:
    settings, parts = spec.at(shape), plain.parts
    found = []
    if settings.batch is not None and settings.batch > 1:
        half = {**shape, "batch": settings.batch // 2}
        peak = estimate(spec, half, "none").peak_bytes
        found.append(
            f"Batch {half['batch']} instead of {settings.batch}: plain's peak would be "
            f"{megabytes(peak)}, {megabytes(plain.peak_bytes - peak)} less (estimated)."
        )
    if settings.name == "gpt" and parts.outside > parts.blocks:
        saved = parts.outside - parts.outside // _LOSS_CHUNKS
        found.append(
            f"A loss in {_LOSS_CHUNKS} chunks: logits and loss would take "
            f"{megabytes(parts.outside // _LOSS_CHUNKS)} at a time, {megabytes(saved)} less (estimated)."
        )
    if parts.state > plain.peak_bytes / 2:
        if spec.precision == "float32":
            found.append(
                "Weights, gradients and moments in bfloat16: half of the state, "
                f"{megabytes(parts.state // 2)} less (estimated)."
            )
        sharded = parts.state // 2 * (_DEVICES - 1) // _DEVICES
        found.append(
            f"AdamW's moments sharded over {_DEVICES} devices: {megabytes(sharded)} less on each "
            "(estimated)."
        )
    return found


# --- how far a budget reaches ----------------------------------------------------------------


def largest(
    spec: StudySpec,
    plan: str,
    field: Field,
    budget_bytes: int,
    tick: Callable[[], None] = lambda: None,
) -> tuple[int, Estimate] | None:
    """The longest sequence or the largest batch whose estimated peak, state included, fits.

    Every other size is that of the study's first shape. None when even the smallest does not fit.
    Raises InputError for a plan or a size that cannot be. `tick` is called before each estimate, and
    what it raises ends the search.
    """
    check_not_compiled(spec, "an estimate")
    settings = spec.at(spec.shapes[0])
    if field not in size_fields(settings):
        raise InputError(f"{settings.name} has no {field}")
    regions = regions_of(spec, plan)

    def at(size: int) -> Estimate:
        sized = settings.model_copy(update={field: size})
        return _estimated(sized, spec.precision, spec.optimizer, regions, spec.checkpoint)

    def peak(size: int) -> int:
        tick()
        try:
            return at(size).peak_bytes
        except InputError:  # longer than the positions that somebody's own model has
            if size <= getattr(settings, field):
                raise
            return sys.maxsize

    grid = sizes_of(field, LIMITS[field])
    size = last_that_fits(grid, getattr(settings, field), peak, budget_bytes)
    return None if size is None else (size, at(size))


def reached_words(size: int | None, at_limit: bool) -> str:
    """`3,456`, or what takes its place where the search stopped or nothing fits."""
    if size is None:
        return "none fits"
    return f"at least {size:,} (the search stops there)" if at_limit else f"{size:,}"


def _largest_under(
    spec: StudySpec, field: Field, budget_bytes: int, plan: str
) -> tuple[int, Estimate] | None:
    return largest(spec, plan, field, budget_bytes)


def sizes_of(field: Field, most: int) -> Sequence[int]:
    """The sizes that are looked at, up to `most`: every batch, and lengths that are not too odd."""
    if field == "batch":
        return range(1, most + 1)
    return [*range(1, min(_FINE, most) + 1), *range(_FINE + _STEP, most + 1, _STEP)]


def last_that_fits(
    sizes: Sequence[int], start: int, peak: Callable[[int], int], budget: int
) -> int | None:
    """The last of the rising `sizes` with `peak(size) <= budget`, or None; `peak` never falls.

    Peaks run nearly straight, so each guess lies on the line through the two newest measures, which
    takes four or five of them; after `_GUESSES` the interval is halved.
    """
    fits, beyond = -1, len(sizes)
    known: list[tuple[int, int]] = []
    guess = _last_at_most(sizes, start)
    while beyond - fits > 1:
        guess = min(max(guess, fits + 1), beyond - 1)
        known.append((sizes[guess], peak(sizes[guess])))
        if known[-1][1] <= budget:
            fits = guess
        else:
            beyond = guess
        guess = (fits + beyond) // 2
        if len(known) < _GUESSES:
            guess = _last_at_most(sizes, _on_the_line(known, budget))
    return sizes[fits] if fits >= 0 else None


def _on_the_line(known: Sequence[tuple[int, int]], budget: int) -> int:
    """The size at which a line through the two newest measures, or through 0, reaches the budget."""
    (size, peak), (other, its_peak) = known[-1], known[-2] if len(known) > 1 else (0, 0)
    if peak == its_peak:
        return size
    return int(size + (budget - peak) * (size - other) / (peak - its_peak))


def _last_at_most(sizes: Sequence[int], size: int) -> int:
    """Index of the last of `sizes` that is not above `size`; -1 when all are."""
    return bisect_right(sizes, size) - 1


# --- the published JSON ----------------------------------------------------------------------


def fit_field(spec: StudySpec) -> Field:
    """The size that a budget is spent on: the sequence length where the workload has one."""
    return "seq_len" if "seq_len" in size_fields(spec.workload) else "batch"


def document(
    spec: StudySpec,
    shape: dict[str, int],
    found: dict[str, Estimate],
    said: Sequence[str],
    fit: dict[str, Any] | None,
) -> dict[str, Any]:
    """`recompute-estimate/1`."""
    settings = spec.at(shape)
    return {
        "schema": "recompute-estimate/1",
        "workload": settings.model_dump(mode="json"),
        "shape": {name: getattr(settings, name) for name in size_fields(settings)},
        "precision": spec.precision,
        "estimates": [
            {
                "plan": plan,
                "plan_hash": plan_hash(regions_of(spec, plan), spec.checkpoint),
                **one.model_dump(mode="json"),
            }
            for plan, one in found.items()
        ],
        "advice": list(said),
        "fit": fit,
    }


def fit_document(
    field: Field, budget_bytes: int, plans: Sequence[str], reached: Sequence[tuple[int, Estimate] | None]
) -> dict[str, Any]:
    """The part of it that says how far a budget reaches under each plan."""
    return {
        "field": field,
        "budget_bytes": budget_bytes,
        "plans": [
            {
                "plan": plan,
                "largest": None if found is None else found[0],
                "at_limit": found is not None and found[0] == LIMITS[field],
                "peak_bytes": None if found is None else found[1].peak_bytes,
            }
            for plan, found in zip(plans, reached, strict=True)
        ],
    }
