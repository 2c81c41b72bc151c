"""The warm helper process: real, killed, asked nonsense."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recompute_core import estimating
from recompute_core.errors import InputError
from recompute_core.estimator import Estimator, answered
from recompute_core.settings import GptSettings
from recompute_core.spec import StudySpec, Thresholds

ROOT = Path(__file__).parents[2]
TINY = StudySpec(workload=GptSettings(blocks=2, width=32, heads=2, vocab=17, seq_len=16, batch=2))


@pytest.fixture(scope="module")
def estimator() -> Iterator[Estimator]:
    opened = Estimator()
    yield opened
    opened.close()


def _helper(estimator: Estimator) -> "subprocess.Popen[bytes]":
    assert estimator._helper is not None
    return estimator._helper


def test_it_says_what_an_estimate_here_says(estimator: Estimator) -> None:
    assert estimator.ask(TINY, {"seq_len": 32}, "nested") == estimating.estimate(
        TINY, {"seq_len": 32}, "nested"
    )
    assert estimator.is_warm
    assert estimator.largest(TINY, "none", "batch", 2_000_000) == estimating.largest(
        TINY, "none", "batch", 2_000_000
    )
    assert estimator.largest(TINY, "none", "batch", 1_000) is None
    plain = estimating.estimate(TINY, {}, "none")
    assert estimator.advice(TINY, {}) == estimating.advice(TINY, {}, plain) != ()


def test_a_killed_helper_costs_one_retry(estimator: Estimator) -> None:
    before = estimator.ask(TINY, {"seq_len": 48}, "none")
    os.kill(_helper(estimator).pid, signal.SIGKILL)
    assert estimator.ask(TINY, {"seq_len": 48}, "none") == before  # remembered
    assert estimator.ask(TINY, {"seq_len": 96}, "none").saved_bytes > before.saved_bytes
    assert estimator.is_warm


def test_what_cannot_be_is_one_line_and_the_helper_lives_on(estimator: Estimator) -> None:
    for shape, plan, says in (({}, "sideways", "unknown plan"), ({"seq_len": 0}, "none", "seq_len:")):
        with pytest.raises(InputError, match=says):
            estimator.ask(TINY, shape, plan)
    assert estimator.is_warm


def test_threads_take_turns(estimator: Estimator) -> None:
    found: dict[int, int] = {}

    def ask(length: int) -> None:
        found[length] = estimator.ask(TINY, {"seq_len": length}, "none").saved_bytes

    threads = [threading.Thread(target=ask, args=(length,)) for length in (8, 24, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[8] < found[24] < found[40]


def test_studies_that_differ_in_their_thresholds_share_answers(estimator: Estimator) -> None:
    here = estimator.ask(TINY, {"seq_len": 56}, "none")
    _helper(estimator).send_signal(signal.SIGSTOP)
    try:
        strict = TINY.model_copy(update={"thresholds": Thresholds(peak_ratio=0.1)})
        assert estimator.ask(strict, {"seq_len": 56}, "none") == here
    finally:
        _helper(estimator).send_signal(signal.SIGCONT)


def test_a_helper_that_hangs_is_stopped_and_said_so() -> None:
    hasty = Estimator(patience_s=0.05)  # torch alone takes longer
    with pytest.raises(InputError, match=r"no answer within 0\.05 s"):
        hasty.ask(TINY, {}, "none")
    assert not hasty.is_warm


def test_our_own_mistake_is_an_answer_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered({}) == {"error": "the estimate failed: KeyError: 'spec'"}
    assert "Traceback" in capsys.readouterr().err


_SERVER = """
import sys, time
from recompute_core.estimator import Estimator
from recompute_core.spec import StudySpec
estimator = Estimator()
estimator.ask(StudySpec(), {"seq_len": 16, "batch": 1}, "none")
assert "torch" not in sys.modules
print(estimator._helper.pid, flush=True)
time.sleep(60)
"""


def test_the_helper_ends_with_its_server_which_never_loads_torch() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        helper = int(server.stdout.readline())
        server.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{helper}").exists() and time.monotonic() < deadline:
        state = Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break  # ended; whoever adopted it has not looked yet
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{helper}").exists()
