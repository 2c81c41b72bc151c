"""Evidence and a key in, a signed report out; what comes out has passed our own verification."""

from dataclasses import dataclass
from datetime import UTC, datetime

from .bundle import EVIDENCE, PUBLIC_KEY, REPORT, SIGSTORE, TESTS, Bundle
from .envelope import sign, sigstore_bundle
from .evidence import Evidence, Found
from .keys import PrivateKey, public_pem
from .predicate import Predicate, concluded
from .read_evidence import read_evidence
from .readable import readable
from .signers import Signers
from .statement import Decision, decision, digests_of, gates_as_tests
from .supplied import SuppliedDecision, SuppliedFound, decide_supplied, read_supplied_evidence
from .verify import verify


@dataclass(frozen=True)
class Released:
    """A signed report."""

    bundle: Bundle
    predicate: Predicate


@dataclass(frozen=True)
class ReleasedSupplied:
    """A signed report on supplied figures."""

    bundle: Bundle
    predicate: SuppliedDecision


def release(evidence: Evidence, key: PrivateKey) -> Released:
    """The report that follows from evidence, signed. Raises Untrusted as `derive` does."""
    found = read_evidence(evidence)
    predicate = concluded(found)
    return Released(_signed(predicate, found, key), predicate)


def release_supplied(evidence: Evidence, key: PrivateKey) -> ReleasedSupplied:
    """The report that follows from supplied figures, signed. Raises Untrusted as `derive_supplied`."""
    found = read_supplied_evidence(evidence)
    predicate = decide_supplied(found)
    return ReleasedSupplied(_signed(predicate, found, key), predicate)


def _signed(said: Decision, found: Found | SuppliedFound, key: PrivateKey) -> Bundle:
    public = key.public_key()
    files = {EVIDENCE + name: data for name, data in found.files.items()}
    files |= readable(said, found, public)
    digests = digests_of(files)
    envelope = sign(decision(said, digests), key)
    files |= {
        REPORT: envelope,
        TESTS: sign(gates_as_tests(said, digests), key),
        SIGSTORE: sigstore_bundle(envelope, public),
        PUBLIC_KEY: public_pem(public).encode(),
    }
    bundle = Bundle(files)
    now = datetime.now(UTC)
    checked = verify(bundle, Signers().with_trust(public, "signer", now), now)
    if not checked.verified:
        raise RuntimeError(f"our own verification refuses what was signed: {checked.sentence}")
    return bundle
