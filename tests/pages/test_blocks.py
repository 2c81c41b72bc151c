"""The block map of Set up: the model block by block, what each plan does to it, and the hand on it."""

import json
import re
import time
from typing import Any

import pytest

from pages._parts import ask, blocks, blocks_by_hand, safety
from pages._parts.blocks import BlockMap, block_map, drawn, legend, shortened, summary
from pages._parts.blocks_by_hand import Chosen, chosen
from recompute_core.checks.report import BlockReport, BlockVerdict
from recompute_core.results import Reason
from recompute_core.settings import Anatomy, OwnSettings
from recompute_core.spec import StudySpec
from recompute_core.studies.checking import Checked
from recompute_core.workloads.sizes import sizes_of

from . import studies
from .conftest import OpenPage
from .reading import components, text


def _words(found: BlockMap, plan: str) -> list[str]:
    column = next(one for one in found.columns if one.plan == plan)
    return [cell.state for cell in column.cells]


def _own(names: tuple[str, ...], **parts: Any) -> StudySpec:
    anatomy = Anatomy(names=names, **parts)
    return StudySpec(
        workload=OwnSettings(name="hf:LlamaConfig", anatomy=anatomy), plans=("every-block",)
    )


def _checked(*verdicts: BlockVerdict) -> Checked:
    return Checked(
        report=BlockReport(
            blocks=verdicts, tolerance=1e-5, noise_floor=0.0, largest_relative_gap=0.0, steps=19
        ),
        activation_bytes={one.block: 1_000_000 * (n + 1) for n, one in enumerate(verdicts)},
        notes=(),
    )


def test_each_plan_says_what_it_does_to_each_block() -> None:
    own = {
        "pair": [{"modules": ["blocks.0", "blocks.1"]}],
        "part": [{"modules": ["blocks.2.mlp"]}],
    }
    plans = ["every-2nd-block", "nested", "keep-attention", "attention", "pair", "part"]
    spec = studies.spec_of(plans=plans, custom_plans=own, workload={"blocks": 3})
    found = block_map(spec, [0, 2], None)
    assert {one.plan: _words(found, one.plan) for one in found.columns} == {
        "none": ["kept"] * 3,
        "every-2nd-block": ["recomputed", "kept", "recomputed"],
        "nested": ["nested"] * 3,
        "keep-attention": ["selective"] * 3,
        "attention": ["partly"] * 3,
        "pair": ["recomputed", "recomputed", "kept"],
        "part": ["kept", "kept", "partly"],
    }
    known = [one.plan for one in found.columns if one.saved != "–"]
    assert known == ["none", "every-2nd-block"], "no figure where none is known"
    assert legend(found).startswith(
        "○ kept, ● recomputed, ◉ recomputed more than once, ◐ recomputed but"
    )


@pytest.mark.parametrize("workload", ["gpt", "receipts"])
@pytest.mark.parametrize("number", [6, 24, 96])
def test_bytes_and_work_add_up_to_the_whole(workload: str, number: int) -> None:
    shape = {"seq_len": 128} if workload == "gpt" else {"height": 96, "image_width": 64}
    spec = studies.spec_of(workload={"name": workload, "blocks": number}, shapes=[shape])
    found = block_map(spec, [], None)
    sizes = sizes_of(spec.at(spec.shapes[0]))
    assert sizes is not None
    assert sum(one.bytes or 0 for one in found.blocks) == sizes.saved_bytes
    assert sum(one.work or 0 for one in found.blocks) == pytest.approx(1)
    outside = [one.name for one in found.blocks if one.number is None]
    assert outside == (["embedding, head, loss"] if workload == "gpt" else ["stem"])
    assert (found.blocks[0].number is None) is (workload == "receipts"), "in the order of forward"
    markup = drawn(found)
    assert markup.count("<button") == number
    assert markup.count('tabindex="0"') == 1, "one stop of the Tab key"
    assert "estimated" in legend(found)


def test_pressed_are_the_blocks_by_hand() -> None:
    found = block_map(studies.spec_of(), [1, 4], None)
    pressed = re.findall(r'data-block="(\d)"[^>]*aria-pressed="true"', drawn(found))
    assert pressed == ["1", "4"]
    assert summary(found) == "By hand: 2 of 6 blocks recomputed."
    assert "Click a block" in summary(block_map(studies.spec_of(), [], None))


def test_another_model_has_bytes_once_it_was_checked() -> None:
    name = "model.vision_tower.encoder.layers.11"
    spec = _own(("model.layers.0", name))
    before = block_map(spec, [], None)
    assert [one.bytes for one in before.blocks] == [None, None]
    assert "Activations" not in drawn(before)
    assert "measured when the blocks are checked" in legend(before)
    bad = Reason(code="running_statistics", block=name, sentence=f"{name}: statistics <move>.")
    legal = BlockVerdict(block="model.layers.0", verdict="legal")
    found = block_map(
        spec, [], _checked(legal, BlockVerdict(block=name, verdict="illegal", reasons=(bad,)))
    )
    assert [one.bytes for one in found.blocks] == [1_000_000, 2_000_000]
    markup = drawn(found)
    assert f">{shortened(name)}<" in markup and f'title="{name}"' in markup
    assert "statistics &lt;move&gt;." in markup and "illegal" in markup
    assert "measured by the check, at T=64 B=2" in legend(found)
    assert "Work" not in markup, "not known, so left out"


def test_a_long_name_keeps_its_end() -> None:
    assert shortened("blocks.11") == "blocks.11"
    assert shortened("a" * 30 + ".layers.11", 20) == "aaaaaa…aaa.layers.11"
    assert len(shortened("x" * 200)) == 22


def test_names_are_escaped() -> None:
    markup = drawn(block_map(_own(("<img/src=x>.0", "b&.1")), [], None))
    assert "<img" not in markup


@pytest.mark.parametrize(
    ("before", "clicked", "on", "after"),
    [
        ([], [3], True, ["3"]),
        (["3", "1"], [0], True, ["0", "1", "3"]),
        (["0", "1"], [1], False, ["0"]),
        ([], [0, 1, 2, 3, 4, 5, 6, 700], True, ["0", "1", "2", "3", "4", "5"]),
        (["2"], [2], True, ["2"]),
    ],
)
def test_a_click_changes_the_choice(
    before: list[str], clicked: list[int], on: bool, after: list[str]
) -> None:
    assert chosen(before, Chosen(blocks=clicked, on=on), 6) == after


@pytest.mark.parametrize(
    "said", [None, 3, {}, {"blocks": ["0"], "on": True}, {"blocks": [-1], "on": True},
             {"blocks": [], "on": True}, {"blocks": [0], "on": 1}, {"blocks": [0] * 2000, "on": True}],
)  # fmt: skip
def test_what_makes_no_sense_changes_nothing(monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    state = {blocks_by_hand.KEY: {"chosen": said}, "by_hand": ["2"]}
    monkeypatch.setattr(blocks_by_hand.st, "session_state", state)
    blocks_by_hand._chosen(6)
    assert state["by_hand"] == ["2"]


def test_the_map_and_the_list_hold_the_same(open_page: OpenPage) -> None:
    app = open_page("setup")
    app.multiselect(key="by_hand").set_value(["0", "5"]).run()
    (shown,) = components(app, "blocks")
    markup = json.loads(shown.proto.json)["markup"]
    assert re.findall(r'data-block="(\d)"[^>]*aria-pressed="true"', markup) == ["0", "5"]
    assert "By hand: 2 of 6 blocks recomputed." in text(app)


def test_a_check_puts_badges_on_the_map(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    state = _checked(*(BlockVerdict(block=f"blocks.{n}", verdict="legal") for n in range(6)))
    for module in (safety, blocks_by_hand):
        monkeypatch.setattr(module, "check_state", lambda store, spec: state)
    (shown,) = components(open_page("setup"), "blocks")
    assert shown.proto.json.count("legal<") == 6


def test_a_large_model_is_drawn_quickly() -> None:
    plans = [*ask.BLOCK_RECIPES, *ask.FINER_RECIPES]
    spec = studies.spec_of(workload={"blocks": 96}, plans=plans)
    block_map(spec, [], None)
    begun = time.process_time()
    drawn(block_map(spec, [], None))
    assert time.process_time() - begun < 1, "what plans do is worked out once"
    assert blocks.at_a_glance.cache_info().hits
