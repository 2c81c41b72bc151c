"""Evidence and a key in, a signed report out; what comes out has passed our own verification."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from .bundle import EVIDENCE, HTML, PUBLIC_KEY, REPORT, SIGSTORE, TESTS, Bundle
from .envelope import sign, sigstore_bundle
from .evidence import Evidence
from .instructions import NAME as VERIFY
from .instructions import instructions
from .keys import PrivateKey, public_pem
from .predicate import Predicate, derive
from .signers import Signers
from .statement import Decision, decision, digests_of, gates_as_tests
from .supplied import SuppliedDecision, derive_supplied
from .verify import verify

Render = Callable[[Predicate, Evidence], bytes]
"""Makes report.html."""


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


def release(evidence: Evidence, key: PrivateKey, render: Render | None = None) -> Released:
    """The report that follows from evidence, signed. Raises Untrusted as `derive` does."""
    predicate = derive(evidence)
    page = (render or _render)(predicate, evidence)
    return Released(_signed(predicate, evidence, page, key), predicate)


def release_supplied(evidence: Evidence, key: PrivateKey) -> ReleasedSupplied:
    """The report that follows from supplied figures, signed. Raises Untrusted as `derive_supplied`."""
    from .html_supplied import render_supplied

    predicate = derive_supplied(evidence)
    page = render_supplied(predicate, evidence)
    return ReleasedSupplied(_signed(predicate, evidence, page, key), predicate)


def _signed(predicate: Decision, evidence: Evidence, page: bytes, key: PrivateKey) -> Bundle:
    public = key.public_key()
    files = {EVIDENCE + name: data for name, data in evidence.items()}
    is_measured = isinstance(predicate, Predicate)
    files |= {HTML: page, VERIFY: instructions(public, is_measured)}
    digests = digests_of(files)
    envelope = sign(decision(predicate, digests), key)
    files |= {
        REPORT: envelope,
        TESTS: sign(gates_as_tests(predicate, digests), key),
        SIGSTORE: sigstore_bundle(envelope, public),
        PUBLIC_KEY: public_pem(public).encode(),
    }
    bundle = Bundle(files)
    now = datetime.now(UTC)
    found = verify(bundle, Signers().with_trust(public, "signer", now), now)
    assert found.verified, f"our own verification refuses it: {found.sentence}"
    return bundle


def _render(predicate: Predicate, evidence: Evidence) -> bytes:
    from .html import render

    return render(predicate, evidence)
