"""Training and validation, divided by physical receipt: all photos of one paper on one side."""

import warnings
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from .labels import RARE, Side

FOLDS = 5
"""One fold in so many is the validation side."""


def split_receipts(
    labels: Sequence[str], receipts: Sequence[Hashable], seed: int = 0
) -> tuple[Side, ...]:
    """The side of each photo, by scikit-learn's StratifiedGroupKFold.

    The validation side is the first fold that holds the rare class, or comes nearest: the fold with
    the most classes on both sides. Raises ValueError where two sides cannot be made.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    folds = min(FOLDS, len(set(receipts)), max(Counter(labels).values(), default=0))
    if folds < 2:
        raise ValueError("too few receipts to divide into training and validation")
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    numbers = {receipt: number for number, receipt in enumerate(dict.fromkeys(receipts))}
    groups = np.array([numbers[receipt] for receipt in receipts])
    with warnings.catch_warnings():  # it warns of each class rarer than the folds
        warnings.simplefilter("ignore", UserWarning)
        parts = list(splitter.split(np.zeros(len(labels)), np.array(labels), groups))

    def merit(part: tuple[np.ndarray, np.ndarray]) -> tuple[bool, int]:
        train, validation = ({labels[i] for i in side} for side in part)
        return RARE in validation, len(train & validation)

    _, validation = max(parts, key=merit)
    held = set(validation.tolist())
    return tuple("validation" if i in held else "train" for i in range(len(labels)))


def divide(
    labels: Sequence[str], receipts: Sequence[Hashable], accepted: Sequence[bool]
) -> tuple[Side, ...]:
    """The side of each photo: accepted ones are split, a rejected one lies with its receipt.

    One of a receipt of which nothing was accepted lies in training. Raises ValueError where two
    sides cannot be made of the accepted photos.
    """
    used = [place for place, taken in enumerate(accepted) if taken]
    split = split_receipts([labels[i] for i in used], [receipts[i] for i in used])
    side_of = {receipts[i]: side for i, side in zip(used, split, strict=True)}
    return tuple(side_of.get(receipt, "train") for receipt in receipts)


def check_sides(
    labels: Sequence[str],
    receipts: Sequence[Hashable],
    sides: Sequence[str],
    accepted: Sequence[bool],
) -> None:
    """Raises ValueError for a receipt on both sides, or no accepted photo of the rare class on one."""
    first: dict[Hashable, str] = {}
    for receipt, side in zip(receipts, sides, strict=True):
        if first.setdefault(receipt, side) != side:
            raise ValueError(f"receipt {receipt} is on both sides of the split")
    present = set(zip(labels, sides, accepted, strict=True))
    for side in ("train", "validation"):
        if (RARE, side, True) not in present:
            raise ValueError(f"no accepted photo labelled {RARE} on the {side} side")
