"""What we sign, others verify with tools that know nothing of us; and what others sign, we open."""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from recompute_core.reports.envelope import (
    PAYLOAD_TYPE,
    envelope_of_bundle,
    open_envelope,
    sign,
    sigstore_bundle,
)
from recompute_core.reports.keys import PrivateKey, fingerprint, public_pem, signature_of
from recompute_core.reports.strict_json import canonical
from tests import debian
from tests.reports.signing import ANN, BOB, EVE, LATER, PAYLOAD, SIGNERS, fields, signature, written

HERE = Path(__file__).parent
BOTH = pytest.mark.parametrize("key", [ANN, BOB])
Verifier = Callable[[bytes, PrivateKey], bytes]


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    """OpenSSL and Node, installed where they are missing."""
    debian.main()


@pytest.fixture(params=["openssl", "node", "securesystemslib"])
def verified(request: pytest.FixtureRequest, tmp_path: Path) -> Verifier:
    """The payload of an envelope, if that tool finds it signed by that key; else it raises."""

    def by_program(data: bytes, key: PrivateKey) -> bytes:
        (tmp_path / "report.intoto.jsonl").write_bytes(data)
        (tmp_path / "public_key.pem").write_text(public_pem(key.public_key()))
        words = {
            "openssl": ["sh", "-e", str(HERE / "verify_with_openssl.sh")],
            "node": ["node", str(HERE / "verify_with_node.mjs")],
        }[request.param]
        files = ["report.intoto.jsonl", "public_key.pem"]
        return subprocess.run([*words, *files], cwd=tmp_path, capture_output=True, check=True).stdout

    def by_library(data: bytes, key: PrivateKey) -> bytes:
        envelope = Envelope.from_dict(json.loads(data))
        public = SSlibKey.from_crypto(key.public_key(), keyid=fingerprint(key.public_key()))
        assert list(envelope.verify([public], 1)) == [fingerprint(key.public_key())]
        return bytes(envelope.payload)

    return by_library if request.param == "securesystemslib" else by_program


REFUSED = (subprocess.CalledProcessError, VerificationError)


@BOTH
@pytest.mark.parametrize("payload", [PAYLOAD, b"", b"\n\n", bytes(range(256)) * 800, "é\u2028".encode()])
def test_others_verify_what_we_sign(verified: Verifier, key: PrivateKey, payload: bytes) -> None:
    assert verified(sign(payload, key), key) == payload


@BOTH
def test_others_refuse_what_we_refuse(verified: Verifier, key: PrivateKey) -> None:
    name = fingerprint(key.public_key())
    other_payload = fields(key) | {"payload": base64.b64encode(PAYLOAD + b" ").decode()}
    without_encoding = fields(key) | {"signatures": [signature(signature_of(key, PAYLOAD), key)]}
    somebody_elses = fields(key) | {"signatures": [fields(EVE)["signatures"][0] | {"keyid": name}]}
    for changed in (other_payload, without_encoding, somebody_elses):
        with pytest.raises(REFUSED):
            verified(canonical(changed), key)


@BOTH
def test_others_verify_the_envelope_of_a_bundle(verified: Verifier, key: PrivateKey) -> None:
    bundle = sigstore_bundle(sign(PAYLOAD, key), key.public_key())
    assert verified(envelope_of_bundle(bundle), key) == PAYLOAD


@BOTH
def test_we_open_what_securesystemslib_signs(key: PrivateKey) -> None:
    public = SSlibKey.from_crypto(key.public_key(), keyid="whatever")
    envelope = Envelope(PAYLOAD, PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(key, public))
    found = open_envelope(written(envelope.to_dict()), SIGNERS, LATER)
    assert (found.payload, found.signer.fingerprint) == (PAYLOAD, fingerprint(key.public_key()))


@BOTH
def test_openssl_and_sha256sum_compute_the_fingerprint(key: PrivateKey, tmp_path: Path) -> None:
    (tmp_path / "k.pem").write_text(public_pem(key.public_key()))
    line = "openssl pkey -pubin -in k.pem -outform DER | sha256sum"
    shown = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "sha256:" + shown.stdout.split()[0] == fingerprint(key.public_key())
