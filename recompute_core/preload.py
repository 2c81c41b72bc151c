"""Loaded once by the fork server, so that a worker starts with torch in memory."""

import torch
import torch._dynamo
import torch.profiler
import torch.utils.checkpoint
import torch.utils.flop_counter  # noqa: F401

from .checks import legality, parity, snapshot  # noqa: F401
from .meters import memory, timing  # noqa: F401
from .studies import worker  # noqa: F401
from .workloads import gpt  # noqa: F401
