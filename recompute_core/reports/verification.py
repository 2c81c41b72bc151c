"""What came of verifying a report: every check with its outcome, and what is published of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from .predicate import Predicate
from .refusal import Untrusted
from .signers import Signer
from .statement import Decision
from .supplied import SuppliedDecision

CheckOutcome = Literal["pass", "fail", "not_reached"]

TRUST = ("bundle", "envelope", "signer", "statement", "evidence", "tests", "copies", "report.html")
"""The checks of trust, in their order; the first that fails ends the verification."""
SUPPORT = ("records", "spec_hash", "thresholds", "gates", "verdict", "facts", "page")
"""The checks of support; `gates` stands for one check a gate and shape. `page` is looked at where this
version made the report: another one's words may be others."""
SUPPORT_OF_SUPPLIED = tuple(check for check in SUPPORT if check != "spec_hash")
"""Those of supplied figures, which no study has specified."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    id: str
    """As in TRUST and SUPPORT; of a gate `gate: update_latency at T=128 B=4`."""
    outcome: CheckOutcome
    sentence: str
    code: str | None = None
    """Why it fails, for machines."""


@dataclass(frozen=True)
class Verification:
    """What came of verifying a report."""

    checks: tuple[Check, ...]
    checked_at: datetime
    signer: Signer | None = None
    """Who signed it, once that is known."""
    predicate: Predicate | None = None
    """What the evidence of a study supports, computed here; None unless everything verified."""
    warnings: tuple[str, ...] = ()
    supplied: SuppliedDecision | None = None
    """The same of a report on supplied figures, which then has no `predicate`."""

    @property
    def decision(self) -> Decision | None:
        """What the evidence supports, whichever of the two it is."""
        return self.predicate or self.supplied

    @property
    def verified(self) -> bool:
        return self.decision is not None and all(check.outcome == "pass" for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed, the first that counts first."""
        return tuple(check for check in self.checks if check.outcome == "fail")

    @property
    def sentence(self) -> str:
        """The outcome in one sentence."""
        if self.verified and self.signer is not None and self.decision is not None:
            return f"Verified, signed by {self.signer.name}. {self.decision.sentence}"
        first = self.failures[0]
        return f"Refused: {first.sentence}"

    def document(self) -> dict[str, Any]:
        """The published JSON, `recompute-verification/1`."""
        study, said = self.predicate, self.decision
        return {
            "schema": "recompute-verification/1",
            "verified": self.verified,
            "checked_at": self.checked_at.isoformat(),
            "sentence": self.sentence,
            "code": None if self.verified else self.failures[0].code,
            "signer": self.signer
            and {
                "name": self.signer.name,
                "fingerprint": self.signer.fingerprint,
                "kind": self.signer.kind,
            },
            "kind": said and ("supplied" if self.supplied is not None else "measured"),
            "study_id": study and study.study.id,
            "plan": said and said.plan,
            "plan_hash": study and study.plan_hash,
            "verdict": said and said.verdict,
            "warnings": list(self.warnings),
            "checks": [
                {"id": one.id, "outcome": one.outcome, "code": one.code, "sentence": one.sentence}
                for one in self.checks
            ],
        }


def unreadable(error: Untrusted, now: datetime) -> Verification:
    """What comes of files that are no report."""
    return Verification((failed("bundle", error), *not_reached(TRUST[1:] + SUPPORT)), now)


def failed(check: str, error: Untrusted) -> Check:
    """The refusal as a sentence, its first word capital unless it is the name of a file."""
    words = str(error).removesuffix(".") + "."
    first = words.partition(" ")[0].rstrip(":")
    sentence = words[0].upper() + words[1:] if first.isalpha() else words
    return Check(check, "fail", sentence, error.code)


def not_reached(ids: tuple[str, ...]) -> Iterator[Check]:
    for one in ids:
        yield Check(one, "not_reached", "Not reached.")
