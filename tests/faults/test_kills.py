"""Each kind of kill, once: what `make test-faults` does many times over."""

import random

import pytest

from .__main__ import faults

_KINDS = ("worker", "fork server", "driver", "server", "two servers")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_is_lost_doubled_or_left(kind: str) -> None:
    chance = random.Random(7)
    found = faults()[kind](chance)
    for _ in range(3):  # a study that was faster than the kill is no test of it
        if found.injected or found.harm:
            break
        found.add(faults()[kind](chance))
    assert found.is_clean, found
