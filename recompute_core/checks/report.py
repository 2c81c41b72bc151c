"""What a check of blocks has found. No torch."""

from typing import Literal

from pydantic import computed_field

from ..results import Reason, Record

Verdict = Literal["legal", "no_saving", "illegal", "parity_fail", "error"]
"""`illegal`: a replay changes state. `parity_fail`: numbers differ. `no_saving`: legal, and the peak
does not fall. `error`: the plain step itself fails, or the recomputed one raises."""
SEVERITY: tuple[Verdict, ...] = ("legal", "no_saving", "illegal", "parity_fail", "error")


_LOWER = 0.99
"""A share of plain's above which nothing has fallen."""
_LEAST_HELD, _LEAST_PEAK = 64_000, 1_000_000


def worst(verdicts: list[Verdict]) -> Verdict:
    """The one that decides over several; the first when there are none."""
    return max(verdicts, key=SEVERITY.index, default="legal")


class BlockVerdict(Record):
    """What was found of one block."""

    block: str
    """FQN; empty for the model itself."""
    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    """Why it is not legal; the first is the cause."""
    conditions: tuple[Reason, ...] = ()
    """What its being legal depends on."""


class Saving(Record):
    """Bytes of one training step above what was alive before it, all asked blocks recomputed."""

    plain_held_bytes: int
    """Kept from forward to backward."""
    recomputed_held_bytes: int
    plain_peak_bytes: int
    recomputed_peak_bytes: int

    @property
    def nothing_dropped(self) -> bool:
        """Whether forward keeps as much as plain's: a replay needs all that the blocks keep."""
        return self.recomputed_held_bytes > _LOWER * self.plain_held_bytes

    @property
    def none(self) -> bool:
        """Whether the peak has not fallen."""
        return self.recomputed_peak_bytes > _LOWER * self.plain_peak_bytes

    @property
    def is_telling(self) -> bool:
        """Whether enough was at stake to say so: small steps are made of workspace, not of blocks."""
        least = _LEAST_HELD if self.nothing_dropped else _LEAST_PEAK
        return self.plain_held_bytes >= least


class BlockReport(Record):
    """Are these blocks safe to recompute? Found by recomputing them."""

    blocks: tuple[BlockVerdict, ...]
    tolerance: float
    """Largest gap that passes, relative to each tensor's own largest value."""
    noise_floor: float | None
    """Largest relative gap of plain against plain; None when one could not be compared."""
    largest_relative_gap: float | None = None
    """Largest relative gap of the recomputed steps; None when one could not be compared, or none ran."""
    saving: Saving | None = None
    """None when no recomputed step got that far."""
    steps: int
    """Training steps that were run."""
    warnings: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Verdict:
        """That of the worst block."""
        return worst([one.verdict for one in self.blocks])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Of every block that is not legal."""
        return tuple(reason for one in self.blocks for reason in one.reasons)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def conditions(self) -> tuple[Reason, ...]:
        """Of every block."""
        return tuple(reason for one in self.blocks for reason in one.conditions)

    def of(self, block: str) -> BlockVerdict:
        """The verdict on the block of this FQN."""
        return next(one for one in self.blocks if one.block == block)
