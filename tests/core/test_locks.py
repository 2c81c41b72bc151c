"""Locks that a dead process cannot keep, with real processes."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recompute_core.errors import StoreError
from recompute_core.studies.locks import Lock, machine_holder, machine_lock

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
import tempfile
from pathlib import Path
from recompute_core.studies.locks import Lock
lock = Lock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
sys.stdin.read()
"""
ADOPT = """
import sys
import tempfile
from pathlib import Path
from recompute_core.studies.locks import Lock
lock = Lock(Path(sys.argv[1]))
lock.adopt(int(sys.argv[2]))
print("adopted", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.lock"


@contextmanager
def running(
    code: str, *arguments: str, pass_fds: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A Python process that has said its first line and waits; killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        pass_fds=pass_fds,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def free_within(lock: Lock, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while lock.is_held():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_taken_and_given_back(path: Path) -> None:
    lock, other = Lock(path), Lock(path)
    assert not lock.is_held()
    assert not path.exists()  # asking makes no file
    assert lock.acquire()
    assert (lock.is_held(), other.is_held()) == (True, True)
    assert not other.acquire()
    assert other.descriptor is None
    lock.release()
    assert not other.is_held()
    assert other.acquire()
    other.release()


def test_releasing_twice_or_what_is_not_held_is_nothing(path: Path) -> None:
    lock = Lock(path)
    lock.release()
    lock.acquire()
    lock.release()
    lock.release()
    assert not lock.is_held()


def test_asking_does_not_take(path: Path) -> None:
    lock, other = Lock(path), Lock(path)
    lock.acquire()
    lock.release()
    for _ in range(3):
        assert not other.is_held()
    assert lock.acquire()
    assert other.is_held()
    lock.release()


def test_no_descriptor_is_left_open(path: Path) -> None:
    lock, other = Lock(path), Lock(path)
    before = len(os.listdir("/proc/self/fd"))
    lock.acquire()
    for _ in range(5):
        other.acquire()
        other.is_held()
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_patience_runs_out(path: Path) -> None:
    lock, other = Lock(path), Lock(path)
    lock.acquire()
    started = time.monotonic()
    assert not other.acquire(patience_s=0.2)
    assert time.monotonic() - started >= 0.2
    lock.release()


def test_patience_pays(path: Path) -> None:
    lock, other = Lock(path), Lock(path)
    lock.acquire()
    timer = threading.Timer(0.1, lock.release)
    timer.start()
    assert other.acquire(patience_s=30)
    timer.join()
    other.release()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_the_kernel_gives_it_back_however_the_holder_ends(
    path: Path, how: signal.Signals | None
) -> None:
    lock = Lock(path)
    with running(HOLD, str(path)) as holder:
        assert said(holder) == "True"
        assert lock.is_held()
        assert not lock.acquire()
        if how is None:
            assert holder.stdin is not None
            holder.stdin.close()
        else:
            holder.send_signal(how)
        holder.wait()
        assert free_within(lock, 1)
        assert lock.acquire()
        lock.release()


def test_two_processes_do_not_both_get_it(path: Path) -> None:
    with running(HOLD, str(path)) as first, running(HOLD, str(path)) as second:
        assert sorted([said(first), said(second)]) == ["False", "True"]


def test_handed_over_to_another_program_it_is_held_without_a_gap(path: Path) -> None:
    lock = Lock(path)
    lock.acquire()
    assert lock.descriptor is not None
    with running(ADOPT, str(path), str(lock.descriptor), pass_fds=(lock.descriptor,)) as heir:
        lock.release()
        for _ in range(20):  # from before it runs its first line until it does
            assert lock.is_held()
            time.sleep(0.005)
        assert said(heir) == "adopted"
        assert not lock.acquire()
        heir.kill()
        heir.wait()
        assert free_within(lock, 1)


def test_a_program_that_is_not_handed_the_lock_does_not_keep_it(path: Path) -> None:
    lock = Lock(path)
    lock.acquire()
    with running("import sys; print(1, flush=True); sys.stdin.read()") as bystander:
        said(bystander)
        lock.release()
        assert not lock.is_held()


def test_what_cannot_be_a_lock_is_one_line(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for path, says in (
        (tmp_path / "no" / "a.lock", "no such folder"),
        (link, "cannot open the lock"),
    ):
        with pytest.raises(StoreError, match=says) as caught:
            Lock(path).acquire()
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "elsewhere").exists()


def test_who_holds_the_machine_says_for_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert machine_holder() is None
    first, words = machine_lock("a check of\n<b>gpt</b>"), tmp_path / "recompute-studio.doing"
    assert first.acquire()
    assert machine_holder() == "a check of?<b>gpt</b>"
    for odd in (
        "",
        "{",
        "[]",
        '{"pid": 1}',
        '{"pid": "x", "doing": "y"}',
        '{"pid": 99999999, "doing": "y"}',
    ):
        words.write_text(odd)
        assert machine_holder() is None, odd
    first.release()
    words.write_text(f'{{"pid": {os.getpid()}, "doing": "stale"}}')
    assert machine_holder() is None, "nobody holds it"
    words.unlink()
    words.symlink_to(tmp_path / "elsewhere")
    assert first.acquire(), "it goes without words"
    assert machine_holder() is None and not (tmp_path / "elsewhere").exists()
    first.release()


def test_the_machines_lock_is_one_for_every_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "one"))
    first = machine_lock()
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "two"))
    assert machine_lock().path == first.path == tmp_path / "recompute-studio.lock"


def test_a_pipe_in_its_place_makes_nobody_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    os.mkfifo(tmp_path / "recompute-studio.lock")
    with pytest.raises(
        StoreError, match=r"recompute-studio\.lock: cannot open the lock: not a regular file"
    ):
        machine_lock().acquire()
    (tmp_path / "recompute-studio.lock").unlink()
    os.mkfifo(tmp_path / "recompute-studio.doing")
    lock = machine_lock("a study")
    assert lock.acquire()
    assert machine_holder() is None
    lock.release()
