"""An undecided study leads on, and what is run again says so, on every page and in the report."""

from typing import Any

import pytest

from pages._parts.data import snapshot
from recompute_core.comparing.compare import compare
from recompute_core.reports.evidence import gather
from recompute_core.reports.html import render
from recompute_core.reports.predicate import Predicate, derive
from recompute_core.reports.read_evidence import read_evidence
from recompute_core.rerun import repeated
from recompute_core.spec import Thresholds
from recompute_core.studies.store import Store

from . import studies
from .conftest import OpenPage
from .reading import text

WHY = "The interval of the update time of every-block at T=128 B=4, 1.190 to 1.550, crosses the gate"
LOOSE = "whose update gate was 1.35 (here 1.51), after its result was seen."


def undecided(store: Store, **changes: Any) -> str:
    """Of one plan, whose times straddle the gate at both shapes."""
    spec = studies.spec_of(plans=["every-block"], **changes)
    return studies.filled(store, spec, ratios=studies.WIDE)


def rerun(store: Store) -> tuple[str, str]:
    """An undecided study, and the one that repeats it under a looser gate."""
    first = undecided(store)
    spec = repeated(store.study(first).spec, first, Thresholds(update_ratio=1.51))
    return first, studies.filled(store, spec, ratios=(*studies.NARROW, *studies.NARROW))


@pytest.mark.parametrize("page", ["live", "tradeoff", "decision"])
def test_an_undecided_study_says_why_and_leads_on(
    open_page: OpenPage, store: Store, launched: list[str], page: str
) -> None:
    study = undecided(store)
    app = open_page(page, study=study)
    said = text(app)
    assert WHY in said
    assert (
        "A new study under the same thresholds, 15 to 301 pairs of each candidate in a budget of" in said
    )
    app.button(key="measure longer").click().run()
    assert not app.exception
    (new,) = launched
    spec, before = store.study(new).spec, store.study(study).spec
    assert spec.thresholds == before.thresholds
    assert spec.timing.max_pairs > before.timing.max_pairs
    assert [one.study for one in spec.follows] == [study]
    assert (spec.workload, spec.shapes, spec.plans) == (before.workload, before.shapes, before.plans)
    assert len(store.cells(study)) == len(snapshot(store, study).cells), (
        "nothing is added to the old one"
    )


@pytest.mark.parametrize("page", ["live", "tradeoff", "decision"])
def test_a_decided_study_has_nothing_to_measure_longer(
    open_page: OpenPage, store: Store, page: str
) -> None:
    app = open_page(page, study=studies.filled(store))
    assert "crosses the gate" not in text(app)
    assert not [button for button in app.button if button.label == "Measure longer"]


def test_declare_and_rerun_records_the_gates_that_were_moved(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    study = undecided(store)
    app = open_page("tradeoff", study=study)
    app.slider(key="update_ratio").set_value(1.6).run()
    assert not [button for button in app.button if button.label == "Measure longer"]
    app.button(key="declare").click().run()
    spec = store.study(launched[0]).spec
    assert spec.thresholds.update_ratio == 1.6
    assert [(one.study, one.thresholds.update_ratio) for one in spec.follows] == [(study, 1.35)]
    assert spec.timing == store.study(study).spec.timing, "the what-if decides, so no more is measured"


def test_a_what_if_that_stays_undecided_is_measured_longer(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    study = undecided(store)
    app = open_page("tradeoff", study=study)
    app.slider(key="update_ratio").set_value(1.45).run()
    app.button(key="declare").click().run()
    spec = store.study(launched[0]).spec
    assert spec.thresholds.update_ratio == 1.45
    assert spec.timing.max_pairs > store.study(study).spec.timing.max_pairs


def test_a_rerun_says_so_everywhere(open_page: OpenPage, store: Store) -> None:
    first, again = rerun(store)
    sentence = f"Re-run of {first}, {LOOSE}"
    assert sentence in text(open_page("decision", study=again))
    assert f"Re-run of {first}" in text(open_page("tradeoff", study=again))
    said = _said(store, again)
    assert said.document()["declared"]["follows"][0]["study"] == first
    assert any("but those that this one says it repeats" in one for one in said.not_claimed)
    page = render(said, read_evidence(gather(store, again, "every-block"))).decode()
    assert page.count(sentence) == 2  # under the verdict, and where the thresholds are
    assert "Re-run of" not in text(open_page("decision", study=first))
    assert "follows" not in _said(store, first).document()["declared"]


def test_a_comparison_is_not_upset_by_a_rerun(store: Store) -> None:
    first, again = rerun(store)
    made = compare(snapshot(store, first).result, snapshot(store, again).result)
    assert {one.name for one in made.differences if one.asked == "specification"} == set()
    assert [one.name for one in made.differences if one.asked == "thresholds"] == ["update_ratio"]


# --- one shape decides -------------------------------------------------------------------------------


def test_the_candidate_is_offered_with_the_figures_of_the_banner(
    open_page: OpenPage, store: Store
) -> None:
    study = studies.Filled(store, studies.spec_of(plans=["every-block"]))
    for shape, peak, ratios in zip(
        study.shapes, (0.5, 0.6), (studies.WIDE, studies.NARROW), strict=True
    ):
        study.prepare(shape)
        study.prove(shape, "every-block")
        study.weigh(shape, "none", 1.0)
        study.weigh(shape, "every-block", peak)
        study.clock(shape, "every-block", ratios)
    app = open_page("decision", study=study.conclude())
    (offered,) = app.selectbox[0].options
    assert offered == "every-block: undecided, peak 138.0 MB at T=128"
    said = _said(store, study.id)
    assert said.sentence.startswith("Undecided on every-block at T=128 B=4:")
    assert "peak 138.0 MB instead of 276.0 MB" in said.sentence


def _said(store: Store, study: str) -> Predicate:
    return derive(gather(store, study, "every-block"))
