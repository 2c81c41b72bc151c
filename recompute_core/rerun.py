"""Studies that are run again: why one is undecided, how it is measured longer, what is said of it.

Pure. A re-run is always a new study: pairs are never added to those that were judged, for whoever goes
on sampling until the result pleases finds what they like (optional stopping).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from .gates import plan_verdicts
from .plans.names import in_a_sentence
from .results import Judged, Pair, StudyResult, Timing
from .spec import MOST_EARLIER, Earlier, StudySpec, Thresholds, TimingSettings
from .words import count, duration, listed

MOST_PAIRS = 301
"""Pairs of one candidate that a longer study takes, unless the earlier one took nearly as many."""
MOST_SAMPLING_S = 300.0
"""Seconds of one candidate's pairs, unless so few pairs fit into them that nothing would be gained."""
_MOST_OF_ALL = 1000
"""Pairs that any study may ask for."""
_MARGIN = 2.0
"""The spread that a few pairs show may be too small by half."""
_NARROWEST = 0.005
_SCATTERED = 0.1
"""Updates scatter when the middle half of them spans more than this share of their median: what
torch.utils.benchmark takes for a measurement that is not to be relied on."""


# --- why a study is undecided --------------------------------------------------------------------------


def torn(judged: Sequence[Judged]) -> list[Judged]:
    """The candidates whose update time is what leaves their plan undecided."""
    verdicts = plan_verdicts(judged)
    return [
        one
        for one in judged
        if verdicts[one.candidate.plan] == "undecided"
        and any(gate.id == "update_latency" and gate.outcome == "undecided" for gate in one.gates)
    ]


def why_undecided(judged: Sequence[Judged], asked: TimingSettings) -> str | None:
    """What leaves a study undecided, and why no more was measured; None where it is not the time."""
    open_ones = torn(judged)
    if not open_ones:
        return None
    first, others = open_ones[0], len(open_ones) - 1
    timing = _timing(first)
    low, high = timing.ratio_ci95
    who = f"{in_a_sentence(first.candidate.plan)} at {first.candidate.shape_key}"
    more = f", as do those of {others} other candidates" if others > 1 else ""
    more = ", as does that of another candidate" if others == 1 else more
    return (
        f"The interval of the update time of {who}, {low:.3f} to {high:.3f}, crosses the gate at "
        f"{_gate(first):g}{more}: {_why_no_more(timing, asked)}.{_busy(timing.samples)}"
    )


def _why_no_more(timing: Timing, asked: TimingSettings) -> str:
    pairs = count(timing.pairs, "pair")
    if timing.stopped == "budget spent":
        return f"{pairs} were timed, then the {asked.budget_s:g} s of the time budget were spent"
    if timing.stopped == "all pairs taken":
        return f"{pairs} were timed, the largest number that was asked for"
    return f"{pairs} were timed, until it was {asked.width:g} wide or narrower, as was asked for"


def _busy(samples: Sequence[Pair]) -> str:
    """That plain's own updates scatter, which shows what else the machine did."""
    plain = [pair.plain_s for pair in samples]
    scatter = _scatter(plain)
    if scatter <= _SCATTERED:
        return ""
    return (
        f" The machine was busy: plain's own updates took {min(plain) * 1e3:.0f} to "
        f"{max(plain) * 1e3:.0f} ms, and the middle half of them spans {100 * scatter:.0f} % of their "
        "median."
    )


def _scatter(seconds: Sequence[float]) -> float:
    """What the middle half spans, as a share of the median."""
    if len(seconds) < 3:
        return 0.0
    low, middle, high = quantiles(seconds, n=4, method="inclusive")
    return (high - low) / middle


# --- measuring longer ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Longer:
    """The new study that may decide what another left undecided."""

    spec: StudySpec
    seconds: float
    """About how long it takes, at the pace of the earlier one; estimated."""
    needed: int
    """Pairs that would tell, if they scatter as the earlier ones did; may be more than it takes."""

    @property
    def pairs(self) -> int:
        """So many at most of each candidate."""
        return self.spec.timing.max_pairs

    @property
    def words(self) -> str:
        """What will be measured, how long that takes, and where it may not be enough."""
        timing = self.spec.timing
        said = (
            f"A new study under the same thresholds, {timing.min_pairs} to {self.pairs} pairs of each "
            f"candidate in a budget of {duration(timing.budget_s)}: about {duration(self.seconds)} in "
            "all, estimated at the pace of this one."
        )
        if self.needed <= self.pairs:
            return said
        return f"{said} At the spread that was seen that may not be enough: it may stay undecided."


def longer(result: StudyResult, judged: Sequence[Judged], apart_s: float) -> Longer | None:
    """The whole study of `result` once more, under the thresholds that it is judged by, long enough for
    these of its candidates; None where it is not the time that leaves them undecided, or where no more
    pairs may be asked for.

    `apart_s` are the seconds that all but the timing took.
    """
    open_ones = torn(judged)
    if not open_ones:
        return None
    timings, before = [_timing(one) for one in open_ones], result.spec.timing
    needed = max(map(_needed, open_ones))
    pair_s = max(map(_pair_s, timings))
    taken = max(timing.pairs for timing in timings)
    if taken >= _MOST_OF_ALL:
        return None
    least = max(2 * taken + 1, before.min_pairs)
    most = max(least, min(MOST_PAIRS, int(MOST_SAMPLING_S / pair_s)))
    pairs = min(_odd(min(max(needed, least), most)), _MOST_OF_ALL)
    nearest = min(abs(_timing(one).ratio_median - _gate(one)) for one in open_ones)
    timing = TimingSettings(
        min_pairs=max(before.min_pairs, min(15, pairs)),
        max_pairs=pairs,
        width=min(before.width, max(_NARROWEST, round(nearest, 3))),
        budget_s=min(math.ceil(1.5 * pairs * pair_s), 86_400),
    )
    timed = [one.candidate.timing for one in result.judged if one.candidate.timing is not None]
    sampling_s = sum(min(pairs * _pair_s(one), timing.budget_s) for one in timed)
    spec = repeated(result.spec, result.study_id, result.thresholds, timing)
    return Longer(spec, apart_s + sampling_s, needed)


def _needed(one: Judged) -> int:
    """Pairs after which the interval lies to one side of the gate, if its width goes with the root of
    their number and the median stays."""
    timing, gate = _timing(one), _gate(one)
    middle, (low, high) = timing.ratio_median, timing.ratio_ci95
    across = high - middle if middle <= gate else middle - low
    apart = abs(gate - middle)
    if apart <= across / 100:
        apart = across / 100  # on the gate no number of pairs tells
    return math.ceil(_MARGIN * timing.pairs * (across / apart) ** 2)


def _pair_s(timing: Timing) -> float:
    return median(pair.plain_s + pair.candidate_s for pair in timing.samples)


def _odd(number: int) -> int:
    return number if number % 2 else number + 1


def _timing(one: Judged) -> Timing:
    assert one.candidate.timing is not None, "a time that was judged was measured"
    return one.candidate.timing


def _gate(one: Judged) -> float:
    return next(gate.threshold for gate in one.gates if gate.id == "update_latency")


# --- what is recorded and said of a re-run -------------------------------------------------------------


def repeated(
    spec: StudySpec, study: str, thresholds: Thresholds, timing: TimingSettings | None = None
) -> StudySpec:
    """The study `study` of `spec` once more, under these thresholds, which records what it follows."""
    follows = _remembered((*spec.follows, Earlier(study=study, thresholds=spec.thresholds)))
    return spec.model_copy(
        update={"thresholds": thresholds, "timing": timing or spec.timing, "follows": follows}
    )


def _remembered(earlier: tuple[Earlier, ...]) -> tuple[Earlier, ...]:
    """As many as a specification holds: the newest, and the first, which was declared unseen."""
    if len(earlier) <= MOST_EARLIER:
        return earlier
    return earlier[0], *earlier[1 - MOST_EARLIER :]


_NAMES = {
    "peak_ratio": "peak gate",
    "update_ratio": "update gate",
    "gradient_gap": "gradient gap",
    "relative_gap": "relative gap",
}


def said_of_reruns(follows: Sequence[Earlier], thresholds: Thresholds) -> tuple[str, ...]:
    """A sentence on each study that one with these thresholds repeats, the last one first."""
    return tuple(
        f"Re-run of {one.study}, {_moved(one.thresholds, thresholds)}, after its result was seen."
        for one in reversed(follows)
    )


def _moved(before: Thresholds, here: Thresholds) -> str:
    moved = [
        f"{name} was {getattr(before, field)!r} (here {getattr(here, field)!r})"
        for field, name in _NAMES.items()
        if getattr(before, field) != getattr(here, field)
    ]
    return f"whose {listed(moved)}" if moved else "under the same thresholds"
