"""Signed envelopes: what verifies, and that nothing else does."""

import base64
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.reports import envelope as envelopes
from recompute_core.reports.envelope import (
    PAYLOAD_TYPE,
    Opened,
    envelope_of_bundle,
    open_envelope,
    pae,
    sign,
    sigstore_bundle,
)
from recompute_core.reports.keys import PrivateKey, fingerprint, is_signed_by, signature_of
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.signers import Signers
from recompute_core.reports.strict_json import parse
from tests.reports.signing import (
    ANN,
    BOB,
    EVE,
    LATER,
    NOW,
    PAYLOAD,
    SIGNERS,
    fields,
    signature,
    unhurried,
    written,
)

BOTH = pytest.mark.parametrize(("key", "name"), [(ANN, "ann"), (BOB, "bob")])


def opened(data: bytes, signers: Signers = SIGNERS) -> Opened:
    return open_envelope(data, signers, LATER)


def refusal(data: bytes, signers: Signers = SIGNERS) -> str:
    with pytest.raises(Untrusted) as refused:
        opened(data, signers)
    return refused.value.code


# --- what verifies ---------------------------------------------------------------------------


def test_the_encoding_is_that_of_the_specification() -> None:
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == expected
    assert pae("é", b"") == b"DSSEv1 2 \xc3\xa9 0 "


def test_rfc_6979_signs_as_its_own_example() -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    secret = 0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721
    key = ec.derive_private_key(secret, ec.SECP256R1())
    assert decode_dss_signature(signature_of(key, b"sample")) == (
        0xEFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716,
        0xF7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8,
    )


@BOTH
def test_signed_is_opened_and_signing_again_gives_the_same_bytes(key: PrivateKey, name: str) -> None:
    data = sign(PAYLOAD, key)
    found = opened(data)
    assert (found.payload, found.signer.name, found.warnings) == (PAYLOAD, name, ())
    assert sign(PAYLOAD, key) == data
    assert data.count(b"\n") == 1 and data.endswith(b"}\n")


@unhurried
@given(st.binary(), st.sampled_from([ANN, BOB]))
def test_any_payload_comes_back(payload: bytes, key: PrivateKey) -> None:
    found = opened(sign(payload, key))
    assert found.payload == payload
    assert found.signer.fingerprint == fingerprint(key.public_key())


@pytest.mark.parametrize(
    "hint", ["", "zzz", fingerprint(EVE.public_key()), fingerprint(BOB.public_key())]
)
def test_the_key_id_decides_nothing(hint: str) -> None:
    changed = fields()
    changed["signatures"][0]["keyid"] = hint
    found = opened(written(changed))
    assert (found.payload, found.signer.name) == (PAYLOAD, "ann")
    assert len(found.warnings) == (1 if hint else 0)
    del changed["signatures"][0]["keyid"]
    assert opened(written(changed)).warnings == ()


def test_unknown_fields_are_ignored_as_dsse_demands() -> None:
    changed = fields() | {"note": "x"}
    changed["signatures"][0]["cert"] = None
    assert opened(written(changed)) == opened(sign(PAYLOAD, ANN))


@pytest.mark.parametrize("place", [0, 1])
def test_one_trusted_signature_of_several_is_enough_and_the_others_are_said(place: int) -> None:
    changed = fields()
    changed["signatures"].insert(place, fields(EVE)["signatures"][0])
    found = opened(written(changed))
    assert found.signer.name == "ann"
    assert found.warnings == ("A further signature is of no key that you trust.",)
    both = fields()
    both["signatures"].insert(place, fields(BOB)["signatures"][0])
    assert len(opened(written(both)).warnings) == 1


# --- what does not ---------------------------------------------------------------------------


def without(name: str) -> dict[str, Any]:
    return {field: value for field, value in fields().items() if field != name}


def with_payload(payload: bytes) -> dict[str, Any]:
    return fields() | {"payload": base64.b64encode(payload).decode()}


def with_signature(made: dict[str, str]) -> dict[str, Any]:
    return fields() | {"signatures": [made]}


def with_text(name: str, change: Callable[[str], str]) -> dict[str, Any]:
    changed = fields(payload=b"ab")
    if name == "sig":
        changed["signatures"][0]["sig"] = change(changed["signatures"][0]["sig"])
    else:
        changed[name] = change(changed[name])
    return changed


GOOD = sign(PAYLOAD, ANN)
MESSAGE = pae(PAYLOAD_TYPE, PAYLOAD)
OTHER_TYPE = pae("application/json", PAYLOAD)


@pytest.mark.parametrize(
    ("code", "data"),
    [
        ("bad-signature", written(with_payload(PAYLOAD.replace(b"0.82", b"0.92")))),
        ("bad-signature", written(with_payload(json.dumps(json.loads(PAYLOAD)).encode()))),
        ("bad-signature", written(with_payload(PAYLOAD + b" "))),
        ("bad-signature", written(with_payload(b""))),
        ("bad-signature", written(with_signature(signature(signature_of(ANN, PAYLOAD))))),
        ("bad-signature", written(with_signature(signature(signature_of(ANN, OTHER_TYPE))))),
        ("bad-signature", written(with_signature(signature(signature_of(EVE, MESSAGE))))),
        ("bad-signature", written(with_signature(signature(signature_of(EVE, MESSAGE), BOB)))),
        ("bad-signature", written(with_signature(signature(b"0")))),
        ("bad-signature", written(with_signature(signature(bytes(72))))),
        ("bad-signature", written(with_signature(signature(bytes(64), BOB)))),
        ("unknown-signer", sign(PAYLOAD, EVE)),
        ("no-signature", written(fields() | {"signatures": []})),
        ("no-signature", written(without("signatures"))),
        ("no-signature", written(with_signature(signature(b"")))),
        ("too-many-signatures", written(fields() | {"signatures": fields()["signatures"] * 17})),
        ("payload-type", written(fields() | {"payloadType": "application/json"})),
        ("payload-type", written(fields() | {"payloadType": PAYLOAD_TYPE.upper()})),
        ("payload-type", written(fields() | {"payloadType": ""})),
        ("not-an-envelope", written(without("payloadType"))),
        ("not-an-envelope", written(without("payload"))),
        ("not-an-envelope", written(fields() | {"payload": json.loads(PAYLOAD)})),
        ("not-an-envelope", written(fields() | {"payload": None})),
        ("not-an-envelope", written(fields() | {"signatures": {"0": fields()["signatures"][0]}})),
        ("not-an-envelope", written(fields() | {"signatures": ["sig"]})),
        ("not-an-envelope", written(with_signature({"keyid": "x"}))),
        ("not-an-envelope", written(fields() | {"signatures": [{"sig": "e30=", "keyid": 1}]})),
        ("not-an-envelope", written([fields()])),
        ("not-an-envelope", b"null"),
        ("not-an-envelope", b"7"),
        ("ambiguous-field", written(fields() | {"Payload": "e30="})),
        ("ambiguous-field", written(fields() | {"PAYLOADTYPE": PAYLOAD_TYPE})),
        ("ambiguous-field", written(with_signature(fields()["signatures"][0] | {"Sig": "e30="}))),
        ("not-base64", written(with_text("payload", lambda text: text + "\n"))),
        ("not-base64", written(with_text("payload", lambda text: " " + text))),
        ("not-base64", written(with_text("payload", lambda text: text.replace("I=", "J=")))),
        ("not-base64", written(with_text("payload", lambda text: text.rstrip("=")))),
        ("not-base64", written(with_text("payload", lambda text: text + "===="))),
        ("not-base64", written(with_text("payload", lambda text: "-_8="))),
        ("not-base64", written(with_text("payload", lambda text: "é"))),
        ("not-base64", written(with_text("sig", lambda text: text[:10] + "\r\n" + text[10:]))),
        ("duplicate-key", GOOD.rstrip()[:-1] + b',"payload":"e30="}'),
        ("duplicate-key", GOOD.replace(b'"sig":', b'"sig":"e30=","sig":')),
        ("not-a-number", GOOD.rstrip()[:-1] + b',"x":NaN}'),
        ("number-too-long", GOOD.rstrip()[:-1] + b',"x":' + b"9" * 5000 + b"}"),
        ("too-deep", GOOD.rstrip()[:-1] + b',"x":' + b"[" * 90_000 + b"]" * 90_000 + b"}"),
        ("not-json", GOOD[:-20]),
        ("not-json", GOOD + GOOD),
        ("not-json", b""),
        ("not-utf8", GOOD.replace(b"payload", b"payl\xf3ad")),
    ],
)
def test_refused_each_with_its_own_reason(code: str, data: bytes) -> None:
    assert refusal(data) == code


def test_an_envelope_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "MOST_BYTES", len(GOOD) - 1)
    assert refusal(GOOD) == "too-large"


@pytest.mark.parametrize("many", [b"0", b"[]", b'""', b"{}"])
def test_what_nobody_signed_is_soon_refused(many: bytes) -> None:
    """Before any signature is looked at, so that anybody could send it."""
    fill = b"[" + (many + b",") * (3_900_000 // (len(many) + 1)) + b"0]"
    started = time.process_time()
    assert refusal(b'{"payload":' + fill + b"}") == "too-large"
    assert refusal(b"[" + bytes(5_000_000) + b"]") == "too-large"
    assert time.process_time() - started < 2


@BOTH
def test_expired_and_revoked_signers(key: PrivateKey, name: str) -> None:
    data, end = sign(PAYLOAD, key), NOW + timedelta(hours=1)
    expiring = Signers().with_trust(key.public_key(), name, NOW, end)
    assert open_envelope(data, expiring, end - timedelta(seconds=1)).signer.name == name
    with pytest.raises(Untrusted, match=f"{name}, expired on 2026-11-29") as refused:
        open_envelope(data, expiring, end)
    assert refused.value.code == "expired-signer"
    revoked = SIGNERS.without_trust(SIGNERS.find(name), NOW)
    assert refusal(data, revoked) == "revoked-signer"
    hidden = fields(key)
    hidden["signatures"][0]["keyid"] = "another"
    assert refusal(written(hidden), revoked) == "revoked-signer"
    hidden["signatures"] += fields(BOB if key is ANN else ANN)["signatures"]
    assert opened(written(hidden), revoked).signer.name != name


def test_without_signers_nobody_is_trusted() -> None:
    assert refusal(GOOD, Signers()) == "unknown-signer"


def outcome(data: bytes) -> str | tuple[bytes, str]:
    """The code of the refusal, or what was opened. Any other exception is a finding."""
    try:
        found = opened(data)
    except Untrusted as refused:
        return refused.code
    return found.payload, found.signer.fingerprint


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


@BOTH
def test_every_single_bit_is_refused_or_changes_nothing(key: PrivateKey, name: str) -> None:
    data = sign(b"{}", key)
    same = outcome(data)
    harmless = [bit for bit in range(8 * len(data)) if outcome(flipped(data, bit)) == same]
    others = [outcome(flipped(data, bit)) for bit in range(8 * len(data)) if bit not in set(harmless)]
    assert all(isinstance(one, str) for one in others)
    hint = range(8 * data.index(b'"keyid"'), 8 * data.index(b',"sig"'))
    assert set(harmless) <= set(hint)


@unhurried
@given(st.data(), st.binary(max_size=300), st.sampled_from([ANN, BOB]))
def test_any_bit_of_any_envelope(data: st.DataObject, payload: bytes, key: PrivateKey) -> None:
    signed = sign(payload, key)
    bit = data.draw(st.integers(0, 8 * len(signed) - 1))
    found = outcome(flipped(signed, bit))
    assert isinstance(found, str) or found == outcome(signed)


@unhurried
@given(st.data())
def test_any_piece_cut_out_put_in_or_replaced(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, len(GOOD)))
    found = outcome(GOOD[:start] + data.draw(st.binary(max_size=20)) + GOOD[end:])
    assert isinstance(found, str) or found == outcome(GOOD)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["payload", "payloadType", "signatures", "sig", "keyid"]) | st.text(), inner
        )
    ),
)


@unhurried
@given(st.binary() | JSON.map(written))
def test_anything_else_is_refused_and_never_a_traceback(data: bytes) -> None:
    assert isinstance(outcome(data), str)
    with pytest.raises(Untrusted):
        envelope_of_bundle(data)


@unhurried
@given(st.sampled_from(["payload", "payloadType", "signatures"]), JSON)
def test_any_other_value_in_a_field_is_refused(name: str, value: Any) -> None:
    assert isinstance(outcome(written(fields() | {name: value})), str)


# --- Sigstore bundles ------------------------------------------------------------------------


@BOTH
def test_a_bundle_holds_the_very_envelope(key: PrivateKey, name: str) -> None:
    data = sign(PAYLOAD, key)
    bundle = sigstore_bundle(data, key.public_key())
    assert envelope_of_bundle(bundle) == data
    assert json.loads(bundle) == {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {
            "publicKey": {"hint": fingerprint(key.public_key())},
            "tlogEntries": [],
        },
        "dsseEnvelope": json.loads(data),
    }


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("not-a-bundle", {"mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.1"}),
        ("not-a-bundle", {"verificationMaterial": {"certificate": {"rawBytes": "e30="}}}),
        ("not-a-bundle", {"verificationMaterial": None}),
        ("not-an-envelope", {"dsseEnvelope": None}),
        ("no-signature", {"dsseEnvelope": fields() | {"signatures": []}}),
        ("too-many-signatures", {"dsseEnvelope": fields() | {"signatures": fields()["signatures"] * 2}}),
    ],
)
def test_bundles_that_are_none(code: str, change: dict[str, Any]) -> None:
    bundle = json.loads(sigstore_bundle(GOOD, ANN.public_key())) | change
    with pytest.raises(Untrusted) as refused:
        envelope_of_bundle(written(bundle))
    assert refused.value.code == code


# --- what it costs ---------------------------------------------------------------------------


def test_verifying_parses_once_and_tries_each_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"parse": 0, "try": 0}

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any, **named: Any) -> Any:
            calls[name] += 1
            return function(*words, **named)

        return counted

    monkeypatch.setattr(envelopes, "parse", counting("parse", parse))
    monkeypatch.setattr(envelopes, "is_signed_by", counting("try", is_signed_by))
    opened(sign(PAYLOAD, BOB))
    assert calls == {"parse": 1, "try": 2}


def test_the_time_grows_with_the_payload_and_not_with_its_square() -> None:
    def fastest(payload: bytes) -> float:
        took = []
        for _ in range(7):
            start = time.perf_counter()
            opened(sign(payload, ANN))
            took.append(time.perf_counter() - start)
        return min(took)

    small, large = fastest(b'{"a":"\\""}' * 20_000), fastest(b'{"a":"\\""}' * 160_000)
    assert large < 8 * 4 * small
