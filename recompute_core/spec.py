"""What is asked: the specification of a study, checked where each setting is declared.

What a workload's own settings are is in `settings`. Nothing here imports torch. Names of plans are
checked when a study is admitted (`studies.admission`), where the model's blocks are known.
"""

import hashlib
import json
import math
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from .errors import InputError
from .settings import (
    OTHERS,
    OURS,
    Fqn,
    Frozen,
    GptSettings,
    Settings,
    WorkloadSettings,
    is_own,
    size_fields,
)

Device = Literal["auto", "cpu", "cuda", "xpu", "mps"]
Precision = Literal["float32", "bfloat16"]
EngineName = Literal["local", "ray"]
Backend = Literal["inductor", "aot_eager", "aot_eager_decomp_partition"]


class Thresholds(Frozen):
    """What a candidate must keep to; declared before a study runs."""

    gradient_gap: Annotated[float, Field(gt=0)] = 1e-4
    """Largest absolute gap of any gradient."""
    relative_gap: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    """Largest gap of any compared tensor, relative to its own largest value."""
    peak_ratio: Annotated[float, Field(gt=0, le=1)] = 0.82
    """Peak memory, as a share of plain's."""
    update_ratio: Annotated[float, Field(ge=1, le=100)] = 1.35
    """Median update time, as a multiple of plain's."""


class CheckpointSettings(Frozen):
    """How a recomputed block is checkpointed (torch.utils.checkpoint, non-reentrant)."""

    variant: Literal["call", "forward"] = "call"
    """`call` recomputes the module's call, hooks included; `forward` recomputes forward alone."""
    early_stop: bool = True
    """Stop a replay as soon as every tensor that backward needs is back."""
    rng: Literal["preserve", "ignore"] = "preserve"
    """`preserve` replays a block under the random state of its first forward; `ignore` does not."""


Op = Annotated[str, Field(max_length=200, pattern=r"^\w+\.\w+\.\w+(:(even|odd|\d+(,\d+)*))?$")]


PlanName = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^\S(.*\S)?$")]


MOST_MODULES = 16_384
"""Modules that all custom plans of a specification name, together, at most."""


class Region(Frozen):
    """What is recomputed as one: a module, or modules that pass their first result on to the next."""

    modules: Annotated[tuple[Fqn, ...], Field(min_length=1, max_length=1024)]
    """FQNs, in the order they are called."""
    keep: tuple[Op, ...] = ()
    """Ops whose outputs are kept and not recomputed (selective): `aten.mm.default` for every call of
    it in the region, `aten.mm.default:0,2` for those calls, `:even` and `:odd` for every second."""


class TimingSettings(Frozen):
    """How long pairs of plain and recomputed updates are sampled."""

    min_pairs: Annotated[int, Field(ge=3, le=1000)] = 9
    """Pairs that are always timed."""
    max_pairs: Annotated[int, Field(ge=3, le=1000)] = 31
    """Pairs after which sampling ends."""
    width: Annotated[float, Field(gt=0, le=1)] = 0.04
    """Sampling ends once the 95 % interval of the ratio is at most this wide."""
    budget_s: Annotated[float, Field(ge=0, le=86_400)] = 20.0
    """Seconds of sampling per candidate, after which only `min_pairs` are still owed."""

    @model_validator(mode="after")
    def _ordered(self) -> "TimingSettings":
        if self.max_pairs < self.min_pairs:
            raise ValueError(f"max_pairs {self.max_pairs} is below min_pairs {self.min_pairs}")
        return self


class OptimizerSettings(Frozen):
    """AdamW, pinned."""

    lr: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """Learning rate."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Decoupled weight decay."""


class Ranks(Frozen):
    """Data parallel training: each process has its share of the batch and the mean of all gradients."""

    kind: Literal["ddp", "fsdp2"] = "ddp"
    """`ddp` keeps the whole model on every rank, `fsdp2` a share of each parameter."""
    count: Annotated[int, Field(ge=2, le=64)] = 2
    """Ranks on this machine; the batch is cut into as many equal parts."""


class Compile(Frozen):
    """How the training job is compiled: model and loss as one graph (`torch.compile`, `fullgraph`)."""

    backend: Backend = "inductor"
    """`inductor` makes kernels; `aot_eager` runs the ops of its graphs, and so does
    `aot_eager_decomp_partition`, on inductor's decompositions."""


MOST_EARLIER = 100
"""Studies that a re-run remembers."""


class Earlier(Frozen):
    """A study whose result was known when the one that follows it was declared."""

    study: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[\w.-]+$")]
    """Its id."""
    thresholds: Thresholds
    """Those that it was declared with."""


class StudySpec(Frozen):
    """A whole study: one workload, its shapes, the plans to compare and the thresholds."""

    workload: WorkloadSettings = Field(default_factory=GptSettings)
    """What is trained."""
    shapes: Annotated[tuple[dict[str, int], ...], Field(min_length=1, max_length=64)] = ({},)
    """Sizes that override the workload's, one mapping a shape: lengths, image shapes or batches."""
    plans: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)] = ("every-block",)
    """Plans compared with plain, by name."""
    custom_plans: Annotated[dict[PlanName, tuple[Region, ...]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """Plans given as data, by the name that `plans` calls them: regions, outer before inner."""
    thresholds: Thresholds = Thresholds()
    """The gates, declared before the run."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    """How blocks are recomputed."""
    timing: TimingSettings = TimingSettings()
    """How updates are timed."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """The optimizer of the reference update."""
    precision: Precision = "float32"
    """Number format of weights, activations and gradients."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of weights, data and dropout."""
    device: Device = "auto"
    """Where to run; `auto` takes the local accelerator, or else the CPU."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads; empty for torch's own choice."""
    ranks: Annotated[Ranks | None, Field(exclude_if=lambda ranks: ranks is None)] = None
    """Data parallel training; empty for a single process. Not written then, as `follows` below."""
    silence_s: Annotated[float, Field(ge=1, le=86_400)] = 900.0
    """A worker that says nothing for this many seconds is taken for hung and stopped."""
    engine: Annotated[EngineName, Field(exclude_if=lambda engine: engine == "local")] = "local"
    """Where cells, each a phase of one plan at one shape, are done: `local`, on this machine one after
    the other; `ray`, on a Ray cluster, each on a GPU or a node of its own."""
    compile: Annotated[Compile | None, Field(exclude_if=lambda compile: compile is None)] = None
    """How plain and every candidate are compiled; empty: they are not. Not written where it is empty, as
    `follows`."""
    follows: Annotated[
        tuple[Earlier, ...], Field(max_length=MOST_EARLIER, exclude_if=lambda earlier: not earlier)
    ] = ()
    """The studies that this one repeats, oldest first; nothing measured depends on it. Not written where
    there are none, so that a specification hashes as it did before there was this field."""

    @field_validator("workload", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if isinstance(value, dict):
            name = value.get("name", "gpt")
            if not isinstance(name, str) or not (name in OURS or is_own(name)):
                raise ValueError(f"unknown workload {_cut(name)}; known: {', '.join(OURS)}, {OTHERS}")
            return {"name": name, **value}
        if not isinstance(value, Settings):
            raise ValueError(f": expected a workload's name or its settings, got {_cut(value)}")
        return value

    @field_validator("shapes", mode="before")
    @classmethod
    def _sizes_are_numbers(cls, shapes: Any) -> Any:
        for index, shape in enumerate(shapes if isinstance(shapes, list | tuple) else ()):
            for name, size in shape.items() if isinstance(shape, dict) else ():
                if isinstance(size, bool):
                    raise ValueError(f"[{index}].{name}: expected a number, got {str(size).lower()}")
        return shapes

    @field_validator("plans")
    @classmethod
    def _plans_differ(cls, plans: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(plans)) < len(plans):
            raise ValueError("each plan may be named once")
        if "none" in plans:
            raise ValueError("plain is always measured; leave out 'none'")
        return plans

    @field_validator("custom_plans")
    @classmethod
    def _plans_are_small(cls, plans: dict[str, tuple[Region, ...]]) -> dict[str, tuple[Region, ...]]:
        named = sum(len(region.modules) for regions in plans.values() for region in regions)
        if named > MOST_MODULES:
            raise ValueError(f"{named} modules in all plans; at most {MOST_MODULES} are read")
        return plans

    @model_validator(mode="after")
    def _shapes_fit(self) -> "StudySpec":
        sized = [size_fields(self.workload)] * len(self.shapes)
        for index, (shape, known) in enumerate(zip(self.shapes, sized, strict=True)):
            for name in shape:
                if name not in known:
                    raise ValueError(
                        f"shapes[{index}]: {self.workload.name} has no size {name!r}; "
                        f"it has {', '.join(known) or 'none'}"
                    )
            try:
                self.at(shape)
            except ValidationError as error:
                raise ValueError(f"shapes[{index}].{explain(error)}") from None
        if len({json.dumps(self.at(s).model_dump(), sort_keys=True) for s in self.shapes}) < len(
            self.shapes
        ):
            raise ValueError("shapes: two of them are the same")
        return self

    def at(self, shape: dict[str, int]) -> Settings:
        """The workload's settings with the sizes of `shape`."""
        return type(self.workload).model_validate({**self.workload.model_dump(), **shape})

    def digest(self) -> str:
        """SHA-256 of the canonical JSON of the whole specification, thresholds included."""
        return digest_of(self.model_dump(mode="json"))


def check_not_compiled(spec: StudySpec, what: str) -> None:
    """Raises InputError for a compiled study, of which `what` cannot speak."""
    if spec.compile is not None:
        raise InputError(f"{what} speaks of updates that are not compiled; leave compile.backend out")


def digest_of(value: Any) -> str:
    """`sha256:` and the hash of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def parse_spec(raw: Any, origin: str = "the specification") -> StudySpec:
    """A checked specification from plain data; raises InputError with one line."""
    if not isinstance(raw, dict):
        raise InputError(
            f"{origin}: expected a mapping of settings, got {type(raw).__name__}; "
            "an example is 'workload: gpt'"
        )
    try:
        return StudySpec.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{origin}: {explain(error)}") from None


def explain(error: ValidationError) -> str:
    """The first problem of a pydantic error as one line: where, what, what was given."""
    first = error.errors()[0]
    place = _without_tag(first["loc"])
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    given = first.get("input")
    if first["type"] == "extra_forbidden":
        line = f"{where}: no such setting"
    elif first["type"] in ("model_type", "model_attributes_type"):
        line = f"{where or 'the specification'}: expected settings by name, got {_cut(given)}"
    elif first["type"] == "value_error" or isinstance(given, dict):
        joint = "" if not where or message[0] in ".[" else ": "
        line = f"{where}{joint}{message}".removeprefix(".")
    else:
        line = f"{where}: {message}, got {_cut(given)}"
    line = " ".join(line.split())
    return line if len(line) <= 280 else line[:277] + "..."


def _without_tag(place: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """A place in the data without the workload's name that pydantic puts after `workload`."""
    return (place[0], *place[2:]) if place[:1] == ("workload",) and place[1:2] != () else place


def _cut(value: Any) -> str:
    try:
        text = str(value) if isinstance(value, float) and not math.isfinite(value) else repr(value)
    except ValueError:  # a number of thousands of digits cannot be written out
        text = "a number beyond measure"
    return text if len(text) <= 60 else text[:57] + "..."


PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "workload": {"name": "gpt", "seq_len": 192, "batch": 4},
        "threads": 1,  # the browser has the other cores, so that the two do not disturb each other
        "shapes": [{"seq_len": 128}, {"seq_len": 192}],
        "plans": ["every-block", "every-2nd-block"],
        "timing": {"min_pairs": 9, "max_pairs": 15, "budget_s": 3},
    },
    "gpt-sweep": {
        "workload": {"name": "gpt"},
        "shapes": [{"seq_len": t} for t in (128, 256, 512, 768)],
        "plans": ["every-block"],
        "timing": {"min_pairs": 7, "max_pairs": 7, "budget_s": 0},
    },
    "receipt": {
        "workload": {"name": "receipts"},
        "plans": ["every-block", "every-2nd-block", "all-but-last"],
        "timing": {"min_pairs": 9, "max_pairs": 21, "budget_s": 20},
    },
}
"""Ready studies: `quick` for a first look, `gpt-sweep` for the length curve, `receipt` for photos."""


def preset(name: str) -> dict[str, Any]:
    """The plain data of a preset; raises InputError for an unknown one."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    return json.loads(json.dumps(PRESETS[name]))  # type: ignore[no-any-return]
