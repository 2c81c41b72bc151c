"""What a rank does by itself, in this process."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recompute_core.spec import parse_spec
from recompute_core.studies import rank_member
from recompute_core.studies.store import Phase
from recompute_core.studies.worker import Assignment


@pytest.mark.parametrize(("phase", "repeats"), [("noise", 1), ("parity", 1), ("memory", 0), ("time", 0)])
def test_checks_on_an_accelerator_repeat_themselves_and_costs_do_not(
    phase: Phase, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the study's environment says of them."""
    called: list[None] = []
    monkeypatch.setattr(rank_member, "repeat_itself", lambda: called.append(None))
    monkeypatch.setattr(rank_member, "describe_environment", lambda *_: {})
    task = Assignment(
        spec=parse_spec({"ranks": {"count": 2}}),
        shape={},
        regions=(),
        phases=(phase,),
        home=Path(),
        reference=Path(),
    )
    team: Any = SimpleNamespace(rank=0, count=2)
    rank = rank_member._Member(task, torch.device("cuda"), team)
    with pytest.raises(RuntimeError, match=f"{phase} was asked for without"):
        rank.do(phase, lambda **_: None)
    assert len(called) == repeats
