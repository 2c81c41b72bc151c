"""The paths of a CUDA device, as far as a machine without one can try them, and on one where it is."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._profiler import _EventType

from recompute_core.meters import counters, history, memory, nvml, timing
from recompute_core.meters.timeline import Trace
from recompute_core.plans.apply import applied
from recompute_core.reports.agreement import _reaches
from recompute_core.results import Memory, PeakAt
from recompute_core.spec import CheckpointSettings, OptimizerSettings, TimingSettings
from recompute_core.studies import environment
from recompute_core.studies.worker import reason_of
from recompute_core.workloads import device as devices
from recompute_core.workloads.job import Job
from recompute_core.workloads.update import make_optimizer
from tests.core import records as make
from tests.core.stand_in import DEVICE, Cuda, own_environment
from tests.core.toys import each, small_gpt

restored = pytest.fixture(own_environment)
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def measured(job: Job, *places: Path | None) -> Memory:
    """Every block recomputed."""
    optimizer = make_optimizer(job.model, OptimizerSettings())
    put_on = partial(applied, job.model, each(*job.blocks), CheckpointSettings())
    return memory.measure_memory(job, optimizer, put_on, make.passed(), *places)


# --- the counters ---------------------------------------------------------------------------------


def test_each_update_is_counted_from_its_own_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(70, 71, 70, reserved=(400, 500, 500, 450))
    cuda.install(monkeypatch)
    found = counters.counted(lambda: cuda.said.append("update"), DEVICE)
    assert found["peak_samples"] == (70, 71, 70), "the warm update is no sample"
    assert found["peak_reserved_bytes"] == 500
    assert [said for said in cuda.said if said != "wait"] == ["empty", *["reset", "update"] * 4]
    assert cuda.said[-1] == "wait", "the last update has ended before it is counted"


def test_an_update_on_a_device_has_counters_and_a_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = measured(small_gpt())
    (peak,) = here.peak_samples
    cuda = Cuda(peak, peak, peak + 1024, reserved=(9_000_000,))
    cuda.install(monkeypatch)
    monkeypatch.setattr(nvml, "load", lambda: "the driver")
    monkeypatch.setattr(nvml, "process_bytes", lambda driver, uuid, pid: 5 if pid == os.getpid() else 0)
    found = measured(small_gpt(), tmp_path / "trace.json.gz", tmp_path / "history.pickle")
    assert found.peak_samples == (peak, peak, peak + 1024)
    assert (found.saved_bytes, found.naive_saved_bytes) == (here.saved_bytes, here.naive_saved_bytes)
    assert found.peak_reserved_bytes == 9_000_000
    assert found.process_peak_bytes == 5
    assert "NVML" in found.process_peak_source
    assert "no peak" in found.process_peak_source, "it was asked after the updates"
    assert found.not_measured == {}
    assert found.peak_at == PeakAt(phase="backward", module="blocks.1", replaying=True)
    assert found.timeline is not None
    assert here.timeline is not None
    assert max(found.timeline.bytes) == found.state_bytes + peak
    assert found.timeline.kept is not None
    assert [label for _, label in found.timeline.marks] == [label for _, label in here.timeline.marks]
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    assert max(e["args"]["bytes"] for e in events if e["ph"] == "C") == found.state_bytes + peak
    assert found.history == "history.pickle"
    assert found.history_digest == "sha256:" + hashlib.sha256(b"a pickle").hexdigest()
    assert (tmp_path / "history.pickle").read_bytes() == b"a pickle"
    samples_end = len(cuda.said) - cuda.said[::-1].index("reset")
    assert cuda.said.index("history on") > samples_end, "what is counted is counted before"
    assert cuda.said[-1] == "history off"


def test_nothing_is_left_on_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cuda(1, 1, 1).install(monkeypatch)
    job = small_gpt()
    before = {name: set(vars(module)) for name, module in job.model.named_modules()}
    measured(job, tmp_path / "trace", tmp_path / "history")
    assert {name: set(vars(module)) for name, module in job.model.named_modules()} == before


def test_a_timeline_of_another_update_than_was_counted_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    (peak,) = measured(small_gpt()).peak_samples
    Cuda(*3 * [3 * peak]).install(monkeypatch)
    found = measured(small_gpt())
    assert found.peak_samples == (3 * peak,) * 3
    assert (found.timeline, found.peak_at) == (None, None)
    why = f"the update under the profiler climbed {peak} bytes above the state, those that were "
    assert found.not_measured["timeline"] == found.not_measured["peak_at"]
    assert found.not_measured["timeline"] == f"{why}counted {3 * peak}"


def test_counted_figures_stand_when_what_follows_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = Cuda(7, 8, 9, reserved=(20,))
    cuda.install(monkeypatch)

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nMore.")

    monkeypatch.setattr(memory, "profile", full)
    cuda.snapshot = full
    found = measured(small_gpt(), tmp_path / "trace", tmp_path / "history")
    assert (found.peak_samples, found.peak_reserved_bytes) == ((7, 8, 9), 20)
    why = "the update under the profiler failed: OutOfMemoryError: CUDA out of memory."
    assert {found.not_measured[figure] for figure in ("timeline", "peak_at", "trace")} == {why}
    assert found.not_measured["history"].startswith("it could not be recorded: OutOfMemoryError")
    assert cuda.said[-1] == "history off", "recording ends however it went"
    assert list(tmp_path.iterdir()) == []


def test_a_history_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cuda(1, 1, 1).install(monkeypatch)
    monkeypatch.setattr(memory, "keep_history", partial(history.keep_history, most_bytes=7))
    found = measured(small_gpt(), None, tmp_path / "history")
    assert (found.history, found.history_digest) == (None, None)
    assert found.not_measured["history"] == "8 bytes; at most 7 are kept"
    assert list(tmp_path.iterdir()) == []


def test_the_share_of_another_kind_of_device_is_not_told() -> None:
    found = counters.process_share(torch.device("xpu", 0))
    why = "no meter of a process's share of xpu memory is known"
    assert found["not_measured"] == {"process_peak_bytes": why}
    assert "process_peak_bytes" not in found


@pytest.mark.parametrize(
    ("kind", "told", "why"),
    [
        ("cpu", {}, "the process compiled too, and its peak is the compiler's"),
        (
            "cuda",
            {},
            "the process compiled too: what the driver counts holds what that left on the device",
        ),
        ("cuda", {"process_peak_bytes": "there is no NVML"}, "there is no NVML"),
    ],
)
def test_why_a_compiled_process_has_no_figure(kind: str, told: dict[str, str], why: str) -> None:
    found = {"source": "counted", "process_peak_bytes": 5, "not_measured": told}
    memory._unsee(found, torch.device(kind))
    assert found["process_peak_bytes"] is None
    assert found["not_measured"]["process_peak_bytes"].startswith(why)


def test_a_device_never_tried_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Cuda(*6 * [1]).install(monkeypatch)
    found = counters.counted(lambda: None, torch.device("xpu", 0))
    assert found["source"].endswith("(never tried on such a device)")
    assert "never" not in counters.counted(lambda: None, DEVICE)["source"]


# --- the timeline ---------------------------------------------------------------------------------


def event(at: int, device: str, address: int, size: int) -> Any:
    told = SimpleNamespace(device=torch.device(device), ptr=address, alloc_size=size)
    return SimpleNamespace(tag=_EventType.Allocation, start_time_ns=at, typed=(None, told), children=[])


def test_the_timeline_is_of_the_device_and_not_of_the_cpu_beside_it() -> None:
    tree = [
        event(1, "cuda", 16, 512),
        event(2, "cpu", 16, 5056),  # a random state, on the CPU
        event(3, "cuda", 32, 1024),
        event(4, "cuda", 16, -512),
        event(5, "cpu", 16, -5056),
    ]
    results = SimpleNamespace(experimental_event_tree=lambda: tree, events=list)
    seen = SimpleNamespace(profiler=SimpleNamespace(kineto_results=results))
    assert Trace.from_profiler(seen, (), "cuda").alive == (512, 1536, 1024)
    assert Trace.from_profiler(seen, ()).alive == (5056, 0)


@pytest.mark.parametrize(
    ("top", "peaks", "fits"),
    [
        (100, (100,), True),
        (101, (100,), False),  # one sample is of that very update
        (102, (100, 90, 90), True),
        (103, (100, 90, 90), False),
        (88, (100, 90, 90), True),
        (87, (100, 90, 90), False),
        (0, (), False),
    ],
)
def test_how_far_a_timeline_may_be_from_the_peak(top: int, peaks: tuple[int, ...], fits: bool) -> None:
    assert _reaches(top, peaks) == fits


# --- time -----------------------------------------------------------------------------------------


def test_time_is_the_devices_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the device runs where nothing else does: each update takes as long as it says."""
    now, order = 0.0, []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = now
            order.append("event")

        def elapsed_time(self, other: "Event") -> float:
            return (other.at - self.at) * 1e3

    def taking(seconds: float) -> None:
        nonlocal now
        now += seconds
        order.append("update")

    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(Event=Event))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: order.append("wait"))
    settings = TimingSettings(min_pairs=3, max_pairs=3, budget_s=0)
    found = timing.measure_pairs(
        lambda: taking(2.0),
        lambda: taking(3.0),
        partial(applied, torch.nn.Module(), (), CheckpointSettings()),
        DEVICE,
        settings,
        lambda pair: None,
    )
    assert [(pair.plain_s, pair.candidate_s) for pair in found.samples] == [(2.0, 3.0)] * 3
    assert order == ["wait", "event", "update", "event", "wait"] * 8
    assert found.source.endswith("timed by events on the device")


# --- out of memory --------------------------------------------------------------------------------

FULL = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB of which "
    "1.25 GiB is free. Process 7 has 138.56 GiB memory in use. Of the allocated memory 130.00 GiB is "
    "allocated by PyTorch, and 8.00 GiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            torch.OutOfMemoryError(FULL),
            "out of memory: 20.00 GiB asked for, 1.25 GiB of 139.81 GiB free",
        ),
        (
            torch.OutOfMemoryError("XPU out of memory. Tried to allocate 2.00 GiB.\nMore."),
            "out of memory: XPU out of memory. Tried to allocate 2.00 GiB.",
        ),
        (
            RuntimeError("CUDA error: out of memory\nCompile with …"),
            "out of memory: CUDA error: out of memory",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "out of memory: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ),
        (
            RuntimeError("CUDA error: an illegal memory access was encountered"),
            "RuntimeError: CUDA error: an illegal memory access was encountered",
        ),
    ],
    ids=["CUDA", "XPU", "driver", "cuBLAS", "another"],
)
def test_out_of_memory_says_what_was_asked_for(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


# --- checks, environment, workers -----------------------------------------------------------------


@pytest.mark.usefixtures("restored")
def test_checks_repeat_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    devices.repeat_itself()
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == devices.CHECKS_WORKSPACE == ":4096:8"


@pytest.mark.usefixtures("restored")
def test_checks_and_costs_are_of_one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What checks set for their own process is no other environment: costs are measured without it."""
    Cuda().install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a device")
    before = environment.describe_environment(DEVICE)
    assert before["device_memory_bytes"] == 10**11
    assert before["compute_capability"] == "9.0"
    assert before["cublas_workspace"] == ":4096:8"
    assert before["tf32_matmul"] is False
    json.dumps(before)
    devices.repeat_itself()
    environment.check_same_environment(before, environment.describe_environment(DEVICE))


def test_loading_torch_for_the_workers_touches_no_device() -> None:
    """A process that has started CUDA cannot be forked, and every worker is forked from this one."""
    script = (
        "import torch\n"
        "def no(*a, **k): raise AssertionError('a device was asked for')\n"
        "for name in ('is_available', 'device_count', 'current_device', '_lazy_init',"
        " 'get_device_properties', 'get_device_capability'): setattr(torch.cuda, name, no)\n"
        "for name in ('current_accelerator', 'is_available', 'device_count'):"
        " setattr(torch.accelerator, name, no)\n"
        "import recompute_core.preload\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- on a device ----------------------------------------------------------------------------------


def on_the_device() -> Job:
    return devices.move(small_gpt(), torch.device("cuda"))


@on_cuda
def test_on_cuda_the_timeline_reaches_the_peak_that_was_counted(tmp_path: Path) -> None:
    found = measured(on_the_device(), tmp_path / "trace", tmp_path / "history")
    assert len(found.peak_samples) == 3
    assert found.timeline is not None, found.not_measured
    assert _reaches(max(found.timeline.bytes), [found.state_bytes + peak for peak in found.peak_samples])
    assert found.peak_at is not None
    assert found.peak_at.replaying
    assert found.peak_reserved_bytes is not None
    assert found.peak_reserved_bytes >= found.peak_bytes
    assert found.trace_digest is not None
    assert found.history_digest is not None
    assert (tmp_path / "history").stat().st_size > 0


@on_cuda
def test_on_cuda_events_time_an_update() -> None:
    job = on_the_device()
    optimizer = make_optimizer(job.model, OptimizerSettings())
    put_on = partial(applied, job.model, each(*job.blocks), CheckpointSettings())
    settings = TimingSettings(min_pairs=3, max_pairs=3, budget_s=0)
    found = timing.measure_time(job, optimizer, put_on, settings, make.passed())
    assert found.pairs == 3
    assert "events" in found.source
