"""Set up's badges: a verdict and a reason for every block, asked for and watched."""

import pytest

from pages._parts import safety
from recompute_core.checks.report import BlockReport, BlockVerdict
from recompute_core.results import Reason
from recompute_core.spec import StudySpec
from recompute_core.studies.checking import Checked, CheckState, Failed, Running

from .conftest import OpenPage
from .reading import text


def _reason(block: str, code: str, sentence: str) -> Reason:
    return Reason(code=code, block=block, sentence=f"{block}: {sentence}")


def _checked(*blocks: BlockVerdict) -> Checked:
    return Checked(
        report=BlockReport(
            blocks=blocks, tolerance=1e-5, noise_floor=0.0, largest_relative_gap=0.0, steps=19
        ),
        activation_bytes={one.block: 1_500_000 for one in blocks},
        notes=("free of running statistics: blocks.1",),
    )


LEGAL = BlockVerdict(
    block="blocks.1",
    verdict="legal",
    conditions=(_reason("blocks.1", "rng_preserved", "legal with the random state <preserved>."),),
)
ILLEGAL = BlockVerdict(
    block="blocks.0",
    verdict="illegal",
    reasons=(_reason("blocks.0", "running_statistics", "the statistics of blocks.0.norm1 move twice."),),
)


@pytest.fixture
def stands(monkeypatch: pytest.MonkeyPatch):
    """Makes the check stand as it is told."""

    def stand(state: CheckState) -> None:
        monkeypatch.setattr(safety, "check_state", lambda store, spec: state)

    return stand


def test_each_block_has_its_verdict_and_its_reason(open_page: OpenPage, stands) -> None:
    stands(_checked(ILLEGAL, LEGAL))
    said = text(open_page("setup"))
    assert "blocks.0 illegal 1.50 the statistics of it.norm1 move twice." in said
    assert "blocks.1 legal 1.50 legal with the random state <preserved>." in said
    assert "19 training steps" in said
    assert "Free of running statistics: blocks.1." in said


def test_equal_blocks_stand_in_one_row() -> None:
    several = [BlockVerdict(block=f"blocks.{n}", verdict="legal") for n in range(4)]
    ((names, *_),) = safety.rows(_checked(*several))
    assert "blocks.0 … blocks.3" in names
    assert "blocks.1, blocks.2" in names, "all of them when it is pointed at"


def test_the_button_starts_a_check_of_what_was_chosen(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[StudySpec] = []
    monkeypatch.setattr(safety, "start_check", lambda store, spec: asked.append(spec))
    app = open_page("setup")
    app.selectbox(key="rng").set_value("ignore").run()
    app.button(key="check blocks").click().run()
    assert not app.exception
    (spec,) = asked
    assert spec.checkpoint.rng == "ignore"


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (Running("step 3: recompute blocks.0"), "Checking: step 3: recompute blocks.0"),
        (Failed("no room [here]"), "The check failed: no room [here]"),
    ],
)
def test_a_check_under_way_or_failed_is_said(
    open_page: OpenPage, stands, state: CheckState, says: str
) -> None:
    stands(state)
    assert says in text(open_page("setup"))
