"""Where a peak sits and how a trace is thinned, on traces written by hand. No torch."""

import pytest

from recompute_core.meters.timeline import Trace, peak_at, thin
from recompute_core.results import PeakAt


def trace(*events: tuple[int, int] | tuple[int, str]) -> Trace:
    """From (time, bytes alive) and (time, label), in order of time."""
    memory = [(at, what) for at, what in events if isinstance(what, int)]
    return Trace(
        tuple(at for at, _ in memory),
        tuple(alive for _, alive in memory),
        tuple((at, what) for at, what in events if isinstance(what, str)),
    )


PHASES = [
    (0, "zero_grad"),
    (10, "forward"),
    (20, "block blocks.0"),
    (30, "end of blocks.0"),
    (40, "block blocks.1"),
    (50, "end of blocks.1"),
    (60, "backward"),
    (70, "backward of blocks.1"),
    (80, "replay blocks.1"),
    (90, "backward of blocks.0"),
    (100, "replay blocks.0"),
    (110, "optimizer"),
]


@pytest.mark.parametrize(
    ("moment", "phase", "module", "replaying"),
    [
        (5, "zero_grad", None, False),
        (15, "forward", None, False),
        (25, "forward", "blocks.0", False),
        (35, "forward", None, False),
        (45, "forward", "blocks.1", False),
        (55, "forward", None, False),
        (65, "backward", None, False),
        (75, "backward", "blocks.1", False),
        (85, "backward", "blocks.1", True),
        (95, "backward", "blocks.0", False),
        (105, "backward", "blocks.0", True),
        (115, "optimizer", None, False),
    ],
)
def test_where_a_peak_sits(moment: int, phase: str, module: str | None, replaying: bool) -> None:
    found = trace(*sorted([*PHASES, (1, 5), (moment, 9), (119, 5)], key=lambda event: event[0]))
    assert found.peak == 9
    assert peak_at(found) == PeakAt(phase=phase, module=module, replaying=replaying)


def test_a_peak_between_replay_and_its_backward_is_the_replays() -> None:
    """The variant in which the hook of the block's output fires after its replay has begun."""
    found = trace((0, "backward"), (1, "replay blocks.1"), (2, "backward of blocks.1"), (3, 9))
    assert peak_at(found) == PeakAt(phase="backward", module="blocks.1", replaying=True)


def test_blocks_recomputed_as_one_come_back_together() -> None:
    found = trace(
        (0, "backward"),
        (1, "backward of blocks.1"),
        (2, "replay blocks.0"),
        (3, "replay blocks.1"),
        (4, "backward of blocks.0"),
        (5, 9),
    )
    assert peak_at(found) == PeakAt(phase="backward", module="blocks.0", replaying=True)


def test_the_first_of_equal_peaks_counts() -> None:
    found = trace((0, "forward"), (1, 9), (2, "backward"), (3, 9))
    assert peak_at(found) == PeakAt(phase="forward", module=None, replaying=False)


def test_nothing_allocated() -> None:
    nothing = trace((0, "forward"))
    assert (nothing.peak, peak_at(nothing), thin(nothing, 100)) == (0, None, None)


def test_freed_below_the_start_is_no_peak() -> None:
    assert trace((0, -8), (1, -4)).peak <= 0


def test_thinning_adds_the_state_and_keeps_the_highest_of_each_bin() -> None:
    found = trace((0, 1), (10, 7), (20, 3), (500, 4), (510, 2), (1000, 5), (1000, 1), (20, "x"))
    line = thin(found, base_bytes=100, bins=2)
    assert line is not None
    assert line.bytes == (107, 104, 105)
    assert line.seconds == (0.0, 0.0, 1e-6)
    assert line.marks == ((0.0, "x"),)


def test_thinning_keeps_the_peak_however_few_the_bins() -> None:
    found = trace(*((at, (at * 7919) % 1000) for at in range(5000)))
    for bins in (1, 7, 400):
        line = thin(found, 0, bins)
        assert line is not None
        assert max(line.bytes) == found.peak == 999
        assert len(line.bytes) <= bins + 1


def test_one_event_alone() -> None:
    line = thin(trace((5, 3)), 0)
    assert line is not None
    assert (line.seconds, line.bytes) == ((0.0,), (3,))
