"""Measurements for the tests, as a trainer would write them."""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any

from recompute_core.reports.bundle import EVIDENCE, PUBLIC_KEY, REPORT, SIGSTORE, TESTS, Bundle
from recompute_core.reports.envelope import sign, sigstore_bundle
from recompute_core.reports.evidence import Evidence
from recompute_core.reports.keys import public_pem
from recompute_core.reports.readable import readable
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.release import ReleasedSupplied, release_supplied
from recompute_core.reports.statement import DECISION_TYPE, SUPPLIED_TYPE, digests_of, gates_as_tests
from recompute_core.reports.strict_json import canonical
from recompute_core.reports.supplied import (
    SuppliedDecision,
    decide_supplied,
    gather_supplied,
    read_supplied_evidence,
)
from recompute_core.spec import Thresholds
from tests.reports.signing import ANN

RECEIVED = datetime(2026, 11, 29, 11, 0, tzinfo=UTC)
RATIOS = (1.20, 1.22, 1.24, 1.26, 1.28, 1.30, 1.32)


def measurements(**changes: Any) -> dict[str, Any]:
    """Every gate of them passes; None takes a field out."""
    found = {
        "schema": "recompute-measurements/1",
        "workload": "our 7B model",
        "plan": "every-block",
        "shape": {"seq_len": 2048, "batch": 8},
        "peak_allocated_bytes": {"plain": [80_000_000_000], "candidate": [40_000_000_000]},
        "update_s": {"pairs": [[1.0, ratio] for ratio in RATIOS]},
        "gradients": {"largest_gradient_gap": 3e-07, "largest_relative_gap": 2e-06},
        "supplied_by": "Ada",
        "provenance": {"machine": "8 x H200", "torch": "2.13.0"},
    } | changes
    return {name: value for name, value in found.items() if value is not None}


def as_bytes(raw: Any) -> bytes:
    return json.dumps(raw).encode()


CSV = """\
plain_update_s,candidate_update_s,plain_peak_allocated_bytes,candidate_peak_allocated_bytes,\
largest_gradient_gap,largest_relative_gap,workload,plan,shape,supplied_by,provenance.machine,provenance.torch
1.0,1.20,80000000000,4e10,3e-07,2e-06,our 7B model,every-block,seq_len=2048 batch=8,Ada,8 x H200,2.13.0
1.0,1.22,,,1e-07,,,,,,,
1.0,1.24,,,,,our 7B model,every-block,,,,
1.0,1.26,,,,,,,,,,
1.0,1.28,,,,,,,,,,
1.0,1.30,,,,,,,,,,

1.0,1.32,,,,,,,,,,
"""
"""The same measurements."""


def evidence(name: str = "m.json", data: bytes | None = None, **limits: float) -> dict[str, bytes]:
    return gather_supplied(data or as_bytes(measurements()), name, Thresholds(**limits), RECEIVED)


@cache
def honest() -> ReleasedSupplied:
    """The report on them."""
    return release_supplied(evidence(), ANN)


def said() -> dict[str, Any]:
    """What it says, to be changed."""
    return honest().predicate.document()


def _readable(files: Evidence) -> dict[str, bytes]:
    """The page as it follows from evidence; where nothing does, that of another."""
    try:
        found = read_supplied_evidence(files)
    except (Untrusted, KeyError):
        found = read_supplied_evidence(evidence())
    return readable(decide_supplied(found), found, ANN.public_key())


def forged(
    predicate: dict[str, Any] | None = None, files: Evidence | None = None, kind: str = SUPPLIED_TYPE
) -> Bundle:
    """A report that a trusted key signs, whatever it says, over whatever evidence."""
    public = ANN.public_key()
    made = {EVIDENCE + name: data for name, data in (files or evidence()).items()}
    made |= _readable(files or evidence())
    digests = digests_of(made)
    predicate = predicate or said()
    try:
        model = SuppliedDecision.model_validate(predicate)
    except ValueError:
        model = honest().predicate
    subjects = [{"name": name, "digest": {"sha256": one}} for name, one in digests.items()]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": kind,
        "predicate": predicate,
    }
    assert kind in (SUPPLIED_TYPE, DECISION_TYPE)
    envelope = sign(canonical(statement), ANN)
    return Bundle(
        made
        | {
            REPORT: envelope,
            TESTS: sign(gates_as_tests(model, digests), ANN)
            if model.ASKED in digests
            else sign(b"{}", ANN),
            SIGSTORE: sigstore_bundle(envelope, public),
            PUBLIC_KEY: public_pem(public).encode(),
        }
    )
