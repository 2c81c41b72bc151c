"""The two statements: what readers of in-toto find in them."""

import json
from typing import Any

import pytest

from recompute_core.reports.bundle import REPORT, TESTS
from recompute_core.reports.predicate import Predicate, derive
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.statement import (
    DECISION_TYPE,
    decision,
    digests_of,
    gates_as_tests,
    is_safe_name,
    read_statement,
)
from recompute_core.reports.strict_json import canonical
from tests.pages import studies
from tests.reports.decisions import evidence_from, honest, payload_of, predicate

GATES = ("gradient_parity", "memory_saving", "update_latency")


def test_our_statement_is_in_toto_v1() -> None:
    statement = payload_of(honest().files[REPORT])
    assert set(statement) == {"_type", "subject", "predicateType", "predicate"}
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://recompute-studio.dev/decision/v1"
    named = {one["name"]: one["digest"] for one in statement["subject"]}
    signed = {name: data for name, data in honest().files.items() if named.get(name)}
    assert named == {name: {"sha256": digest} for name, digest in digests_of(signed).items()}
    assert {"report.html", "VERIFY.md", "evidence/study.json", "evidence/cells.json"} <= set(named)


def test_the_gates_are_a_test_result() -> None:
    statement = payload_of(honest().files[TESTS])
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert statement["subject"] == payload_of(honest().files[REPORT])["subject"]
    body = statement["predicate"]
    assert body["result"] == "PASSED"
    asked = {"name": "evidence/study.json", "digest": body["configuration"][0]["digest"]}
    assert body["configuration"] == [asked]
    assert asked in statement["subject"]
    assert body["passedTests"] == [f"{g} at {s}" for s in ("T=128 B=4", "T=256 B=4") for g in GATES]
    assert body["warnedTests"] == body["failedTests"] == []


def _tests_of(make: Any, plan: str = "every-block") -> dict[str, Any]:
    said = derive(evidence_from(make, plan))
    statement = json.loads(gates_as_tests(said, {"evidence/study.json": "0" * 64}))
    body: dict[str, Any] = statement["predicate"]
    return body


def test_results_of_other_verdicts() -> None:
    parity = _tests_of(studies.refused_by_parity)
    assert parity["result"] == "FAILED"
    assert parity["failedTests"] == [f"gradient_parity at {s}" for s in ("T=128 B=4", "T=256 B=4")]
    assert parity["passedTests"] == parity["warnedTests"] == []

    legality = _tests_of(studies.refused_by_legality)
    assert legality["result"] == "FAILED"
    assert legality["failedTests"] == [f"legality at {s}" for s in ("T=128 B=4", "T=256 B=4")]

    wide = _tests_of(lambda store: studies.filled(store, ratios=studies.WIDE))
    assert wide["result"] == "WARNED"
    assert wide["warnedTests"] == [f"update_latency at {s}" for s in ("T=128 B=4", "T=256 B=4")]

    died = _tests_of(studies.failed, "every-2nd-block")
    assert died["result"] == "WARNED"
    assert died["passedTests"] == ["gradient_parity at T=128 B=4", "memory_saving at T=128 B=4"]


def test_what_is_written_is_read() -> None:
    said = Predicate.model_validate(predicate())
    digests = {"evidence/a.json": "a" * 64, "report.html": "b" * 64}
    assert read_statement(decision(said, digests)) == (DECISION_TYPE, predicate(), digests)


@pytest.mark.parametrize(
    ("name", "is_safe"),
    [
        ("report.html", True),
        ("evidence/timeline T=128 B=4.json", True),
        ("evidence/timeline own batch.json", True),
        ("evidence/trace 192x96 B=16 blocks-0,2 0a1b2c3d.json.gz", True),
        ("", False),
        (".", False),
        ("..", False),
        ("../report.html", False),
        ("/etc/passwd", False),
        ("evidence/../report.html", False),
        ("evidence//a", False),
        ("evidence/a/b", False),
        ("evidence/", False),
        ("Evidence/a", False),
        ("evidence\\a", False),
        ("C:evil", False),
        (".ssh", False),
        ("-rf", False),
        ("a\nb", False),
        ("report.html\n", False),
        ("a\x00b", False),
        ("ａ", False),
        ("a ", False),
        ("a.", False),
        ("a" * 200, False),
    ],
)
def test_names_that_a_file_may_have(name: str, is_safe: bool) -> None:
    assert is_safe_name(name) == is_safe


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda s: s.update(subject=[]), "statement-form"),
        (lambda s: s.update(subject=s["subject"] * 2), "duplicate-name"),
        (lambda s: s.update(more=1), "statement-form"),
        (lambda s: s.pop("predicate"), "statement-form"),
        (lambda s: s.pop("predicateType"), "statement-form"),
        (lambda s: s["subject"][0]["digest"].update(sha256="A" * 64), "statement-form"),
        (lambda s: s["subject"][0]["digest"].update(sha256="a" * 64 + "\n"), "statement-form"),
        (lambda s: s["subject"][0].update(uri="https://example.org"), "statement-form"),
    ],
)
def test_statements_that_are_refused(change: Any, code: str) -> None:
    statement = payload_of(honest().files[REPORT])
    change(statement)
    with pytest.raises(Untrusted) as caught:
        read_statement(canonical(statement))
    assert caught.value.code == code


@pytest.mark.parametrize("payload", [b"[]", b"1", b'"x"', b"null"])
def test_what_is_no_statement(payload: bytes) -> None:
    with pytest.raises(Untrusted) as caught:
        read_statement(payload)
    assert caught.value.code == "statement-form"
