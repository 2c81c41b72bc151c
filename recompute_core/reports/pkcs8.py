"""An encrypted PKCS#8 file that is slow to guess at (RFC 8018, PBES2).

`cryptography` writes such files with 2048 rounds of PBKDF2 and offers no way to ask for more; these have
600,000, of HMAC-SHA256, and AES-256-CBC, which OpenSSL and every other reader opens.
"""

import base64
import secrets

from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes, padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.x509 import ObjectIdentifier

ROUNDS = 600_000
BEGIN = "-----BEGIN ENCRYPTED PRIVATE KEY-----"
_END = "-----END ENCRYPTED PRIVATE KEY-----"

_PBES2 = ObjectIdentifier("1.2.840.113549.1.5.13")
_PBKDF2 = ObjectIdentifier("1.2.840.113549.1.5.12")
_HMAC_SHA256 = ObjectIdentifier("1.2.840.113549.2.9")
_AES_256_CBC = ObjectIdentifier("2.16.840.1.101.3.4.1.42")


@asn1.sequence
class _Prf:
    name: ObjectIdentifier
    parameters: asn1.Null


@asn1.sequence
class _Pbkdf2:
    salt: bytes
    rounds: int
    prf: _Prf


@asn1.sequence
class _Derivation:
    name: ObjectIdentifier
    parameters: _Pbkdf2


@asn1.sequence
class _Encryption:
    name: ObjectIdentifier
    initial_vector: bytes


@asn1.sequence
class _Pbes2:
    derivation: _Derivation
    encryption: _Encryption


@asn1.sequence
class _Scheme:
    name: ObjectIdentifier
    parameters: _Pbes2


@asn1.sequence
class _EncryptedPrivateKeyInfo:
    scheme: _Scheme
    encrypted: bytes


def encrypted_pem(private_key_info: bytes, passphrase: bytes, rounds: int = ROUNDS) -> bytes:
    """PEM of a key given as DER of its PKCS#8 PrivateKeyInfo, under a passphrase."""
    salt, initial_vector = secrets.token_bytes(16), secrets.token_bytes(16)
    secret = PBKDF2HMAC(hashes.SHA256(), length=32, salt=salt, iterations=rounds).derive(passphrase)
    padder = padding.PKCS7(128).padder()
    padded = padder.update(private_key_info) + padder.finalize()
    encryptor = Cipher(algorithms.AES(secret), modes.CBC(initial_vector)).encryptor()
    derivation = _Pbkdf2(salt=salt, rounds=rounds, prf=_Prf(name=_HMAC_SHA256, parameters=asn1.Null()))
    scheme = _Pbes2(
        derivation=_Derivation(name=_PBKDF2, parameters=derivation),
        encryption=_Encryption(name=_AES_256_CBC, initial_vector=initial_vector),
    )
    der = asn1.encode_der(
        _EncryptedPrivateKeyInfo(
            scheme=_Scheme(name=_PBES2, parameters=scheme),
            encrypted=encryptor.update(padded) + encryptor.finalize(),
        )
    )
    text = base64.b64encode(der).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join((BEGIN, *lines, _END, "")).encode()
