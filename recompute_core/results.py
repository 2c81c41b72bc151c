"""What was found: one frozen record a phase, raw samples kept, statistics derived from them.

Memory and time of a candidate live only in `Measured`, which cannot be built without a
`ParityPassed`; a refused candidate's record has no place for such a figure. Byte counts are
integers, times are seconds. A counter that a device lacks is None, with the reason in
`not_measured`. Nothing here imports torch.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from .intervals import Interval, extremes, median, median_interval
from .spec import Region, StudySpec, Thresholds

FigureKind = Literal["measured", "estimated", "supplied"]


class Record(BaseModel):
    """A finding; it never changes. Derived figures are written with it and derived again on reading."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        populate_by_name=True,
        allow_inf_nan=False,
    )


# --- reference and noise ---------------------------------------------------------------------


class SourceRevision(Record):
    """Which text of a class or a function was run: its own lines, not what they call."""

    name: str
    """Module and qualified name, e.g. `my_models.net.Block`."""
    file: str | None
    """Name of its file without folders, which may name people."""
    sha256: str | None
    """Of its source as UTF-8; None where there is none."""
    no_source: str | None = None
    """Why there is no source."""
    library: str | None = None
    """Installed package that it comes from; None for code that is not installed."""
    version: str | None = None
    """That package's version."""


class Revisions(Record):
    """The code of the model, as far as a digest of source can tell."""

    model: str
    """Name of the model's own class."""
    factory: str | None = None
    """What makes the model, `package.module:function`, where that is somebody's own."""
    sources: tuple[SourceRevision, ...]
    """The model's class, the module classes inside the candidate blocks, those they inherit from, and
    the factory; by name."""
    git_commit: str | None = None
    """Commit that holds the file of the factory, or else of the model's class. None for installed code
    and outside any repository."""
    git_changed: bool | None = None
    """Whether that file differs from the commit."""


class BatchTensor(Record):
    """One tensor of the fixed batch."""

    name: str
    """Its place in the batch: `0`, `input_ids`, `0/mask`."""
    shape: tuple[int, ...]
    dtype: str


class OptimizerUsed(Record):
    """The optimizer of the fixed update."""

    name: str
    """Its class."""
    settings: dict[str, float | int | bool | str | tuple[float, ...] | None]
    state_digest: str
    """SHA-256 over the names and bytes of its state's tensors after the update."""


class RngUsed(Record):
    """Where the random numbers of the fixed update come from."""

    policy: Literal["preserve", "ignore"]
    """What a replay does: draws under the random state of the first forward, or does not."""
    seed: int
    """Given to torch on every device, NumPy and `random` right before the update."""


class Fingerprint(Record):
    """One tensor of the reference, in so few words that a report can hold all of them."""

    name: str
    """Part and name, as in the file: `grad/blocks.0.attn.qkv.weight`."""
    sha256: str
    """Of its dtype, shape and bytes."""
    norm: float | None
    """L2 norm; None where it is no finite number, and of whole numbers and random states."""
    largest: float | None
    """Largest absolute value; None as above."""


Count = Annotated[int, Field(ge=0)]


class CompiledUpdate(Record):
    """What one compiled update runs, by the graphs that AOTAutograd handed to the backend. Ops are those
    that compute: views are left out."""

    forward_ops: Count
    backward_ops: Count
    replayed_ops: Count
    """Ops of forward that run again in backward; the compiler chooses some for plain too."""
    recomputed_ops: dict[str, Count] = {}
    """By FQN of a block: its ops that run again because a plan has them recomputed."""

    @model_validator(mode="after")
    def _replayed_in_backward(self) -> Self:
        if self.replayed_ops > self.backward_ops:
            raise ValueError("more ops run again in backward than there are")
        return self


class Reference(Record):
    """The fixed update without recomputation, kept on disk as safetensors."""

    loss: float
    """Over ranks: the mean of their losses."""
    tensors: int
    """How many tensors are kept: logits, gradients, next-step weights, buffers, random states."""
    digest: str
    """SHA-256 over the names and bytes of all of them."""
    batch_digest: str
    data_digest: str | None
    """SHA-256 of the data set, for workloads that have one."""
    parameters: int
    block_calls: dict[str, int]
    """Forward calls of each block in one plain update, by FQN; empty where it was compiled."""
    flops: int
    """Floating-point operations of one plain update, forward and backward."""
    envelope_flops: int | None
    """6 x parameters x tokens: the usual envelope, which counts no recomputation; None where nobody says
    how many positions a parameter sees."""
    blocks: tuple[str, ...]
    """FQNs of the candidate blocks, in the order of forward."""
    revisions: Revisions | None = None
    """The code that was run; None: not recorded (by an earlier version), as are the three below."""
    optimizer: OptimizerUsed | None = None
    rng: RngUsed | None = None
    batch: tuple[BatchTensor, ...] | None = None
    """Shapes and types of the batch's tensors."""
    fingerprints: tuple[Fingerprint, ...] | None = None
    """Of every tensor, so that a recheck elsewhere can name those that drifted; None: not recorded."""
    compiled: CompiledUpdate | None = None
    """None: the study is not compiled."""


class Gap(Record):
    """How far one tensor is from its reference."""

    part: Literal["output", "loss", "input_grad", "grad", "buffer", "rng", "weight"]
    """Which part of the update it belongs to."""
    name: str
    absolute: float | None
    """Largest absolute difference; None when the two cannot be compared."""
    relative: float | None
    """The same, relative to the reference tensor's own largest value."""
    problem: str | None = None
    """Why the two cannot be compared: missing, another shape or dtype, NaN."""

    @property
    def bitwise(self) -> bool:
        """Equal to the last bit, but for the sign of a zero."""
        return self.problem is None and self.absolute == 0


class Comparison(Record):
    """One update against the reference, tensor by tensor."""

    gaps: Annotated[tuple[Gap, ...], Field(min_length=1)]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bitwise(self) -> bool:
        return bool(self.gaps) and all(gap.bitwise for gap in self.gaps)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def largest_gradient_gap(self) -> float | None:
        """Largest absolute gap of any gradient; None when one could not be compared."""
        return _largest([g.absolute for g in self.gaps if g.part in ("grad", "input_grad")])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def largest_relative_gap(self) -> float | None:
        """Largest relative gap of any compared tensor; None when one could not be compared."""
        return _largest([g.relative for g in self.gaps])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def worst(self) -> tuple[Gap, ...]:
        """The five tensors that are furthest off, worst first; empty when all are bitwise equal."""
        off = [gap for gap in self.gaps if not gap.bitwise]
        return tuple(sorted(off, key=_badness, reverse=True)[:5])

    def failures(self, thresholds: Thresholds) -> tuple[Gap, ...]:
        """The tensors outside the tolerance, worst first."""
        off = [gap for gap in self.gaps if not _within(gap, thresholds)]
        return tuple(sorted(off, key=_badness, reverse=True))


def _largest(values: list[float | None]) -> float | None:
    if not values or any(value is None for value in values):
        return None
    return max(value for value in values if value is not None)


def _badness(gap: Gap) -> tuple[bool, bool, float]:
    return gap.problem is not None, gap.part == "grad", gap.relative or 0.0


def _within(gap: Gap, thresholds: Thresholds) -> bool:
    if gap.absolute is None or gap.relative is None:
        return False
    if gap.part == "rng":
        return gap.bitwise
    if gap.part in ("grad", "input_grad") and not gap.absolute <= thresholds.gradient_gap:
        return False
    return gap.relative <= thresholds.relative_gap


class Noise(Comparison):
    """Plain against plain: what this device changes by itself between two equal updates."""


# --- legality and canary ---------------------------------------------------------------------


class Reason(Record):
    """Why a block may not be replayed, or under which condition it may."""

    code: str
    block: str
    """FQN."""
    sentence: str


class BlockLegality(Record):
    """Whether one block is safe to replay."""

    block: str
    """FQN."""
    verdict: Literal["legal", "illegal", "error"]
    reasons: tuple[Reason, ...] = ()
    conditions: tuple[Reason, ...] = ()


class Legality(Record):
    """The verdict on every candidate block, and on modules inside those that are not legal."""

    blocks: tuple[BlockLegality, ...]

    def of(self, module: str) -> BlockLegality:
        """The verdict on a module, or else on the block that it lies in."""
        around = [found for found in self.blocks if f"{module}.".startswith(f"{found.block}.")]
        return max(around, key=lambda found: len(found.block))

    def over(self, modules: Iterable[str]) -> tuple[BlockLegality, ...]:
        """The verdicts that a plan which recomputes these modules rests on, each once."""
        return tuple(dict.fromkeys(map(self.of, modules)))

    def refusals(self, modules: Iterable[str]) -> tuple[Reason, ...]:
        """The reasons against a plan that recomputes these modules."""
        return tuple(reason for found in self.over(modules) for reason in found.reasons)


class Canary(Record):
    """A replay broken on purpose; parity must catch it, or the check proves nothing."""

    caught: bool
    block: str
    """FQN of the block, or the part of one, whose replay was broken."""
    break_: str = Field(alias="break", serialization_alias="break")
    """What was broken."""
    largest_relative_gap: float | None
    """The gap that parity saw."""
    largest_gradient_gap: float | None = None
    problem: str | None = None
    """Why a tensor of it could not be compared, such as `not finite`; it has no gap then."""
    ran_at: str | None = None
    """Shape key of the run that stands for this one: a module's canary runs once a study. None: here."""

    def caught_under(self, thresholds: Thresholds) -> bool:
        """Whether parity would catch it under these thresholds, which may be a what-if."""
        if not self.caught or self.largest_relative_gap is None:
            return self.caught
        loud = (
            self.largest_gradient_gap is not None and self.largest_gradient_gap > thresholds.gradient_gap
        )
        return loud or self.largest_relative_gap > thresholds.relative_gap


# --- parity ----------------------------------------------------------------------------------


NOISE_VARIES = 4
"""Plain against plain, drawn twice on a device that does not repeat itself, differs by such a factor."""


class Rollback(Record):
    """After an update under the plan it came off; then plain's followed on that model: is it plain?"""

    compared: Annotated[int, Field(ge=1)]
    """How many tensors were compared with the reference."""
    off: tuple[Gap, ...] = ()
    """Those of them that are not bitwise equal."""
    left: tuple[str, ...] = ()
    """What the plan left on the model: `blocks.0._call_impl`, an attribute that was not there before or
    is another now."""
    replayed: tuple[str, ...] = ()
    """FQNs of the modules that were not called as often as in plain, or still under the plan."""
    replays_before: Annotated[int, Field(ge=0)] = 0
    """Replays in the update that ran under the plan before it came off, replayed ops where it was
    compiled; 0: none ran, in an earlier version."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bitwise(self) -> bool:
        return not self.off

    @computed_field  # type: ignore[prop-decorator]
    @property
    def largest_relative_gap(self) -> float | None:
        """Largest relative gap of any compared tensor; None when one could not be compared."""
        return _largest([0.0, *(gap.relative for gap in self.off)])

    def beyond(self, noise_floor: float | None) -> tuple[Gap, ...]:
        """The tensors that noise does not explain, worst first: with a floor of 0 or None, all that are
        off."""
        allowed = NOISE_VARIES * (noise_floor or 0.0)
        found = [
            gap
            for gap in self.off
            if gap.part == "rng" or gap.relative is None or not gap.relative <= allowed
        ]
        return tuple(sorted(found, key=_badness, reverse=True))

    def is_plain(self, noise_floor: float | None) -> bool:
        """Whether nothing of the plan is left."""
        return not (self.left or self.replayed or self.beyond(noise_floor))


class _Parity(Comparison):
    noise_floor: float | None
    """Largest relative gap of plain against plain."""
    block_calls: dict[str, int]
    """Forward calls of each block in one recomputed update, by FQN; empty where it was compiled."""
    flops: int
    """Floating-point operations of one recomputed update."""
    compiled: CompiledUpdate | None = None
    """None: the study is not compiled."""


class ParityPassed(_Parity):
    """Proof that the recomputed update equals plain's within the declared tolerance, and that plain is
    plain again once the plan is taken off."""

    passed: Literal[True] = True
    rollback: Rollback | None = None
    """None: not recorded, by an earlier version. Nothing is measured any more without it."""

    @model_validator(mode="after")
    def _is_rolled_back(self) -> "ParityPassed":
        if self.rollback is not None and not self.rollback.is_plain(self.noise_floor):
            raise ValueError("rollback: what is left after taking the plan off is not plain")
        return self


class ParityFailed(_Parity):
    """The recomputed update differs, or the plan cannot be taken off; nothing more is measured of this
    candidate."""

    passed: Literal[False] = False
    failed: tuple[Gap, ...]
    """The tensors outside the tolerance, worst first; empty when it is the rollback that failed."""
    rollback: Rollback | None = None
    """None: not tried, as the recomputed update differs."""

    @property
    def stuck(self) -> Rollback | None:
        """The rollback, where it failed."""
        failed = self.rollback is not None and not self.rollback.is_plain(self.noise_floor)
        return self.rollback if failed else None

    @model_validator(mode="after")
    def _says_why(self) -> "ParityFailed":
        if not self.failed and self.stuck is None:
            raise ValueError("a parity that failed names a tensor or what is left of the plan")
        return self


Parity = Annotated[ParityPassed | ParityFailed, Field(discriminator="passed")]


# --- memory ----------------------------------------------------------------------------------


Bytes = Annotated[int, Field(ge=0, le=2**60)]
"""That some machine may have."""


class PeakAt(Record):
    """Where in the update the peak sits."""

    phase: Literal["zero_grad", "forward", "backward", "optimizer"]
    module: str | None
    """FQN of the block being run or replayed then; None outside the blocks."""
    replaying: bool
    """Whether a recomputed block's activations had come back."""

    @property
    def words(self) -> str:
        """`backward of blocks.5`, `backward, blocks.5 recomputed`, `the optimizer's step`."""
        named = {"zero_grad": "zeroing the gradients", "optimizer": "the optimizer's step"}
        phase = named.get(self.phase, self.phase)
        if self.module is None:
            return phase
        if self.replaying:
            return f"{phase}, {self.module} recomputed"
        return f"{phase} of {self.module}"


_PHASES = ("zero_grad", "forward", "backward", "optimizer")


class Timeline(Record):
    """Bytes alive over one update, thinned so that every peak of a bin is kept."""

    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    """Total bytes alive, state included."""
    kept: tuple[int, ...] | None = None
    """Of these, what autograd keeps for backward; None where the meter cannot tell."""
    back: tuple[int, ...] | None = None
    """Of these, what replays brought back; None where the meter cannot tell."""
    marks: tuple[tuple[float, str], ...]
    """When each phase or block began: seconds, label."""

    @property
    def phases(self) -> list[tuple[str, float, float]]:
        """Forward, backward and the optimizer's step: its name, when each begins and ends, in ms."""
        begins = [(label, at * 1e3) for at, label in self.marks if label in _PHASES]
        ends = [*(at for _, at in begins[1:]), self.seconds[-1] * 1e3]
        spans = [(name, at, end) for (name, at), end in zip(begins, ends, strict=False)]
        return [span for span in spans if span[0] != "zero_grad"]

    @model_validator(mode="after")
    def _one_figure_a_moment(self) -> Self:
        given = [kind for kind in (self.bytes, self.kept, self.back) if kind is not None]
        if not self.seconds or any(len(kind) != len(self.seconds) for kind in given):
            raise ValueError("bytes, kept and back have a figure for each moment, of which there is one")
        return self


class StateParts(Record):
    """What is alive between updates, in bytes of distinct storages."""

    parameters: Bytes
    gradients: Bytes
    optimizer: Bytes
    other: Bytes
    """Buffers and inputs."""

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.other


TRACED_WITHIN = 0.02
"""By which share of the peak that of the update in the timeline may be another, where the peak was
counted in other updates than that one."""


class RankMemory(Record):
    """What one rank's own update keeps and how high it climbs, in its process."""

    rank: Annotated[int, Field(ge=0)]
    saved_bytes: Bytes
    state_bytes: Bytes
    peak_bytes: Bytes | None
    """State included; None where the device has no peak counter."""


class Memory(Record):
    """What one update keeps and how high it climbs, in a process of its own."""

    kind: FigureKind = "measured"
    source: str
    """The meter that counted."""
    saved_bytes: Bytes
    """Tensors kept for backward, once per storage, parameters and inputs left out."""
    naive_saved_bytes: Bytes
    """The same, once per pointer, parameters and inputs included."""
    state_bytes: Bytes
    """Parameters, buffers, gradients, optimizer state and inputs: alive before the update."""
    state_parts: StateParts | None = None
    """How `state_bytes` are made up; None in records of versions that did not tell."""
    peak_samples: tuple[Bytes, ...]
    """Peak of each measured update, above the state."""
    peak_reserved_bytes: Bytes | None = None
    process_peak_bytes: Bytes | None = None
    """Largest resident set of the measuring process; on CUDA what it held on the device after its
    updates, which is no peak."""
    process_peak_source: str = "largest resident set of the measuring process, from the kernel"
    """Who counted that."""
    peak_at: PeakAt | None = None
    timeline: Timeline | None = None
    trace: str | None = None
    """Name of the file in the study's folder that holds the profiler's events of the update, in Chrome's
    format and gzipped."""
    trace_digest: str | None = None
    """`sha256:` of that file."""
    history: str | None = None
    """Name of the file in the study's folder that holds the CUDA allocator's history over one more
    update: PyTorch's memory snapshot, for pytorch.org/memory_viz."""
    history_digest: str | None = None
    """`sha256:` of that file."""
    not_measured: dict[str, str] = {}
    """For each figure that is None: why this device cannot give it."""
    ranks: Annotated[tuple[RankMemory, ...], Field(exclude_if=lambda ranks: not ranks)] = ()
    """Every rank's figures, where several trained together: the record itself is then that of the rank
    with the highest peak. Not written for a single process."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def peak_above_state_bytes(self) -> int | None:
        return int(median(self.peak_samples)) if self.peak_samples else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def peak_bytes(self) -> int | None:
        """Peak allocated over the update, state included."""
        above = self.peak_above_state_bytes
        return None if above is None else self.state_bytes + above


class PeakParts(Record):
    """What the highest moment of an update is made of, in bytes."""

    state: int
    """Parameters, buffers, gradients, optimizer state and inputs; no plan changes them."""
    blocks: int
    """Made in the forward or a replay of the blocks, and of what may be recomputed outside them: what
    recomputing can touch."""
    outside: int
    """Made in the forward outside the blocks: embedding, head, logits, loss."""
    backward: int
    """Gradients on their way and temporaries of the backward pass."""
    optimizer: int
    """Temporaries of the optimizer's step."""

    @property
    def total(self) -> int:
        return self.state + self.blocks + self.outside + self.backward + self.optimizer


class Estimate(Record):
    """What one update would keep and how high it would climb, found without allocating it."""

    kind: FigureKind = "estimated"
    source: str
    saved_bytes: int
    """Tensors kept for backward, once per storage, parameters and inputs left out."""
    naive_saved_bytes: int
    """The same, once per pointer, parameters and inputs included."""
    parts: PeakParts
    peak_at: PeakAt
    timeline: Timeline
    """Bytes alive from op to op; the seconds are numbers of ops."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state_bytes(self) -> int:
        """Alive between updates."""
        return self.parts.state

    @computed_field  # type: ignore[prop-decorator]
    @property
    def peak_bytes(self) -> int:
        """Highest moment of the update, state included."""
        return self.parts.total

    @computed_field  # type: ignore[prop-decorator]
    @property
    def peak_above_state_bytes(self) -> int:
        return self.parts.total - self.parts.state

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ceiling(self) -> float:
        """Share of the peak that recomputing could touch at all: what the blocks' forward made."""
        return self.parts.blocks / self.parts.total


class PlanPoint(Record):
    """A plan with its estimated costs and, once a study has run it, the measured ones."""

    kind: FigureKind = "estimated"
    """Of `peak_bytes`, `saved_bytes` and `overhead`; what is named measured was measured here."""
    plan: str
    plan_hash: str
    regions: tuple[Region, ...]
    peak_bytes: int
    """Highest moment of the update, state included."""
    peak_above_state_bytes: int
    saved_bytes: int
    overhead: float
    """Seconds of replayed ops as a share of a plain update. What checkpointing itself takes (Python,
    random states) comes on top, and shows on small models."""
    measured_peak_bytes: int | None = None
    measured_ratio: float | None = None
    """Update time over plain's: the median of the pairs."""
    measured_ratio_ci95: Interval | None = None
    measured_pairs: int | None = None
    """Of updates, which the interval is of."""
    parity: Literal["bitwise", "passed", "failed"] | None = None
    """What the study's parity found; None before it."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def miss(self) -> float | None:
        """How far the measured peak is from the estimated one, as a share of it."""
        return self.measured_peak_bytes and self.measured_peak_bytes / self.peak_bytes - 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def flagged(self) -> bool:
        """Whether the estimate missed the measured peak by more than 2 %."""
        return self.miss is not None and abs(self.miss) > 0.02


class PlanResult(Record):
    """What `plan` answers: the plans found, and the recipes they are set against."""

    schema_: Literal["recompute-plan/1"] = Field("recompute-plan/1", serialization_alias="schema")
    sentence: str
    verdict: Literal["found", "none", "undecided", "incomplete"] = "found"
    """`none`: nothing fits, or nothing may be recomputed. `undecided`: the measured interval straddles
    the largest overhead. `incomplete`: the study that should have measured could not be completed."""
    budget_bytes: int | None = None
    """What was asked for: the whole update, state included."""
    max_overhead: float | None = None
    """What was asked for: a share of a plain update."""
    workload: dict[str, Any]
    shape_key: str
    state_bytes: int
    """Alive between updates; no plan changes it."""
    plain_s: float
    """Seconds of a plain update's ops on this machine, timed one by one in a stack of two blocks."""
    plain: PlanPoint
    floor: PlanPoint
    """The lowest peak that was found."""
    chosen: PlanPoint | None = None
    """The plan for the budget that was asked for; None without a budget, or when none fits."""
    points: tuple[PlanPoint, ...]
    """Highest peak first."""
    recipes: tuple[PlanPoint, ...] = ()
    study_id: str | None = None
    """The study that measured them."""


class MemoryPair(Record):
    """Plain and candidate, measured alike."""

    plain: Memory
    candidate: Memory

    @property
    def ratio(self) -> float | None:
        plain, candidate = self.plain.peak_bytes, self.candidate.peak_bytes
        return None if plain is None or candidate is None else candidate / plain

    @property
    def ratio_ci95(self) -> Interval | None:
        """The ratio at the extremes of the samples: a point where the count is exact."""
        if not self.plain.peak_samples or not self.candidate.peak_samples:
            return None
        plain = [self.plain.state_bytes + sample for sample in self.plain.peak_samples]
        candidate = [self.candidate.state_bytes + sample for sample in self.candidate.peak_samples]
        return extremes(candidate, plain)


# --- time ------------------------------------------------------------------------------------


class Pair(Record):
    """One plain and one recomputed update, run next to each other."""

    plain_s: Annotated[float, Field(gt=0)]
    candidate_s: Annotated[float, Field(gt=0)]


INTERLEAVED = "interleaved whole updates, plan put on and taken off, one process"


class Timing(Record):
    """Interleaved updates and what follows from them."""

    kind: FigureKind = "measured"
    source: str = INTERLEAVED
    samples: Annotated[tuple[Pair, ...], Field(min_length=1)]
    stopped: Literal["narrow enough", "budget spent", "all pairs taken"]
    """Why sampling ended."""
    ranks: Annotated[int, Field(ge=1, exclude_if=lambda ranks: ranks == 1)] = 1
    """How many trained together; each time is then the slowest one's. Not written for one."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def pairs(self) -> int:
        return len(self.samples)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def plain_median_s(self) -> float:
        return median(pair.plain_s for pair in self.samples)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def candidate_median_s(self) -> float:
        return median(pair.candidate_s for pair in self.samples)

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(pair.candidate_s / pair.plain_s for pair in self.samples)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ratio_median(self) -> float:
        """Median of the paired ratios, candidate over plain."""
        return median(self.ratios)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ratio_ci95(self) -> Interval:
        return median_interval(self.ratios)

    @property
    def update_s(self) -> float:
        """What an update takes where plain takes its median. `candidate_median_s` is of other moments
        than plain's median, and on a busy machine the two need not agree with the paired ratio."""
        return self.plain_median_s * self.ratio_median


# --- gates, candidates, the study ------------------------------------------------------------

GateId = Literal["gradient_parity", "memory_saving", "update_latency"]
Outcome = Literal["pass", "fail", "undecided", "not_run"]
Verdict = Literal["adopt", "keep_original", "undecided"]


class Gate(Record):
    """One threshold against one figure."""

    id: GateId
    outcome: Outcome
    threshold: float
    observed: float | None
    ci95: Interval | None
    kind: FigureKind = "measured"
    sentence: str
    """What was found, in words."""


class _Candidate(Record):
    plan: str
    plan_hash: str
    shape: dict[str, int]
    """The sizes of this shape, `seq_len` and `batch` or `height`, `image_width` and `batch`."""
    shape_key: str
    blocks: tuple[str, ...]
    """FQNs of the blocks it recomputes, in whole or in part."""
    regions: tuple[Region, ...]
    """What it recomputes, outer regions first."""

    @property
    def troubles(self) -> tuple[str, ...]:
        """Why it was refused or not measured in full, in sentences; empty when all went well."""
        return ()


class Measured(_Candidate):
    """A candidate whose parity passed, with everything that was measured of it."""

    state: Literal["measured"] = "measured"
    legality: tuple[BlockLegality, ...]
    canary: Canary
    parity: ParityPassed
    memory: MemoryPair
    timing: Timing
    flops: dict[Literal["plain", "candidate", "envelope"], int | None]
    block_calls: dict[Literal["plain", "candidate"], dict[str, int]]


class Proven(_Candidate):
    """A candidate whose parity passed and whose costs are not all measured: failed or still running."""

    state: Literal["proven"] = "proven"
    legality: tuple[BlockLegality, ...]
    canary: Canary
    parity: ParityPassed
    memory: MemoryPair | None = None
    timing: Timing | None = None
    failure: str | None = None
    """Why a measurement could not be completed; None while it is still to come."""

    @property
    def troubles(self) -> tuple[str, ...]:
        return (self.failure,) if self.failure else ()


class Refused(_Candidate):
    """A candidate that was stopped before any cost was measured; it has no place for one."""

    state: Literal["refused"] = "refused"
    stopped_by: Literal["noise", "legality", "canary", "parity", "failure", "pending"]
    """`pending`: not yet got so far. `failure`: a worker died; see `failure`."""
    reasons: tuple[str, ...] = ()
    """Why, in sentences that name the block or the tensor."""
    legality: tuple[BlockLegality, ...] | None = None
    canary: Canary | None = None
    parity: ParityFailed | None = None
    memory: None = None
    timing: None = None
    failure: str | None = None

    @property
    def troubles(self) -> tuple[str, ...]:
        return (self.failure,) if self.failure else self.reasons


Candidate = Annotated[Measured | Proven | Refused, Field(discriminator="state")]


class Judged(Record):
    """A candidate with its gates under the thresholds it was judged by."""

    candidate: Candidate
    gates: tuple[Gate, ...]
    verdict: Verdict


class StudyResult(Record):
    """Everything found, and what follows from it under the declared thresholds."""

    schema_: Literal["recompute-study/1"] = Field(
        "recompute-study/1", alias="schema", serialization_alias="schema"
    )
    study_id: str
    status: str
    """`done`, or why it is not complete."""
    verdict: Verdict | None
    """None until a verdict can be given."""
    sentence: str
    thresholds: Thresholds
    declared_at: str
    """When the thresholds were declared, before the run: UTC, ISO 8601."""
    spec: StudySpec
    spec_hash: str
    environment: dict[str, Any]
    references: dict[str, Reference]
    """By shape key."""
    judged: tuple[Judged, ...]

    def document(self) -> dict[str, Any]:
        """The published JSON, `recompute-study/1`: candidates flat, with their gates."""
        raw = self.model_dump(mode="json", by_alias=True, exclude={"judged", "declared_at"})
        raw["thresholds"]["declared_at"] = self.declared_at
        raw["candidates"] = [
            {
                **j.candidate.model_dump(mode="json", by_alias=True),
                "gates": [gate.model_dump(mode="json") for gate in j.gates],
                "verdict": j.verdict,
            }
            for j in self.judged
        ]
        return raw
