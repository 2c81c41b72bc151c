"""What a figure was measured on: device, libraries, threads and numeric settings."""

import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..spec import Ranks

if TYPE_CHECKING:
    import torch


def describe_environment(device: "torch.device", ranks: Ranks | None = None) -> dict[str, Any]:
    """The facts about this process and machine that a figure depends on; threads are those of a rank."""
    import torch

    return {
        "device": device.type,
        "device_name": _device_name(device),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": metadata.version("numpy"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "git_commit": _git_commit(),
        **(_cuda_facts(device) if device.type == "cuda" else {}),
        **({"never_tried": f"on {device.type}"} if device.type in ("xpu", "mps") else {}),
        **(_rank_facts(device, ranks) if ranks else {}),
    }


def _rank_facts(device: "torch.device", ranks: Ranks) -> dict[str, Any]:
    return {"ranks": ranks.count, "ranks_kind": ranks.kind, "ranks_backend": backend_for(device)}


def backend_for(device: "torch.device") -> str:
    """What ranks speak to each other with."""
    return "nccl" if device.type == "cuda" else "gloo"


def _cuda_facts(device: "torch.device") -> dict[str, Any]:
    """What equal updates depend on there: driver and libraries, TF32, and whether kernels may vary.

    Under `checks_deterministic` the checks run with deterministic algorithms and the cuBLAS workspace
    that is named, and costs as they are.
    """
    import torch

    from ..workloads.device import CHECKS_WORKSPACE

    cudnn = torch.backends.cudnn
    properties = torch.cuda.get_device_properties(device)
    return {
        "device_memory_bytes": properties.total_memory,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
        "cudnn": cudnn.version(),  # type: ignore[no-untyped-call]
        "driver": _driver_version(),
        "tf32_matmul": torch.get_float32_matmul_precision() != "highest",
        "tf32_cudnn": cudnn.allow_tf32,
        "cudnn_deterministic": cudnn.deterministic,
        "cudnn_benchmark": cudnn.benchmark,
        "checks_deterministic": True,
        "cublas_workspace": CHECKS_WORKSPACE,
    }


def _driver_version() -> str | None:
    """The kernel module's version, as NVIDIA's driver on Linux tells it, or else NVML."""
    from ..meters import nvml

    try:
        words = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].split()
        return next(word for word in words if word[0].isdigit() and "." in word)
    except (OSError, IndexError, StopIteration):
        with suppress(nvml.NotTold):
            return nvml.driver_version(nvml.load())
        return None


def check_same_environment(earlier: dict[str, Any], here: dict[str, Any]) -> None:
    """Raises RuntimeError when a study would be measured on two environments under one name.

    The git commit may differ, so that a study can be resumed after one, and checks may run under
    deterministic algorithms.
    """
    for fact, value in here.items():
        if (
            fact not in ("git_commit", "deterministic_algorithms")
            and fact in earlier
            and earlier[fact] != value
        ):
            raise RuntimeError(
                f"this study began with {fact} {earlier[fact]} and now finds {value}; start a new study"
            )


def _device_name(device: "torch.device") -> str:
    import torch

    if device.type in ("cuda", "xpu"):
        return str(torch.get_device_module(device).get_device_name(device))
    return cpu_name() if device.type == "cpu" else f"Apple {platform.processor()}"


def cpu_name() -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name")).split(":")[1].strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git_commit() -> str | None:
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
