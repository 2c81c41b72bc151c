"""Each kind of kill, once: what `make test-faults` does many times over."""

import random

import pytest

from .__main__ import faults

_KINDS = ("worker", "fork server", "driver", "server", "two servers")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_is_lost_doubled_or_left(kind: str) -> None:
    found = faults()[kind](random.Random(7))
    assert found.harm == 0, found
    assert found.runs == 1
