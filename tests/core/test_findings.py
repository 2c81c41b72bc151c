"""A finished phase as a sentence."""

import pytest

from recompute_core.results import Canary, Gap, Noise
from recompute_core.studies.findings import finding
from tests.core import records as make


def losses(*names: str, gap: float) -> Noise:
    return Noise(gaps=tuple(Gap(part="loss", name=name, absolute=gap, relative=gap) for name in names))


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (losses("", gap=0), "plain repeats bitwise"),
        (losses("", gap=0.5), "plain against plain, largest relative gap 0.5"),
        (losses("of rank 0", "of rank 1", gap=0), "2 ranks equal one process bitwise"),
        (
            losses("of rank 0", "of rank 1", gap=0.5),
            "2 ranks against one process, largest relative gap 0.5",
        ),
    ],
)
def test_noise_says_what_was_compared(noise: Noise, words: str) -> None:
    """Over ranks it is what training together changes: no process runs plain twice."""
    said = finding("T=8 B=2", "none", "noise", noise.model_dump(mode="json"))
    assert said == f"noise: {words} for plain at T=8 B=2"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (make.canary(), "canary: broken replay caught for every-block at T=192 B=4"),
        (make.canary(False), "canary: broken replay MISSED for every-block at T=192 B=4"),
        (
            make.canary().model_copy(update={"ran_at": "T=128 B=4"}),
            "canary of every-block at T=192 B=4: the broken replay was caught, at T=128 B=4",
        ),
    ],
)
def test_a_canary_that_ran_at_another_shape_says_which_is_which(found: Canary, said: str) -> None:
    assert finding("T=192 B=4", "every-block", "canary", found.model_dump(mode="json")) == said
