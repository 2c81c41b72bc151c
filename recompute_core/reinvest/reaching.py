"""How far plain's peak goes under a plan: found by estimate, confirmed by measurement.

At each size parity is run first, by the workers of a study. Only where plain itself cannot be run at
that size, as on a device that ends near plain's peak, is there nothing to compare with; the record says
so. Importing this imports no torch.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InputError
from ..estimating import LIMITS, Field, estimate, largest, sizes_of
from ..plans.names import regions_of
from ..results import Legality, ParityPassed
from ..settings import shape_key
from ..spec import StudySpec
from ..studies.flow import canary_module
from ..studies.one_shape import Asked, Ran, Tell, run_memory, run_shape
from .found import SIZE_WORDS, Reach, Tried

_TRIES = 4
"""Sizes that are measured at most; estimates miss by a fraction of a percent, so two are usual."""


@dataclass(frozen=True)
class Search:
    """What is looked for, and with what."""

    spec: StudySpec
    """The study's, at the one shape."""
    plan: str
    field: Field
    budget_bytes: int
    legality: Legality
    proof: ParityPassed
    """Of the plan at the study's own size."""
    home: Path
    tell: Tell
    tick: Callable[[], None]
    most: int
    """The largest size there are examples for."""
    limit: str | None = None
    """Why that is the most, in words."""

    @property
    def plain_size(self) -> int:
        return int(getattr(self.spec.at(self.spec.shapes[0]), self.field))


def find_reach(search: Search) -> Reach:
    """The largest size under the plan that fits plain's peak, as far as `_TRIES` measurements tell."""
    search.tell(f"estimating the largest {SIZE_WORDS[search.field]}")
    found = largest(search.spec, search.plan, search.field, search.budget_bytes, search.tick)
    if found is not None:
        search = _ending_at_the_models_end(search, found[0])
    size: int | None = None if found is None else min(found[0], search.most)
    tried: list[Tried] = []
    while size is not None:
        tried.append(try_size(search, size))
        size = next_size(search, tried)
    reach = Reach(
        field=search.field,
        plain_size=search.plain_size,
        budget_bytes=search.budget_bytes,
        tried=tuple(tried),
    )
    best = reach.largest
    if best is None:
        return reach
    if best.size == search.most:
        return reach.model_copy(update={"limit": search.limit})
    beyond = next_larger(search.field, best.size)
    more = {"next_size": beyond, "estimated_next_bytes": _estimated(search, beyond)}
    return reach.model_copy(update=more)


def asked_size(search: Search, size: int) -> Reach:
    """The one size that was asked for."""
    return Reach(
        field=search.field,
        plain_size=search.plain_size,
        budget_bytes=search.budget_bytes,
        tried=(try_size(search, size),),
        is_asked=True,
    )


def _ending_at_the_models_end(search: Search, size: int) -> Search:
    """Somebody's own model may have no more positions than those of `size`."""
    try:
        _estimated(search, next_larger(search.field, size))
    except InputError as error:
        return replace(search, most=size, limit=str(error))
    return search


def next_size(search: Search, tried: Sequence[Tried]) -> int | None:
    """The next size to measure: what is over or left of the budget, in steps of the estimate's slope.

    None when the largest that fits is known, or as many were tried as may be.
    """
    last = tried[-1]
    if len(tried) >= _TRIES:
        return None
    sizes = sizes_of(search.field, search.most)
    if last.peak_bytes is None:
        wanted = last.size * 3 // 4
    else:
        other = last.size // 2 or 2
        slope = (last.estimated_peak_bytes - _estimated(search, other)) / (last.size - other)
        wanted = int(last.size + (search.budget_bytes - last.peak_bytes) / max(1.0, slope))
    fits = [t.size for t in tried if t.peak_bytes is not None and t.peak_bytes <= search.budget_bytes]
    too_much = [t.size for t in tried if t.size not in fits]
    allowed = [s for s in sizes if s <= wanted and s < min(too_much, default=search.most + 1)]
    size = max(allowed, default=None)
    return None if size is None or size <= max(fits, default=0) else size


def try_size(search: Search, size: int) -> Tried:
    """Parity at a size, then its peak in a fresh process."""
    words = f"{SIZE_WORDS[search.field]} {size:,}"
    estimated = _estimated(search, size)
    shape = {**search.spec.shapes[0], search.field: size}
    spec = search.spec.model_copy(update={"shapes": (shape,)})

    def tell(what: str) -> None:
        search.tell(f"{words}: {what.split(' at ')[0]}")

    with tempfile.TemporaryDirectory(prefix="recompute-reach-") as folder:
        asked = Asked(
            spec=spec,
            shape=shape,
            shape_key=shape_key(spec.at(shape)),
            regions=regions_of(spec, search.plan),
            budget=None,  # a compiled study is not reinvested
            canary=canary_module(spec, search.plan, search.legality),
            home=search.home,
            folder=Path(folder),
        )
        ran = run_shape(asked, tell, search.tick)
        without_plain = _plain_failure(ran)
        if without_plain is not None:
            ran.failed, ran.parity = None, search.proof
        if isinstance(ran.parity, ParityPassed):
            run_memory(asked, ran, tell, search.tick)
    problem = None
    if ran.failed is not None:
        problem = f"{ran.failed[0]} could not be completed: {ran.failed[1]}"
    elif ran.canary is not None and not ran.canary.caught:
        problem = "the canary was missed"
    elif not isinstance(ran.parity, ParityPassed):
        problem = "parity fails at this size"
    elif ran.memory is not None and ran.memory.peak_bytes is None:
        problem = "this device has no peak counter"
    return Tried(
        size=size,
        estimated_peak_bytes=estimated,
        peak_bytes=None if problem or ran.memory is None else ran.memory.peak_bytes,
        bitwise=ran.parity.bitwise
        if isinstance(ran.parity, ParityPassed) and not without_plain
        else None,
        without_plain=without_plain,
        problem=problem,
    )


def _plain_failure(ran: Ran) -> str | None:
    """Why plain's own update could not be done; None where it could."""
    return ran.failed[1] if ran.failed is not None and ran.failed[0] in ("reference", "noise") else None


def next_larger(field: Field, size: int) -> int:
    return next(one for one in sizes_of(field, LIMITS[field] * 2) if one > size)


def _estimated(search: Search, size: int) -> int:
    shape = {**search.spec.shapes[0], search.field: size}
    return estimate(search.spec, shape, search.plan).peak_bytes
