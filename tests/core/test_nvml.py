"""What NVML is asked and how its answers are read, with a stand-in for the driver's library."""

from typing import Any

import pytest

from recompute_core.meters import nvml

MIB = 1 << 20


class Driver:
    """Answers as libnvidia-ml.so.1 does, for one device and the processes that a test names."""

    def __init__(self, *processes: tuple[int, int], uuid: str = "GPU-1-2-3", init: int = 0) -> None:
        self._processes, self._uuid, self._init = processes, uuid.encode(), init
        self.open = 0

    def nvmlInit_v2(self) -> int:
        self.open += self._init == 0
        return self._init

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, device: Any) -> int:
        device._obj.value = 7
        return 0 if uuid == self._uuid else 6

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device: Any, count: Any, listed: Any) -> int:
        assert device.value == 7
        room, count._obj.value = count._obj.value, len(self._processes)
        if room < len(self._processes):
            return 7  # insufficient size: the count is told
        for place, (pid, used) in enumerate(self._processes):
            listed[place].pid, listed[place].used_bytes = pid, used
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        assert size.value == len(text)
        text.value = b"580.159.03"
        return 0


def test_the_share_of_the_process_that_asks() -> None:
    driver = Driver((11, 300 * MIB), (42, 518 * MIB))
    assert nvml.process_bytes(driver, "1-2-3", 42) == 518 * MIB
    assert nvml.process_bytes(driver, "GPU-1-2-3", 11) == 300 * MIB
    assert driver.open == 0, "what was started is shut down"


def test_the_driver_tells_its_version() -> None:
    assert nvml.driver_version(Driver()) == "580.159.03"


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        (Driver(), "NVML lists no process of this id; inside a container ids may be others"),
        (Driver((1, MIB)), "NVML lists no process of this id; inside a container ids may be others"),
        (Driver((42, 2**64 - 1)), "NVML does not tell how much a process holds"),
        (Driver((42, MIB), uuid="GPU-9"), r"NVML knows no such device \(code 6\)"),
        (Driver((42, MIB), init=9), r"NVML cannot be started \(code 9\)"),
    ],
    ids=["none", "another's", "hidden", "no device", "no driver"],
)
def test_what_is_not_told_has_a_reason(driver: Driver, why: str) -> None:
    with pytest.raises(nvml.NotTold, match=why):
        nvml.process_bytes(driver, "1-2-3", 42)
    assert driver.open == 0


def test_a_driver_older_than_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Driver, "nvmlDeviceGetComputeRunningProcesses_v3")
    with pytest.raises(nvml.NotTold, match="lacks a function"):
        nvml.process_bytes(Driver((42, MIB)), "1-2-3", 42)


def test_a_machine_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(nvml.ctypes, "CDLL", missing)
    with pytest.raises(nvml.NotTold, match="there is no NVML on this machine"):
        nvml.load()
