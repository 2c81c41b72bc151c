"""A report's files: written whole or not at all, and read with suspicion."""

import errno
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recompute_core.errors import InputError
from recompute_core.reports import bundle as module
from recompute_core.reports.bundle import (
    MOST_BYTES,
    REPORT,
    Bundle,
    read_bundle,
    read_zip,
    write_bundle,
    zip_of,
)
from recompute_core.reports.refusal import Untrusted
from tests.reports.decisions import checked, honest

# --- writing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["decision", "decision.zip", "new/folders/decision"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    write_bundle(tmp_path / name, honest())
    assert read_bundle(tmp_path / name) == honest()
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part")]


def test_an_empty_folder_is_filled_and_any_other_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "decision"
    out.mkdir()
    write_bundle(out, honest())
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="is not empty; give a new folder"):
        write_bundle(out, honest())
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_what_is_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "old.zip").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "old.zip", "link"):
        with pytest.raises(InputError, match="give another name"):
            write_bundle(tmp_path / name, honest())
    with pytest.raises(InputError, match="cannot be written: "):
        write_bundle(tmp_path / "file" / "decision", honest())
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["decision/more", "decision/more.zip", "decision/evidence/more"])
def test_no_report_is_written_into_another(tmp_path: Path, name: str) -> None:
    write_bundle(tmp_path / "decision", honest())
    with pytest.raises(InputError, match="lies in another report's folder"):
        write_bundle(tmp_path / name, honest())
    assert checked(read_bundle(tmp_path / "decision")).verified


def test_what_a_killed_process_left_is_removed_an_hour_later(tmp_path: Path) -> None:
    old, new, other = f".{'0' * 16}.part", f".{'1' * 16}.part", ".mine.part"
    for name in (old, new, other):
        (tmp_path / name).mkdir()
    for name in (old, other):
        os.utime(tmp_path / name, (0, 0))
    write_bundle(tmp_path / "decision.zip", honest())
    assert {path.name for path in tmp_path.iterdir()} == {new, other, "decision.zip"}


@pytest.mark.parametrize("name", ["decision", "decision.zip"])
def test_a_full_disk_or_a_stop_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    trouble: BaseException = OSError(errno.ENOSPC, "No space left on device")
    synced = 0

    def troubled(descriptor: int) -> None:
        nonlocal synced
        synced += 1
        if synced > (3 if name == "decision" else 0):
            raise trouble

    monkeypatch.setattr(module.os, "fsync", troubled)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_bundle(tmp_path / name, honest())
    assert list(tmp_path.iterdir()) == []
    trouble, synced = KeyboardInterrupt(), 0
    with pytest.raises(KeyboardInterrupt):
        write_bundle(tmp_path / name, honest())
    assert list(tmp_path.iterdir()) == []


def test_too_large_a_report_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at most 20000000 may be read"):
        write_bundle(tmp_path / "decision", Bundle({REPORT: bytes(MOST_BYTES + 1)}))
    assert list(tmp_path.iterdir()) == []


def test_the_zip_is_the_same_every_time_and_plain() -> None:
    again = Bundle(dict(reversed(honest().files.items())))
    assert zip_of(honest()) == zip_of(again)
    with zipfile.ZipFile(io.BytesIO(zip_of(honest()))) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == sorted(honest().files)
        for entry in archive.infolist():
            assert stat.S_IMODE(entry.external_attr >> 16) == 0o644
            assert entry.date_time == (1980, 1, 1, 0, 0, 0)


# --- reading a folder ------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "decision", honest())
    return tmp_path / "decision"


def _code(path: Path) -> str:
    with pytest.raises(Untrusted) as caught:
        read_bundle(path)
    return caught.value.code


def test_links_pipes_and_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    page = folder / "report.html"
    page.rename(tmp_path / "page")
    page.symlink_to(tmp_path / "page")
    assert _code(folder) == "not-regular"
    page.unlink()
    os.mkfifo(page)
    assert _code(folder) == "not-regular"
    page.unlink()
    page.mkdir()
    assert _code(folder) == "not-regular"
    page.rmdir()
    (folder / "evidence").rename(tmp_path / "evidence")
    (folder / "evidence").symlink_to(tmp_path / "evidence")
    assert _code(folder) == "not-regular"


def test_names_that_no_report_has(folder: Path) -> None:
    for name in (".DS_Store", "a\nb", "evidence/été.json"):
        (folder / name).write_text("")
        assert _code(folder) == "unsafe-name"
        (folder / name).unlink()
    (folder / "REPORT.HTML").write_text("")
    assert _code(folder) == "duplicate-name"


def test_too_many_or_too_large_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "evidence" / "large").open("wb") as file:
        file.truncate(MOST_BYTES)
    assert _code(folder) == "too-large"
    monkeypatch.setattr(module, "MOST_FILES", 3)
    assert _code(folder) == "too-many-files"


def test_what_is_no_report(tmp_path: Path) -> None:
    assert _code(tmp_path) == "not-a-report"
    (tmp_path / "text").write_text("no zip")
    assert _code(tmp_path / "text") == "not-a-zip"
    with pytest.raises(InputError, match=r"no such folder or \.zip"):
        read_bundle(tmp_path / "nothing")


# --- reading a .zip --------------------------------------------------------------------------

Entries = list[tuple[str | zipfile.ZipInfo, bytes]]


def _packed(entries: Entries, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return buffer.getvalue()


def _entries() -> Entries:
    return list(honest().files.items())


def _refused(data: bytes) -> str:
    with pytest.raises(Untrusted) as caught:
        read_zip(data)
    return caught.value.code


def test_what_others_have_packed_is_read_too() -> None:
    assert read_zip(_packed(_entries())) == honest()
    inside: Entries = [("decision/", b""), ("decision/evidence/", b"")]
    inside += [(f"decision/{name}", data) for name, data in honest().files.items()]
    assert read_zip(_packed(inside)) == honest()
    assert checked(read_zip(_packed(inside))).verified


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/evil",
        "evidence/../evil",
        "a/b",
        "evidence/a/b",
        "C:\\evil",
        "evil\x1b[2J",
        "x" * 200,
    ],
)
def test_names_that_lead_elsewhere(name: str) -> None:
    assert _refused(_packed([*_entries(), (name, b"")])) == "unsafe-name"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice() -> None:
    assert _refused(_packed([*_entries(), ("report.html", b"another")])) == "duplicate-name"
    assert _refused(_packed([*_entries(), ("Report.html", b"another")])) == "duplicate-name"


def test_links_and_folders_in_a_zip() -> None:
    link = zipfile.ZipInfo("evidence/link")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert _refused(_packed([*_entries(), (link, b"/etc/passwd")])) == "not-regular"
    assert _refused(_packed([*_entries(), ("more/", b"")])) == "unsafe-name"


def test_bombs_are_refused_by_what_they_say_and_by_what_they_hold() -> None:
    bomb = _packed([*_entries(), ("evidence/bomb", bytes(MOST_BYTES))])
    assert len(bomb) < 200_000
    assert _refused(bomb) == "too-large"
    size = MOST_BYTES.to_bytes(4, "little")
    assert bomb.count(size) >= 2, "the declared sizes"
    assert _refused(bomb.replace(size, (100).to_bytes(4, "little"))) == "not-a-zip"
    many: Entries = [(f"evidence/{number}", b"") for number in range(1001)]
    assert _refused(_packed(_entries() + many)) == "too-many-files"
    assert _refused(bytes(MOST_BYTES + 1)) == "too-large"


def test_a_bomb_in_many_pieces() -> None:
    entries: Entries = [(f"evidence/{number}", bytes(1_000_000)) for number in range(21)]
    assert _refused(_packed(_entries() + entries)) == "too-large"


@pytest.mark.parametrize("top", ["..", "", "C:", "\x1b[2J", "é", "a/b"])
def test_a_folder_around_it_has_a_plain_name(top: str) -> None:
    inside: Entries = [(f"{top}/{name}", data) for name, data in honest().files.items()]
    assert _refused(_packed(inside)) in ("unsafe-name", "not-a-report")


def _with_extra(kind: int) -> bytes:
    one, *others = _entries()
    entry = zipfile.ZipInfo(str(one[0]))
    body = struct.pack("<BL", 1, zlib.crc32(b"VERIFY.md")) + b"report.html"
    entry.extra = struct.pack("<2H", kind, len(body)) + body
    return _packed([(entry, one[1]), *others])


def test_times_and_owners_may_be_there_and_no_second_name() -> None:
    assert read_zip(_with_extra(0x5455)) == honest(), "the time, as Info-ZIP writes it"
    assert read_zip(_with_extra(0x7875)) == honest(), "the owner"
    for kind in (0x7075, 0x6375, 0x0001, 0x9901):
        assert _refused(_with_extra(kind)) == "not-a-zip"


def test_contents_whose_sizes_come_after_them() -> None:
    """As macOS and everything that packs into a pipe write them."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise OSError

        def tell(self) -> int:
            raise OSError

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _entries():
            archive.writestr(name, data)
    data = pipe.getvalue()
    assert read_zip(data) == honest()
    at = data.index(b"PK\x07\x08")
    assert _refused(data[: at + 4] + b"\0" + data[at + 5 :]) == "not-a-zip"


def _comment(whole: bytes) -> bytes:
    return whole[:-2] + struct.pack("<H", 5) + b"words"


def _between(whole: bytes) -> bytes:
    """A file in front of all others that the directory does not name, with all places moved."""
    hidden = _packed([("report.html", b"another")])
    hidden = hidden[: hidden.index(b"PK\1\2")]
    at = whole.index(b"PK\1\2")
    data = bytearray(hidden + whole)
    at += len(hidden)
    struct.pack_into("<L", data, len(data) - 6, at)
    while data[at : at + 4] == b"PK\1\2":
        (place,) = struct.unpack_from("<L", data, at + 42)
        struct.pack_into("<L", data, at + 42, place + len(hidden))
        at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        assert archive.testzip() is None
    return bytes(data)


def _changed(where: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:where] + value + whole[where + len(value) :]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: whole + b"more",
        lambda whole: b"#!/bin/sh\n" + whole,
        lambda whole: _packed([("report.html", b"another")]) + whole,
        _comment,
        _between,
        _changed(6, b"\1"),
        _changed(8, b"\x08"),
        _changed(14, b"1234"),
        _changed(18, b"\0\0\0\0"),
        _changed(30, b"v"),
        lambda whole: _changed(whole.index(b"PK\1\2") + 5, b"\2")(whole),
        lambda whole: _changed(whole.index(b"PK\1\2") + 38, b"\x08")(whole),
    ],
)
def test_other_unpackers_get_the_same_files_or_it_is_refused(spoil: Callable[[bytes], bytes]) -> None:
    assert _refused(spoil(zip_of(honest()))) == "not-a-zip"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_to_pack_are_not_read(method: int) -> None:
    assert _refused(_packed(_entries(), method)) == "not-a-zip"


def test_damaged_zips() -> None:
    whole = zip_of(honest())
    for data in (b"", b"PK", whole[:-1], whole[100:], whole[: len(whole) // 2]):
        assert _refused(data) == "not-a-zip"


def test_an_encrypted_zip() -> None:
    data = bytearray(zip_of(Bundle({REPORT: b"x"})))
    for marker, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(marker) + flags] |= 1
    assert _refused(bytes(data)) == "not-a-zip"


def test_evidence_is_what_lies_in_its_folder() -> None:
    found: dict[str, Any] = Bundle({"report.html": b"a", "evidence/x": b"b"}).evidence
    assert found == {"x": b"b"}
