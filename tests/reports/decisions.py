"""Reports for the tests: from made-up studies, honestly released or forged piece by piece."""

import base64
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from recompute_core.reports.bundle import EVIDENCE, HTML, PUBLIC_KEY, REPORT, SIGSTORE, TESTS, Bundle
from recompute_core.reports.envelope import sign, sigstore_bundle
from recompute_core.reports.evidence import Evidence, gather
from recompute_core.reports.instructions import NAME as VERIFY
from recompute_core.reports.keys import PrivateKey, public_pem
from recompute_core.reports.predicate import Predicate, concluded
from recompute_core.reports.read_evidence import read_evidence
from recompute_core.reports.readable import readable
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.release import release
from recompute_core.reports.statement import decision, digests_of, gates_as_tests
from recompute_core.reports.strict_json import canonical
from recompute_core.reports.verification import Verification
from recompute_core.reports.verify import verify
from recompute_core.studies.store import Store
from tests.pages import studies
from tests.reports.signing import ANN, LATER, SIGNERS

PLAN = "every-block"


def evidence_from(make: Callable[[Store], str], plan: str = PLAN) -> dict[str, bytes]:
    """The evidence of a study that `make` fills into a new store."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        try:
            return gather(store, make(store), plan)
        finally:
            store.close()


@cache
def _evidence() -> dict[str, bytes]:
    return evidence_from(studies.filled)


def evidence() -> dict[str, bytes]:
    """Of a study of two shapes whose every gate passes; the same in every call."""
    return dict(_evidence())


@cache
def honest(key: PrivateKey = ANN) -> Bundle:
    """The report of that study."""
    return release(evidence(), key).bundle


def predicate() -> dict[str, Any]:
    """What that report says, as a mapping to be changed."""
    return dict(payload_of(honest().files[REPORT])["predicate"])


def payload_of(envelope: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    return found


def forged(
    said: dict[str, Any] | None = None,
    files: Evidence | None = None,
    key: PrivateKey = ANN,
    change: Callable[[dict[str, Any]], Any] = lambda statement: statement,
    tests_key: PrivateKey | None = None,
    pages: Evidence | None = None,
) -> Bundle:
    """A report that says what it likes, over whatever evidence, signed as it should be.

    `change` works on the statement before it is signed; bytes that it returns are signed as they are.
    `pages` are report.html and VERIFY.md, where they are not those of the evidence.
    """
    said = predicate() if said is None else said
    files = files or evidence()
    made = {EVIDENCE + name: data for name, data in files.items()}
    made |= page(tuple(sorted(files.items())), key) | (pages or {})
    digests = digests_of(made)
    try:
        model = Predicate.model_validate(said)
    except ValueError:
        model = Predicate.model_validate(predicate())
    statement = json.loads(decision(model, digests))
    changed = change(statement | {"predicate": said})
    payload = changed if isinstance(changed, bytes) else canonical(changed)
    envelope = sign(payload, key)
    return Bundle(
        made
        | {
            REPORT: envelope,
            TESTS: sign(gates_as_tests(model, digests), tests_key or key),
            SIGSTORE: sigstore_bundle(envelope, key.public_key()),
            PUBLIC_KEY: public_pem(key.public_key()).encode(),
        }
    )


@lru_cache(maxsize=16)
def page(files: tuple[tuple[str, bytes], ...], key: PrivateKey) -> dict[str, bytes]:
    """report.html and VERIFY.md as they follow from evidence; where nothing does, those of another."""
    try:
        found = read_evidence(dict(files))
        return readable(concluded(found), found, key.public_key())
    except Untrusted:
        return {name: honest(key).files[name] for name in (HTML, VERIFY)}


def with_files(changes: Mapping[str, bytes | None], bundle: Bundle | None = None) -> Bundle:
    """A report some of whose files are others, or are gone."""
    files = {**(bundle or honest()).files, **changes}
    return Bundle({name: data for name, data in files.items() if data is not None})


def edited(name: str, change: Callable[[Any], Any], files: Evidence | None = None) -> dict[str, bytes]:
    """Evidence with one JSON file changed in place."""
    found = dict(files or evidence())
    value = json.loads(found[name])
    found[name] = canonical(change(value) or value)
    return found


def checked(bundle: Bundle) -> Verification:
    return verify(bundle, SIGNERS, LATER)
