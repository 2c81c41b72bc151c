"""An accelerator that is not there makes no study."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from recompute_core.errors import InputError
from recompute_core.studies import device_there
from recompute_core.studies.launch import launch
from recompute_core.studies.store import Store
from tests.core.cells import SPEC

without_one = pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator here")


@without_one
@pytest.mark.parametrize("device", ["cuda", "xpu", "mps"])
def test_a_device_that_is_not_here_is_one_line_and_no_study(store: Store, device: str) -> None:
    with pytest.raises(InputError) as refused:
        launch(store, SPEC.model_copy(update={"device": device}))
    assert str(refused.value) == f"device: no {device} on this machine (accelerator here: none)"
    assert store.studies() == []


@pytest.mark.parametrize("changes", [{"device": "auto"}, {"device": "cpu"}, {"engine": "ray"}])
def test_nobody_is_asked_where_this_machine_does_not_matter(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")
    device_there.check_device(SPEC.model_copy(update={"device": "cuda"} | changes))
    with pytest.raises(FileNotFoundError):
        device_there.check_device(SPEC.model_copy(update={"device": "cuda"}))


def test_a_device_that_ends_the_process_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is broken may do that to whoever looks for its device."""
    ended = subprocess.CompletedProcess([], -11, stdout="", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *asked, **named: ended)
    with pytest.raises(InputError, match=r"looked for cuda died of signal 11 \(SIGSEGV\)$"):
        device_there.check_device(SPEC.model_copy(update={"device": "cuda"}))
