"""How an error is said: those of this package are sentences, others are said with their kind."""

import pytest

from recompute_core.errors import EngineError, InputError, StoreError
from recompute_core.meters.chrome import TraceNotKept
from recompute_core.studies.background import in_one_line
from recompute_core.studies.worker import reason_of


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("device: no cuda on this machine"), "device: no cuda on this machine"),
        (StoreError("the disk is full"), "the disk is full"),
        (EngineError("no cluster answers"), "no cluster answers"),
        (TraceNotKept("it is too large"), "it is too large"),
        (ValueError("no such kernel"), "ValueError: no such kernel"),
    ],
)
def test_the_kind_is_said_of_others_errors_alone(error: Exception, said: str) -> None:
    assert reason_of(error) == said
    assert in_one_line(error) == said
