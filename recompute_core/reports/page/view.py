"""What a report's page shows: records of the study as they are, and nothing worked out a second time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ...results import (
    BlockLegality,
    Canary,
    Gate,
    MemoryPair,
    ParityFailed,
    ParityPassed,
    Reference,
    Timing,
    Verdict,
)
from ...spec import Region, Thresholds
from ..measurements import Measurements
from ..second_use import SecondUse


@dataclass(frozen=True)
class ShapeView:
    """One shape: its gates, and what they rest on."""

    shape_key: str
    shape: Mapping[str, int]
    verdict: Verdict
    gates: tuple[Gate, ...]
    parity: ParityPassed | ParityFailed | None = None
    canary: Canary | None = None
    memory: MemoryPair | None = None
    timing: Timing | None = None
    reference: Reference | None = None
    legality: tuple[BlockLegality, ...] = ()
    troubles: tuple[str, ...] = ()
    """Why it was refused or not measured in full, in sentences."""


@dataclass(frozen=True)
class Rollback:
    """How the plan is taken off, and whether plain was plain again."""

    words: str
    code: str
    """Lines of Python."""
    proofs: tuple[str, ...]
    """In sentences."""


@dataclass(frozen=True)
class SignedFile:
    """A file whose digest the signature covers."""

    name: str
    size: int
    """Bytes."""
    digest: str


@dataclass(frozen=True)
class ReportView:
    """One plan of one study, at every shape."""

    plan: str
    verdict: Verdict
    sentence: str
    """The verdict in one sentence, as `gates` says it."""
    shapes: tuple[ShapeView, ...]
    thresholds: Thresholds
    """Those the gates were judged by: the declared ones, or those that came with supplied figures."""
    declared_at: str
    """UTC, ISO 8601."""
    first_measured_at: str | None
    """When measuring began; None for figures that were supplied."""
    workload: Mapping[str, Any]
    """Its settings, `name` among them."""
    reruns: tuple[str, ...] = ()
    """A sentence on each study that this one repeats."""
    regions: tuple[Region, ...] = ()
    blocks: tuple[str, ...] = ()
    """FQNs of the model's candidate blocks, in the order of forward."""
    study_id: str | None = None
    plan_hash: str | None = None
    spec_hash: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else the study declared: optimizer, precision, seed, checkpointing."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    rollback: Rollback | None = None
    second_use: tuple[SecondUse, ...] = ()
    not_claimed: tuple[str, ...] = ()
    not_recorded: Mapping[str, str] = field(default_factory=dict)
    """What could be among the files and is not: why."""
    files: tuple[SignedFile, ...] = ()
    supplied: Measurements | None = None
    """The file that the figures were supplied in; None where they were measured here."""
    received: str = ""
    """When its thresholds came, in a sentence."""

    @property
    def main(self) -> ShapeView:
        """The shape that a reader sees first: the largest that was measured, or else the largest."""
        measured = [one for one in self.shapes if one.memory is not None]
        return max(measured or self.shapes, key=lambda one: prod(one.shape.values()))
