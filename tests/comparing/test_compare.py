"""Two results next to each other: exact differences, and what is said of them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recompute_core.comparing.compare import compare
from recompute_core.comparing.records import Pairing, StudyComparison
from recompute_core.results import Revisions, SourceRevision, StudyResult
from tests.core.records import facts, illegal, measured, memory, proven, refused, timing

from .results import ENVIRONMENT, reference, result

MB = 1_000_000
NOT_THE_SAME_WORK = (
    "Not the same work: model, precision, optimizer, compiler, ranks or recomputation differ, so a "
    "figure that moved need not be another cost of the same thing."
)


def changes(pairing: Pairing) -> dict[str, tuple[object, ...]]:
    return {c.figure: (c.a, c.b, c.difference, c.interval) for c in pairing.changes}


def said(found: StudyComparison) -> dict[str, tuple[str | None, str | None]]:
    return {d.name: (d.a, d.b) for d in found.differences}


# --- figures -----------------------------------------------------------------------------------------


def test_every_figure_of_a_candidate() -> None:
    a = result([measured(peaks=(4 * MB, 2 * MB), ratios=(1.25, 1.25, 1.25))])
    b = result([measured(peaks=(4 * MB, 3 * MB), ratios=(1.5, 1.5, 1.5))], study_id="t")
    found = compare(a, b)
    assert changes(found.pairings[0]) == {
        "update_ratio": (1.25, 1.5, 0.25, (0.25, 0.25)),
        "update_s": (0.3125, 0.375, 0.0625, (0.0625, 0.0625)),
        "plain_update_s": (0.25, 0.25, 0.0, (0.0, 0.0)),
        "peak_ratio": (0.5, 0.75, 0.25, None),
        "peak_bytes": (2 * MB, 3 * MB, MB, None),
        "plain_peak_bytes": (4 * MB, 4 * MB, 0, None),
        "saved_bytes": (10, 10, 0, None),
    }
    change = found.pairings[0].change("update_ratio")
    assert change is not None
    assert [change.relative, *change.relative_interval] == pytest.approx([0.2] * 3)
    assert change.beyond
    assert found.sentences[:3] == (
        "The verdict is adopt in A and keep original in B.",
        "Update ratio of every-block at T=128 B=4 rose from 1.25 to 1.50 (+0.25 to +0.25).",
        "Peak of every-block at T=128 B=4 rose from 2.00 MB to 3.00 MB (+50.0 %).",
    )
    assert found.seconds_compared
    assert not found.differences


def test_a_difference_within_the_interval_is_none() -> None:
    a = result([measured(ratios=(1.25, 1.5, 1.75))])
    b = result([measured(ratios=(1.25, 1.625, 1.75))], study_id="t")
    found = compare(a, b)
    change = found.pairings[0].change("update_ratio")
    assert change is not None
    assert (change.difference, change.interval, change.beyond) == (0.125, (-0.5, 0.5), False)
    assert found.sentences == (
        "No difference beyond the intervals in 1 candidate, and the peaks are equal to the byte.",
    )


def test_peaks_whose_samples_differ_have_an_interval() -> None:
    unsteady = measured()
    pair = unsteady.memory.model_copy(update={"candidate": memory(2 * MB, 3 * MB, 2 * MB)})
    a = result([unsteady.model_copy(update={"memory": pair})])
    b = result([measured(peaks=(4 * MB, 5 * MB // 2))], study_id="t")
    change = compare(a, b).pairings[0].change("peak_bytes")
    assert change is not None
    assert (change.a, change.b, change.interval) == (2 * MB, 5 * MB // 2, (-MB // 2, MB // 2))
    assert not change.beyond


def test_the_largest_change_leads_and_the_others_are_counted() -> None:
    def at(*ratios: float) -> StudyResult:
        return result([measured(seq_len=128 * (n + 1), ratios=(r,) * 3) for n, r in enumerate(ratios)])

    found = compare(at(1.25, 1.25, 1.25), at(1.375, 1.5, 1.25))
    assert found.sentences[2] == (
        "Update ratio of every-block at T=256 B=4 rose from 1.25 to 1.50 (+0.25 to +0.25); "
        "1 more update ratio moved beyond its interval."
    )


def test_small_changes_are_told_with_enough_digits() -> None:
    a = result([measured(ratios=(1.25, 1.25, 1.25))])
    b = result([measured(ratios=(1.2509765625,) * 3)])
    assert "rose from 1.250 to 1.251 (+0.001 to +0.001)" in compare(a, b).sentences[1]


# --- candidates --------------------------------------------------------------------------------------


def test_candidates_of_one_study_alone_are_listed() -> None:
    a = result([measured(), measured(seq_len=256)])
    b = result([measured("attention"), measured()], study_id="t")
    found = compare(a, b)
    assert [(one.plan, one.shape_key) for one in found.pairings] == [("every-block", "T=128 B=4")]
    assert [(one.side, one.plan, one.shape_key) for one in found.unpaired] == [
        ("a", "every-block", "T=256 B=4"),
        ("b", "attention", "T=128 B=4"),
    ]
    assert "Not compared: 1 candidate in A alone and 1 candidate in B alone." in found.sentences


def test_nothing_in_common() -> None:
    found = compare(result([measured()]), result([measured(seq_len=256)]))
    assert found.sentences[1] == "No candidate is in both at the same shape."
    assert found.pairings == ()


def test_a_plan_is_found_again_under_another_name() -> None:
    same = measured("mine").model_copy(update={"plan_hash": facts()["plan_hash"]})
    found = compare(result([measured()]), result([same]))
    pairing = found.pairings[0]
    assert (pairing.plan, pairing.b.plan, pairing.same_plan) == ("every-block", "mine", True)


def test_another_plan_under_the_same_name_is_said() -> None:
    other = measured().model_copy(update={"plan_hash": "sha256:other"})
    found = compare(result([measured()]), result([other]))
    assert not found.pairings[0].same_plan
    assert "Another plan under the same name: every-block at T=128 B=4." in found.cautions


def test_a_refused_candidate_has_no_figure_and_says_why() -> None:
    b = result([refused("legality", legality=(illegal(),), reasons=("blocks.0: it moves.",))])
    found = compare(result([measured()]), b)
    assert found.pairings[0].changes == ()
    assert found.pairings[0].b.trouble == "blocks.0: it moves."
    assert found.sentences[2] == "No candidate has been measured in both."


def test_half_a_candidate_is_compared_as_far_as_it_goes() -> None:
    half = proven(timing=timing(1.25, 1.25, 1.25))
    found = compare(result([measured()]), result([half], status="running"))
    assert {c.figure for c in found.pairings[0].changes} == {
        "update_ratio",
        "update_s",
        "plain_update_s",
    }
    assert "B is not complete: running." in found.cautions


# --- what differs around them ------------------------------------------------------------------------


def test_asked_and_found_are_told_apart() -> None:
    source = SourceRevision(name="m.Net", file="m.py", sha256="1" * 64)
    a = result(
        [measured()],
        references={"T=128 B=4": reference(revisions=Revisions(model="m.Net", sources=(source,)))},
    )
    edited = Revisions(model="m.Net", sources=(source.model_copy(update={"sha256": "2" * 64}),))
    b = result(
        [measured()],
        references={"T=128 B=4": reference(revisions=edited, batch_digest="sha256:" + "c" * 64)},
        environment=ENVIRONMENT | {"torch": "2.12.0", "device_name": "Other"},
        thresholds={"peak_ratio": 0.5},
        workload={"name": "gpt", "batch": 4, "width": 128},
    )  # fmt: skip
    found = compare(a, b)
    assert [(d.asked, d.found, d.name, d.a, d.b) for d in found.differences] == [
        ("specification", None, "workload.width", "256", "128"),
        ("thresholds", None, "peak_ratio", "0.82", "0.5"),
        (None, "environment", "device name", "Test processor", "Other"),
        (None, "versions", "torch", "2.13.0+cpu", "2.12.0"),
        (None, "source", "source of m.Net", "1" * 64, "2" * 64),
        (None, "data", "batch at T=128 B=4", "sha256:" + "b" * 64, "sha256:" + "c" * 64),
    ]
    assert found.cautions == (
        "Not the same processor (“Test processor” in A, “Other” in B) and torch version "
        "(“2.13.0+cpu” in A, “2.12.0” in B): seconds are not compared, ratios are.",
        NOT_THE_SAME_WORK,
        "The thresholds differ, so each verdict is of other gates.",
    )
    assert not found.seconds_compared
    assert {c.figure for c in found.pairings[0].changes} == {
        "update_ratio", "peak_ratio", "peak_bytes", "plain_peak_bytes", "saved_bytes",
    }  # fmt: skip


@pytest.mark.parametrize("other", [None, {"count": 4}, {"kind": "fsdp2", "count": 2}])
def test_other_ranks_are_other_work(other: dict[str, Any] | None) -> None:
    a = result([measured()], ranks={"count": 2})
    assert compare(a, result([measured()], ranks=other)).cautions == (NOT_THE_SAME_WORK,)
    assert not compare(a, a).cautions


@pytest.mark.parametrize("other", [None, {"backend": "aot_eager"}])
def test_another_compiler_is_other_work(other: dict[str, Any] | None) -> None:
    a = result([measured()], compile={"backend": "inductor"})
    assert compare(a, result([measured()], compile=other)).cautions == (NOT_THE_SAME_WORK,)
    assert not compare(a, a).cautions


def test_figures_of_another_engine_may_be_of_another_machine() -> None:
    here, cluster = result([measured()]), result([measured()], engine="ray")
    caution = (
        "Not the same engine (local in A, ray in B): the cells of a cluster are measured on its nodes, "
        "so a figure that moved may be another machine's."
    )
    assert compare(here, cluster).cautions == (caution,)
    assert compare(cluster, cluster).cautions == ()


def test_an_unknown_environment_compares_no_seconds() -> None:
    found = compare(result([measured()], environment={}), result([measured()]))
    assert not found.seconds_compared
    assert "is not known, so seconds are not compared" in found.cautions[0]


def test_of_long_lists_only_what_the_other_lacks() -> None:
    plans = [f"blocks:{n}" for n in range(6)]
    a = result([measured()], plans=plans)
    b = result([measured()], plans=[*plans[:5], "attention"])
    assert said(compare(a, b))["plans"] == ("5 in both, and blocks:5", "5 in both, and attention")


def test_sizes_are_told_by_shapes_alone() -> None:
    a = result([measured()], shapes=[{}], workload={"name": "gpt", "batch": 4, "seq_len": 128})
    assert said(compare(a, result([measured()]))) == {}
    b = result([measured()], shapes=[{"seq_len": 64}, {"seq_len": 128}])
    assert said(compare(a, b)) == {"shapes": ("T=128 B=4", "T=64 B=4, T=128 B=4")}


def test_a_plan_s_name_is_foreign_text() -> None:
    own = {"plans": ["mine"], "custom_plans": {"mine": [{"modules": ["blocks.0"]}]}}
    found = compare(result([measured()]), result([measured("mine")], **own))
    assert "Asked differently: plans and the plan “mine”." in found.sentences


# --- properties --------------------------------------------------------------------------------------

ratios = st.lists(st.integers(64, 256).map(lambda n: n / 64), min_size=3, max_size=9)
peak = st.integers(1, 30).map(lambda n: n * MB // 4 + MB)
candidates = st.lists(
    st.builds(
        lambda plan, seq_len, ratios, own: measured(plan, seq_len, (9 * MB, own), ratios),
        st.sampled_from(["every-block", "attention"]),
        st.sampled_from([128, 256]),
        ratios,
        peak,
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: (one.plan, one.shape_key),
)


@settings(max_examples=40, deadline=None)
@given(candidates)
def test_a_study_differs_in_nothing_from_itself(given_: list) -> None:
    found = compare(result(given_), result(given_))
    assert found.differences == found.unpaired == found.cautions == ()
    assert len(found.pairings) == len(given_)
    assert all(
        c.difference == c.relative == 0 and not c.beyond for p in found.pairings for c in p.changes
    )
    assert found.sentences[0] == "A and B are the same study."
    assert found.sentences[1].startswith("No difference beyond the intervals")
    assert found.sentences[1].endswith("equal to the byte.")


@settings(max_examples=40, deadline=None)
@given(candidates, candidates)
def test_swapped_sides_turn_every_sign(one: list, other: list) -> None:
    there, back = compare(result(one), result(other)), compare(result(other), result(one))
    mirrored = {(p.shape_key, p.plan): p for p in back.pairings}
    assert len(mirrored) == len(there.pairings)
    for pairing in there.pairings:
        mirror = mirrored[pairing.shape_key, pairing.plan]
        for change in pairing.changes:
            turned = mirror.change(change.figure)
            assert turned is not None
            assert (turned.a, turned.b, turned.difference) == (change.b, change.a, -change.difference)
            assert turned.beyond == change.beyond
            if change.interval is not None:
                low, high = change.interval
                assert turned.interval == (-high, -low)
    assert [(d.name, d.a, d.b) for d in there.differences] == [
        (d.name, d.b, d.a) for d in back.differences
    ]
    sides = {"a": "b", "b": "a"}
    assert {(u.side, u.plan, u.shape_key) for u in there.unpaired} == {
        (sides[u.side], u.plan, u.shape_key) for u in back.unpaired
    }


def test_the_published_document() -> None:
    found = compare(result([measured()]), result([measured()]), supplied=(False, True))
    document = found.model_dump(mode="json", by_alias=True)
    assert document["schema"] == "recompute-comparison/1"
    assert (document["a"]["kind"], document["b"]["kind"]) == ("measured", "supplied")
    assert StudyComparison.model_validate_json(json.dumps(document)) == found
