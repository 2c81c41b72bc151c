"""Recall of a class with its interval, and the paired difference of two recalls. Pure functions.

Photos of one receipt resemble each other, so the unit that is counted is the receipt: a receipt's recall
is the share of its photos, over all seeds, that were seen rightly. Intervals are Wilson's (1927) of so
many receipts; the difference of two settings on the same receipts is Newcombe's for paired proportions
(Statistics in Medicine 17, 1998, 2635: method 10). Neither collapses where every receipt was seen
rightly, as a bootstrap of few receipts does.

Other seeds would train other encoders: where the means of seeds differ by more than their receipts
explain, both intervals are widened by what the choice of seeds makes, in quadrature (`seeds_reach`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import NormalDist, fmean

from ..intervals import Interval

MOST_RECEIPTS = 1_000_000
"""Where the search for a number of receipts that would settle the gate ends."""
_ROUNDING = 1e-12
_Z = NormalDist().inv_cdf(0.975)
_STUDENT = (
    12.7062,
    4.3027,
    3.1824,
    2.7764,
    2.5706,
    2.4469,
    2.3646,
    2.3060,
    2.2622,
    2.2281,
    2.2010,
    2.1788,
    2.1604,
    2.1448,
    2.1314,
    2.1199,
    2.1098,
    2.1009,
    2.0930,
    2.0860,
    2.0796,
    2.0739,
    2.0687,
    2.0639,
    2.0595,
    2.0555,
    2.0518,
    2.0484,
    2.0452,
    2.0423,
    2.0395,
)
"""97.5 % quantiles of Student's t with 1, 2, … degrees of freedom: up to 32 seeds."""


def wilson(share: float, trials: int, seeds: float = 0.0) -> Interval:
    """Wilson's 95 % interval of a proportion `share` of `trials`, widened by `seeds_reach`; (0, 1) of
    none."""
    if trials == 0:
        return 0.0, 1.0
    spread = _Z * _Z / trials
    middle = (share + spread / 2) / (1 + spread)
    reach = _Z * sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    low, high = max(0.0, middle - reach), min(1.0, middle + reach)
    return max(0.0, share - hypot(share - low, seeds)), min(1.0, share + hypot(high - share, seeds))


def seeds_reach(by_seed: Sequence[Mapping[str, float]]) -> float:
    """Half the 95 % interval that the choice of seeds makes of a mean over seeds and receipts.

    `by_seed` is receipt -> figure of each seed. Receipts are crossed with seeds: of the variance between
    the seeds' means, that which the interaction with so few receipts explains is taken off (method of
    moments, with Student's t). 0 where nothing is left, and of one seed, which cannot tell.
    """
    seeds, receipts = len(by_seed), len(by_seed[0])
    if seeds < 2:
        return 0.0
    rows = [[one[receipt] for one in by_seed] for receipt in by_seed[0]]
    means = [fmean(column) for column in zip(*rows, strict=True)]
    whole = fmean(means)
    between = sum((mean - whole) ** 2 for mean in means) / (seeds - 1)
    left = sum(
        (x - fmean(row) - mean + whole) ** 2 for row in rows for x, mean in zip(row, means, strict=True)
    )
    within = left / ((receipts - 1) * (seeds - 1)) if receipts > 1 else 0.0
    own = between - within / receipts
    return _STUDENT[seeds - 2] * sqrt(own / seeds) if own > _ROUNDING else 0.0


@dataclass(frozen=True)
class Paired:
    """Recalls of two settings on the same receipts."""

    plain: float
    other: float
    covariance: float
    """Of the two recalls over the receipts."""
    receipts: int
    seeds: float = 0.0
    """What the choice of seeds makes of the loss (`seeds_reach`)."""

    @property
    def loss(self) -> float:
        """Recall lost: plain's less the other's."""
        return self.plain - self.other

    def interval(self) -> Interval:
        """95 %, of the loss: Newcombe's square-and-add of both Wilson intervals, less what they share,
        and of the seeds."""
        return _difference(self, self.receipts)

    def receipts_to_settle(self, threshold: float) -> int | None:
        """The least number of such receipts whose interval would lie on one side of `threshold`.

        None where no number does: the loss itself is the threshold, or seeds differ by too much.
        """

        def settled(receipts: int) -> bool:
            low, high = _difference(self, receipts)
            return high <= threshold or low > threshold

        if not settled(MOST_RECEIPTS):
            return None
        least, enough = 0, MOST_RECEIPTS
        while enough - least > 1:
            middle = (least + enough) // 2
            least, enough = (least, middle) if settled(middle) else (middle, enough)
        return enough


def _difference(pair: Paired, receipts: int) -> Interval:
    (low1, high1), (low2, high2) = (wilson(share, receipts) for share in (pair.plain, pair.other))
    p1, p2, shared = pair.plain, pair.other, _correlation(pair, receipts)
    down = hypot(_joined(p1 - low1, high2 - p2, shared), pair.seeds)
    up = hypot(_joined(high1 - p1, p2 - low2, shared), pair.seeds)
    return max(-1.0, pair.loss - down), min(1.0, pair.loss + up)


def _joined(first: float, second: float, correlation: float) -> float:
    return sqrt(max(0.0, first * first - 2 * correlation * first * second + second * second))


def receipt_recalls(seen: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Receipt -> share of its photos seen rightly, from (receipt, right) of each photo of one seed."""
    photos: dict[str, list[bool]] = {}
    for receipt, right in seen:
        photos.setdefault(receipt, []).append(right)
    return {receipt: fmean(rights) for receipt, rights in photos.items()}


def mean_recalls(by_seed: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Receipt -> mean over the seeds, which have looked at the same photos."""
    return {receipt: fmean(one[receipt] for one in by_seed) for receipt in by_seed[0]}


def paired(plain: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]]) -> Paired | None:
    """The two settings' recalls, seed by seed, on receipts that are the same for all; None of none."""
    if any(one.keys() != plain[0].keys() for one in (*plain, *other)) or len(plain) != len(other):
        raise ValueError("the two settings saw different receipts, or other seeds")
    if not plain[0]:
        return None
    means = mean_recalls(plain), mean_recalls(other)
    first, second = (list(one.values()) for one in means)
    mean1, mean2 = fmean(first), fmean(second)
    covariance = fmean((a - mean1) * (b - mean2) for a, b in zip(first, second, strict=True))
    lost = [{r: one[r] - two[r] for r in one} for one, two in zip(plain, other, strict=True)]
    return Paired(mean1, mean2, covariance, len(first), seeds_reach(lost))


def _correlation(pair: Paired, receipts: int) -> float:
    """Newcombe's phi of paired proportions, corrected towards 0 where it is positive.

    Over the spread of yes-or-no outcomes: shares in between vary less, which makes it smaller.
    """
    spread = sqrt(pair.plain * (1 - pair.plain) * pair.other * (1 - pair.other))
    if spread == 0:
        return 0.0
    shared = pair.covariance
    if shared > 0:
        shared = max(0.0, shared - 1 / (2 * receipts))
    return max(-1.0, min(1.0, shared / spread))
