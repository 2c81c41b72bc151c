"""What a comparison of two studies says: frozen records, published as `recompute-comparison/1`."""

from typing import Literal

from pydantic import Field, computed_field

from ..intervals import Interval
from ..results import FigureKind, Record, Verdict
from ..spec import Thresholds

Side = Literal["a", "b"]
Asked = Literal["specification", "thresholds"]
Found = Literal["environment", "versions", "source", "data"]
FigureId = Literal[
    "update_ratio",
    "update_s",
    "plain_update_s",
    "peak_ratio",
    "peak_bytes",
    "plain_peak_bytes",
    "saved_bytes",
]
Figure = int | float
"""Bytes are whole numbers."""
Unit = Literal["ratio", "s", "bytes"]


class Compared(Record):
    """One of the two studies."""

    study_id: str
    kind: FigureKind
    """`measured`: here; `supplied`: read from a file, and so said by whoever wrote it."""
    workload: str
    device: str
    status: str
    verdict: Verdict | None
    thresholds: Thresholds
    declared_at: str


class Difference(Record):
    """A fact that is not the same in both."""

    asked: Asked | None = None
    """Its topic, where somebody chose it."""
    found: Found | None = None
    """Its topic, where the run met it."""
    name: str
    a: str | None
    """None: it is not there."""
    b: str | None


class Change(Record):
    """One figure of a candidate in both studies."""

    figure: FigureId
    unit: Unit
    a: Figure
    b: Figure
    interval: Interval | None
    """Of the difference; None where both figures are exact counts."""
    relative_interval: Interval | None
    """The same of the difference as a share of `a`."""
    pairs: int | None = None
    """Pairs of updates that the poorer of both sides rests on; None of bytes."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def difference(self) -> Figure:
        """b minus a, in the unit."""
        return self.b - self.a

    @computed_field  # type: ignore[prop-decorator]
    @property
    def relative(self) -> float:
        """The difference as a share of a; 0 where both are 0."""
        return self.b / self.a - 1 if self.a else 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def beyond(self) -> bool:
        """Whether 0 lies outside the interval; for exact counts whether they differ."""
        low, high = self.interval or (self.difference, self.difference)
        return low > 0 or high < 0


class Standing(Record):
    """How one study ended on a candidate."""

    plan: str
    verdict: Verdict | None
    """None: it has not been measured to its end."""
    gradients: Literal["bitwise equal", "within tolerance", "fail", "not tested"]
    trouble: str | None = None
    """Why it was refused or not measured in full."""


class Pairing(Record):
    """A candidate of both studies at one shape."""

    plan: str
    """Its name in `a`."""
    shape_key: str
    same_plan: bool
    """Whether regions and checkpoint settings are the same; a name alone may stand for two plans."""
    a: Standing
    b: Standing
    changes: tuple[Change, ...]
    """Of what both have measured."""

    def change(self, figure: FigureId) -> Change | None:
        return next((one for one in self.changes if one.figure == figure), None)


class Unpaired(Record):
    """A candidate that one study alone has."""

    side: Side
    plan: str
    shape_key: str
    verdict: Verdict | None


class StudyComparison(Record):
    """Two studies next to each other; every difference is b minus a."""

    schema_: Literal["recompute-comparison/1"] = Field(
        "recompute-comparison/1", alias="schema", serialization_alias="schema"
    )
    a: Compared
    b: Compared
    sentences: tuple[str, ...]
    """What matters, the first above all."""
    cautions: tuple[str, ...]
    """What a reader of the figures must know first."""
    seconds_compared: bool
    """Whether device, threads and torch are the same, so that seconds may be compared."""
    differences: tuple[Difference, ...]
    pairings: tuple[Pairing, ...]
    unpaired: tuple[Unpaired, ...]
