"""The verifier's own file: what it may hold, and that no change to it is lost."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recompute_core.errors import InputError
from recompute_core.reports import signers
from recompute_core.reports.keys import fingerprint, new_key, public_pem
from recompute_core.reports.signers import Signers, change_signers, load_signers, signers_file
from tests.reports.signing import ANN, BOB, EVE, LATER, NOW, SIGNERS

ANNS, BOBS, EVES = ANN.public_key(), BOB.public_key(), EVE.public_key()


def row(**changes: Any) -> dict[str, Any]:
    found = json.loads(SIGNERS.signers[0].model_dump_json()) | changes
    return {name: value for name, value in found.items() if value is not ...}


def file_of(tmp_path: Path, *rows: dict[str, Any], **more: Any) -> Path:
    path = tmp_path / "signers.json"
    path.write_text(json.dumps({"schema": "recompute-signers/1", "signers": rows} | more))
    path.chmod(0o644)  # whatever the umask
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "signers.json"
    written = change_signers(path, lambda none: none.with_trust(ANNS, "Ann Ö.", NOW, LATER))
    assert load_signers(path) == written
    assert json.loads(path.read_text()) == {
        "schema": "recompute-signers/1",
        "signers": [
            {
                "name": "Ann Ö.",
                "public_key": public_pem(ANNS),
                "fingerprint": fingerprint(ANNS),
                "trusted_at": "2026-11-29T12:00:00Z",
                "expires_at": "2026-11-30T12:00:00Z",
                "revoked_at": None,
            }
        ],
    }


def test_the_optional_fields_may_be_missing(tmp_path: Path) -> None:
    path = file_of(tmp_path, row(expires_at=..., revoked_at=...))
    assert load_signers(path).signers[0].state(NOW + timedelta(days=9999)) == "trusted"


def test_states() -> None:
    signer = Signers().with_trust(ANNS, "ann", NOW, LATER).find("ann")
    assert [signer.state(at) for at in (NOW, LATER - timedelta(seconds=1), LATER)] == [
        "trusted",
        "trusted",
        "expired",
    ]
    revoked = SIGNERS.without_trust(SIGNERS.find("ann"), LATER).find(fingerprint(ANNS))
    assert revoked.state(NOW) == "revoked"


def test_a_name_is_one_keys_and_a_key_one_names() -> None:
    for key, name, problem in (
        (EVES, "ann", "the name ann is another key's"),
        (ANNS, "anna", "trusted already, as ann"),
    ):
        with pytest.raises(InputError, match=problem):
            SIGNERS.with_trust(key, name, NOW)
    without = SIGNERS.without_trust(SIGNERS.find("ann"), NOW)
    with pytest.raises(InputError, match="revoked"):
        without.with_trust(ANNS, "ann", NOW)
    again = without.with_trust(EVES, "ann", NOW)
    assert again.find("ann").fingerprint == fingerprint(EVES)
    assert again.find(fingerprint(ANNS)).revoked_at == NOW


def test_the_expiry_is_set_anew_under_the_same_name() -> None:
    renewed = SIGNERS.with_trust(ANNS, "ann", LATER, LATER + timedelta(days=1))
    assert len(renewed.signers) == 2
    assert renewed.find("ann").expires_at == LATER + timedelta(days=1)
    with pytest.raises(InputError, match="2026-11-29 is past"):
        SIGNERS.with_trust(ANNS, "ann", NOW, NOW)


def test_revoking() -> None:
    once = SIGNERS.without_trust(SIGNERS.find(fingerprint(BOBS)), LATER)
    assert [signer.state(NOW) for signer in once.signers] == ["trusted", "revoked"]
    with pytest.raises(InputError, match="revoked already"):
        once.find("bob")
    with pytest.raises(InputError, match="revoked already"):
        once.without_trust(once.find(fingerprint(BOBS)), LATER)
    with pytest.raises(InputError, match=r"there are: ann$"):
        once.find("eve")


@pytest.mark.parametrize("name", ["", " ann", "a\nb", "a\u202eb", "a\x1b[2Jb", "x" * 101, "sha256:00"])
def test_names_that_cannot_be_read(name: str) -> None:
    with pytest.raises(InputError, match="name"):
        Signers().with_trust(ANNS, name, NOW)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"fingerprint": fingerprint(BOBS)}, "fingerprint: is not of this public_key"),
        ({"public_key": "x"}, "public_key: expected one public key"),
        ({"name": "a\nb"}, "printable"),
        ({"trusted_at": "yesterday"}, "trusted_at"),
        ({"trusted_at": "2026-11-29T12:00:00"}, "trusted_at"),
        ({"trusted_at": ...}, "trusted_at"),
        ({"expire_at": "2026-11-29T12:00:00Z"}, "expire_at"),
    ],
)
def test_rows_that_are_none(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = file_of(tmp_path, row(**change))
    with pytest.raises(InputError, match=problem) as refused:
        load_signers(path)
    assert str(refused.value).startswith(f"{path}: ") and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[]", "schema"),
        ('{"schema": "recompute-signers/2", "signers": []}', "schema"),
        ('{"schema": "recompute-signers/1", "signers": [], "signers": []}', "stands twice"),
        ('{"schema": "recompute-signers/1", "signers": [], "more": 1}', "more"),
        ('{"schema": "recompute-signers/1", "signers": NaN}', "NaN"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "signers.json"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(InputError, match=problem) as refused:
        load_signers(path)
    assert str(refused.value).startswith(f"{path}: ") and "\n" not in str(refused.value)


def test_the_same_key_or_name_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the key sha256:.* stands twice"):
        load_signers(file_of(tmp_path, row(), row(name="anna")))
    others = row(public_key=public_pem(BOBS), fingerprint=fingerprint(BOBS))
    with pytest.raises(InputError, match="the name ann stands twice"):
        load_signers(file_of(tmp_path, row(), others))


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_a_file_that_others_may_change_is_no_trust(tmp_path: Path, mode: int) -> None:
    path = file_of(tmp_path, row())
    path.chmod(mode)
    with pytest.raises(InputError, match="others may change whom you trust; run chmod go-w on it"):
        load_signers(path)


def test_a_file_of_somebody_else_is_no_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(tmp_path, row())
    mine = path.stat().st_uid
    monkeypatch.setattr(signers, "_ROOT", mine + 1)
    monkeypatch.setattr(os, "geteuid", lambda: mine + 2)
    with pytest.raises(InputError, match="belongs to somebody else") as refused:
        load_signers(path)
    assert "\n" not in str(refused.value)
    monkeypatch.setattr(signers, "_ROOT", mine)
    assert load_signers(path).signers, "root's is everybody's"


def test_our_own_file_is_never_one_of_those(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        change_signers(tmp_path / "signers.json", lambda known: known)
    finally:
        os.umask(before)
    assert load_signers(tmp_path / "signers.json") == Signers()


def test_a_missing_file_is_said_unless_it_may_be_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; 'keys trust"):
        load_signers(tmp_path / "none")
    assert load_signers(tmp_path / "none", may_be_missing=True) == Signers()
    with pytest.raises(InputError, match="Is a directory"):
        load_signers(tmp_path)


def test_the_default_is_in_recompute_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path))
    assert signers_file(None) == tmp_path / "signers.json"
    assert signers_file(Path("mine")) == Path("mine")


def test_a_change_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "signers.json"
    change_signers(path, lambda known: known.with_trust(ANNS, "ann", NOW))
    before = path.read_text()
    with pytest.raises(InputError):
        change_signers(path, lambda known: known.with_trust(EVES, "ann", NOW))
    assert path.read_text() == before
    path.write_text("broken")
    with pytest.raises(InputError, match="not JSON"):
        change_signers(path, lambda known: known.with_trust(ANNS, "ann", NOW))
    assert path.read_text() == "broken"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "signers.json"

    def trust(number: int) -> None:
        key = new_key("ed25519").public_key()
        change_signers(path, lambda known: known.with_trust(key, f"signer {number}", NOW))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(trust, range(16)))
    assert len(load_signers(path).signers) == 16
