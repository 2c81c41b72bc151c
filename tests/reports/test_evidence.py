"""Evidence: what is in the files, and what is read from them."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recompute_core.errors import InputError
from recompute_core.exporting import export
from recompute_core.reports.claims import rollback_code
from recompute_core.reports.evidence import (
    CELLS,
    MOST_BYTES,
    REINVESTED,
    REVISIONS,
    STUDY,
    evidence_of,
    gather,
    timeline_name,
)
from recompute_core.reports.predicate import Predicate, derive
from recompute_core.reports.read_evidence import read_evidence
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.strict_json import canonical
from recompute_core.results import OptimizerUsed, Reference, Revisions, RngUsed, Rollback, SourceRevision
from recompute_core.studies.artifacts import trace_name
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store
from tests.core import cells as played
from tests.pages import studies
from tests.reports.decisions import edited, evidence, evidence_from
from tests.reports.played import agreeing

SHAPES = ("T=128 B=4", "T=256 B=4")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


def test_the_files_of_a_finished_study() -> None:
    files = evidence()
    assert sorted(files) == sorted([STUDY, CELLS, REVISIONS, *map(timeline_name, SHAPES)])
    about, cells = json.loads(files[STUDY]), json.loads(files[CELLS])
    assert about["candidate"] == "every-block"
    assert {cell["plan"] for cell in cells} == {"none", "every-block"}
    assert {(cell["shape_key"], cell["phase"]) for cell in cells} == {
        (shape, phase)
        for shape in SHAPES
        for phase in ("reference", "noise", "legality", "canary", "parity", "memory", "time")
    }
    assert about["not_recorded"] == {
        REINVESTED: "no reinvestment of this plan was finished",
        **{
            trace_name(shape, plan): "the study has kept none"
            for shape in SHAPES
            for plan in ("none", "every-block")
        },
    }


def test_nothing_that_follows_from_samples_is_written_down() -> None:
    files = evidence()
    for word in ("ratio_median", "ratio_ci95", "worst", "bitwise", "peak_bytes", "pairs"):
        assert f'"{word}"'.encode() not in files[CELLS], word
    timing = next(cell for cell in json.loads(files[CELLS]) if cell["phase"] == "time")
    assert set(timing["payload"]) == {"kind", "source", "samples", "stopped"}
    assert len(timing["payload"]["samples"]) == 7


def test_what_is_read_judges_as_the_store_does(store: Store) -> None:
    study = studies.filled(store)
    found = read_evidence(gather(store, study, "every-2nd-block"))
    ours = assemble(found.row, found.cells).judged
    theirs = assemble(store.study(study), store.cells(study)).judged
    assert ours == tuple(one for one in theirs if one.candidate.plan == "every-2nd-block")
    assert found.asked == store.study(study).spec
    assert found.shapes == SHAPES


def test_timelines_come_back_to_where_they_belong() -> None:
    found = read_evidence(evidence())
    kept = [cell.payload for cell in found.cells if cell.phase == "memory"]
    assert all(payload and payload["timeline"]["bytes"] for payload in kept)
    names = {timeline_name(shape): "none was kept" for shape in SHAPES}
    files = edited(STUDY, lambda study: study["not_recorded"].update(names))
    without = {name: data for name, data in files.items() if name not in names}
    again = [cell.payload for cell in read_evidence(without).cells if cell.phase == "memory"]
    assert all(payload and payload["timeline"] is None for payload in again)


@pytest.mark.parametrize(
    ("make", "plan", "words"),
    [
        (studies.filled, "nested", "has no candidate 'nested'; it has every-block, every-2nd-block"),
        (lambda store: studies.running(store).id, "every-block", "a report is made of a finished"),
        (lambda store: studies.filled(store) and "nothing", "every-block", "no study 'nothing'"),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_line(
    store: Store, make: Any, plan: str, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        gather(store, make(store), plan)
    assert "\n" not in str(caught.value)


def test_a_missed_canary_of_another_plan_stops_every_report(store: Store) -> None:
    study = studies.Filled(store, studies.spec_of(shapes=[{"seq_len": 128}]))
    shape = study.shapes[0]
    study.prepare(shape)
    study.prove(shape, "every-block")
    study.weigh(shape, "none", 1.0)
    study.weigh(shape, "every-block")
    study.clock(shape, "every-block", studies.NARROW)
    cell = next(cell for cell in store.cells(study.id) if cell.phase == "canary")
    missed = {**(cell.payload or {}), "caught": False}
    store.begin_cell(study.id, shape, "every-2nd-block", "canary")
    store.finish_cell(study.id, shape, "every-2nd-block", "canary", missed)
    study.conclude("incomplete")
    with pytest.raises(InputError, match="canary of every-2nd-block at T=128 B=4 was missed"):
        gather(store, study.id, "every-block")


# --- what a study records besides its figures ------------------------------------------------


def _played(**more: Any) -> dict[str, bytes]:
    """Evidence of a hand-made study that has recorded all there is."""

    def worker(key: Any) -> Any:
        if key[2] == "reference":
            return played.cell(key, Reference.model_validate(played.reference().model_dump() | more))
        if key[2] == "parity":
            passed = played.good("parity")
            return played.cell(key, passed.model_copy(update={"rollback": Rollback(compared=9)}))
        return None

    _, cells = played.play(worker)
    kept = agreeing(cells, played.SPEC, "every-block")
    return evidence_of(played.row(status="done"), kept, "every-block")


def _said(**more: Any) -> Predicate:
    return derive(_played(**more))


def test_sources_optimizer_and_random_numbers_are_in_the_predicate() -> None:
    source = SourceRevision(name="models.Block", file="models.py", sha256="ab" * 32)
    revisions = Revisions(model="models.Net", sources=(source,), git_commit="c0ffee")
    optimizer = OptimizerUsed(
        name="AdamW",
        settings={"lr": 1e-3, "betas": (0.9, 0.999), "foreach": None},
        state_digest="sha256:5",
    )
    said = _said(revisions=revisions, optimizer=optimizer, rng=RngUsed(policy="preserve", seed=0))
    assert said.revisions is not None
    assert said.revisions["sources"][played.SMALL]["sources"][0]["sha256"] == "ab" * 32
    references = said.shapes[0].references
    assert references is not None
    assert references.optimizer == optimizer
    assert references.rng == RngUsed(policy="preserve", seed=0)
    assert Predicate.model_validate(json.loads(canonical(said.document()))) == said


def test_the_way_back_is_proven_or_said_not_to_be() -> None:
    proof = _said().rollback.proof
    assert [(one.is_plain, one.bitwise, one.compared) for one in proof] == [(True, True, 1)] * 2
    assert proof[0].sentence == (
        "An update ran under the plan at T=16 B=2, 2 replays in it, then the plan was taken off: "
        "nothing is left on the model, and all 1 tensors of the next update equal plain's to the last "
        "bit."
    )
    unproven = derive(evidence_from(studies.refused_by_legality)).rollback.proof[0]
    assert (unproven.is_plain, unproven.bitwise) == (None, None)
    assert "has passed nothing" in unproven.sentence


def test_what_an_earlier_version_has_proven_is_said_as_it_was() -> None:
    def rolled_back(found: Any) -> dict[str, bytes]:
        def change(cells: list[dict[str, Any]]) -> None:
            for cell in cells:
                if cell["phase"] == "parity":
                    cell["payload"]["rollback"] = found

        return edited(CELLS, change)

    proof = derive(rolled_back({"compared": 120})).rollback.proof[0]
    assert proof.sentence.startswith(
        "Plan put on and taken off at T=128 B=4, no update in between: nothing is left"
    )
    assert _code(rolled_back(None)) == "records-disagree", "this version never leaves it out"
    theirs = edited(STUDY, lambda study: study.update(made_by="recompute_core 0.0.9"), rolled_back(None))
    assert "left no such record" in derive(theirs).rollback.proof[0].sentence


@pytest.mark.parametrize("plan", ["every-block", "blocks:0,2", "Ünsere", "..."])
def test_the_module_is_called_as_export_calls_it(store: Store, plan: str) -> None:
    custom = {} if plan in ("every-block", "blocks:0,2") else {plan: [{"modules": ["blocks.0"]}]}
    study = store.create(studies.spec_of(plans=[plan], custom_plans=custom))
    exported = export(store.study(study), plan, "torch")
    module = exported.filename.removesuffix(".py")
    assert rollback_code(plan).startswith(f"from {module} import apply_plan, remove_plan\n")
    assert f"from {module} import apply_plan, remove_plan\n" in exported.text


def _keep_trace(store: Store, study: str, data: bytes, digest: str | None = None) -> None:
    """Give plain's memory at the first shape a trace."""
    name = trace_name(SHAPES[0], "none")
    (store.folder(study) / name).write_bytes(data)
    cell = next(
        c for c in store.cells(study) if (c.shape_key, c.plan, c.phase) == (SHAPES[0], "none", "memory")
    )
    kept = {"trace": name, "trace_digest": digest or "sha256:" + hashlib.sha256(data).hexdigest()}
    store.finish_cell(study, SHAPES[0], "none", "memory", (cell.payload or {}) | kept)


def test_a_trace_is_evidence_if_it_is_the_one_that_was_kept(store: Store) -> None:
    study, name, data = studies.filled(store), trace_name(SHAPES[0], "none"), gzip.compress(b"{}")
    _keep_trace(store, study, data)
    files = gather(store, study, "every-block")
    assert files[name] == data
    assert name not in read_evidence(files).not_recorded
    with pytest.raises(Untrusted, match="is not the trace that was kept"):
        read_evidence(files | {name: b"another"})
    _keep_trace(store, study, data, digest="sha256:0")
    found = read_evidence(gather(store, study, "every-block"))
    assert found.not_recorded[name] == "the file in the study's folder is not the one that was kept"
    (store.folder(study) / name).unlink()
    assert name in read_evidence(gather(store, study, "every-block")).not_recorded


def test_traces_that_would_make_a_report_too_large_are_left_out_largest_first(store: Store) -> None:
    study = studies.filled(store)
    row, cells = store.study(study), store.cells(study)
    small, large = b"s", bytes(MOST_BYTES)
    files = evidence_of(row, cells, "every-block", {"trace a.json.gz": large, "trace b.json.gz": small})
    assert files["trace b.json.gz"] == small
    assert "too large" in json.loads(files[STUDY])["not_recorded"]["trace a.json.gz"]


# --- evidence that cannot be -----------------------------------------------------------------


def _code(files: dict[str, bytes]) -> str:
    with pytest.raises(Untrusted) as caught:
        derive(files)
    return caught.value.code


@pytest.mark.parametrize("missing", [STUDY, CELLS, REVISIONS])
def test_missing_files(missing: str) -> None:
    assert (
        _code({name: data for name, data in evidence().items() if name != missing}) == "evidence-missing"
    )


def _own(name: str, *regions: list[str]) -> Any:
    return {name: [{"modules": modules} for modules in regions]}


@pytest.mark.parametrize("size", [-1, 10**39])
@pytest.mark.parametrize("name", ["state_bytes", "saved_bytes", "peak_samples"])
def test_no_machine_has_such_a_size(name: str, size: int) -> None:
    def change(cells: Any) -> None:
        memory = next(cell for cell in cells if cell["phase"] == "memory")["payload"]
        memory[name] = [size] if name == "peak_samples" else size

    assert _code(edited(CELLS, change)) == "evidence-form"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (STUDY, lambda s: s.update(schema="recompute-evidence/2")),
        (STUDY, lambda s: s.update(more=1)),
        (STUDY, lambda s: s.update(declared_at="yesterday")),
        (STUDY, lambda s: s.update(declared_at="2026-01-01T00:00:00")),
        (STUDY, lambda s: s.update(declared_at="2026-01-01T14:00:00+14:00")),
        (STUDY, lambda s: s.update(created_at="0001-01-01T00:00:00+14:00")),
        (STUDY, lambda s: s.update(status="running")),
        (STUDY, lambda s: s["spec"].update(more=1)),
        (STUDY, lambda s: s["spec"].update(plans=["every-block", "no-such-plan"])),
        (STUDY, lambda s: s["spec"].update(seed="0")),
        (STUDY, lambda s: s["spec"].update(custom_plans=_own("every-block", ["blocks.0"]))),
        (STUDY, lambda s: s["spec"].update(custom_plans={"every-block": []})),
        (STUDY, lambda s: s["spec"].update(custom_plans=_own("mine", ["nowhere.9"]), plans=["mine"])),
        (CELLS, lambda c: c.clear()),
        (CELLS, lambda c: {"a": 1}),
        (CELLS, lambda c: c[0].update(shape_key="T=1 B=1")),
        (CELLS, lambda c: c[0].update(phase="guess")),
        (CELLS, lambda c: c[0].update(state="failed")),
        (CELLS, lambda c: c[0].update(started_at=-1.0)),
        (CELLS, lambda c: c[0].update(payload={})),
        (CELLS, lambda c: c[0]["payload"].update(loss="4.2")),
        (CELLS, lambda c: c[0]["payload"].update(tensors=True)),
        (CELLS, lambda c: [x for x in c if x["phase"] != "x"] + [c[-1]]),
        (timeline_name(SHAPES[0]), lambda t: {"plain": None}),
        (timeline_name(SHAPES[0]), lambda t: t["plain"].update(seconds="now")),
    ],
)
def test_odd_files(name: str, change: Any) -> None:
    assert _code(edited(name, lambda value: change(value) or value)) == "evidence-form"


def test_a_parity_that_failed_names_the_tensors_that_are_off() -> None:
    files = evidence_from(studies.refused_by_parity)
    assert derive(files).verdict == "keep_original"

    def renamed(cells: list[dict[str, Any]]) -> None:
        parity = next(cell for cell in cells if cell["phase"] == "parity")
        parity["payload"]["failed"][0]["name"] = "blocks.1.attn.weight"

    assert _code(edited(CELLS, renamed, files)) == "evidence-form"


def test_the_verdict_over_all_shapes() -> None:
    for make, verdict in (
        (studies.filled, "adopt"),
        (studies.refused_by_parity, "keep_original"),
        (studies.refused_by_legality, "keep_original"),
        (lambda store: studies.filled(store, ratios=studies.WIDE), "undecided"),
        (lambda store: studies.filled(store, peak_ratio=0.9), "keep_original"),
    ):
        assert derive(evidence_from(make)).verdict == verdict
    undecided = derive(evidence_from(studies.failed, "every-2nd-block"))
    assert undecided.verdict == "undecided"
    assert undecided.shapes[0].troubles == (
        "time could not be completed: the worker was killed (signal 9)",
    )


def test_a_plan_that_misses_at_one_shape_alone_is_not_adopted() -> None:
    def slower_there(cells: list[dict[str, Any]]) -> None:
        timing = next(c for c in cells if c["phase"] == "time" and c["shape_key"] == SHAPES[1])
        for pair in timing["payload"]["samples"]:
            pair["candidate_s"] *= 2

    said = derive(edited(CELLS, slower_there))
    assert [shape.verdict for shape in said.shapes] == ["adopt", "keep_original"]
    assert said.verdict == "keep_original"
    assert said.sentence.startswith("Keep the original rather than every-block at T=256 B=4")
    assert said.sentence.endswith("This is the verdict at 1 of 2 shapes.")


def test_each_figure_names_its_own_meter() -> None:
    sources = {one.name: one.source for one in derive(evidence_from(studies.filled)).shapes[0].figures}
    assert "largest resident set" in sources["process_peak_bytes"]
    assert "saved-tensor hooks" in sources["saved_bytes"]
    assert sources["peak_bytes"] not in (sources["process_peak_bytes"], sources["saved_bytes"])


def test_what_is_not_claimed() -> None:
    words = " ".join(derive(evidence()).not_claimed)
    for needed in (
        "any device but Test processor",
        "torch 2.13.0+cpu",
        "shapes that are not listed; of 2 shapes that are, the plan was measured in full at 2",
        "another precision than float32",
        "convergence over many steps",
        "what-if and were not used",
        "No figure was supplied by hand",
        "Not recorded: trace T=128 B=4",
    ):
        assert needed in words, needed


def test_a_plan_that_was_not_measured_is_not_said_to_be() -> None:
    words = " ".join(derive(evidence_from(studies.refused_by_legality)).not_claimed)
    assert "of 2 shapes that are, the plan was measured in full at 0." in words


@pytest.mark.parametrize("kind", ["supplied", "estimated"])
@pytest.mark.parametrize("phase", ["memory", "time"])
def test_a_study_holds_no_figure_that_it_did_not_measure(phase: str, kind: str) -> None:
    def other(cells: list[dict[str, Any]]) -> None:
        next(cell for cell in cells if cell["phase"] == phase)["payload"]["kind"] = kind

    assert _code(edited(CELLS, other)) == "evidence-form"


# --- every file is there, or said to be missing ----------------------------------------------

TRACE = trace_name(SHAPES[0], "every-block")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda missing: missing.pop(TRACE), "evidence-missing"),
        (lambda missing: missing.update({CELLS: "lost"}), "evidence-form"),
        (lambda missing: missing.update({"losses.json": "lost"}), "evidence-form"),
        (lambda missing: missing.update({timeline_name(SHAPES[0]): "lost"}), "evidence-form"),
        (lambda missing: missing.update({trace_name("T=1 B=1", "none"): "lost"}), "evidence-form"),
    ],
)
def test_what_is_not_recorded_is_just_what_is_not_here(change: Any, code: str) -> None:
    files = edited(STUDY, lambda study: change(study["not_recorded"]) and None)
    assert _code(files) == code


@pytest.mark.parametrize("name", ["more.json", "timeline T=1 B=1.json", "trace T=128 B=4 mlp.json.gz"])
def test_a_file_that_is_of_no_study_is_refused(name: str) -> None:
    assert _code(evidence() | {name: b"{}"}) == "evidence-form"


def test_a_trace_or_timeline_that_no_record_is_of_is_refused() -> None:
    def recorded(study: dict[str, Any]) -> None:
        del study["not_recorded"][TRACE]

    assert _code(edited(STUDY, recorded) | {TRACE: b"made up"}) == "evidence-form"

    def without_memory(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [cell for cell in cells if (cell["phase"], cell["plan"]) != ("memory", "every-block")]

    assert _code(edited(CELLS, without_memory)) == "evidence-form"


def test_why_there_is_no_timeline() -> None:
    def counted(cells: list[dict[str, Any]]) -> None:
        for cell in cells:
            if cell["phase"] == "memory":
                cell["payload"]["not_measured"]["timeline"] = "the counters do not tell when"

    found = read_evidence(edited(CELLS, counted))
    bare = [
        cell.__class__(**{**vars(cell), "payload": {**(cell.payload or {}), "timeline": None}})
        if cell.phase == "memory"
        else cell
        for cell in found.cells
    ]
    missing = json.loads(evidence_of(found.row, bare, "every-block")[STUDY])["not_recorded"]
    assert missing[timeline_name(SHAPES[0])] == "the counters do not tell when"
    refused = json.loads(evidence_from(studies.refused_by_legality)[STUDY])["not_recorded"]
    assert refused[timeline_name(SHAPES[0])] == "no memory was measured at this shape"
