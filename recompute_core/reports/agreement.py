"""Do the records of a study agree? Each may be well formed, and all of them not be of one study. Pure.

What is compared here holds of every study that the flow has run, whatever came of it: resumed ones, and
those that took a canary over from another shape, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..plans.anatomy import anatomy_of
from ..plans.names import budget_of, regions_of
from ..results import (
    TRACED_WITHIN,
    Comparison,
    CompiledUpdate,
    Gap,
    Legality,
    Memory,
    Noise,
    ParityFailed,
    ParityPassed,
    Reference,
)
from ..spec import Ranks
from ..studies.flow import PLAIN, Book, block_names, canary_module
from .evidence import MADE_BY, Found
from .refusal import CANNOT_BE, Untrusted, contradiction, quoted
from .second_use import disagreements


def check_agreement(found: Found) -> None:
    """Raises Untrusted: records-disagree, contradiction."""
    try:
        odd = next(_odd(found), None)
    except CANNOT_BE as error:
        raise contradiction(error) from error
    if odd is not None:
        raise Untrusted("records-disagree", f"the records disagree at {odd}")


def _odd(found: Found) -> Iterator[str]:
    yield from _environment(found)
    for shape in found.shapes:
        yield from (f"{shape}: {what}" for what in _at(found, shape))
    if len({one.run_id for one in found.reinvested}) != len(found.reinvested):
        yield "reinvestments: one stands twice"
    for one in found.reinvested:
        odd = disagreements(one, found.row.id, found.plan, found.result)
        yield from (f"reinvestment {quoted(one.run_id)}: it {what}" for what in odd)


def _at(found: Found, shape: str) -> Iterator[str]:
    """What does not fit at a shape, in words."""
    book = Book.of(found.cells)
    reference, noise, legality = book.reference(shape), book.noise(shape), book.legality(shape)
    if legality is not None:
        yield from _legal(legality)
        yield from _canary(found, book, shape, legality)
    parity = _parity(book, shape, found.plan)
    if reference is not None and noise is not None:
        yield from _tensors(reference, noise, parity)
        if parity is not None:
            yield from _recomputed(found, reference, noise, parity)
    elif parity is not None:
        yield "parity without an update of plain's, or without plain against plain"
    for plan in (PLAIN, found.plan):
        cell = book.done(shape, plan, "memory")
        if cell is not None and cell.payload is not None:
            yield from _memory(plan, cell.payload)
            yield from _worst_rank(plan, Memory.model_validate(cell.payload), found.row.spec.ranks)
    timed = book.done(shape, found.plan, "time")
    if timed is not None and timed.payload is not None:
        asked, pairs = found.asked.timing, len(timed.payload["samples"])
        if not asked.min_pairs <= pairs <= asked.max_pairs:
            yield f"{pairs} pairs were timed; the study asked for {asked.min_pairs} to {asked.max_pairs}"
        over = found.row.spec.ranks
        if timed.payload.get("ranks", 1) != (over.count if over else 1):
            yield "the times are of another number of ranks than the study has"


def _parity(book: Book, shape: str, plan: str) -> ParityPassed | ParityFailed | None:
    cell = book.done(shape, plan, "parity")
    if cell is None or cell.payload is None:
        return None
    kind = ParityPassed if cell.payload["passed"] else ParityFailed
    return kind.model_validate(cell.payload)


def _legal(legality: Legality) -> Iterator[str]:
    """A plan is refused for the reasons: a verdict without any would refuse nothing."""
    for one in legality.blocks:
        if (one.verdict == "legal") == bool(one.reasons):
            yield f"the verdict on {quoted(one.block)} is {one.verdict}, which its reasons do not say"


def _canary(found: Found, book: Book, shape: str, legality: Legality) -> Iterator[str]:
    canary = book.canary(shape, found.plan)
    if canary is None:
        return
    module = canary_module(found.row.spec, found.plan, legality)
    if canary.block != module:
        yield f"the canary is in {quoted(canary.block)}; that of this plan is in {module}"
    if canary.ran_at is not None and canary.ran_at not in found.shapes:
        yield f"the canary is said to have run at {quoted(canary.ran_at)}"
    if canary.caught and canary.problem is None and not canary.largest_relative_gap:
        yield "the canary was caught, and nobody saw a gap"


def _tensors(reference: Reference, noise: Noise, parity: Comparison | None) -> Iterator[str]:
    """Every comparison is of the tensors that plain's update left."""
    prints = reference.fingerprints
    names = {one.name for one in prints} if prints is not None else set(map(_name, noise.gaps))
    if len(names) != reference.tensors:
        yield f"plain's update left {reference.tensors} tensors, and {len(names)} are named"
    for what, compared in (("plain against plain", noise), ("parity", parity)):
        if compared is None:
            continue
        listed = [_name(gap) for gap in compared.gaps]
        if len(set(listed)) != len(listed):
            yield f"{what} compares a tensor twice"
        beyond = {_name(gap) for gap in compared.gaps if gap.problem is None} - names
        if beyond or not names.issubset(listed):
            yield f"{what} compares other tensors than plain's update left"


def _name(gap: Gap) -> str:
    return f"{gap.part}/{gap.name}"


def _recomputed(
    found: Found, reference: Reference, noise: Noise, parity: ParityPassed | ParityFailed
) -> Iterator[str]:
    if parity.noise_floor != noise.largest_relative_gap:
        yield "the noise floor of parity is not what plain against plain gave"
    yield from _calls(found, reference.block_calls, parity.block_calls)
    yield from _graphs(found, reference.compiled, parity.compiled)
    rollback = parity.rollback
    if rollback is None:
        if parity.passed and found.made_by == MADE_BY:
            yield "parity holds, and that the plan comes off was not looked at; run the study again"
        return
    if rollback.compared < reference.tensors or (
        parity.passed and rollback.compared != reference.tensors
    ):
        yield (
            f"taking the plan off compared {rollback.compared} tensors; plain's update left "
            f"{reference.tensors}"
        )
    if parity.passed and not {_name(gap) for gap in rollback.off}.issubset(map(_name, parity.gaps)):
        yield "taking the plan off compared other tensors than plain's update left"


def _calls(found: Found, plain: Mapping[str, int], own: Mapping[str, int]) -> Iterator[str]:
    """A block that is recomputed whole is called more often than in plain, any other just as often."""
    if found.row.spec.compile is not None:
        if plain or own:
            yield "calls are said to have been counted in a compiled study"
        return
    regions = regions_of(found.row.spec, found.plan)
    first = {region.modules[0] for region in regions if not region.keep}
    named = {name for region in regions for name in region.modules}
    if own.keys() != plain.keys():
        yield "parity counted the calls of other blocks than plain's update"
        return
    for block, calls in plain.items():
        if (block in first and own[block] <= calls) or (block not in named and own[block] != calls):
            yield f"{quoted(block)} was called {own[block]} times under the plan, {calls} times in plain"


def _graphs(found: Found, plain: CompiledUpdate | None, own: CompiledUpdate | None) -> Iterator[str]:
    """The graphs of a compiled study recompute what the plan touches, and no other block."""
    spec = found.row.spec
    if (plain is None) != (spec.compile is None) or (own is None) != (spec.compile is None):
        yield "what is said of compiled graphs is not what the specification asks for"
        return
    if plain is None or own is None:
        return
    if plain.recomputed_ops:
        yield "plain's graphs recompute blocks"
    budget = budget_of(found.plan)
    if budget is not None:
        if own.replayed_ops <= plain.replayed_ops or own.recomputed_ops:
            yield f"under a budget of {budget} % the graphs recompute nothing more than plain's"
        return
    touched = {name for name in block_names(spec, found.plan) if name in anatomy_of(spec.workload).names}
    if set(own.recomputed_ops) != touched or not all(own.recomputed_ops.values()):
        yield "the graphs recompute other blocks than the plan names"


def _memory(plan: str, payload: Mapping[str, Any]) -> Iterator[str]:
    timeline: Mapping[str, Sequence[int]] | None = payload["timeline"]
    tops = [payload["state_bytes"] + sample for sample in payload["peak_samples"]]
    if tops and payload["saved_bytes"] > max(tops):
        yield f"{quoted(plan)} keeps more bytes for backward than its peak"
    if timeline is not None and not _reaches(max(timeline["bytes"]), tops):
        yield f"the timeline of {quoted(plan)} does not reach the peak that was measured"


def _reaches(top: int, peaks: Sequence[int]) -> bool:
    """Whether a timeline may be of these peaks: one sample is of its very update, several of others."""
    allowed = TRACED_WITHIN * max(peaks, default=0) if len(peaks) > 1 else 0
    return any(abs(top - peak) <= allowed for peak in peaks)


def _worst_rank(plan: str, memory: Memory, over: Ranks | None) -> Iterator[str]:
    """What counts is the rank with the highest peak."""
    if tuple(one.rank for one in memory.ranks) != tuple(range(over.count if over else 0)):
        yield f"the memory of {quoted(plan)} is of other ranks than the study has"
        return
    peaks = [one.peak_bytes for one in memory.ranks if one.peak_bytes is not None]
    if memory.ranks and len(peaks) != (0 if memory.peak_bytes is None else len(memory.ranks)):
        yield f"the peak of {quoted(plan)} is of some ranks alone"
    if any(one.peak_bytes is not None and one.peak_bytes < one.state_bytes for one in memory.ranks):
        yield f"a rank's peak of {quoted(plan)} is below what it holds all the time"
    said = (memory.peak_bytes, memory.saved_bytes, memory.state_bytes)
    of_ranks = [(one.peak_bytes, one.saved_bytes, one.state_bytes) for one in memory.ranks]
    if of_ranks and (said not in of_ranks or memory.peak_bytes != max(peaks, default=None)):
        yield f"the memory of {quoted(plan)} is not that of the rank with the highest peak"


def _environment(found: Found) -> Iterator[str]:
    """Where a study ran is where its specification has it run."""
    spec, here = found.row.spec, found.row.environment
    if not here:
        return
    if here.get("engine", "local") != spec.engine:
        yield "environment: it is of another engine than the specification asks for"
    ranks = spec.ranks and (spec.ranks.kind, spec.ranks.count)
    told = (here.get("ranks_kind"), here.get("ranks"))
    if told != (ranks or (None, None)):
        yield "environment: it is of other ranks than the specification asks for"
