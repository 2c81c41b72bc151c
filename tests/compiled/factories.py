"""Somebody's own model, whose blocks have dropout or none."""

from torch import Tensor, nn

from tests.compiled.toys import wide


def dropped() -> tuple[nn.Module, tuple[Tensor, ...]]:
    job = wide(0.1)
    return job.model, job.batch


def whole() -> tuple[nn.Module, tuple[Tensor, ...]]:
    job = wide(0.0)
    return job.model, job.batch
