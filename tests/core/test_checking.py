"""The check of blocks in the background: a real process, its answer shared by studies of one model."""

import time
from pathlib import Path

from recompute_core.settings import GptSettings, ReceiptsSettings
from recompute_core.spec import CheckpointSettings, StudySpec, Thresholds
from recompute_core.studies import checking
from recompute_core.studies.checking import (
    Checked,
    Failed,
    Running,
    asked_check,
    check_state,
    start_check,
)
from recompute_core.studies.store import Store

TINY = StudySpec(
    workload=GptSettings(blocks=2, width=32, heads=2, vocab=17, batch=1),
    shapes=({"seq_len": 24}, {"seq_len": 16}),
)


def settled(store: Store, spec: StudySpec) -> checking.CheckState:
    deadline = time.monotonic() + 240
    while isinstance(state := check_state(store, spec), Running):
        assert state.doing
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return state


def test_every_block_gets_a_verdict_and_studies_of_the_model_share_it(store: Store) -> None:
    assert check_state(store, TINY) == "none"
    start_check(store, TINY)
    assert isinstance(check_state(store, TINY), Running)
    found = settled(store, TINY)
    assert isinstance(found, Checked)
    assert {one.block: one.verdict for one in found.report.blocks} == {
        "blocks.0": "legal",
        "blocks.1": "legal",
    }
    assert set(found.activation_bytes) == {"blocks.0", "blocks.1"}
    other = TINY.model_copy(
        update={"thresholds": Thresholds(peak_ratio=0.5), "plans": ("every-2nd-block",)}
    )
    assert check_state(store, other) == found
    changed = TINY.model_copy(update={"checkpoint": CheckpointSettings(rng="ignore")})
    assert check_state(store, changed) == "none"


def test_the_smallest_shape_is_checked() -> None:
    asked = asked_check(TINY)
    assert isinstance(asked.workload, GptSettings)
    assert asked.workload.seq_len == 16


def test_a_check_that_cannot_be_made_says_why_in_one_line(store: Store, tmp_path: Path) -> None:
    spec = StudySpec(workload=ReceiptsSettings(blocks=1, images=str(tmp_path / "no such folder")))
    start_check(store, spec)
    found = settled(store, spec)
    assert isinstance(found, Failed)
    assert "no such folder" in found.why
    assert "\n" not in found.why


def test_a_damaged_answer_is_no_answer(store: Store) -> None:
    folder = store.home / "checks"
    folder.mkdir()
    (folder / f"{checking._key(TINY)}.json").write_bytes(b"{}\xff")
    assert check_state(store, TINY) == "none"
