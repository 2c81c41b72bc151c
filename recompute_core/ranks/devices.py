"""Which device a rank runs on: the CPU for all, or a GPU each."""

import torch

from ..errors import InputError
from ..spec import Ranks


def check_devices(device: torch.device, ranks: Ranks) -> None:
    """Raises InputError where this machine has no device for every rank."""
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"ranks: training over ranks runs on cpu and cuda, not on {device.type}")
    if device.type == "cuda" and (there := torch.cuda.device_count()) < ranks.count:
        raise InputError(f"ranks.count: each rank needs a GPU of its own; {there} are here")


def use_device(device: torch.device, rank: int) -> None:
    """What is moved to `cuda` goes to this rank's GPU from here on."""
    if device.type != "cpu":
        torch.accelerator.set_device_index(rank)
