"""What NVIDIA's driver counts for a process on a device, asked of NVML itself: no package is needed.

torch's own `torch.cuda.device_memory_used` needs `nvidia-ml-py` and tells of all processes together.
Structures and codes: nvml.h, NVML API reference.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SUCCESS, _TOO_SMALL = 0, 7
_NOT_AVAILABLE = 2**64 - 1
_ROOM = 16
"""Processes that are asked for beyond those just counted: others may start in between."""


class NotTold(Exception):
    """Why the driver gives no figure, in words."""


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t, second version."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def load() -> Any:
    """The driver's library; raises NotTold where there is none."""
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise NotTold("there is no NVML on this machine") from None


def process_bytes(library: Any, uuid: str, pid: int) -> int:
    """Memory that a process holds on the device of this UUID: its context, and all that its allocator
    has reserved. Raises NotTold."""
    with _open(library):
        device = ctypes.c_void_p()
        name = (uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}").encode()
        _check(library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(device)), "knows no such device")
        held = {one.pid: one.used_bytes for one in _processes(library, device)}
    if pid not in held:
        raise NotTold("NVML lists no process of this id; inside a container ids may be others")
    if held[pid] == _NOT_AVAILABLE:
        raise NotTold("NVML does not tell how much a process holds")
    return int(held[pid])


def driver_version(library: Any) -> str:
    """Raises NotTold."""
    text = ctypes.create_string_buffer(96)
    with _open(library):
        _check(library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(96)), "tells no driver version")
    return text.value.decode("ascii", "replace")


def _processes(library: Any, device: ctypes.c_void_p) -> list[_Process]:
    count = ctypes.c_uint(0)
    code = library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None)
    if code != _TOO_SMALL:
        _check(code, "does not list processes")
        return []
    count = ctypes.c_uint(count.value + _ROOM)
    listed = (_Process * count.value)()
    code = library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), listed)
    _check(code, "does not list processes")
    return list(listed[: count.value])


@contextmanager
def _open(library: Any) -> Iterator[None]:
    try:
        _check(library.nvmlInit_v2(), "cannot be started")
        try:
            yield
        finally:
            library.nvmlShutdown()
    except AttributeError as error:  # a driver that is older than the function
        raise NotTold(f"this driver's NVML lacks a function: {error}") from None


def _check(code: int, what: str) -> None:
    if code != _SUCCESS:
        raise NotTold(f"NVML {what} (code {code})")
