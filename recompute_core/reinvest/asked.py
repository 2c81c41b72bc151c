"""What is asked of a reinvestment: the batch sizes, the training runs and the gates. No torch."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from ..errors import InputError
from ..settings import Frozen, Positive
from ..spec import TimingSettings, digest_of, explain

Side = Literal["plain", "recomputed"]
SIDES: tuple[Side, ...] = ("plain", "recomputed")
MOST_EXAMPLES = 65_536
"""Of an update: all of them are in memory while whole updates are timed."""
Examples = Annotated[int, Field(ge=1, le=MOST_EXAMPLES)]


class ReinvestThresholds(Frozen):
    """What the larger microbatch must keep to; declared before the run."""

    accumulation_gap: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    """Largest gap of any gradient of the accumulated update between the two microbatches, relative to
    that gradient's own largest value."""
    rate_ratio: Annotated[float, Field(gt=0, le=100)] = 1.0
    """Examples per second, as a multiple of plain's: at least this."""
    rare_recall_loss: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Recall of the rare class that may be lost, as a share of its receipts."""


class TrainingSettings(Frozen):
    """The training runs of both settings, which differ in the microbatch and the plan alone."""

    seeds: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=0, lt=2**31)], ...], Field(max_length=32)
    ] = (0, 1, 2)
    """One run of each setting a seed: of weights, order and dropout. Empty: no training."""
    examples: Annotated[int, Field(ge=1, le=10**9)] = 640
    """Examples drawn in each run, rejected ones included."""
    lr: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """Highest learning rate: reached after the warm-up, falling to zero as a cosine."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the updates in which the learning rate rises."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Decoupled weight decay of AdamW."""
    evaluate_every: Positive = 10
    """Updates between two looks at the validation photos; the last update is always followed by one."""
    checkpoint_every: Positive = 5
    """Updates between two checkpoints, from which a run that was stopped goes on."""

    @model_validator(mode="after")
    def _seeds_differ(self) -> "TrainingSettings":
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("each seed may be named once")
        return self


class ReinvestSpec(Frozen):
    """One reinvestment: a plan of a study at one of its shapes, and what its memory is spent on."""

    study: Annotated[str, Field(max_length=100)]
    """Id of the study."""
    plan: Annotated[str, Field(max_length=5000)]
    """A plan that passed the study's gates at this shape."""
    shape: Annotated[str, Field(max_length=100)]
    """Key of the shape, such as `192x96 B=16`; its batch is plain's microbatch."""
    effective_batch: Examples
    """Examples in an update of plain, accumulated over microbatches."""
    recomputed_effective_batch: Examples | None = None
    """Examples in an update under the plan; empty: the same. Another is another training objective."""
    microbatch: Positive | None = None
    """Microbatch under the plan; empty: the largest that fits plain's peak."""
    training: TrainingSettings = TrainingSettings()
    """The training runs; the receipts workload alone has rare defects to look at."""
    timing: TimingSettings = TimingSettings(min_pairs=9, max_pairs=15, budget_s=30)
    """How whole updates are timed."""
    thresholds: ReinvestThresholds = ReinvestThresholds()
    """The gates, declared before the run."""

    @property
    def recomputed_batch(self) -> int:
        """Examples in an update under the plan."""
        return self.recomputed_effective_batch or self.effective_batch

    def batch_of(self, side: Side) -> int:
        """Examples in an update of a side."""
        return self.effective_batch if side == "plain" else self.recomputed_batch

    def updates_of(self, side: Side) -> int:
        """Updates of a training run: as many whole effective batches as its examples fill."""
        return max(1, self.training.examples // self.batch_of(side))

    @property
    def run_id(self) -> str:
        """What a run of this is called: the first letters of the digest."""
        return self.digest().removeprefix("sha256:")[:12]

    def digest(self) -> str:
        """SHA-256 of the canonical JSON of all that is asked, thresholds included."""
        return digest_of(self.model_dump(mode="json"))


PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "training": {"examples": 320, "evaluate_every": 3},
        "timing": {"min_pairs": 9, "max_pairs": 9, "budget_s": 0},
    },
    "full": {
        "training": {"examples": 14_560, "evaluate_every": 45, "checkpoint_every": 15},
        "timing": {"min_pairs": 9, "max_pairs": 15, "budget_s": 60},
    },
}
"""`quick` for a first look, which teaches the encoder little; `full`, five times the rendered training
side, until it has learnt."""


def first_effective_batch(microbatch: int) -> int:
    """The effective batch unless one is asked for: four microbatches of plain."""
    return 4 * microbatch


def preset(name: str) -> dict[str, Any]:
    """The plain data of a preset; raises InputError for an unknown one."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r} of reinvest; known: {', '.join(PRESETS)}")
    return json.loads(json.dumps(PRESETS[name]))  # type: ignore[no-any-return]


def parse_reinvest(raw: dict[str, Any]) -> ReinvestSpec:
    """A checked request from plain data; raises InputError with one line."""
    try:
        return ReinvestSpec.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"reinvest: {explain(error)}") from None


def microbatch_within(effective: int, largest: int) -> int:
    """The microbatch that takes as few passes as `largest` does, and shares them out evenly."""
    return passes(effective, passes(effective, largest))


def passes(examples: int, microbatch: int) -> int:
    """Microbatches that so many examples take, the last one short."""
    return -(-examples // microbatch)
