"""Which engine a study asks for, and what is said where it cannot be had."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recompute_core.errors import InputError
from recompute_core.spec import StudySpec
from recompute_core.studies import engines
from recompute_core.studies.engines import ADDRESS, check_engine, is_configured

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "recompute_core")
ON_RAY = StudySpec(engine="ray")
WITHOUT_RAY = """
import sys
sys.modules["ray"] = None  # what importing something that is not installed looks like
from recompute_core.__main__ import main
sys.argv = ["recompute_core", *sys.argv[1:]]
main()
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine at which something answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def without_ray(*arguments: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, *arguments],
        cwd=ROOT,
        env=os.environ | {"RECOMPUTE_HOME": str(home)} | more,
        capture_output=True,
        text=True,
    )


def test_without_ray_the_engine_says_what_to_install(tmp_path: Path) -> None:
    ran = without_ray("study", "--preset=quick", "--engine=ray", "--address=auto", home=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "error: engine ray: Ray is not installed; pip install -r requirements-ray.txt\n"
    )
    listed = without_ray("studies", "--json", "-", home=tmp_path)
    assert (listed.returncode, listed.stdout.strip()) == (0, "[]")  # no study was made


def test_without_ray_everything_else_works(tmp_path: Path) -> None:
    small = ("blocks=2", "width=32", "heads=2", "vocab=17", "seq_len=16", "batch=2")
    settings = [f"--set=workload.{one}" for one in small]
    settings += ["--set=timing.min_pairs=3", "--set=timing.max_pairs=3", "--set=timing.budget_s=0"]
    settings += ["--set=thresholds.peak_ratio=1", "--set=thresholds.update_ratio=100"]
    ran = without_ray("study", "--workload=gpt", *settings, home=tmp_path)
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_a_study_here_never_imports_ray() -> None:
    code = (
        "import sys, recompute_core.studies.driver, recompute_core.__main__; print('ray' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.strip() == "False", ran.stderr


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "engine ray: which cluster? Give --address HOST:PORT, or auto"),
        ("10.0.0.1", "the address '10.0.0.1' is neither HOST:PORT nor auto"),
        (":6379", "is neither HOST:PORT nor auto"),
        ("host:", "is neither HOST:PORT nor auto"),
        ("host:0", "is neither HOST:PORT nor auto"),
        ("host:65536", "is neither HOST:PORT nor auto"),
        ("host:٣", "is neither HOST:PORT nor auto"),
        ("ray://127.0.0.1:10001", "a driver runs on a machine of the cluster, so ray:// is not for it"),
        ("127.0.0.1:1", "engine ray: no cluster answers at 127.0.0.1:1: Connection refused"),
    ],
)
def test_an_address_that_cannot_be_is_one_line(
    address: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS, address)
    with pytest.raises(InputError) as refused:
        check_engine(ON_RAY)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_address_that_answers_is_taken(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, f"127.0.0.1:{port}")
    assert check_engine(ON_RAY) == f"127.0.0.1:{port}"
    monkeypatch.setenv(ADDRESS, "auto")
    assert check_engine(ON_RAY) == "auto"
    assert check_engine(StudySpec()) is None


def test_a_cluster_has_no_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, "auto")
    with pytest.raises(InputError, match="a cluster has no mps; choose auto, cpu, cuda or xpu"):
        check_engine(StudySpec(engine="ray", device="mps"))


@pytest.mark.parametrize("address", [None, "", "auto"])
@pytest.mark.parametrize("installed", [True, False])
def test_set_up_offers_what_the_operator_configured(
    address: str | None, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    if address is not None:
        monkeypatch.setenv(ADDRESS, address)
    monkeypatch.setattr(engines, "find_spec", lambda name: object() if installed else None)
    assert is_configured() is (installed and address == "auto")


def test_something_that_is_no_cluster_is_one_line(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, and not as Ray does: the study is made, says why, and can be resumed."""
    ran = subprocess.run(
        [*COMMAND, "study", "--preset=quick", "--engine=ray", f"--address=127.0.0.1:{port}"],
        cwd=ROOT,
        env=os.environ | {"RECOMPUTE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 4
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: the Ray cluster at 127.0.0.1:{port} cannot be used: ")
    assert "Traceback" not in ran.stderr
