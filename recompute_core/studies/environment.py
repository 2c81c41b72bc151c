"""What a figure was measured on: device, libraries, threads and numeric settings."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def describe_environment(device: "torch.device") -> dict[str, Any]:
    """The facts about this process and machine that a figure depends on."""
    import torch

    return {
        "device": device.type,
        "device_name": _device_name(device),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "precision": "float32",
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": metadata.version("numpy"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "git_commit": _git_commit(),
    }


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
