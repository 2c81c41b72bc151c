"""The candidates of two studies, matched at the same shape, and how far each figure moved."""

from collections.abc import Sequence

from ..gates import is_open
from ..intervals import Interval, median
from ..results import Judged, Memory, MemoryPair, Timing
from .intervals import difference_interval, quotient_interval
from .records import Change, Figure, FigureId, Pairing, Standing, Unit, Unpaired

Place = tuple[str, str]
"""Shape key and plan."""


def paired(
    a: Sequence[Judged], b: Sequence[Judged], seconds: bool
) -> tuple[tuple[Pairing, ...], tuple[Unpaired, ...]]:
    """Those that both studies have, in the order of `a`, and those of one alone.

    Two are the same when their plan is, whatever its name; where none is, of the same name. `seconds`
    says whether seconds may be set side by side.
    """
    partners = _partners(a, b)
    pairings = tuple(_pairing(one, other, seconds) for one, other in partners)
    taken = {id(one) for pair in partners for one in pair}
    alone = [
        *(("a", one) for one in a if id(one) not in taken),
        *(("b", one) for one in b if id(one) not in taken),
    ]
    return pairings, tuple(
        Unpaired(
            side=side,
            plan=one.candidate.plan,
            shape_key=one.candidate.shape_key,
            verdict=None if is_open(one) else one.verdict,
        )
        for side, one in alone
    )  # fmt: skip


def _partners(a: Sequence[Judged], b: Sequence[Judged]) -> list[tuple[Judged, Judged]]:
    """Each of `a` with its counterpart: one candidate is nobody's twice."""
    found: dict[int, Judged] = {}
    left = list(b)
    for key in (_named_plan, _plan, _name):
        by_key = {key(one): one for one in reversed(left)}
        for index, one in enumerate(a):
            if index not in found and key(one) in by_key:
                found[index] = by_key.pop(key(one))
        taken = {id(one) for one in found.values()}
        left = [one for one in left if id(one) not in taken]
    return [(a[index], found[index]) for index in sorted(found)]


def _named_plan(one: Judged) -> tuple[str, str, str]:
    return one.candidate.shape_key, one.candidate.plan_hash, one.candidate.plan


def _plan(one: Judged) -> Place:
    return one.candidate.shape_key, one.candidate.plan_hash


def _name(one: Judged) -> Place:
    return one.candidate.shape_key, one.candidate.plan


def _pairing(a: Judged, b: Judged, seconds: bool) -> Pairing:
    changes: list[Change] = []
    if a.candidate.timing is not None and b.candidate.timing is not None:
        changes += _times(a.candidate.timing, b.candidate.timing, seconds)
    if a.candidate.memory is not None and b.candidate.memory is not None:
        changes += _bytes(a.candidate.memory, b.candidate.memory)
    return Pairing(
        plan=a.candidate.plan,
        shape_key=a.candidate.shape_key,
        same_plan=a.candidate.plan_hash == b.candidate.plan_hash,
        a=_standing(a),
        b=_standing(b),
        changes=tuple(changes),
    )


def _standing(one: Judged) -> Standing:
    parity = one.candidate.parity
    gradients = "not tested" if parity is None else "within tolerance" if parity.passed else "fail"
    return Standing(
        plan=one.candidate.plan,
        verdict=None if is_open(one) else one.verdict,
        gradients="bitwise equal" if parity and parity.passed and parity.bitwise else gradients,
        trouble=next(iter(one.candidate.troubles), None),
    )


# --- figures -----------------------------------------------------------------------------------------


def _times(a: Timing, b: Timing, seconds: bool) -> list[Change]:
    found = [_of_samples("update_ratio", "ratio", a.ratios, b.ratios)]
    if seconds:
        samples = a.samples, b.samples
        own = [[pair.candidate_s for pair in pairs] for pairs in samples]
        plain = [[pair.plain_s for pair in pairs] for pairs in samples]
        found += [_of_samples("update_s", "s", *own), _of_samples("plain_update_s", "s", *plain)]
    return found


def _of_samples(figure: FigureId, unit: Unit, a: Sequence[float], b: Sequence[float]) -> Change:
    low, high = quotient_interval(a, b)
    return Change(
        figure=figure,
        unit=unit,
        a=median(a),
        b=median(b),
        interval=difference_interval(a, b),
        relative_interval=(low - 1, high - 1),
        pairs=min(len(a), len(b)),
    )


def _bytes(a: MemoryPair, b: MemoryPair) -> list[Change]:
    """Peaks and saved bytes: exact, unless the samples of a peak differ among themselves."""
    changes = [
        _of_edges("peak_ratio", "ratio", a.ratio, b.ratio, a.ratio_ci95, b.ratio_ci95),
        _of_peaks("peak_bytes", a.candidate, b.candidate),
        _of_peaks("plain_peak_bytes", a.plain, b.plain),
        _exact("saved_bytes", a.candidate.saved_bytes, b.candidate.saved_bytes),
    ]
    return [change for change in changes if change is not None]


def _of_peaks(figure: FigureId, a: Memory, b: Memory) -> Change | None:
    edges = [
        (one.state_bytes + min(one.peak_samples), one.state_bytes + max(one.peak_samples))
        if one.peak_samples
        else None
        for one in (a, b)
    ]
    return _of_edges(figure, "bytes", a.peak_bytes, b.peak_bytes, *edges)


def _of_edges(
    figure: FigureId,
    unit: Unit,
    a: Figure | None,
    b: Figure | None,
    edges_a: Interval | None,
    edges_b: Interval | None,
) -> Change | None:
    """From the extremes of both sides' samples; an exact difference where each is a point."""
    if a is None or b is None or edges_a is None or edges_b is None:
        return None
    if edges_a == (a, a) and edges_b == (b, b):
        return _exact(figure, a, b, unit)
    (least, most), (low, high) = edges_a, edges_b
    return Change(
        figure=figure,
        unit=unit,
        a=a,
        b=b,
        interval=(low - most, high - least),
        relative_interval=(low / most - 1, high / least - 1) if least else None,
    )


def _exact(figure: FigureId, a: Figure, b: Figure, unit: Unit = "bytes") -> Change:
    return Change(figure=figure, unit=unit, a=a, b=b, interval=None, relative_interval=None)
