"""What a recheck found, as it is kept and published. No torch.

JSON, schema `recompute-recheck/1`, printed by `recheck --json`:

`outcome`      `same`, `holds_drifted`, `lost` or `cannot_tell`, the worst of all shapes; `exit_code`
`sentence`     that, in words
`statement`    SHA-256 of the signed statement; with it `study_id`, `plan`, `plan_hash` and `signer`
`checked_at`   UTC; `seconds` that it took; `made_by`, which version of ours
`settings`     what `--set` gave
`environment`  of this machine, as a study records it
`changes`      what is not as it was on the machine: `about`, `what`, `old`, `new`, `effect`
`shapes`       for each: `outcome`, `code`, `sentence`, `changes` of code and data, `drift` of the
               reference, and what was found here: `noise_floor`, `canary`, `parity`

A report that is refused gives `outcome` `refused`, `exit_code` 1, `code`, `sentence`, and `verification`
as `verify --json` does; it is not kept.
"""

from typing import Any, Literal

from pydantic import Field, computed_field

from ..results import Canary, Gap, Record, Rollback

RecheckOutcome = Literal["same", "holds_drifted", "lost", "cannot_tell"]
EXIT_CODES: dict[RecheckOutcome, int] = {"same": 0, "holds_drifted": 0, "cannot_tell": 3, "lost": 1}
"""The later outweighs the earlier."""

WORDS: dict[RecheckOutcome, str] = {
    "same": "same",
    "holds_drifted": "holds, drifted",
    "lost": "lost",
    "cannot_tell": "cannot tell",
}

Effect = Literal["none", "drift", "another"]
Plain = str | int | float | bool | None


class Change(Record):
    """Something that is not as it was when the report was made."""

    about: Literal["library", "device", "numerics", "code", "data"]
    what: str
    """`torch`, `threads`, `source of my_models.net.Block (net.py)`."""
    old: Plain
    new: Plain
    effect: Effect
    """`drift`: may move the update's last bits. `another`: what is trained here is not what was
    reported. `none`: says nothing by itself."""


class TensorDrift(Record):
    """One tensor of plain's update that is not bitwise what the report recorded."""

    name: str
    """Part and name: `grad/blocks.0.attn.qkv.weight`."""
    at_least: float | None = None
    """The difference of the two L2 norms as a share of the recorded one, which the drift is no smaller
    than; None where there are none."""
    gap: Gap | None = None
    """The exact gap, where the recorded reference lies on this machine."""
    problem: str | None = None
    """Why there is no figure."""

    @property
    def size(self) -> float | None:
        """How far it drifted: the exact relative gap, or else what it is no smaller than."""
        return self.at_least if self.gap is None else self.gap.relative


class Drift(Record):
    """Plain's update here against the recorded one: what libraries and devices have changed."""

    bitwise: bool
    by: Literal["digest", "reference", "fingerprints", "nothing"]
    """What it was compared with. `nothing`: the digests differ, and the report holds no more."""
    tensors: int
    off: int | None
    """How many of them are not bitwise equal."""
    worst: tuple[TensorDrift, ...] = ()
    """The five that are furthest off."""
    largest_gradient_drift: float | None = None
    """Of any gradient: the exact relative gap, or with `fingerprints` what it is no smaller than."""


class ParityHere(Record):
    """The recomputed update against plain's, here and now."""

    passed: bool
    bitwise: bool
    tensors: int
    """How many were compared."""
    largest_gradient_gap: float | None
    largest_relative_gap: float | None
    failed: int
    """How many tensors are outside the tolerance."""
    worst: tuple[Gap, ...]
    """The five tensors that are furthest off."""
    rollback: Rollback | None
    """None: not tried, as the recomputed update differs."""


Code = Literal[
    "bitwise",
    "drifted",
    "parity",
    "rollback",
    "canary",
    "another-source",
    "another-model",
    "another-batch",
    "unexplained-drift",
    "noise",
    "not-rebuilt",
    "not-completed",
    "nothing-recorded",
]


class ShapeRecheck(Record):
    """What was found at one shape."""

    shape_key: str
    shape: dict[str, int]
    outcome: RecheckOutcome
    code: Code
    """Why, for machines."""
    sentence: str
    held_in_report: bool | None
    """Whether parity held in the report; None: it was not looked at there."""
    changes: tuple[Change, ...] = ()
    """Of code and data."""
    drift: Drift | None = None
    noise_floor: float | None = None
    """Largest relative gap of plain against plain here; None: not run, or not to be compared."""
    canary: Canary | None = None
    parity: ParityHere | None = None
    seconds: float = 0.0


class SignedBy(Record):
    """Whose signature the report carried."""

    name: str
    """In the verifier's words."""
    fingerprint: str


class Recheck(Record):
    """A report's parity, run again."""

    schema_name: Literal["recompute-recheck/1"] = Field("recompute-recheck/1", alias="schema")
    statement: str
    """`sha256:` and the digest of the signed statement."""
    study_id: str
    plan: str
    plan_hash: str
    signer: SignedBy
    checked_at: str
    """When it began, UTC, ISO 8601."""
    seconds: float
    made_by: str
    settings: tuple[str, ...] = ()
    """What of this machine was set: `threads=2`."""
    environment: dict[str, Any]
    changes: tuple[Change, ...]
    """Of the machine and its libraries."""
    shapes: tuple[ShapeRecheck, ...] = Field(min_length=1)
    sentence: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> RecheckOutcome:
        """The worst of all shapes."""
        return worst_of(self.shapes).outcome

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    @property
    def all_changes(self) -> tuple[Change, ...]:
        """Each once: of the machine, then of code and data."""
        inside = (change for one in self.shapes for change in one.changes)
        return tuple(dict.fromkeys((*self.changes, *inside)))

    def document(self) -> dict[str, Any]:
        """As it is published."""
        return self.model_dump(mode="json", by_alias=True)


def worst_of(shapes: tuple[ShapeRecheck, ...]) -> ShapeRecheck:
    """The first of the shapes that decide the outcome."""
    order = list(EXIT_CODES)
    return max(shapes, key=lambda one: order.index(one.outcome))
