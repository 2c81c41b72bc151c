"""A second use of saved memory in a report: apart from the decision, computed again like all of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recompute_core.reinvest.asked import SIDES, Side, parse_reinvest
from recompute_core.reinvest.found import (
    Accumulation,
    Evaluation,
    Findings,
    Reach,
    Seen,
    Throughput,
    TrainingRun,
    Tried,
    Update,
)
from recompute_core.reinvest.kept import Kept, declare, training_name
from recompute_core.reinvest.result import result_of
from recompute_core.reports.evidence import CELLS, REINVESTED, gather
from recompute_core.reports.html import render
from recompute_core.reports.predicate import derive
from recompute_core.reports.read_evidence import read_evidence
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.release import release
from recompute_core.reports.strict_json import canonical
from recompute_core.reports.verify import verify
from recompute_core.results import Gap, Pair, Timing
from recompute_core.studies.store import Store
from tests.pages import studies
from tests.reports.signing import ANN, LATER, SIGNERS

SHAPE = "192x96 B=16"
BUDGET = 276_000_000
"""Plain's peak in made-up studies."""
SEEN = [("r1", "torn"), ("r1", "torn"), ("r2", "torn"), ("r3", "ok"), ("r4", "ok"), ("r4", "blurry")]


def study_of(store: Store) -> str:
    spec = studies.spec_of(
        workload={"name": "receipts", "batch": 16}, shapes=[{}], plans=["every-block"]
    )
    return studies.filled(store, spec)


def training_run(side: Side, seed: int) -> TrainingRun:
    return TrainingRun(
        side=side,
        seed=seed,
        microbatch=16 if side == "plain" else 64,
        effective_batch=64,
        updates=tuple(Update(number=n, loss=1 / n, accepted=62, seconds=1.0) for n in (1, 2)),
        evaluations=(Evaluation(after=2, loss=0.5, right={"ok": 2}, photos={"ok": 2}),),
        seen=tuple(
            Seen(row=row, receipt=receipt, label=label, predicted="ok" if seed and row == 0 else label)
            for row, (receipt, label) in enumerate(SEEN)
        ),
        weights_digest="sha256:" + "e" * 64,
        data_digest=studies.PHOTOS,
        rare_receipts=19,
        rare_photos=57,
    )


def finish(kept: Kept) -> None:
    """Write every phase of a run that fits, is the same objective and twice as fast."""
    fits = Tried(size=64, estimated_peak_bytes=BUDGET - 2, peak_bytes=BUDGET - 1, bitwise=True)
    batch = Reach(field="batch", plain_size=16, budget_bytes=BUDGET, tried=(fits,))
    kept.write("batch", batch)
    kept.write("used", fits)
    kept.write(
        "accumulation",
        Accumulation(
            effective_batch=64,
            accepted=62,
            plain_microbatches=(16, 15, 15, 16),
            recomputed_microbatches=(62,),
            gaps=tuple(
                Gap(part="grad", name=gap.name, absolute=1e-7, relative=1e-6) for gap in studies.EQUAL
            ),
            noise_floor=0.0,
            mean_of_means_gap=0.1,
            dropout_off=True,
        ),
    )
    kept.write(
        "throughput",
        Throughput(
            timing=Timing(samples=(Pair(plain_s=2.0, candidate_s=1.0),) * 9, stopped="all pairs taken"),
            plain_examples=62,
            recomputed_examples=62,
            plain_microbatches=4,
            recomputed_microbatches=1,
        ),
    )
    for seed in kept.asked.training.seeds:
        for side in SIDES:
            kept.write(training_name(side, seed), training_run(side, seed))


def asked(study: str, **changes: Any) -> dict[str, Any]:
    return {
        "study": study,
        "plan": "every-block",
        "shape": SHAPE,
        "effective_batch": 64,
        "training": {"seeds": [0, 1], "examples": 128},
        **changes,
    }


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    store = Store(tmp_path_factory.mktemp("home"))
    study = study_of(store)
    finish(declare(store, parse_reinvest(asked(study))))
    return gather(store, study, "every-block")


@pytest.mark.parametrize("phase", ["batch", "used", "accumulation", "throughput", "training plain 1"])
def test_a_run_that_lacks_a_phase_is_not_finished(tmp_path: Path, phase: str) -> None:
    store = Store(tmp_path)
    kept = declare(store, parse_reinvest(asked(study_of(store))))
    finish(kept)
    assert result_of(kept).verdict is not None
    (kept.folder / f"{phase}.json").write_text("{")
    assert result_of(kept).verdict is None, "asking again does that phase, and that one alone"
    store.close()


def test_it_is_a_section_of_its_own_and_changes_no_gate(evidence: dict[str, bytes]) -> None:
    said = derive(evidence)
    (second,) = said.second_use
    assert second.verdict == "undecided" and said.verdict == "adopt"
    assert [gate.id for one in said.shapes for gate in one.gates] == [
        "gradient_parity",
        "memory_saving",
        "update_latency",
    ]
    assert [gate.outcome for gate in second.gates] == ["pass", "pass", "pass", "undecided"]
    assert (second.plain_microbatch, second.microbatch) == (16, 64)
    torn = next(one for one in second.classes if one.label == "torn")
    assert (torn.receipts, torn.photos) == (2, 3)
    assert torn.plain == pytest.approx((3 / 4 + 1) / 2), "by receipts, over both seeds"
    assert second.accuracy["plain"] == pytest.approx((1.0, 5 / 6))
    without = {**evidence}
    del without[REINVESTED]
    study = json.loads(without["study.json"])
    study["not_recorded"][REINVESTED] = "no reinvestment of this plan was finished"
    plainly = derive({**without, "study.json": canonical(study)})
    assert (plainly.verdict, plainly.sentence, plainly.shapes) == (
        said.verdict,
        said.sentence,
        said.shapes,
    )
    assert any("no second use was measured" in claim for claim in plainly.not_claimed)
    assert any("no gate here rests on it" in claim for claim in said.not_claimed)


def test_signed_and_verified_the_page_shows_it(evidence: dict[str, bytes]) -> None:
    bundle = release(evidence, ANN).bundle
    found = verify(bundle, SIGNERS, LATER)
    assert found.failures == ()
    page = render(derive(evidence), read_evidence(evidence)).decode()
    assert page == bundle.files["report.html"].decode()
    assert 'id="second-use"' in page
    assert "So few cannot tell" in page and "Recall of the rare class" in page


def changed(evidence: dict[str, bytes], change: Callable[[dict[str, Any]], None]) -> dict[str, bytes]:
    found = json.loads(evidence[REINVESTED])
    change(found[0])
    return {**evidence, REINVESTED: canonical(found)}


def at(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = value

    return change


def unmade(found: dict[str, Any]) -> None:
    del found["throughput"]["timing"]["samples"][2:]


def one_seed(found: dict[str, Any]) -> None:
    del found["runs"][2:]


def better_photos(found: dict[str, Any]) -> None:
    found["runs"][1]["seen"].pop(0)


def photos_of_another_set(found: dict[str, Any]) -> None:
    for run in found["runs"]:
        run["data_digest"] = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (at("run_id", value="0" * 12), "goes by another name"),
        (at("asked", "thresholds", "rate_ratio", value=0.5), "goes by another name"),
        (at("declared_at", value="1999-01-01T00:00:00.000Z"), "was declared before the study"),
        (at("used", "peak_bytes", value=1), "measured the microbatch that it uses twice"),
        (at("accumulation", "plain_microbatches", value=[62, 0, 0, 0]), "accumulated other examples"),
        (at("accumulation", "gaps", 0, "name", value="head.other"), "compared other gradients"),
        (at("throughput", "plain_examples", value=640), "timed other examples"),
        (at("throughput", "recomputed_examples", value=15_000), "timed other examples"),
        (at("declared_at", value="zz<script>"), "was declared at no moment"),
        (photos_of_another_set, "trained on other photos than the study's"),
        (at("runs", 2, "data_digest", value="sha256:" + "0" * 64), "trained on other photos"),
        (at("runs", 2, "seen", 1, "predicted", value="fine"), "knows a class that there is not"),
        (at("asked", "plan", value="none"), "is of another study or plan"),
        (at("asked", "study", value="another"), "is of another study or plan"),
        (at("asked", "shape", value="64x64 B=16"), "is at a shape that was not measured"),
        (at("reaches", "batch", "budget_bytes", value=BUDGET + 1), "another budget than plain's"),
        (at("reaches", "batch", "plain_size", value=8), "another microbatch of plain"),
        (at("used", "size", value=48), "uses another microbatch"),
        (at("throughput", "recomputed_microbatches", value=2), "timed other microbatches"),
        (unmade, "another number of pairs"),
        (at("accumulation", "accepted", value=60), "accumulated other examples"),
        (one_seed, "trained other runs than were asked for"),
        (at("runs", 1, "microbatch", value=32), "trained recomputed with other batches"),
        (lambda found: found["runs"][0]["updates"].pop(), "trained plain for another number of updates"),
        (better_photos, "looked at other validation photos"),
    ],
)
def test_records_that_do_not_fit_are_refused(
    evidence: dict[str, bytes], change: Callable[[dict[str, Any]], None], words: str
) -> None:
    with pytest.raises(Untrusted, match=words):
        derive(changed(evidence, change))


@pytest.mark.parametrize(
    "change",
    [
        at("verdict", value="adopt"),
        at("runs", 0, "kind", value="measured"),
        at("declared_at", value=7),
        at("throughput", "timing", "samples", value=[]),
    ],
)
def test_what_is_no_finding_is_refused(
    evidence: dict[str, bytes], change: Callable[[dict[str, Any]], None]
) -> None:
    with pytest.raises(Untrusted, match=REINVESTED):
        derive(changed(evidence, change))


def test_a_photo_seen_otherwise_changes_what_is_said(evidence: dict[str, bytes]) -> None:
    worse = changed(evidence, at("runs", 1, "seen", 2, "predicted", value="cutoff"))
    assert derive(worse).second_use != derive(evidence).second_use


def test_a_refused_plan_has_no_second_use(evidence: dict[str, bytes]) -> None:
    cells = json.loads(evidence[CELLS])
    for cell in cells:
        if cell["phase"] == "time":
            for pair in cell["payload"]["samples"]:
                pair["candidate_s"] = 9.0
    with pytest.raises(Untrusted, match="did not pass its gates"):
        derive({**evidence, CELLS: canonical(cells)})


def test_every_finished_run_is_there_the_newest_first(tmp_path: Any) -> None:
    store = Store(tmp_path)
    study = study_of(store)
    first = declare(store, parse_reinvest(asked(study)))
    finish(first)
    second = declare(store, parse_reinvest(asked(study, thresholds={"rate_ratio": 1.5})))
    declare(store, parse_reinvest(asked(study, thresholds={"rate_ratio": 3})))  # never begun
    (found,) = read_evidence(gather(store, study, "every-block")).reinvested
    assert found.run_id == first.run_id
    finish(second)
    both = read_evidence(gather(store, study, "every-block")).reinvested
    assert [one.run_id for one in both] == [second.run_id, first.run_id]
    assert all(isinstance(one, Findings) for one in both)
