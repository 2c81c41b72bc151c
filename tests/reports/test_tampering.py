"""Reports that somebody tampered with: each is refused, by its own reason."""

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.reports.bundle import HTML, PUBLIC_KEY, REPORT, SIGSTORE, TESTS, Bundle, zip_of
from recompute_core.reports.envelope import sign
from recompute_core.reports.evidence import CELLS, REVISIONS, STUDY, timeline_name
from recompute_core.reports.instructions import NAME as VERIFY
from recompute_core.reports.keys import fingerprint, public_pem, signature_of
from recompute_core.reports.signers import Signers
from recompute_core.reports.strict_json import canonical
from recompute_core.reports.verification import SUPPORT, TRUST
from recompute_core.reports.verify import verify, verify_zip
from tests.pages import studies
from tests.reports.decisions import (
    checked,
    edited,
    evidence,
    evidence_from,
    forged,
    honest,
    payload_of,
    predicate,
    with_files,
)
from tests.reports.signing import ANN, BOB, EVE, LATER, NOW, SIGNERS, unhurried

Tamper = Callable[[], Bundle]


def _envelope(change: Callable[[dict[str, Any]], Any], name: str = REPORT) -> Bundle:
    """The honest report with a change to an envelope that nobody signed again."""
    found = json.loads(honest().files[name])
    changed = change(found)
    return with_files({name: changed if isinstance(changed, bytes) else canonical(found) + b"\n"})


def _payload(change: Callable[[dict[str, Any]], Any]) -> Bundle:
    """The honest report with another payload under the old signature."""

    def changed(envelope: dict[str, Any]) -> None:
        statement = payload_of(honest().files[REPORT])
        made = change(statement)
        data = made if isinstance(made, bytes) else canonical(statement)
        envelope["payload"] = base64.b64encode(data).decode()

    return _envelope(changed)


def _said(**changes: Any) -> Bundle:
    """The trusted key signs a report that says something else, over the same evidence."""
    return forged(predicate() | changes)


def _gate(number: int, **changes: Any) -> dict[str, Any]:
    said = predicate()
    said["shapes"][0]["gates"][number] |= changes
    return said


def _cell(cells: list[dict[str, Any]], phase: str, plan: str = "every-block") -> dict[str, Any]:
    return next(cell for cell in cells if (cell["phase"], cell["plan"]) == (phase, plan))


def _finding(phase: str, **changes: Any) -> dict[str, bytes]:
    """The evidence, with another finding of a phase of the plan."""
    return edited(CELLS, lambda cells: _cell(cells, phase)["payload"].update(changes))


def _slower(cells: list[dict[str, Any]]) -> None:
    for pair in _cell(cells, "time")["payload"]["samples"]:
        pair["candidate_s"] *= 2


def _looser(study: dict[str, Any]) -> None:
    study["spec"]["thresholds"]["peak_ratio"] = 0.9


def _without_a_shape() -> Bundle:
    """Nothing is said of it, neither by a record nor by a file."""
    gone = timeline_name("T=256 B=4")
    files = edited(STUDY, lambda study: study["not_recorded"].update({gone: "not measured"}))
    files = edited(CELLS, lambda cells: [c for c in cells if c["shape_key"] != "T=256 B=4"], files)
    del files[gone]
    return forged(files=files)


def _without_encoding() -> Bundle:
    def change(envelope: dict[str, Any]) -> None:
        made = signature_of(ANN, base64.b64decode(envelope["payload"]))
        envelope["signatures"][0]["sig"] = base64.b64encode(made).decode()

    return _envelope(change)


def _resigned_as_ann() -> Bundle:
    other = json.loads(sign(base64.b64decode(json.loads(honest().files[REPORT])["payload"]), EVE))
    other["signatures"][0]["keyid"] = fingerprint(ANN.public_key())
    return with_files({REPORT: canonical(other) + b"\n"})


def _renamed(name: str) -> Callable[[dict[str, Any]], None]:
    def change(statement: dict[str, Any]) -> None:
        statement["subject"][0]["name"] = name

    return change


def _twice(statement: dict[str, Any]) -> bytes:
    return canonical(statement).replace(b'"verdict":"adopt"', b'"verdict":"adopt","verdict":"adopt"', 1)


def _nan(statement: dict[str, Any]) -> bytes:
    return canonical(statement).replace(b'"threshold":0.82', b'"threshold":NaN', 1)


def _other_report() -> Bundle:
    return forged(files=evidence_from(studies.refused_by_legality))


def _swapped() -> Bundle:
    one, other = (f"evidence/{timeline_name(f'T={t} B=4')}" for t in (128, 256))
    files = edited(timeline_name("T=256 B=4"), lambda sides: sides | {"plain": None})
    bundle = forged(files=files)
    return with_files({one: bundle.files[other], other: bundle.files[one]}, bundle)


def _both_looser() -> Bundle:
    said = predicate()
    said["declared"]["thresholds"]["peak_ratio"] = 0.9
    return forged(said, edited(STUDY, _looser))


def _unsaid() -> Bundle:
    """A timeline is gone, and nothing says so."""
    files = evidence()
    del files[timeline_name("T=256 B=4")]
    return forged(files=files)


STUDY_FILE, CELLS_FILE = f"evidence/{STUDY}", f"evidence/{CELLS}"

# What was done -> how, the check that finds it, and its code.
TAMPERED: dict[str, tuple[Tamper, str, str]] = {
    # the envelope
    "verdict flipped": (
        lambda: _payload(lambda s: s["predicate"].update(verdict="keep_original")),
        "signer",
        "bad-signature",
    ),
    "threshold loosened": (
        lambda: _payload(lambda s: s["predicate"]["declared"]["thresholds"].update(peak_ratio=0.9)),
        "signer",
        "bad-signature",
    ),
    "payload re-serialised": (
        lambda: _payload(lambda s: json.dumps(s, indent=2).encode()),
        "signer",
        "bad-signature",
    ),
    "payload type swapped": (
        lambda: _envelope(lambda e: e.update(payloadType="application/json")),
        "envelope",
        "payload-type",
    ),
    "signatures stripped": (
        lambda: _envelope(lambda e: e.update(signatures=[])),
        "envelope",
        "no-signature",
    ),
    "signature emptied": (
        lambda: _envelope(lambda e: e["signatures"][0].update(sig="")),
        "envelope",
        "no-signature",
    ),
    "signed without the encoding": (_without_encoding, "signer", "bad-signature"),
    "re-signed under the same key id": (_resigned_as_ann, "signer", "bad-signature"),
    "signed by a stranger": (lambda: forged(key=EVE), "signer", "unknown-signer"),
    "key in the envelope twice": (
        lambda: _envelope(lambda e: canonical(e).replace(b"{", b'{"payload":"",', 1)),
        "envelope",
        "duplicate-key",
    ),
    "envelope truncated": (
        lambda: with_files({REPORT: honest().files[REPORT][:-40]}),
        "envelope",
        "not-json",
    ),
    "envelope empty": (lambda: with_files({REPORT: b""}), "envelope", "not-json"),
    "two envelopes": (
        lambda: with_files({REPORT: honest().files[REPORT] * 2}),
        "envelope",
        "not-json",
    ),
    "envelope missing": (lambda: with_files({REPORT: None}), "envelope", "file-missing"),
    "envelope spaced": (
        lambda: _envelope(lambda e: json.dumps(e).encode()),
        "envelope",
        "not-as-written",
    ),
    "key id of another": (
        lambda: _envelope(lambda e: e["signatures"][0].update(keyid=fingerprint(BOB.public_key()))),
        "envelope",
        "not-as-written",
    ),
    "key id taken away": (
        lambda: _envelope(lambda e: e["signatures"][0].pop("keyid") and None),
        "envelope",
        "not-as-written",
    ),
    "key id of the tests taken away": (
        lambda: _envelope(lambda e: e["signatures"][0].pop("keyid") and None, TESTS),
        "tests",
        "not-as-written",
    ),
    "signature added": (
        lambda: _envelope(
            lambda e: e["signatures"].append(json.loads(sign(b"{}", EVE))["signatures"][0])
        ),
        "envelope",
        "not-as-written",
    ),
    # the statement, signed by a trusted key
    "re-serialised and signed": (
        lambda: forged(change=lambda s: json.dumps(s, indent=1).encode()),
        "statement",
        "not-canonical",
    ),
    "key in the statement twice": (lambda: forged(change=_twice), "statement", "duplicate-key"),
    "not a number": (lambda: forged(change=_nan), "statement", "not-a-number"),
    "no statement": (lambda: forged(change=lambda s: b"adopt"), "statement", "not-json"),
    "statement of another version": (
        lambda: forged(change=lambda s: s.update(_type="https://in-toto.io/Statement/v2") or s),
        "statement",
        "statement-form",
    ),
    "another predicate": (
        lambda: forged(change=lambda s: s.update(predicateType="https://slsa.dev/provenance/v1") or s),
        "statement",
        "predicate-type",
    ),
    "the tests' statement in place of ours": (
        lambda: with_files({REPORT: honest().files[TESTS]}),
        "statement",
        "predicate-type",
    ),
    "name that climbs out": (
        lambda: forged(change=lambda s: _renamed("evidence/../../keys")(s) or s),
        "statement",
        "unsafe-name",
    ),
    "absolute name": (
        lambda: forged(change=lambda s: _renamed("/etc/passwd")(s) or s),
        "statement",
        "unsafe-name",
    ),
    "name in capitals too": (
        lambda: forged(change=lambda s: _renamed("evidence/STUDY.json")(s) or s),
        "statement",
        "duplicate-name",
    ),
    "something more in the predicate": (lambda: _said(trust="me"), "statement", "predicate-form"),
    "unknown verdict": (lambda: _said(verdict="adopted"), "statement", "predicate-form"),
    "another digest algorithm": (
        lambda: forged(change=lambda s: s["subject"][0].update(digest={"md5": "0" * 32}) or s),
        "statement",
        "statement-form",
    ),
    # the files
    "threshold loosened in the evidence": (
        lambda: with_files({STUDY_FILE: edited(STUDY, _looser)[STUDY]}),
        "evidence",
        "evidence-changed",
    ),
    "sample changed": (
        lambda: with_files({CELLS_FILE: edited(CELLS, _slower)[CELLS]}),
        "evidence",
        "evidence-changed",
    ),
    "evidence swapped": (_swapped, "evidence", "evidence-swapped"),
    "evidence missing": (lambda: with_files({CELLS_FILE: None}), "evidence", "evidence-missing"),
    "evidence added": (
        lambda: with_files({"evidence/more.json": b"{}"}),
        "evidence",
        "evidence-extra",
    ),
    "file added": (lambda: with_files({"README": b"trust me"}), "evidence", "evidence-extra"),
    "evidence not signed": (
        lambda: forged(change=lambda s: s["subject"].pop(1) and s),
        "evidence",
        "evidence-unsigned",
    ),
    "instructions changed": (
        lambda: with_files({VERIFY: b"all is well"}),
        "evidence",
        "evidence-changed",
    ),
    "page changed": (lambda: with_files({HTML: b"adopt!"}), "report.html", "html-changed"),
    "page missing": (lambda: with_files({HTML: None}), "evidence", "evidence-missing"),
    "tests missing": (lambda: with_files({TESTS: None}), "tests", "file-missing"),
    "tests of another report": (
        lambda: with_files({TESTS: _other_report().files[TESTS]}),
        "tests",
        "tests-differ",
    ),
    "tests signed by another": (lambda: forged(tests_key=BOB), "tests", "other-signer"),
    "tests signed by a stranger": (lambda: forged(tests_key=EVE), "tests", "unknown-signer"),
    "Sigstore's copy of another report": (
        lambda: with_files({SIGSTORE: _other_report().files[SIGSTORE]}),
        "copies",
        "sigstore-differs",
    ),
    "public key of another": (
        lambda: with_files({PUBLIC_KEY: public_pem(EVE.public_key()).encode()}),
        "copies",
        "public-key-differs",
    ),
    # what a trusted signer claims, and the evidence does not support
    "verdict without support": (lambda: _said(verdict="keep_original"), "verdict", "verdict-differs"),
    "threshold loosened and signed": (
        lambda: forged(
            predicate()
            | {
                "declared": predicate()["declared"]
                | {"thresholds": predicate()["declared"]["thresholds"] | {"peak_ratio": 0.9}}
            }
        ),
        "thresholds",
        "thresholds-differ",
    ),
    "threshold loosened everywhere but in the hash": (_both_looser, "spec_hash", "spec-hash"),
    "thresholds declared after the run": (
        lambda: forged(files=edited(STUDY, lambda s: s.update(declared_at="2999-01-01T00:00:00.000Z"))),
        "thresholds",
        "declared-late",
    ),
    "declared earlier than it was": (
        lambda: forged(
            predicate()
            | {"declared": predicate()["declared"] | {"declared_at": "2020-01-01T00:00:00.000Z"}}
        ),
        "thresholds",
        "thresholds-differ",
    ),
    "samples that contradict the verdict": (
        lambda: forged(files=edited(CELLS, _slower)),
        "gate: update_latency at T=128 B=4",
        "gate-differs",
    ),
    "gate made to pass": (
        lambda: forged(_gate(1, observed=0.1, ci95=[0.1, 0.1])),
        "gate: memory_saving at T=128 B=4",
        "gate-differs",
    ),
    "gate's own threshold loosened": (
        lambda: forged(_gate(2, threshold=9.0)),
        "gate: update_latency at T=128 B=4",
        "gate-differs",
    ),
    "gate of a shape left out": (
        lambda: forged(predicate() | {"shapes": predicate()["shapes"][:1]}),
        "gate: gradient_parity at T=256 B=4",
        "gate-differs",
    ),
    "shape never measured": (_without_a_shape, "gates", "incomplete"),
    "page that says something else": (
        lambda: forged(pages={HTML: honest().files[HTML].replace(b"1.200", b"1.000")}),
        "page",
        "page-differs",
    ),
    "page of another report": (
        lambda: forged(pages={HTML: _other_report().files[HTML]}),
        "page",
        "page-differs",
    ),
    "instructions that check nothing": (
        lambda: forged(pages={VERIFY: b"All is well."}),
        "page",
        "page-differs",
    ),
    "figures that were supplied": (
        lambda: forged(files=_finding("time", kind="supplied")),
        "records",
        "evidence-form",
    ),
    "peak that was estimated": (
        lambda: forged(files=_finding("memory", kind="estimated")),
        "records",
        "evidence-form",
    ),
    "file of no study, signed": (
        lambda: forged(files=evidence() | {"more.json": b"{}"}),
        "records",
        "evidence-form",
    ),
    "file left out, signed": (_unsaid, "records", "evidence-missing"),
    "noise made larger": (
        lambda: forged(files=_finding("parity", noise_floor=1)),
        "records",
        "records-disagree",
    ),
    "way back left out": (
        lambda: forged(files=_finding("parity", rollback=None)),
        "records",
        "records-disagree",
    ),
    "canary of another block": (
        lambda: forged(files=_finding("canary", block="head")),
        "records",
        "records-disagree",
    ),
    "claim withdrawn": (lambda: _said(not_claimed=["Nothing."]), "facts", "facts-differ"),
    "environment of another machine": (
        lambda: _said(environment=predicate()["environment"] | {"device_name": "H200"}),
        "facts",
        "facts-differ",
    ),
    "plan hash of another plan": (lambda: _said(plan_hash="sha256:0"), "facts", "facts-differ"),
    "figure slipped into the records": (
        lambda: forged(files=_finding("time", ratio_median=0.5)),
        "records",
        "evidence-form",
    ),
    "records of another plan": (
        lambda: forged(files=edited(CELLS, lambda c: _cell(c, "time").update(plan="every-2nd-block"))),
        "records",
        "evidence-form",
    ),
    "record twice": (
        lambda: forged(files=edited(CELLS, lambda c: [*c, c[0]])),
        "records",
        "evidence-form",
    ),
    "sources that never ran": (
        lambda: forged(files=edited(REVISIONS, lambda r: r.update(git_commit="0" * 40))),
        "records",
        "evidence-form",
    ),
    "candidate that was no plan": (
        lambda: forged(files=edited(STUDY, lambda s: s.update(candidate="none"))),
        "records",
        "evidence-form",
    ),
}


def test_the_honest_report_verifies() -> None:
    found = checked(honest())
    assert found.verified, found.sentence
    assert {check.outcome for check in found.checks} == {"pass"}
    assert found.predicate is not None
    assert found.predicate.verdict == "adopt"


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_is_refused_for_its_own_reason(what: str) -> None:
    tamper, check, code = TAMPERED[what]
    found = checked(tamper())
    assert not found.verified
    assert found.predicate is None
    assert (found.failures[0].id, found.failures[0].code) == (check, code), found.failures
    assert found.document()["code"] == code


@pytest.mark.parametrize("what", TAMPERED)
def test_after_trust_is_lost_nothing_more_is_looked_at(what: str) -> None:
    """And without records, or a decision that follows from them, there is nothing to compare."""
    tamper, check, _ = TAMPERED[what]
    after = [one.id for one in checked(tamper()).checks if one.outcome == "not_reached"]
    ends = {name: list((*TRUST, *SUPPORT)[place + 1 :]) for place, name in enumerate((*TRUST, *SUPPORT))}
    is_end = check in TRUST or check in ("records", "gates")
    assert after == (ends[check] if is_end else [])


def test_there_are_enough_of_them() -> None:
    assert len(TAMPERED) >= 25
    assert len({code for _, _, code in TAMPERED.values()}) >= 25


def test_a_revoked_or_expired_signer_is_refused() -> None:
    expiring = Signers().with_trust(ANN.public_key(), "ann", NOW, NOW + timedelta(hours=1))
    revoked = SIGNERS.without_trust(SIGNERS.find("ann"), NOW)
    for signers, code in ((expiring, "expired-signer"), (revoked, "revoked-signer")):
        found = verify(honest(), signers, LATER)
        assert (found.failures[0].id, found.failures[0].code) == ("signer", code)
    assert verify(honest(), expiring, NOW).verified


def test_the_gate_that_its_samples_do_not_support_is_named_with_both_figures() -> None:
    found = checked(forged(files=edited(CELLS, _slower)))
    first = found.failures[0]
    assert "the report says pass (1.2, 1.19 to 1.22, threshold 1.35)" in first.sentence
    assert "its own samples give fail (2.4, 2.38 to 2.44, threshold 1.35)" in first.sentence
    assert [check.id for check in found.failures] == [
        "gate: update_latency at T=128 B=4",
        "verdict",
        "facts",
    ], "and the page is that of these samples"
    passed = [check.id for check in found.checks if check.outcome == "pass"]
    assert "gate: update_latency at T=256 B=4" in passed


@given(st.data())
@unhurried
def test_any_flipped_bit_of_any_file_is_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(honest().files)))
    content = bytearray(honest().files[name])
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    found = checked(with_files({name: bytes(content)}))
    assert not found.verified
    assert all(one.outcome != "fail" or one.code for one in found.checks)


@given(st.data())
@unhurried
def test_a_flipped_bit_of_a_zip_is_refused_or_changes_no_file(data: st.DataObject) -> None:
    content = bytearray(zip_of(honest()))
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    found = verify_zip(bytes(content), SIGNERS, LATER)
    if found.verified:  # a time stamp or the like, which is no part of any file
        assert found.document() == checked(honest()).document()


@given(st.data())
@unhurried
def test_bytes_missing_at_the_end_of_any_file_are_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(honest().files)))
    content = honest().files[name]
    kept = data.draw(st.integers(0, len(content) - 1))
    assert not checked(with_files({name: content[:kept]})).verified


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in pairs:
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += _places(inner, (*path, key))
    return found


ODD = st.sampled_from([None, True, -1, 0, 1e300, 2**63, "", "x", [], {}, [None], {"a": 1}, "none"])


@given(st.data())
@unhurried
def test_a_trusted_signer_cannot_crash_the_verifier(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([STUDY, CELLS, REVISIONS, timeline_name("T=128 B=4")]))
    value = json.loads(evidence()[name])
    path = data.draw(st.sampled_from(_places(value)))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = data.draw(ODD)
    found = checked(forged(files=evidence() | {name: canonical(value)}))
    json.dumps(found.document(), allow_nan=False)


@given(st.data())
@unhurried
def test_whatever_else_a_trusted_signer_says_is_refused(data: st.DataObject) -> None:
    said = json.loads(canonical(predicate()))
    path = data.draw(st.sampled_from(_places(said)))
    inner = said
    for key in path[:-1]:
        inner = inner[key]
    before = inner[path[-1]]
    inner[path[-1]] = data.draw(ODD.filter(lambda value: canonical(value) != canonical(before)))
    assert not checked(forged(said)).verified


def test_a_timeline_without_marks_is_read_like_any_other() -> None:
    name = timeline_name("T=128 B=4")
    value = json.loads(evidence()[name])
    value["candidate"]["marks"] = []
    found = checked(forged(files=evidence() | {name: canonical(value)}))
    json.dumps(found.document(), allow_nan=False)
