"""Key files: made once, encrypted, whole or not at all, and read by their owner alone."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from recompute_core.errors import InputError
from recompute_core.reports import pkcs8
from recompute_core.reports.keys import (
    KINDS,
    Kind,
    PrivateKey,
    check_key_file,
    fingerprint,
    is_private,
    is_signed_by,
    kind_of,
    load_key,
    new_key,
    public_key_of,
    public_pem,
    read_public_key,
    signature_of,
    write_key,
)
from recompute_core.reports.passphrase import VARIABLE, passphrase
from tests.reports.signing import ANN, BOB

SECRET = "correct horse"
BOTH = pytest.mark.parametrize("key", [ANN, BOB])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a key may be written; with few rounds, as tests make many."""
    monkeypatch.setattr(pkcs8.encrypted_pem, "__defaults__", (2,))
    return tmp_path / "ann.key"


def says(found: pytest.ExceptionInfo[InputError]) -> str:
    assert "\n" not in str(found.value) and SECRET not in str(found.value)
    return str(found.value)


# --- keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_new_keys_differ_and_sign(kind: Kind) -> None:
    one, other = new_key(kind), new_key(kind)
    assert fingerprint(one.public_key()) != fingerprint(other.public_key())
    assert kind_of(one.public_key()) == kind
    made = signature_of(one, b"x")
    assert is_signed_by(one.public_key(), made, b"x")
    assert not is_signed_by(other.public_key(), made, b"x")
    assert not is_signed_by(one.public_key(), made, b"y")
    assert not is_signed_by(one.public_key(), b"", b"x")


@BOTH
def test_the_fingerprint_is_that_of_sha256sum(key: PrivateKey) -> None:
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert fingerprint(key.public_key()) == "sha256:" + hashlib.sha256(der).hexdigest()


@BOTH
def test_a_public_key_is_read_back(key: PrivateKey, tmp_path: Path) -> None:
    (tmp_path / "k.pem").write_text(public_pem(key.public_key()))
    assert fingerprint(read_public_key(tmp_path / "k.pem")) == fingerprint(key.public_key())
    assert not is_private(tmp_path / "k.pem")


def pem(
    key: PrivateKey | rsa.RSAPrivateKey, how: KeySerializationEncryption, form: PrivateFormat
) -> bytes:
    return key.private_bytes(Encoding.PEM, form, how)


PLAIN = pem(ANN, NoEncryption(), PrivateFormat.PKCS8)
P384 = ec.derive_private_key(7, ec.SECP384R1())
RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PLAIN.decode(), "holds a private key"),
        (public_pem(ANN.public_key()) * 2, "expected one public key"),
        ("", "expected one public key"),
        (public_pem(ANN.public_key())[:-40], "expected one public key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "expected one public key"),
        (public_pem(P384.public_key()), "P-256"),
        (
            RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
            "P-256",
        ),
    ],
)
def test_other_public_keys_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        public_key_of(text, "k.pem")
    assert says(refused).startswith("k.pem: ")


# --- key files -------------------------------------------------------------------------------


@BOTH
def test_written_encrypted_for_the_owner_alone_and_read_back(file: Path, key: PrivateKey) -> None:
    path = file.parent / "new" / file.name
    before = os.umask(0)
    try:
        write_key(path, key, SECRET)
    finally:
        os.umask(before)
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"
    assert path.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    assert os.listdir(path.parent) == [path.name]
    assert signature_of(load_key(path, SECRET), b"x") == signature_of(key, b"x")
    assert is_private(path)


def test_a_file_is_slow_to_guess_at(tmp_path: Path) -> None:
    write_key(tmp_path / "k", ANN, SECRET)
    shown = subprocess.run(
        ["openssl", "asn1parse", "-in", tmp_path / "k"], capture_output=True, text=True, check=True
    ).stdout
    assert [word in shown for word in ("PBES2", "PBKDF2", "hmacWithSHA256", "aes-256-cbc")] == [True] * 4
    assert f"INTEGER           :{600_000:06X}" in shown
    load_key(tmp_path / "k", SECRET)


@BOTH
def test_openssl_opens_our_files_and_we_open_those_of_openssl(file: Path, key: PrivateKey) -> None:
    write_key(file, key, SECRET)
    there, back = str(file.with_name("plain.pem")), file.with_name("back.pem")
    secret = {**os.environ, "SECRET": SECRET}
    for words in (
        f"openssl pkey -in {file} -passin env:SECRET -out {there}",
        f"openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 1000 -in {there} -out {back} -passout env:SECRET",
    ):
        subprocess.run(words.split(), check=True, capture_output=True, env=secret)
    back.chmod(0o600)
    assert signature_of(load_key(back, SECRET), b"x") == signature_of(key, b"x")
    os.chmod(there, 0o600)
    with pytest.raises(InputError, match="not encrypted; this encrypts it: openssl pkcs8 -topk8"):
        load_key(Path(there), SECRET)


@pytest.mark.parametrize("what", ["file", "folder", "link", "dangling link"])
def test_never_over_anything_that_is_there(file: Path, what: str) -> None:
    if what == "file":
        file.write_text("mine")
    elif what == "folder":
        file.mkdir()
    else:
        file.symlink_to(file.with_name("target"))
        if what == "link":
            file.with_name("target").write_text("mine")
    before = sorted(os.listdir(file.parent))
    with pytest.raises(InputError, match="exists; a key is never overwritten") as refused:
        write_key(file, ANN, SECRET)
    says(refused)
    assert sorted(os.listdir(file.parent)) == before
    assert what == "folder" or not file.exists() or file.read_text() == "mine"


def test_not_even_over_a_file_that_appears_meanwhile(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pkcs8.encrypted_pem

    def slow(plain: bytes, secret: bytes) -> bytes:
        file.write_text("mine")
        return real(plain, secret)

    monkeypatch.setattr(pkcs8, "encrypted_pem", slow)
    with pytest.raises(InputError, match="exists"):
        write_key(file, ANN, SECRET)
    assert (file.read_text(), os.listdir(file.parent)) == ("mine", [file.name])


@pytest.mark.parametrize("moment", ["open", "fdopen", "fsync", "link"])
def test_stopped_while_writing_it_leaves_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real = getattr(os, moment)

    def stopped(*words: object, **named: object) -> None:
        if moment in ("open", "fsync"):
            real(*words, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, moment, stopped)
        with pytest.raises(KeyboardInterrupt):
            write_key(file, ANN, SECRET)
    assert os.listdir(file.parent) == []


def test_a_full_or_missing_disk_is_one_line(file: Path) -> None:
    file.with_name("plain").write_text("")
    for path in (file.with_name("plain") / "k", Path("/proc/none/k")):
        with pytest.raises(InputError, match="cannot be written") as refused:
            write_key(path, ANN, SECRET)
        says(refused)


@pytest.mark.parametrize(
    ("given", "problem"), [("", "short"), ("1234567", "short"), ("é" * 501, "long")]
)
def test_passphrases_that_will_not_do(file: Path, given: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"the passphrase is too {problem}: at"):
        write_key(file, ANN, given)
    assert not file.exists()


@pytest.mark.parametrize("given", ["", "wrong horse", SECRET + " ", "x" * 2000])
def test_a_wrong_passphrase_is_one_line(file: Path, given: str) -> None:
    write_key(file, ANN, SECRET)
    with pytest.raises(InputError, match="wrong passphrase") as refused:
        load_key(file, given)
    assert says(refused).startswith(f"{file}: ")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o777, 0o4644])
def test_wider_modes_are_refused(file: Path, mode: int) -> None:
    write_key(file, ANN, SECRET)
    file.chmod(mode)
    with pytest.raises(InputError, match=f"mode {mode:04o}; run chmod 600") as refused:
        load_key(file, SECRET)
    says(refused)
    file.chmod(0o400)
    load_key(file, SECRET)


def test_other_owners_links_and_pipes_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_key(file, ANN, SECRET)
    link, pipe = file.with_name("link"), file.with_name("pipe")
    link.symlink_to(file)
    os.mkfifo(pipe, 0o600)
    for path, problem in (
        (link, "symbolic link"),
        (pipe, "regular file"),
        (file.parent, "directory|regular"),
        (file.with_name("none"), "No such file"),
    ):
        with pytest.raises(InputError, match=problem) as refused:
            load_key(path, SECRET)
        says(refused)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(InputError, match="another user"):
            load_key(file, SECRET)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (PLAIN, "not encrypted"),
        (pem(ANN, NoEncryption(), PrivateFormat.TraditionalOpenSSL), "encrypted PKCS#8"),
        (pem(BOB, NoEncryption(), PrivateFormat.OpenSSH), "encrypted PKCS#8"),
        (public_pem(ANN.public_key()).encode(), "is a public key"),
        (b"", "no key in PEM"),
        (b"\xff\xfe\x00", "no key in PEM"),
        (
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "damaged",
        ),
        (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", "damaged"),
        (pem(P384, BestAvailableEncryption(SECRET.encode()), PrivateFormat.PKCS8), "P-256"),
        (pem(RSA, BestAvailableEncryption(SECRET.encode()), PrivateFormat.PKCS8), "P-256"),
        (b"x" * 70_000, "too large"),
    ],
)
def test_other_files_are_refused_in_one_line(file: Path, data: bytes, problem: str) -> None:
    file.write_bytes(data)
    file.chmod(0o600)
    with pytest.raises(InputError, match=problem) as refused:
        load_key(file, SECRET)
    assert says(refused).startswith(f"{file}: ")


def test_a_key_of_cryptographys_own_writing_is_read(file: Path) -> None:
    file.write_bytes(pem(BOB, BestAvailableEncryption(SECRET.encode()), PrivateFormat.PKCS8))
    file.chmod(0o600)
    check_key_file(file)
    assert fingerprint(load_key(file, SECRET).public_key()) == fingerprint(BOB.public_key())


# --- where the passphrase comes from ---------------------------------------------------------


def through_pipe(data: bytes, *, new: bool = False) -> str:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    try:
        return passphrase(reading, new=new)
    finally:
        os.close(reading)


def test_from_a_descriptor_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "from the environment")
    assert passphrase() == "from the environment"
    assert through_pipe(b"from a pipe\n") == "from a pipe"
    assert through_pipe(b" spaces stay \r\n") == " spaces stay "
    assert through_pipe("pässword".encode()) == "pässword"


@pytest.mark.parametrize(
    ("data", "problem"), [(b"", "is empty"), (b"\n", "is empty"), (b"\xff" * 9, "not UTF-8")]
)
def test_a_descriptor_with_no_passphrase(data: bytes, problem: str) -> None:
    with pytest.raises(InputError, match=f"--passphrase-fd .*{problem}"):
        through_pipe(data)


def test_a_new_one_is_long_enough_and_a_descriptor_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="too short"):
        through_pipe(b"1234567", new=True)
    monkeypatch.setenv(VARIABLE, "1234567")
    with pytest.raises(InputError, match="too short"):
        passphrase(new=True)
    for descriptor in (987, 2**70):
        with pytest.raises(InputError, match=f"--passphrase-fd {descriptor}: cannot be read"):
            passphrase(descriptor)
