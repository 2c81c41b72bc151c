"""What a reinvestment found: one frozen record a phase, raw samples kept. No torch.

Bytes are integers, times are seconds, recalls are shares of 1.
"""

from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field, computed_field, model_validator

from ..intervals import Interval
from ..results import Bytes, Comparison, FigureKind, Gap, Outcome, Record, Timing, Verdict
from ..settings import Positive
from .asked import ReinvestSpec, Side, microbatch_within
from .recall import wilson

Count = Annotated[int, Field(ge=0)]
SIZE_WORDS = {"batch": "microbatch", "seq_len": "sequence length"}
"""How a size of `Reach` is called."""


# --- how far it goes -------------------------------------------------------------------------


class Tried(Record):
    """One size under the plan: what was estimated, and what was measured once parity had passed."""

    size: Positive
    estimated_peak_bytes: Bytes
    peak_bytes: Bytes | None = None
    """Measured in a fresh process, state included; None where it was not."""
    bitwise: bool | None = None
    """Whether the recomputed update at this size was bitwise plain's; None where parity did not pass."""
    without_plain: str | None = None
    """Why there was no plain update of this size to compare with, where the device is too small for one.
    Its peak is measured all the same: parity was proven at the study's own size, and the accumulated
    update is compared at the microbatch that is used."""
    problem: str | None = None
    """Why it was not measured: parity failed, out of memory, a worker that died."""


class Reach(Record):
    """The largest size under the plan whose measured peak is at most plain's at the study's own."""

    field: Literal["batch", "seq_len"]
    plain_size: Positive
    budget_bytes: Annotated[int, Field(ge=1)]
    """Plain's measured peak, state included."""
    tried: tuple[Tried, ...]
    """In the order they were looked at."""
    next_size: int | None = None
    """The next larger size that is looked at; None where there is none."""
    estimated_next_bytes: int | None = None
    """Its estimated peak."""
    limit: str | None = None
    """What else ends it: the photos there are, the sizes that are looked at."""
    is_asked: bool = False
    """Whether the size was asked for, and none larger was looked for."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def largest(self) -> Tried | None:
        """The largest that was measured and fits; None where none does."""
        fits = [t for t in self.tried if t.peak_bytes is not None and t.peak_bytes <= self.budget_bytes]
        return max(fits, key=lambda one: one.size, default=None)


def used_microbatch(asked: ReinvestSpec, reach: Reach) -> int | None:
    """The microbatch of whole updates: as asked, or the largest's passes shared out evenly.

    None where none takes fewer passes than plain's.
    """
    if asked.microbatch is not None:
        return asked.microbatch
    best = reach.largest
    if best is None or best.size <= reach.plain_size:
        return None
    size = microbatch_within(asked.recomputed_batch, best.size)
    return size if size > reach.plain_size else None


class Reaches(Record):
    """How far plain's peak goes under the plan."""

    batch: Reach
    seq_len: Reach | None = None
    """None for a workload that has no sequence length."""


# --- the same objective ----------------------------------------------------------------------


class Accumulation(Record):
    """The gradient of one accumulated update at plain's microbatch and at the plan's."""

    effective_batch: Positive
    """Examples drawn."""
    accepted: Positive
    """Of them; the others count nowhere."""
    plain_microbatches: tuple[int, ...]
    """Accepted examples in each microbatch of plain."""
    recomputed_microbatches: tuple[int, ...]
    gaps: Annotated[tuple[Gap, ...], Field(min_length=1)]
    """Of every parameter's gradient, the plan's against plain's."""
    noise_floor: float | None
    """Largest relative gap of plain against plain again."""
    mean_of_means_gap: float | None
    """Largest relative gap of any gradient where each microbatch's mean weighs alike, in plain's
    microbatches or the plan's: the mistake that weighing by accepted examples avoids. None where it
    cannot be compared."""
    batch_statistics: tuple[str, ...] = ()
    """FQNs of the modules that normalise over a microbatch."""
    rounding: float = 0.0
    """Spacing of numbers near 1 in the gradients' type: gaps of a few of it say nothing."""
    draws: bool = False
    """Whether plain's gradient moves with the random state, dropout modules being off."""
    dropout_off: bool = False
    """Whether dropout modules were off: their masks are drawn microbatch by microbatch."""

    @property
    def comparison(self) -> Comparison:
        return Comparison(gaps=self.gaps)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def largest_relative_gap(self) -> float | None:
        return self.comparison.largest_relative_gap

    @computed_field  # type: ignore[prop-decorator]
    @property
    def worst(self) -> tuple[Gap, ...]:
        """The five tensors that are furthest off."""
        return self.comparison.worst

    def failures(self, tolerance: float) -> tuple[Gap, ...]:
        """The gradients further apart than the tolerance, or not to be compared."""
        off = [gap for gap in self.gaps if gap.relative is None or not gap.relative <= tolerance]
        return tuple(sorted(off, key=lambda gap: -inf if gap.relative is None else -gap.relative))


# --- what it buys ----------------------------------------------------------------------------


class Throughput(Record):
    """Whole accumulated updates, plain's and the plan's, in turn in one process."""

    timing: Timing
    plain_examples: Positive
    """Accepted examples in one update of plain."""
    recomputed_examples: Positive
    plain_microbatches: Positive
    recomputed_microbatches: Positive

    @computed_field  # type: ignore[prop-decorator]
    @property
    def plain_rate(self) -> float:
        """Accepted examples per second, at the median update."""
        return self.plain_examples / self.timing.plain_median_s

    @computed_field  # type: ignore[prop-decorator]
    @property
    def recomputed_rate(self) -> float:
        """Plain's rate times `rate_ratio`, so that the three figures agree."""
        return self.plain_rate * self.rate_ratio

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rate_ratio(self) -> float:
        """Examples per second under the plan over plain's: from the median of the paired ratios, in
        which drift of the machine cancels."""
        return self._share / self.timing.ratio_median

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rate_ratio_ci95(self) -> Interval:
        low, high = self.timing.ratio_ci95
        return self._share / high, self._share / low

    @property
    def _share(self) -> float:
        return self.recomputed_examples / self.plain_examples


# --- what it does to rare defects ------------------------------------------------------------


class Update(Record):
    """One update of a training run."""

    number: int
    """From 1."""
    loss: float | None
    """Mean over the accepted examples of the effective batch; None where none is: nothing is done."""
    accepted: Count
    seconds: float


class Evaluation(Record):
    """A look at the validation photos between two updates."""

    after: int
    """Updates done."""
    loss: float
    right: dict[str, Count]
    """Photos of each class seen rightly."""
    photos: Annotated[dict[str, Positive], Field(min_length=1)]
    """Photos of each class."""

    @model_validator(mode="after")
    def _no_more_than_there_are(self) -> "Evaluation":
        if self.right.keys() != self.photos.keys():
            raise ValueError("right and photos are of other classes")
        return self

    @property
    def accuracy(self) -> float:
        return sum(self.right.values()) / sum(self.photos.values())

    def recall(self, label: str) -> float:
        return self.right[label] / self.photos[label]


class Seen(Record):
    """One validation photo after training."""

    row: int
    receipt: str
    label: str
    predicted: str


class TrainingRun(Record):
    """One setting trained from one seed."""

    side: Side
    seed: int
    microbatch: int
    effective_batch: int
    updates: Annotated[tuple[Update, ...], Field(min_length=1)]
    evaluations: Annotated[tuple[Evaluation, ...], Field(min_length=1)]
    seen: Annotated[tuple[Seen, ...], Field(min_length=1)]
    weights_digest: str
    """SHA-256 over names and bytes of the final weights."""
    data_digest: str
    rare_receipts: int
    """Receipts of the rare class that the encoder learns from; `rare_photos` their accepted photos."""
    rare_photos: int
    stopped: int = 0
    """How often it was stopped and went on from a checkpoint."""


class ClassRecall(Record):
    """A class on validation, over all seeds."""

    label: str
    receipts: int
    photos: int
    plain: float
    """Mean over receipts of the share of their photos seen rightly."""
    recomputed: float
    by_seed: dict[Side, tuple[float, ...]]
    """The same means, seed by seed."""
    seeds_reach: dict[Side, float]
    """Half the 95 % interval that the choice of seeds alone makes; 0 where the receipts explain it."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def plain_ci95(self) -> Interval:
        """Wilson's, of as many trials as there are receipts, widened where seeds differ by more."""
        return wilson(self.plain, self.receipts, self.seeds_reach["plain"])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def recomputed_ci95(self) -> Interval:
        return wilson(self.recomputed, self.receipts, self.seeds_reach["recomputed"])


class Rare(Record):
    """The rare class, both settings on the same receipts."""

    label: str
    receipts: int
    photos: int
    train_receipts: int
    train_photos: int
    """Accepted ones that the encoder learns from."""
    plain: float
    """Plain's recall."""
    loss: float
    """Recall lost: plain's less the plan's."""
    loss_ci95: Interval
    seeds_reach: float
    """Half the 95 % interval of the loss that the choice of seeds alone makes."""
    receipts_to_settle: int | None
    """Rare receipts on validation with which the gate would be decided at such recalls and seeds; None:
    not with a million."""


class Training(Record):
    """All runs, and what follows from them."""

    seeds: tuple[int, ...]
    examples: int
    """Drawn in each run: whole updates of what was asked for."""
    classes: tuple[ClassRecall, ...]
    rare: Rare | None
    accuracy: dict[Side, tuple[float, ...]]
    """On validation, by seed."""
    disagreements: tuple[int, int]
    """Looks at a validation photo, over all seeds, that plain alone got right, and the plan alone."""
    seconds_per_update: dict[Side, float]
    """Median of all updates of a side; not interleaved, so no gate reads it."""


class Findings(Record):
    """All that a run has found so far, and what it was asked: its result follows from this alone."""

    run_id: str
    asked: ReinvestSpec
    declared_at: str
    """When the thresholds were declared, before the run: UTC, ISO 8601."""
    environment: dict[str, Any]
    reaches: Reaches | None = None
    used: Tried | None = None
    """The microbatch of whole updates under the plan."""
    accumulation: Accumulation | None = None
    throughput: Throughput | None = None
    runs: tuple[TrainingRun, ...] = ()
    """Finished training runs, seed by seed."""


# --- the whole -------------------------------------------------------------------------------

ReinvestGateId = Literal["same_objective", "plain_peak", "throughput", "rare_recall"]


class ReinvestGate(Record):
    """One threshold of the reinvestment against one figure."""

    id: ReinvestGateId
    outcome: Outcome
    bound: Literal["at most", "at least"]
    threshold: float
    observed: float | None
    ci95: Interval | None
    kind: FigureKind = "measured"
    sentence: str

    @property
    def is_exact(self) -> bool:
        """Whether the figure is no estimate of a median: its interval is itself."""
        return self.ci95 is not None and self.ci95[0] == self.ci95[1]


class ReinvestResult(Record):
    """A reinvestment so far, and what follows from it."""

    schema_: Literal["recompute-reinvest/1"] = Field(
        "recompute-reinvest/1", alias="schema", serialization_alias="schema"
    )
    run_id: str
    status: str
    """`running`, `waiting`, `done`, `cancelled`, `interrupted` or `failed`; `incomplete` where only what
    was found is known."""
    verdict: Verdict | None
    """None until it can be given."""
    sentence: str
    objective: str | None
    """Why the training objective changed, where it did; every figure is to be read with it."""
    asked: ReinvestSpec
    asked_digest: str
    declared_at: str
    """When the thresholds were declared, before the run: UTC, ISO 8601."""
    environment: dict[str, Any]
    microbatch: int | None = None
    """Under the plan, in whole updates."""
    plain_microbatch: int
    reaches: Reaches | None = None
    used: Tried | None = None
    """The microbatch of whole updates under the plan, as it was measured."""
    accumulation: Accumulation | None = None
    throughput: Throughput | None = None
    training: Training | None = None
    not_trained: str | None = None
    """Why there is no training."""
    gates: tuple[ReinvestGate, ...] = ()
    failure: str | None = None

    def document(self) -> dict[str, Any]:
        """The published JSON, `recompute-reinvest/1`."""
        return self.model_dump(mode="json", by_alias=True)
