"""Files that appear whole or not at all."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recompute_core.writing import check_writable, write_whole


def test_asking_whether_a_file_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []


def test_asking_leaves_an_older_file_as_it_is(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    os.utime(old, (1, 1))
    check_writable(old)
    assert (old.read_text(), old.stat().st_mtime) == ("old", 1)


def test_what_cannot_be_written_is_found_before(tmp_path: Path) -> None:
    for path in (tmp_path / "no folder" / "x.json", tmp_path):
        with pytest.raises(OSError, match=r"No such file|Is a directory"):
            check_writable(path)


def test_a_write_that_fails_keeps_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("recompute_core.writing.os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(old, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "old"


def test_a_written_file_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    old, link = tmp_path / "old.json", tmp_path / "link.json"
    old.write_text("old")
    old.chmod(0o600)
    link.symlink_to(old)
    write_whole(link, "new")
    assert link.is_symlink()
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("new", 0o600)


def test_a_device_is_written_to_and_not_replaced() -> None:
    check_writable(Path("/dev/null"))
    write_whole(Path("/dev/null"), "text")
    assert not Path("/dev/null").is_file()


def test_threads_that_write_in_one_folder_do_not_meet(tmp_path: Path) -> None:
    """All sessions of a server are threads of one process."""

    def write(name: str) -> list[str]:
        found = []
        for _ in range(200):
            write_whole(tmp_path / name, name)
            found.append((tmp_path / name).read_text())
        return found

    with ThreadPoolExecutor() as pool:
        written = dict(zip("abc", pool.map(write, "abc"), strict=True))
    assert {name: set(texts) for name, texts in written.items()} == {n: {n} for n in "abc"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["loop", "loop/x", ".", "", ".."])
def test_a_name_under_which_no_file_can_be_is_an_error_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    for write in (check_writable, lambda path: write_whole(path, "text")):
        with pytest.raises(OSError, match=r"Is a directory|Too many levels of symbolic links"):
            write(Path(name))
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]
