"""No false alarm: every module of torch.nn that trains on a CPU, in a small block."""

import inspect
import warnings

import pytest
from torch import nn

from tests import nn_zoo


def test_no_module_is_left_out_silently() -> None:
    classes = {name for name in dir(nn) if inspect.isclass(getattr(nn, name))}
    modules = {name for name in classes if issubclass(getattr(nn, name), nn.Module)}
    assert modules == nn_zoo.KINDS.keys() | nn_zoo.LEFT_OUT.keys()
    assert not nn_zoo.KINDS.keys() & nn_zoo.LEFT_OUT.keys()


@pytest.mark.parametrize("name", sorted(nn_zoo.KINDS))
def test_only_what_truly_misbehaves_is_refused(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy modules and nested tensors warn of themselves
        found = nn_zoo.check(name)
    assert found.verdict == nn_zoo.MISBEHAVING.get(name, "legal"), found.reasons
    assert all(reason.block == "block" and "block" in reason.sentence for reason in found.reasons)
    assert found.steps <= 24
