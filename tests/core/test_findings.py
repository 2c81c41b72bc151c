"""A finished phase as a sentence."""

import pytest

from recompute_core.results import Gap, Noise
from recompute_core.studies.findings import finding


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
