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
from .statement import decision, digests_of, gates_as_tests
from .verify import verify

Render = Callable[[Predicate, Evidence], bytes]
"""Makes report.html."""


@dataclass(frozen=True)
class Released:
    """A signed report."""

    bundle: Bundle
    predicate: Predicate


def release(evidence: Evidence, key: PrivateKey, render: Render | None = None) -> Released:
    """The report that follows from evidence, signed. Raises Untrusted as `derive` does."""
    predicate = derive(evidence)
    public = key.public_key()
    files = {EVIDENCE + name: data for name, data in evidence.items()}
    files |= {HTML: (render or _render)(predicate, evidence), VERIFY: instructions(public)}
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
    return Released(bundle, predicate)


def _render(predicate: Predicate, evidence: Evidence) -> bytes:
    from .html import render

    return render(predicate, evidence)
