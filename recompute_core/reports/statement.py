"""The two statements of a report, in-toto v1: our decision, and its gates as a test result.

Specifications: github.com/in-toto/attestation, `spec/v1/statement.md` and
`spec/predicates/test-result.md`. Both name the same files by SHA-256.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..results import Verdict
from ..spec import explain
from .predicate import Predicate, ShapeDecision
from .refusal import Untrusted, quoted
from .strict_json import canonical, parse
from .supplied import SuppliedDecision

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
DECISION_TYPE, SUPPLIED_TYPE = Predicate.TYPE, SuppliedDecision.TYPE
TEST_RESULT_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
MOST_BYTES = 3_000_000

Decision = Predicate | SuppliedDecision
"""Measured here, or on figures that were supplied."""

_RESULTS: dict[Verdict, str] = {"adopt": "PASSED", "undecided": "WARNED", "keep_original": "FAILED"}
_SAFE_NAME = re.compile(r"(evidence/)?[A-Za-z0-9_][A-Za-z0-9 _=.,+()-]{0,149}")


def is_safe_name(name: str) -> bool:
    """Whether a file may go by this name: in the report's folder or in evidence, nowhere else."""
    return _SAFE_NAME.fullmatch(name) is not None and name[-1] not in " ."


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each file, hexadecimal, by name."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}


def decision(predicate: Decision, digests: Mapping[str, str]) -> bytes:
    """Our statement, as it is signed."""
    return _statement(predicate.TYPE, predicate.document(), digests)


def gates_as_tests(predicate: Decision, digests: Mapping[str, str]) -> bytes:
    """The statement for readers of test results: a gate at a shape is a test.

    What is undecided is a warning. A gate that was not run is in no list, but what stopped it is. On
    supplied figures nothing stops a gate: one without a figure is a warning too, and each name says
    `(supplied)`.
    """
    lists: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    outcomes = {"pass": "passedTests", "undecided": "warnedTests", "fail": "failedTests"}
    label = ""
    if isinstance(predicate, SuppliedDecision):
        label, outcomes = " (supplied)", outcomes | {"not_run": "warnedTests"}
    for shape in predicate.shapes:
        for gate in shape.gates:
            if gate.outcome in outcomes:
                name = name_of_test(gate.id, shape.shape_key) + label
                lists[outcomes[gate.outcome]].append(name)
        if (
            isinstance(shape, ShapeDecision)
            and shape.stopped_by is not None
            and shape.stopped_by != "parity"
        ):
            refused = shape.verdict == "keep_original"
            lists["failedTests" if refused else "warnedTests"].append(_stop(shape))
    asked = predicate.ASKED
    body = {
        "result": _RESULTS[predicate.verdict],
        "configuration": [{"name": asked, "digest": {"sha256": digests[asked]}}],
        **lists,
    }
    return _statement(TEST_RESULT_TYPE, body, digests)


def name_of_test(gate: str, shape: str) -> str:
    """How a gate at a shape is called among tests."""
    return f"{gate} at {shape}"


def _stop(shape: ShapeDecision) -> str:
    return name_of_test(str(shape.stopped_by), shape.shape_key)


def _statement(kind: str, predicate: Any, digests: Mapping[str, str]) -> bytes:
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": found}} for name, found in sorted(digests.items())
            ],
            "predicateType": kind,
            "predicate": predicate,
        }
    )


# --- reading ---------------------------------------------------------------------------------


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Digest(_Form):
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Subject(_Form):
    name: str
    digest: _Digest


class _Statement(_Form):
    type_: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: Annotated[list[_Subject], Field(min_length=1, max_length=1000)]
    predicateType: str
    predicate: dict[str, Any]


def read_statement(payload: bytes) -> tuple[str, dict[str, Any], dict[str, str]]:
    """The predicate's type, DECISION_TYPE or SUPPLIED_TYPE, the predicate, and the files' digests.

    Raises Untrusted: statement-form, predicate-type, unsafe-name, duplicate-name, not-canonical, and as
    `parse`.
    """
    what = "the statement"
    raw = parse(payload, most_bytes=MOST_BYTES, what=what)
    found_type = raw.get("predicateType") if isinstance(raw, dict) else None
    if isinstance(found_type, str) and found_type not in (DECISION_TYPE, SUPPLIED_TYPE):
        raise Untrusted(
            "predicate-type", f"{what}: is about {quoted(found_type)}, and not a decision of ours"
        )
    try:
        statement = _Statement.model_validate(raw)
    except ValidationError as error:
        raise Untrusted("statement-form", f"{what}: {quoted(explain(error))}") from None
    digests: dict[str, str] = {}
    seen: set[str] = set()
    for subject in statement.subject:
        if not is_safe_name(subject.name):
            raise Untrusted(
                "unsafe-name", f"{what}: {quoted(subject.name)} is no name of a file in a report"
            )
        if subject.name.casefold() in seen:
            raise Untrusted("duplicate-name", f"{what}: {quoted(subject.name)} stands twice")
        seen.add(subject.name.casefold())
        digests[subject.name] = subject.digest.sha256
    if canonical(raw) != payload:
        raise Untrusted("not-canonical", f"{what}: is not written in the one way that we write it")
    return statement.predicateType, statement.predicate, digests
