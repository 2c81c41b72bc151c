"""Recall of a class with its interval, and the paired difference of two recalls. Pure functions.

Photos of one receipt resemble each other, so the unit that is counted is the receipt: a receipt's recall
is the share of its photos, over all seeds, that were seen rightly. Intervals are Wilson's (1927) of so
many receipts; the difference of two settings on the same receipts is Newcombe's for paired proportions
(Statistics in Medicine 17, 1998, 2635: method 10). Neither collapses where every receipt was seen
rightly, as a bootstrap of few receipts does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean

from ..intervals import Interval

MOST_RECEIPTS = 1_000_000
"""Where the search for a number of receipts that would settle the gate ends."""


def wilson(share: float, trials: int, level: float = 0.95) -> Interval:
    """Wilson's interval of a proportion `share` of `trials`; (0, 1) of none."""
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    spread = z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    reach = z * sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass(frozen=True)
class Paired:
    """Recalls of two settings on the same receipts."""

    plain: float
    other: float
    covariance: float
    """Of the two recalls over the receipts."""
    receipts: int

    @property
    def loss(self) -> float:
        """Recall lost: plain's less the other's."""
        return self.plain - self.other

    def interval(self, level: float = 0.95) -> Interval:
        """Of the loss: Newcombe's square-and-add of both Wilson intervals, less what they share."""
        return _difference(self, self.receipts, level)

    def receipts_to_settle(self, threshold: float) -> int | None:
        """The least number of such receipts whose interval would lie on one side of `threshold`.

        None where no number does: the loss itself is the threshold.
        """

        def settled(receipts: int) -> bool:
            low, high = _difference(self, receipts, 0.95)
            return high <= threshold or low > threshold

        if not settled(MOST_RECEIPTS):
            return None
        least, enough = 0, MOST_RECEIPTS
        while enough - least > 1:
            middle = (least + enough) // 2
            least, enough = (least, middle) if settled(middle) else (middle, enough)
        return enough


def _difference(pair: Paired, receipts: int, level: float) -> Interval:
    (low1, high1), (low2, high2) = (wilson(share, receipts, level) for share in (pair.plain, pair.other))
    p1, p2, shared = pair.plain, pair.other, _correlation(pair, receipts)
    down = _joined(p1 - low1, high2 - p2, shared)
    up = _joined(high1 - p1, p2 - low2, shared)
    return max(-1.0, pair.loss - down), min(1.0, pair.loss + up)


def _joined(first: float, second: float, correlation: float) -> float:
    return sqrt(max(0.0, first * first - 2 * correlation * first * second + second * second))


def receipt_recalls(seen: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Receipt -> share of its photos seen rightly, from (receipt, right) of each photo and seed."""
    photos: dict[str, list[bool]] = {}
    for receipt, right in seen:
        photos.setdefault(receipt, []).append(right)
    return {receipt: fmean(rights) for receipt, rights in photos.items()}


def paired(plain: Mapping[str, float], other: Mapping[str, float]) -> Paired | None:
    """The two settings' recalls on their receipts, the same for both; None where there are none."""
    if plain.keys() != other.keys():
        raise ValueError("the two settings saw different receipts")
    if not plain:
        return None
    first, second = list(plain.values()), [other[receipt] for receipt in plain]
    mean1, mean2 = fmean(first), fmean(second)
    covariance = fmean((a - mean1) * (b - mean2) for a, b in zip(first, second, strict=True))
    return Paired(mean1, mean2, covariance, len(first))


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
