"""Signed envelopes: DSSE v1 (github.com/secure-systems-lab/dsse), also as a Sigstore bundle v0.3.

What is signed is the payload's bytes and its type, never JSON: no reader has to agree with another on
how a statement is written. Unknown fields are ignored, as DSSE demands.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .keys import PrivateKey, PublicKey, fingerprint, is_signed_by, signature_of
from .refusal import Untrusted, quoted
from .signers import Signer, Signers
from .strict_json import canonical, parse

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MOST_BYTES = 4_000_000
"""Bytes of an envelope or a bundle, at most."""
_MOST_VALUES = 100_000
"""It holds a payload and a few signatures; nobody has signed anything else in it."""
MOST_SIGNATURES = 16


@dataclass(frozen=True)
class Opened:
    """What a trusted key has signed."""

    payload: bytes
    """The very bytes that verified; nothing has parsed them yet."""
    signer: Signer
    """Whose key it was; known by the signature, whatever the envelope says."""
    key_id: str
    """What its signature calls that key; written by nobody knows whom."""
    warnings: tuple[str, ...]
    """What is odd about the envelope and changes nothing: sentences."""


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed in place of the payload alone."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, key: PrivateKey) -> bytes:
    """One envelope over an in-toto statement, a line of JSON; the same input gives the same bytes."""
    signature = {
        "keyid": fingerprint(key.public_key()),
        "sig": _base64(signature_of(key, pae(PAYLOAD_TYPE, payload))),
    }
    return _line({"payloadType": PAYLOAD_TYPE, "payload": _base64(payload), "signatures": [signature]})


def open_envelope(data: bytes, signers: Signers, now: datetime) -> Opened:
    """What is in an envelope, if a key that is trusted `now` has signed it.

    Raises Untrusted: not-an-envelope, ambiguous-field, payload-type, not-base64, no-signature,
    too-many-signatures, unknown-signer, bad-signature, expired-signer, revoked-signer, and as `parse`.
    """
    envelope = _read(_parsed(data, "the envelope"))
    message = pae(PAYLOAD_TYPE, envelope.payload)
    makers = tuple(_maker(signature, signers, message) for signature in envelope.signatures)
    trusted = next((one for one in makers if one is not None and one.state(now) == "trusted"), None)
    if trusted is None:
        raise _refusal(envelope, signers, makers, now)
    key_id = envelope.signatures[makers.index(trusted)].key_id
    return Opened(envelope.payload, trusted, key_id, tuple(_oddities(envelope, makers, trusted)))


def sigstore_bundle(envelope: bytes, public_key: PublicKey) -> bytes:
    """The same payload and signature as a Sigstore bundle v0.3; the key goes by its fingerprint.

    Raises Untrusted when it is no envelope of ours, or has several signatures, which no bundle may.
    """
    dsse = _read(_parsed(envelope, "the envelope"))
    _check_one_signature(dsse)
    return _line(
        {
            "mediaType": BUNDLE_TYPE,
            "verificationMaterial": {"publicKey": {"hint": fingerprint(public_key)}, "tlogEntries": []},
            "dsseEnvelope": dsse.document(),
        }
    )


def envelope_of_bundle(data: bytes) -> bytes:
    """The envelope in a Sigstore bundle, byte for byte as `sign` writes it; nothing is verified yet.

    Raises Untrusted: not-a-bundle, no-signature, too-many-signatures, and as `open_envelope` does.
    """
    what = "the bundle"
    bundle = _parsed(data, what)
    if not isinstance(bundle, dict) or bundle.get("mediaType") != BUNDLE_TYPE:
        raise Untrusted("not-a-bundle", f"{what}: expected a Sigstore bundle of type {BUNDLE_TYPE}")
    material = bundle.get("verificationMaterial")
    if not isinstance(material, dict) or not isinstance(material.get("publicKey"), dict):
        raise Untrusted("not-a-bundle", f"{what}: expected a public key as its verification material")
    dsse = _read(bundle.get("dsseEnvelope"))
    _check_one_signature(dsse)
    return _line(dsse.document())


# --- reading an envelope ---------------------------------------------------------------------


def _parsed(data: bytes, what: str) -> Any:
    return parse(data, most_bytes=MOST_BYTES, what=what, most_values=_MOST_VALUES)


@dataclass(frozen=True)
class _Signature:
    key_id: str
    """Written by nobody knows whom, and empty or not it decides nothing."""
    made: bytes


@dataclass(frozen=True)
class _Envelope:
    payload: bytes
    signatures: tuple[_Signature, ...]

    def document(self) -> dict[str, Any]:
        signatures = [{"keyid": one.key_id, "sig": _base64(one.made)} for one in self.signatures]
        return {
            "payloadType": PAYLOAD_TYPE,
            "payload": _base64(self.payload),
            "signatures": [{name: text for name, text in one.items() if text} for one in signatures],
        }


def _read(raw: Any) -> _Envelope:
    """An envelope that is as it should be, its signatures aside."""
    what = "the envelope"
    payload_type = _field(raw, "payloadType", str, what)
    if payload_type != PAYLOAD_TYPE:
        raise Untrusted("payload-type", f"{what}: holds {quoted(payload_type)}; expected {PAYLOAD_TYPE}")
    payload = _bytes(_field(raw, "payload", str, what), f"{what}: the payload")
    listed = _field(raw, "signatures", list, what, [])
    if len(listed) > MOST_SIGNATURES:
        raise Untrusted(
            "too-many-signatures",
            f"{what}: {len(listed)} signatures; at most {MOST_SIGNATURES} are read",
        )
    signatures = tuple(_read_signature(one) for one in listed)
    if not signatures:
        raise Untrusted("no-signature", f"{what}: nobody has signed it")
    return _Envelope(payload, signatures)


def _read_signature(raw: Any) -> _Signature:
    what = "a signature of the envelope"
    made = _bytes(_field(raw, "sig", str, what), what)
    if not made:
        raise Untrusted("no-signature", f"{what}: is empty")
    return _Signature(_field(raw, "keyid", str, what, ""), made)


def _field(raw: Any, name: str, kind: type, what: str, default: Any = None) -> Any:
    """A field of an object. A reader that takes `Payload` for `payload` must not find another one."""
    if not isinstance(raw, dict):
        raise Untrusted("not-an-envelope", f"{what}: expected a JSON object")
    if other := next((one for one in raw if one != name and one.casefold() == name.casefold()), None):
        raise Untrusted("ambiguous-field", f"{what}: {quoted(other)} is too like {name}")
    value = raw.get(name, default)
    if not isinstance(value, kind):
        expected = "a list" if kind is list else "a text"
        raise Untrusted("not-an-envelope", f"{what}: expected {name}, {expected}")
    return value


def _bytes(text: str, what: str) -> bytes:
    """Base64 in its one standard form: no line breaks, no other alphabet, no stray bits at the end."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        found = b""
    if _base64(found) != text:
        raise Untrusted("not-base64", f"{what}: is not canonical base64 of the standard alphabet")
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _line(document: Any) -> bytes:
    return canonical(document) + b"\n"


def _check_one_signature(envelope: _Envelope) -> None:
    if len(envelope.signatures) > 1:
        raise Untrusted("too-many-signatures", "the bundle: holds more than one signature")


# --- whose signature it is -------------------------------------------------------------------


def _maker(signature: _Signature, signers: Signers, message: bytes) -> Signer | None:
    """Whose key made it, in the order of the verifier's file: the key id cannot choose among them."""
    return next((one for one in signers.signers if is_signed_by(one.key, signature.made, message)), None)


def _refusal(
    envelope: _Envelope, signers: Signers, makers: tuple[Signer | None, ...], now: datetime
) -> Untrusted:
    """Why none of the signatures counts."""
    for signer in filter(None, makers):
        if signer.revoked_at is not None:
            return Untrusted(
                "revoked-signer",
                f"signed with the key of {signer.name}, revoked on {signer.revoked_at:%Y-%m-%d}",
            )
        return Untrusted(
            "expired-signer",
            f"signed with the key of {signer.name}, expired on {signer.expires_at:%Y-%m-%d}",
        )
    named = {one.key_id for one in envelope.signatures}
    for signer in signers.signers:
        if signer.fingerprint in named:
            return Untrusted(
                "bad-signature",
                f"names the key of {signer.name}, which did not sign this: the payload or the signature "
                "was changed, or somebody else signed it",
            )
    hints = ", ".join(quoted(hint) for hint in sorted(named) if hint)
    return Untrusted("unknown-signer", f"signed with no key that you trust; it names {hints or 'none'}")


def _oddities(envelope: _Envelope, makers: tuple[Signer | None, ...], trusted: Signer) -> Iterator[str]:
    for signature, maker in zip(envelope.signatures, makers, strict=True):
        if maker is None:
            yield "A further signature is of no key that you trust."
        elif signature.key_id not in ("", maker.fingerprint):
            yield f"The key id {quoted(signature.key_id)} is not that of the key that signed."
        if maker not in (None, trusted):
            yield f"A further signature is of {maker.name}."
