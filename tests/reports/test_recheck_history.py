"""Rechecks are kept one line each: none is lost, none is half there."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from recompute_core.errors import StoreError
from recompute_core.reports import recheck_history
from recompute_core.reports.bundle import REPORT
from recompute_core.reports.recheck_history import history, keep, statement_digest
from recompute_core.reports.recheck_record import Recheck, ShapeRecheck, SignedBy
from recompute_core.reports.refusal import Untrusted
from tests.reports.decisions import honest
from tests.reports.signing import ANN, PAYLOAD, fields, written

STATEMENT = "sha256:" + "ab" * 32
FILE = "ab" * 32 + ".jsonl"


def found(number: int = 0, **changes: Any) -> Recheck:
    usual: dict[str, Any] = {
        "schema": "recompute-recheck/1",
        "statement": STATEMENT,
        "study_id": "20261129-163455-3f9c",
        "plan": "every-block",
        "plan_hash": "sha256:p",
        "signer": SignedBy(name="ann", fingerprint="sha256:f"),
        "checked_at": f"2026-11-30T00:00:{number:02}.000Z",
        "seconds": 1.5,
        "made_by": "recompute_core 0.1.0",
        "environment": {"threads": 1},
        "changes": (),
        "shapes": (
            ShapeRecheck(
                shape_key="T=16 B=2",
                shape={"seq_len": 16},
                outcome="same",
                code="bitwise",
                sentence="Same.",
                held_in_report=True,
            ),
        ),
        "sentence": "Same.",
    }
    return Recheck(**usual | changes)


def test_nothing_yet(tmp_path: Path) -> None:
    assert history(tmp_path, STATEMENT) == ()
    assert list(tmp_path.iterdir()) == []


def test_oldest_first_and_each_statement_by_itself(tmp_path: Path) -> None:
    for number in range(3):
        keep(tmp_path, found(number))
    keep(tmp_path, found(3, statement="sha256:" + "cd" * 32))
    assert history(tmp_path, STATEMENT) == (found(0), found(1), found(2))
    lines = (tmp_path / "rechecks" / FILE).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [found(n).document() for n in range(3)]
    assert (json.loads(lines[0])["outcome"], json.loads(lines[0])["exit_code"]) == ("same", 0)


@pytest.mark.parametrize("torn", [b'{"schema": "recompute-re', b"{}\n", b"\x00\xff\n\n", b"\n"])
def test_a_torn_line_is_passed_over_and_spoils_no_other(tmp_path: Path, torn: bytes) -> None:
    keep(tmp_path, found(0))
    with (tmp_path / "rechecks" / FILE).open("ab") as file:
        file.write(torn)
    assert history(tmp_path, STATEMENT) == (found(0),)
    keep(tmp_path, found(1))
    assert history(tmp_path, STATEMENT) == (found(0), found(1))


def test_a_line_of_a_later_version_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    keep(tmp_path, found())
    path = tmp_path / "rechecks" / FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"more": 1}) + "\n")
    assert history(tmp_path, STATEMENT) == (found(),)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, found(0))
    before = (tmp_path / "rechecks" / FILE).read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left on device"):
            keep(tmp_path, found(1))
    assert (tmp_path / "rechecks" / FILE).read_bytes() == before


def test_many_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: keep(tmp_path, found(number)), range(24)))
    kept = history(tmp_path, STATEMENT)
    assert sorted(kept, key=lambda one: one.checked_at) == [found(number) for number in range(24)]


def test_one_that_holds_the_file_for_long_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, found())
    monkeypatch.setattr(recheck_history, "_PATIENCE_S", 0.05)
    lock = recheck_history.Lock(tmp_path / "rechecks" / f".{FILE}.lock")
    assert lock.acquire()
    with pytest.raises(StoreError, match="another process is writing to it"):
        keep(tmp_path, found())
    lock.release()
    keep(tmp_path, found())


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "rechecks").write_text("")
    with pytest.raises(StoreError, match="rechecks"):
        keep(tmp_path, found())
    with pytest.raises(StoreError, match="rechecks"):
        history(tmp_path, STATEMENT)


def test_the_digest_of_a_statement() -> None:
    envelope = written(fields(ANN))
    assert statement_digest(envelope) == "sha256:" + hashlib.sha256(PAYLOAD).hexdigest()
    assert statement_digest(honest().files[REPORT]).startswith("sha256:")


@pytest.mark.parametrize("odd", [b"", b"[]", b"{}", b'{"payload": 1}', b'{"payload": "*"}', b"1"])
def test_no_statement(odd: bytes) -> None:
    with pytest.raises(Untrusted):
        statement_digest(odd)
