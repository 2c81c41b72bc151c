"""Records that are well formed each, and cannot all be of one study."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from recompute_core.reports.evidence import CELLS, STUDY, timeline_name
from recompute_core.reports.predicate import derive
from recompute_core.reports.refusal import Untrusted
from recompute_core.results import CompiledUpdate
from tests.pages import studies
from tests.reports.decisions import edited, evidence, evidence_from

Cells = list[dict[str, Any]]
AT = "T=128 B=4"


def _change(phase: str, **changes: Any) -> Callable[[Cells], None]:
    """Another finding of a phase at the first shape."""

    def change(cells: Cells) -> None:
        cell = next(one for one in cells if (one["shape_key"], one["phase"]) == (AT, phase))
        cell["payload"] |= changes

    return change


def _tensor(phase: str, **changes: Any) -> Callable[[Cells], None]:
    def change(cells: Cells) -> None:
        cell = next(one for one in cells if (one["shape_key"], one["phase"]) == (AT, phase))
        cell["payload"]["gaps"][3] |= changes

    return change


def _without_tensor(phase: str) -> Callable[[Cells], None]:
    def change(cells: Cells) -> None:
        next(one for one in cells if one["phase"] == phase)["payload"]["gaps"].pop()

    return change


def _calls(**changes: int) -> Callable[[Cells], None]:
    def change(cells: Cells) -> None:
        calls = next(one for one in cells if one["phase"] == "parity")["payload"]["block_calls"]
        calls |= {name.replace("_", "."): number for name, number in changes.items()}

    return change


def _verdict(verdict: str) -> Callable[[Cells], None]:
    def change(cells: Cells) -> None:
        legality = next(one for one in cells if one["phase"] == "legality")
        legality["payload"]["blocks"][0]["verdict"] = verdict

    return change


def _pairs(count: int) -> Callable[[Cells], None]:
    def change(cells: Cells) -> None:
        timing = next(one for one in cells if one["phase"] == "time")["payload"]
        timing["samples"] = (timing["samples"] * count)[:count]

    return change


ODD: dict[str, tuple[Callable[[Cells], None], str]] = {
    "noise floor": (_change("parity", noise_floor=1e-7), "noise floor"),
    "noise": (_tensor("noise", absolute=1e-9, relative=1e-9), "noise floor"),
    "another tensor in parity": (_tensor("parity", name="w"), "parity compares other tensors"),
    "another tensor in noise": (_tensor("noise", name="w"), "plain against plain compares other"),
    "a tensor twice": (_tensor("parity", name="blocks.0.attn.weight"), "compares a tensor twice"),
    "a tensor less in parity": (_without_tensor("parity"), "parity compares other tensors"),
    "a tensor less in noise": (_without_tensor("noise"), "plain against plain compares other"),
    "tensors": (_change("reference", tensors=119), "left 119 tensors, and 120 are named"),
    "fingerprints": (_change("reference", fingerprints=[]), "left 120 tensors, and 0 are named"),
    "rollback of less": (
        _change("parity", rollback={"compared": 1}),
        "taking the plan off compared 1 tensors; plain's update left 120",
    ),
    "no rollback": (_change("parity", rollback=None), "that the plan comes off was not looked at"),
    "illegal without a reason": (_verdict("illegal"), "is illegal, which its reasons do not say"),
    "error without a reason": (_verdict("error"), "is error, which its reasons do not say"),
    "nothing recomputed": (_calls(blocks_0=1), "was called 1 times under the plan, 1 times in plain"),
    "a block of no model": (_calls(blocks_9=2), "the calls of other blocks"),
    "canary elsewhere": (_change("canary", block="blocks.5"), "that of this plan is in blocks.0"),
    "canary from nowhere": (_change("canary", ran_at="T=1 B=1"), "said to have run at 'T=1 B=1'"),
    "canary without a gap": (_change("canary", largest_relative_gap=None), "nobody saw a gap"),
    "too few pairs": (_pairs(2), "2 pairs were timed; the study asked for 7 to 31"),
    "too many pairs": (_pairs(32), "32 pairs were timed; the study asked for 7 to 31"),
    "more saved than alive": (_change("memory", saved_bytes=10**12), "more bytes for backward than its"),
    "canary that changed nothing": (_change("canary", largest_relative_gap=0.0), "nobody saw a gap"),
}


@pytest.mark.parametrize("what", ODD)
def test_records_that_disagree_are_refused(what: str) -> None:
    change, words = ODD[what]
    with pytest.raises(Untrusted) as caught:
        derive(edited(CELLS, change))
    assert (caught.value.code, words in str(caught.value)) == ("records-disagree", True), caught.value
    assert AT in str(caught.value)


def test_a_block_that_the_plan_does_not_name_is_called_as_in_plain() -> None:
    files = evidence_from(studies.filled, "every-2nd-block")
    with pytest.raises(Untrusted, match="was called 2 times under the plan, 1 times in plain"):
        derive(edited(CELLS, _calls(blocks_1=2), files))


@pytest.mark.parametrize("told", [{"engine": "ray"}, {"ranks": 2, "ranks_kind": "ddp"}])
def test_an_environment_is_of_what_was_asked_for(told: dict[str, Any]) -> None:
    def elsewhere(study: dict[str, Any]) -> None:
        study["environment"] |= told

    with pytest.raises(Untrusted, match="than the specification asks for"):
        derive(edited(STUDY, elsewhere))


def test_graphs_have_no_fewer_ops_than_none() -> None:
    assert CompiledUpdate(forward_ops=3, backward_ops=5, replayed_ops=5).replayed_ops == 5
    for wrong in ({"forward_ops": -1}, {"replayed_ops": 6}, {"recomputed_ops": {"blocks.0": -1}}):
        with pytest.raises(ValidationError):
            CompiledUpdate(**{"forward_ops": 3, "backward_ops": 5, "replayed_ops": 5, **wrong})


def test_a_timeline_reaches_the_peak() -> None:
    def flat(sides: dict[str, Any]) -> None:
        timeline = sides["candidate"]
        timeline["bytes"] = [timeline["bytes"][0]] * len(timeline["bytes"])

    with pytest.raises(Untrusted, match="timeline of 'every-block' does not reach the peak"):
        derive(edited(timeline_name(AT), flat))


@pytest.mark.parametrize("side", ["plain", "candidate"])
def test_a_timeline_of_an_update_beside_those_that_were_counted(side: str) -> None:
    """On a GPU: it may be off by what an allocator's blocks differ from update to update, not more."""

    def lower(share: float) -> Callable[[dict[str, Any]], None]:
        def change(sides: dict[str, Any]) -> None:
            top = max(sides[side]["bytes"])
            sides[side]["bytes"] = [min(one, int(top * (1 - share))) for one in sides[side]["bytes"]]

        return change

    assert derive(edited(timeline_name(AT), lower(0.015))).verdict == "adopt"
    with pytest.raises(Untrusted, match="does not reach the peak"):
        derive(edited(timeline_name(AT), lower(0.025)))


def test_what_only_a_gpu_tells_is_said_with_its_source() -> None:
    source = "by the driver"
    told = {"process_peak_bytes": 7, "process_peak_source": source, "peak_reserved_bytes": 9}

    def on_a_gpu(cells: Cells) -> None:
        for cell in cells:
            if cell["phase"] == "memory":
                cell["payload"] |= told | {"history": "a name", "history_digest": "sha256:0"}

    figures = {one.name: one for one in derive(edited(CELLS, on_a_gpu)).shapes[0].figures}
    assert figures["process_peak_bytes"].candidate == 7
    assert figures["process_peak_bytes"].source == source
    assert figures["peak_reserved_bytes"].plain == 9


def test_what_honest_studies_may_hold() -> None:
    taken_over = _change("canary", ran_at="T=256 B=4")
    beyond = _change("canary", largest_relative_gap=None, problem="not finite")
    for change in (taken_over, beyond):
        assert derive(edited(CELLS, change)).verdict == "adopt"


def test_records_of_a_version_without_fingerprints() -> None:
    def older(cells: Cells) -> None:
        for cell in cells:
            if cell["phase"] == "reference":
                cell["payload"]["fingerprints"] = None

    assert derive(edited(CELLS, older)).verdict == "adopt"
    study = json.loads(evidence()[STUDY])
    assert study["made_by"].startswith("recompute_core ")
