"""Keys, signers and envelopes for the tests, the same in every run."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, settings

from recompute_core.reports.envelope import sign
from recompute_core.reports.keys import PrivateKey, fingerprint
from recompute_core.reports.signers import Signers

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
ANN: PrivateKey = ec.derive_private_key(0xA11, ec.SECP256R1())
BOB: PrivateKey = Ed25519PrivateKey.from_private_bytes(b"bob" + bytes(29))
EVE: PrivateKey = ec.derive_private_key(0xE5E, ec.SECP256R1())
SIGNERS = Signers().with_trust(ANN.public_key(), "ann", NOW).with_trust(BOB.public_key(), "bob", NOW)
LATER = NOW + timedelta(days=1)
PAYLOAD = b'{"decision":"adopt","threshold":0.82}'

# A busy machine makes an example slow, and that is no finding.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)


def fields(key: PrivateKey = ANN, payload: bytes = PAYLOAD) -> dict[str, Any]:
    """An envelope as a mapping, to be changed."""
    found: dict[str, Any] = json.loads(sign(payload, key))
    return found


def written(envelope: Any) -> bytes:
    return json.dumps(envelope).encode()


def signature(made: bytes, key: PrivateKey = ANN) -> dict[str, str]:
    """A signature that claims to be of this key."""
    return {"keyid": fingerprint(key.public_key()), "sig": base64.b64encode(made).decode()}
