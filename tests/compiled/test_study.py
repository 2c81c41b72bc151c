"""Compiled studies from end to end, in the real processes."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from recompute_core import run_study
from recompute_core.reports.bundle import write_bundle
from recompute_core.reports.evidence import CELLS, gather
from recompute_core.reports.predicate import derive
from recompute_core.reports.recheck import Believed, recheck, verified
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.release import release
from recompute_core.reports.verify import verify
from recompute_core.results import Measured, Refused, StudyResult
from recompute_core.studies.store import Store
from recompute_core.workloads.registered import VARIABLE
from tests.pages.conftest import FRAME, store_at
from tests.reports.decisions import edited
from tests.reports.signing import ANN, LATER, SIGNERS

QUICK = {
    "compile": {"backend": "aot_eager"},
    "plans": ["every-block", "memory-budget-50"],
    "threads": 1,
    "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
    "thresholds": {"update_ratio": 100, "peak_ratio": 1},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        entries = (f"{one}=tests.compiled.factories:{one}" for one in ("dropped", "whole"))
        patch.setenv(VARIABLE, ",".join(entries))
        yield place


@pytest.fixture(scope="module")
def whole(home: Path) -> StudyResult:
    return run_study({"workload": "own:whole", **QUICK}, home)


def test_a_compiled_study_runs_to_a_verdict(whole: StudyResult) -> None:
    assert whole.status == "done"
    plain = next(iter(whole.references.values()))
    assert plain.compiled is not None
    regions, budget = (one.candidate for one in whole.judged)
    for found in (regions, budget):
        assert isinstance(found, Measured)
        assert found.parity.bitwise
        assert found.canary.caught
        assert found.memory.candidate.saved_bytes < found.memory.plain.saved_bytes
        assert found.timing.pairs == 3
        assert found.timing.source == "interleaved whole updates, both compiled, one process"
        assert found.block_calls == {}
        assert found.parity.compiled is not None
        assert found.parity.compiled.replayed_ops > plain.compiled.replayed_ops
    assert regions.blocks == tuple(f"blocks.{number}" for number in range(4))
    assert budget.blocks == budget.regions == ()
    assert regions.plan_hash != budget.plan_hash


def test_a_budget_with_dropout_is_refused_by_parity(home: Path) -> None:
    result = run_study({"workload": "own:dropped", **QUICK}, home)
    regions, budget = (one.candidate for one in result.judged)
    assert isinstance(regions, Measured)
    assert regions.parity.bitwise
    assert isinstance(budget, Refused)
    assert budget.stopped_by == "parity"
    assert budget.reasons[0].startswith("parity fails: gradient of blocks.")
    said = "; random ops (dropout) that a memory budget has run again draw other numbers then"
    assert budget.reasons[0].endswith(said)


@pytest.mark.parametrize("plan", ["every-block", "memory-budget-50"])
def test_its_decision_is_signed_and_verified(home: Path, whole: StudyResult, plan: str) -> None:
    with closing(Store(home)) as store:
        released = release(gather(store, whole.study_id, plan), ANN)
    assert verify(released.bundle, SIGNERS, LATER).verified
    page = released.bundle.files["report.html"].decode()
    assert "What the compiled graphs run" in page
    assert "models that are not compiled, or not by aot_eager" in page
    assert ("activation_memory_budget = 0.5" in page) == (plan == "memory-budget-50")


def _graphs(phase: str, **changes: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(cells: list[dict[str, Any]]) -> None:
        next(one for one in cells if one["phase"] == phase)["payload"]["compiled"] |= changes

    return change


FOUR = {f"blocks.{number}": 3 for number in range(4)}
THREE = {name: FOUR[name] for name in list(FOUR)[:3]}


@pytest.mark.parametrize(
    ("plan", "change", "says"),
    [
        ("every-block", _graphs("parity", recomputed_ops=THREE), "other blocks than the plan names"),
        ("every-block", _graphs("parity", recomputed_ops={**FOUR, "blocks.4": 3}), "other blocks than"),
        ("every-block", _graphs("parity", recomputed_ops={**FOUR, "blocks.0": 0}), "other blocks than"),
        ("every-block", _graphs("reference", recomputed_ops=FOUR), "plain's graphs recompute blocks"),
        (
            "memory-budget-50",
            _graphs("reference", replayed_ops=999, backward_ops=2000),
            "recompute nothing more than",
        ),
        ("memory-budget-50", _graphs("parity", replayed_ops=0), "recompute nothing more than"),
        (
            "memory-budget-50",
            _graphs("parity", recomputed_ops=FOUR),
            "recompute nothing more than",
        ),
    ],
)
def test_graphs_that_say_otherwise_are_refused(
    home: Path, whole: StudyResult, plan: str, change: Callable[[Any], None], says: str
) -> None:
    with closing(Store(home)) as store:
        evidence = gather(store, whole.study_id, plan)
    derive(evidence)
    with pytest.raises(Untrusted, match=says) as caught:
        derive(edited(CELLS, change, evidence))
    assert caught.value.code == "records-disagree"


def test_its_parity_is_run_again(home: Path, whole: StudyResult, tmp_path: Path) -> None:
    with closing(Store(home)) as store:
        bundle = release(gather(store, whole.study_id, "memory-budget-50"), ANN).bundle
    write_bundle(tmp_path / "decision.zip", bundle)
    report = verified(tmp_path / "decision.zip", SIGNERS)
    assert isinstance(report, Believed)
    found = recheck(report, home=home)
    assert (found.outcome, found.exit_code) == ("same", 0)


@pytest.mark.parametrize(
    "page", ["home", "live", "tradeoff", "studies", "decision", "reinvest", "setup"]
)
def test_every_page_shows_it(home: Path, whole: StudyResult, page: str) -> None:
    with store_at(home):
        app = AppTest.from_file(str(FRAME), default_timeout=60)
        app.query_params["study"] = whole.study_id
        app.run()
        if page != "home":
            app.switch_page(f"{page}.py").run()
        assert not app.exception, [each.value for each in app.exception]
