"""Keys that sign reports: ECDSA on P-256, or Ed25519.

A private key is a file that only its owner can read, PKCS#8, always encrypted. A public key is known
by its fingerprint, the SHA-256 of its SubjectPublicKeyInfo, which OpenSSL and sha256sum compute too.
"""

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import Literal, get_args

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from ..errors import InputError
from ..reading import open_file, read_at_most
from . import pkcs8

PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey
PublicKey = ec.EllipticCurvePublicKey | Ed25519PublicKey
Kind = Literal["p256", "ed25519"]
KINDS: tuple[Kind, ...] = get_args(Kind)

SHORTEST_PASSPHRASE = 8
"""Characters that the passphrase of a new key has at least."""
LONGEST_PASSPHRASE_BYTES = 1000
"""UTF-8 bytes that a passphrase has at most; OpenSSL takes no more than 1023."""
_LARGEST_FILE_BYTES = 65_536


# --- signatures ------------------------------------------------------------------------------


def new_key(kind: Kind = "p256") -> PrivateKey:
    """A fresh key from the system's random source."""
    return Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())


def signature_of(key: PrivateKey, message: bytes) -> bytes:
    """The same message and key give the same bytes: ECDSA's nonces are those of RFC 6979.

    ECDSA signs the SHA-256 of the message, and the signature is DER.
    """
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(message)
    return key.sign(message, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))


def is_signed_by(key: PublicKey, signature: bytes, message: bytes) -> bool:
    """Whether this key made this signature of this message."""
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


# --- public keys -----------------------------------------------------------------------------


def kind_of(key: PublicKey) -> Kind:
    """Which of the two kinds a key is."""
    return "ed25519" if isinstance(key, Ed25519PublicKey) else "p256"


def fingerprint(key: PublicKey) -> str:
    """`sha256:` and the hex digest of the DER SubjectPublicKeyInfo; a DSSE envelope's key id."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return "sha256:" + hashlib.sha256(der).hexdigest()


def public_pem(key: PublicKey) -> str:
    """The key as others need it, PEM."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def public_key_of(pem: str, where: str) -> PublicKey:
    """A public key from PEM; `where` it stands is named in an InputError."""
    if "PRIVATE KEY-----" in pem:
        raise InputError(f"{where}: holds a private key; give the public one, which 'keys show' prints")
    if pem.count("-----BEGIN ") != 1:
        raise InputError(f"{where}: expected one public key in PEM, BEGIN PUBLIC KEY")
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{where}: expected one public key in PEM, BEGIN PUBLIC KEY") from None
    if isinstance(key, Ed25519PublicKey) or (
        isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
    ):
        return key
    raise InputError(f"{where}: expected a key of ECDSA on P-256, or of Ed25519")


def read_public_key(path: Path) -> PublicKey:
    """The public key in a PEM file. InputError when there is none."""
    data = read_at_most(path, _LARGEST_FILE_BYTES, "is too large for a key")
    return public_key_of(data.decode("utf-8", errors="replace"), str(path))


# --- private keys ----------------------------------------------------------------------------


def check_new_passphrase(passphrase: str) -> None:
    """InputError when it is too short to protect a key, or too long for OpenSSL."""
    if len(passphrase) < SHORTEST_PASSPHRASE:
        raise InputError(f"the passphrase is too short: at least {SHORTEST_PASSPHRASE} characters")
    if len(_bytes_of(passphrase)) > LONGEST_PASSPHRASE_BYTES:
        raise InputError(f"the passphrase is too long: at most {LONGEST_PASSPHRASE_BYTES} bytes")


def _bytes_of(passphrase: str) -> bytes:
    try:
        return passphrase.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise InputError("the passphrase is not UTF-8") from None


def check_new_file(path: Path) -> None:
    """InputError when a key cannot be written there; asked before somebody types a passphrase."""
    if os.path.lexists(path):
        raise InputError(f"{path}: exists; a key is never overwritten, give another name")
    if path.name in ("", ".", ".."):
        raise InputError(f"{path}: is no name of a file")


def write_key(path: Path, key: PrivateKey, passphrase: str) -> None:
    """Write a new key file, mode 0600, whole or not at all; a folder that it needs gets mode 0700.

    Raises InputError when the file exists, cannot be written, or the passphrase will not do.
    """
    check_new_passphrase(passphrase)
    check_new_file(path)
    plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    pem = pkcs8.encrypted_pem(plain, passphrase.encode())
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(pem)
                file.flush()
                os.fsync(file.fileno())
            _link(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def _link(part: Path, path: Path) -> None:
    """Give a finished file its name; never over a file that is there, as a rename would be."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise InputError(f"{path}: exists; a key is never overwritten, give another name") from None


def check_key_file(path: Path) -> bytes:
    """The bytes of a key file that only its owner can read and that is encrypted.

    Raises InputError, with what to do, when it is of another kind, owner or mode, or in the clear.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            about = os.fstat(file.fileno())
            data = file.read(_LARGEST_FILE_BYTES + 1) if stat.S_ISREG(about.st_mode) else b""
    except OSError as error:
        if path.is_symlink():
            raise InputError(f"{path}: is a symbolic link; give the key file itself") from None
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(about.st_mode):
        raise InputError(f"{path}: is no regular file; expected a private key")
    if len(data) > _LARGEST_FILE_BYTES:
        raise InputError(f"{path}: is too large for a key")
    first = next((line for line in data.splitlines() if line.startswith(b"-----BEGIN ")), b"")
    _check_label(path, first.decode("ascii", errors="replace").strip())
    if about.st_uid != os.geteuid():
        raise InputError(f"{path}: belongs to another user; a key is read by its owner alone")
    if stat.S_IMODE(about.st_mode) & 0o077:
        mode = stat.S_IMODE(about.st_mode)
        raise InputError(f"{path}: others may use it, mode {mode:04o}; run chmod 600 on it")
    return data


def is_private(path: Path) -> bool:
    """Whether a file holds a private key of any kind, one that is refused for signing included."""
    try:
        with open_file(path) as file:
            return b"PRIVATE KEY-----" in file.read(_LARGEST_FILE_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def load_key(path: Path, passphrase: str) -> PrivateKey:
    """A private key from its file. Raises InputError as `check_key_file`, and on a wrong passphrase."""
    data = check_key_file(path)
    secret = _bytes_of(passphrase)
    if not secret or len(secret) > LONGEST_PASSPHRASE_BYTES:
        raise InputError(f"{path}: wrong passphrase")
    try:
        key = load_pem_private_key(data, secret)
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{path}: wrong passphrase, or the file is damaged") from None
    if isinstance(key, Ed25519PrivateKey) or (
        isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)
    ):
        return key
    raise InputError(f"{path}: expected a key of ECDSA on P-256, or of Ed25519")


def _check_label(path: Path, label: str) -> None:
    if label == pkcs8.BEGIN:
        return
    if not label:
        raise InputError(f"{path}: is no key in PEM; 'keys new --out FILE' makes one")
    if "PUBLIC KEY" in label:
        raise InputError(f"{path}: is a public key; signing needs the private one")
    if label != "-----BEGIN PRIVATE KEY-----":
        raise InputError(f"{path}: expected encrypted PKCS#8, BEGIN ENCRYPTED PRIVATE KEY")
    raise InputError(
        f"{path}: the key is not encrypted; this encrypts it: "
        "openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 600000 -in FILE -out NEW"
    )
