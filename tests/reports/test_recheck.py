"""`recheck` in real processes: on the same machine, and after each thing that can change."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from PIL import Image

from recompute_core.__main__ import cli
from recompute_core.errors import InputError
from recompute_core.reports import recheck as room
from recompute_core.reports.bundle import Bundle, write_bundle
from recompute_core.reports.evidence import CELLS, REVISIONS
from recompute_core.reports.recheck import Believed, recheck, verified
from recompute_core.reports.recheck_history import folder, history
from recompute_core.reports.recheck_record import Change, Recheck
from recompute_core.reports.release import release
from recompute_core.reports.strict_json import canonical
from recompute_core.studies import local_engine
from recompute_core.studies.locks import Lock, machine_lock
from recompute_core.terminal import steps_progress
from tests.core import saboteurs
from tests.reports.rechecks import GPT, SOMEBODYS, machine, reported, somebodys
from tests.reports.signing import ANN, SIGNERS

SMALL, LARGE = "T=16 B=2", "T=32 B=2"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The RECOMPUTE_HOME in which the studies are run."""
    place = tmp_path_factory.mktemp("recheck")
    with machine(place, **somebodys(place), RECOMPUTE_HOME=str(place / "home")):
        yield place / "home"


@pytest.fixture(scope="module")
def gpt(home: Path) -> Bundle:
    return reported(home, **GPT)


@pytest.fixture(scope="module")
def own(home: Path) -> Bundle:
    return reported(home, workload="own:theirs")


@pytest.fixture
def theirs(home: Path) -> Iterator[Callable[[str, str], None]]:
    """Edits somebody's module for one test."""

    def edit(old: str, new: str) -> None:
        assert old in SOMEBODYS
        somebodys(home.parent, SOMEBODYS.replace(old, new))

    yield edit
    somebodys(home.parent)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Bundle], Path]:
    def write(bundle: Bundle) -> Path:
        path = tmp_path / "decision"
        shutil.rmtree(path, ignore_errors=True)
        write_bundle(path, bundle)
        (tmp_path / "signers.json").write_text(json.dumps(SIGNERS.document()))
        (tmp_path / "signers.json").chmod(0o644)  # whatever the umask
        return path

    return write


def again(bundle: Bundle, home: Path, tmp_path: Path, *settings: str, **asked: Any) -> Recheck:
    path = tmp_path / "again.zip"
    path.unlink(missing_ok=True)
    write_bundle(path, bundle)
    report = verified(path, SIGNERS)
    assert isinstance(report, Believed), report.sentence
    return recheck(report, settings=settings, home=home, **asked)


def changed(found: Recheck, *effects: str) -> list[str]:
    """What has changed, but for commits: others are working on this repository."""
    return [
        one.what
        for one in found.all_changes
        if one.effect in (effects or ("drift", "another")) and "commit" not in one.what
    ]


def leftovers(home: Path) -> list[str]:
    return [path.name for path in folder(home).glob(".work-*")]


# --- as it was ------------------------------------------------------------------------------------


def test_the_same_machine(home: Path, gpt: Bundle, tmp_path: Path) -> None:
    told: list[str] = []
    found = again(gpt, home, tmp_path, tell=told.append)
    assert (found.outcome, found.exit_code) == ("same", 0)
    assert [one.shape_key for one in found.shapes] == [SMALL, LARGE]
    for one in found.shapes:
        assert (one.outcome, one.code, one.held_in_report) == ("same", "bitwise", True)
        assert one.drift is not None
        assert one.drift.bitwise
        assert one.noise_floor == 0
        assert one.canary is not None
        assert (one.canary.caught, one.canary.block) == (True, "blocks.0")
        assert one.parity is not None
        assert (one.parity.passed, one.parity.bitwise, one.parity.failed) == (True, True, 0)
        assert one.parity.rollback is not None
        assert one.parity.rollback.compared == one.parity.tensors
        assert (one.parity.rollback.off, one.parity.rollback.left) == ((), ())
    assert changed(found, "none", "drift", "another") == []
    assert found.environment["threads"] == 1
    assert leftovers(home) == []
    for what in ("plain update", "plain update again", "a replay broken on purpose"):
        assert f"{what} at {SMALL}" in told


def test_one_shape_alone_and_no_such_shape(
    home: Path, gpt: Bundle, written: Callable[[Bundle], Path]
) -> None:
    path = written(gpt)
    common = ["recheck", str(path), "--signers", str(path.with_name("signers.json"))]
    said = CliRunner().invoke(cli, [*common, "--shape", LARGE], standalone_mode=False)
    assert said.exit_code == 0, said.output
    assert f"Same at {LARGE}: plain's update is bitwise the reported one" in said.output
    assert SMALL not in said.output
    said = CliRunner().invoke(cli, [*common, "--shape", "T=64 B=2"], standalone_mode=False)
    assert str(said.exception) == f"--shape T=64 B=2: the report has {SMALL}, {LARGE}"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("workload.seq_len=8", "only threads, device, workload.images may be set"),
        ("thresholds.relative_gap=0.5", "only threads, device, workload.images may be set"),
        ("checkpoint.rng=ignore", "only threads, device, workload.images may be set"),
        ("threads", "expected path=value"),
        ("threads=0", "threads: input should be greater than or equal to 1"),
        ("device=tpu", "device: input should be"),
        ("device=xpu", "device: no xpu on this machine"),
        ("workload.images=photos", "gpt has no photos"),
    ],
)
def test_what_may_not_be_set(home: Path, gpt: Bundle, tmp_path: Path, setting: str, says: str) -> None:
    before = len(list(folder(home).glob("*.jsonl")))
    with pytest.raises(ValueError) as caught:
        again(gpt, home, tmp_path, setting, shape=SMALL)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(list(folder(home).glob("*.jsonl"))) == before
    assert leftovers(home) == []


# --- libraries, threads ---------------------------------------------------------------------------


def test_another_thread_count(home: Path, own: Bundle, tmp_path: Path) -> None:
    """Somebody's model drifts with it: by how much is exact where the study itself lies."""
    found = again(own, home, tmp_path, "threads=2")
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("holds_drifted", "drifted", 0)
    threads = Change(about="numerics", what="threads", old=1, new=2, effect="drift")
    assert threads in found.changes
    assert changed(found) == ["threads"]
    assert found.settings == ("threads=2",)
    assert one.parity is not None
    assert (one.parity.passed, one.parity.bitwise) == (True, True)
    assert one.drift is not None
    assert (one.drift.by, one.drift.bitwise) == ("reference", False)
    assert one.drift.off is not None
    assert 0 < one.drift.off < one.drift.tensors
    assert one.drift.largest_gradient_drift is not None
    assert 1e-7 < one.drift.largest_gradient_drift < 1e-3
    assert all(tensor.gap is not None for tensor in one.drift.worst)


def test_elsewhere_fingerprints_name_what_drifted(home: Path, own: Bundle, tmp_path: Path) -> None:
    found = again(own, tmp_path / "elsewhere", tmp_path, "threads=2")
    exact = again(own, home, tmp_path, "threads=2").shapes[0].drift
    (one,) = found.shapes
    assert one.outcome == "holds_drifted"
    assert one.drift is not None
    assert exact is not None
    assert one.drift.by == "fingerprints"
    assert one.drift.off == exact.off
    assert one.drift.worst[0].name.startswith(("grad/", "weight/", "input_grad/", "output/", "loss/"))
    assert one.drift.largest_gradient_drift is not None
    assert 1e-8 < one.drift.largest_gradient_drift < 1e-3
    assert "of its norm" in one.sentence


def test_a_report_by_another_torch(home: Path, own: Bundle, tmp_path: Path) -> None:
    """Torch's own classes have other sources there: that is torch's, and no other block."""

    def older(reference: dict[str, Any]) -> None:
        for one in reference["revisions"]["sources"]:
            if one["library"] == "torch":
                one |= {"version": "2.12.0", "sha256": "0" * 64}

    bundle = rewritten(own, older, environment={"torch": "2.12.0"})
    found = again(bundle, home, tmp_path)
    (one,) = found.shapes
    assert (one.outcome, found.exit_code) == ("same", 0)
    named = changed(found)
    assert named[0] == "torch"
    assert "source of torch.nn.modules.linear.Linear (linear.py)" in named
    assert all(change.effect == "drift" for change in one.changes if change.what.startswith("source of"))


LLAMA = (
    "hf:LlamaConfig?num_hidden_layers=2&hidden_size=32&num_attention_heads=2&vocab_size=50"
    "&seq_len=16&batch=2&intermediate_size=48&num_key_value_heads=2"
)


def test_a_models_library_that_has_moved_on(home: Path, tmp_path: Path) -> None:
    """Here the block itself is transformers': another version of it is drift, an edited one is not."""
    bundle = reported(home, workload=LLAMA)

    def with_version(version: str | None) -> Bundle:
        def older(reference: dict[str, Any]) -> None:
            for one in reference["revisions"]["sources"]:
                if one["name"].endswith(".LlamaMLP"):
                    one["sha256"] = "0" * 64
                if one["library"] == "transformers" and version:
                    one["version"] = version

        return rewritten(bundle, older)

    found = again(with_version("4.0.0"), home, tmp_path)
    assert (found.outcome, found.exit_code) == ("same", 0), found.sentence
    mlp = "source of transformers.models.llama.modeling_llama.LlamaMLP (modeling_llama.py)"
    assert changed(found) == ["transformers", mlp]
    found = again(with_version(None), home, tmp_path)
    assert (found.shapes[0].code, found.exit_code) == ("another-source", 3)
    assert changed(found) == [mlp]


# --- code -----------------------------------------------------------------------------------------


def test_a_changed_block_source(
    home: Path, own: Bundle, tmp_path: Path, theirs: Callable[[str, str], None]
) -> None:
    theirs("scaled(self.up(x)).relu()", "scaled(self.up(x)).tanh()")
    found = again(own, home, tmp_path)
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", "another-source", 3)
    assert changed(found) == ["source of somebody.Block (somebody.py)"]
    assert one.parity is not None
    assert one.parity.passed
    assert one.sentence.startswith(
        "Cannot tell at own batch: the source of somebody.Block (somebody.py) changed: parity of "
        "another block says nothing about this report; here parity holds"
    )


def test_a_comment_is_another_source_too(
    home: Path, own: Bundle, tmp_path: Path, theirs: Callable[[str, str], None]
) -> None:
    theirs("        return x + self", "        # the same\n        return x + self")
    found = again(own, home, tmp_path)
    (one,) = found.shapes
    assert (one.outcome, one.code) == ("cannot_tell", "another-source")
    assert one.drift is not None
    assert one.drift.bitwise


def test_code_that_no_digest_covers(
    home: Path, own: Bundle, tmp_path: Path, theirs: Callable[[str, str], None]
) -> None:
    theirs("return x * (", "return 1.01 * x * (")
    found = again(own, home, tmp_path)
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", "unexplained-drift", 3)
    assert changed(found) == []
    assert "code that no digest covers" in one.sentence


def test_the_factory(
    home: Path, own: Bundle, tmp_path: Path, theirs: Callable[[str, str], None]
) -> None:
    theirs("torch.randn(16, 8)", "torch.randn(8, 8)")
    found = again(own, home, tmp_path)
    assert (found.shapes[0].code, found.exit_code) == ("another-source", 3)
    assert changed(found) == ["batch", "source of somebody:make (somebody.py)"]
    theirs("def make()", "def made()")
    found = again(own, home, tmp_path)
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", "not-rebuilt", 3)
    assert "somebody has no make" in one.sentence
    assert (one.drift, one.parity) == (None, None)
    assert found.environment["threads"] == 1, "the machine is named all the same"


def rewritten(
    bundle: Bundle, change: Callable[[dict[str, Any]], Any], environment: dict[str, Any] | None = None
) -> Bundle:
    """The report that somebody would have signed whose references were others."""
    evidence = bundle.evidence
    cells = json.loads(evidence[CELLS])
    revisions = json.loads(evidence[REVISIONS])
    for cell in cells:
        if cell["phase"] == "reference":
            change(cell["payload"])
            if cell["payload"]["revisions"] is not None:
                revisions["sources"][cell["shape_key"]] = cell["payload"]["revisions"]
            else:
                revisions["sources"].pop(cell["shape_key"])
    evidence |= {CELLS: canonical(cells), REVISIONS: canonical(revisions)}
    if environment:
        study = json.loads(evidence["study.json"])
        study["environment"] |= environment
        evidence["study.json"] = canonical(study)
    return release(evidence, ANN).bundle


def test_another_version_of_the_workload(home: Path, gpt: Bundle, tmp_path: Path) -> None:
    """Its block had another source, and as it happens it drew other tokens."""

    def earlier(reference: dict[str, Any]) -> None:
        reference["batch_digest"] = "sha256:" + "1" * 64
        for one in reference["revisions"]["sources"]:
            if one["name"].endswith("gpt.Block"):
                one["sha256"] = "0" * 64

    found = again(rewritten(gpt, earlier), home, tmp_path, shape=SMALL)
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", "another-source", 3)
    assert changed(found) == ["batch", "source of recompute_core.workloads.gpt.Block (gpt.py)"]


def test_a_workload_that_is_larger_or_has_other_blocks(home: Path, gpt: Bundle, tmp_path: Path) -> None:
    bundle = rewritten(gpt, lambda reference: reference.update(parameters=1))
    (one,) = again(bundle, home, tmp_path, shape=SMALL).shapes
    assert (one.outcome, one.code) == ("cannot_tell", "another-model")
    assert one.sentence.startswith(f"Cannot tell at {SMALL}: the number of parameters changed")


# --- data and random numbers ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(home: Path) -> Path:
    """Eight small photos, all six of the training split in the batch."""
    folder = home.parent / "photos"
    folder.mkdir()
    draws = np.random.default_rng(0)
    lines = ["image_path,receipt_id,label,split"]
    for index, label in enumerate(["ok", "blurry", "faint", "glare", "cutoff", "torn", "torn", "ok"]):
        Image.fromarray(draws.integers(0, 256, (32, 32), dtype=np.uint8)).save(folder / f"{index}.png")
        lines.append(f"{index}.png,r{index},{label},{'validation' if index >= 6 else 'train'}")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    return folder


SIZES = {"blocks": 2, "width": 24, "heads": 2, "height": 32, "image_width": 32, "batch": 6}


@pytest.fixture(scope="module")
def receipts(home: Path, photos: Path) -> Bundle:
    workload = {"name": "receipts", "images": str(photos), "dropout": 0.5} | SIZES
    return reported(home, workload=workload)


def replaced(photos: Path, index: int, to: Path) -> Path:
    """A copy of the photos in which one of them is black."""
    shutil.copytree(photos, to)
    Image.new("L", (32, 32), 0).save(to / f"{index}.png")
    return to


def test_a_replaced_photo(home: Path, receipts: Bundle, photos: Path, tmp_path: Path) -> None:
    elsewhere = replaced(photos, 0, tmp_path / "photos")
    found = again(receipts, home, tmp_path, f"workload.images={elsewhere}")
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", "another-batch", 3)
    assert changed(found, "none", "another") == ["data set", "batch"]
    assert one.parity is not None
    assert one.parity.passed


def test_a_replaced_photo_outside_the_batch(
    home: Path, receipts: Bundle, photos: Path, tmp_path: Path
) -> None:
    elsewhere = replaced(photos, 7, tmp_path / "photos")
    found = again(receipts, home, tmp_path, f"workload.images={elsewhere}")
    assert (found.outcome, found.exit_code) == ("same", 0)
    assert changed(found, "none", "another") == ["data set"]


def test_photos_that_are_not_there(home: Path, receipts: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--set workload\.images: .*nowhere"):
        again(receipts, home, tmp_path, f"workload.images={tmp_path}/nowhere")


def test_a_folder_that_a_report_names_is_not_read(home: Path, receipts: Bundle, tmp_path: Path) -> None:
    found = again(receipts, home, tmp_path)
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", "not-rebuilt", 3)
    assert "give its photos as --set workload.images=FOLDER" in one.sentence
    assert one.canary is None, "nothing was run"


def test_dropout_that_is_not_drawn_again(home: Path, photos: Path, tmp_path: Path) -> None:
    workload = {"name": "receipts", "images": str(photos), "dropout": 0.5} | SIZES
    bundle = reported(home, workload=workload, checkpoint={"rng": "ignore"})
    found = again(bundle, home, tmp_path, f"workload.images={photos}")
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("lost", "parity", 1)
    assert one.held_in_report is False
    assert one.canary is not None
    assert one.canary.caught
    assert one.drift is not None
    assert one.drift.bitwise
    assert one.parity is not None
    assert (one.parity.passed, one.parity.rollback) == (False, None)
    assert 0 < one.parity.failed <= one.parity.tensors
    assert one.sentence.startswith("Lost at 32x32 B=6: the recomputed update differs from plain's, ")
    assert one.sentence.endswith("Nor did it hold in the report.")


def test_a_canary_that_is_missed(home: Path, tmp_path: Path) -> None:
    """Thresholds so wide prove nothing, there and here."""
    bundle = reported(home, workload="own:theirs", thresholds={"relative_gap": 0.9, "gradient_gap": 1e9})
    found = again(bundle, home, tmp_path)
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", "canary", 3)
    assert one.canary is not None
    assert (one.canary.caught, one.parity) == (False, None)


def test_one_waits_for_a_machine_that_measures_and_for_another_recheck(
    home: Path, own: Bundle, tmp_path: Path
) -> None:
    """The other recheck may have another TMPDIR, and with it another lock of the machine."""
    place = folder(home)
    place.mkdir(parents=True, exist_ok=True)
    ours = "".join(letter if letter.isalnum() else "-" for letter in platform.node())
    work = place / f".work-{ours}-12345678"
    work.mkdir()
    machine, other = machine_lock(), Lock(place / f".lock-{ours}")
    assert machine.acquire()
    assert other.acquire()
    told: list[str] = []

    def tell(words: str) -> None:
        told.append(words)
        if words.startswith("waiting for the machine"):
            machine.release()
        if words.startswith("waiting for another recheck"):
            assert work.exists(), "what another recheck uses stays"
            other.release()

    again(own, home, tmp_path, tell=tell)
    assert told[:2] == [
        "waiting for the machine: something is measured",
        f"waiting for another recheck in {place}",
    ]
    assert not work.exists(), "what a killed recheck has left is removed"
    assert not list(place.glob(".work-*"))


def test_a_plan_that_the_report_refuses_as_unsafe(home: Path, photos: Path, tmp_path: Path) -> None:
    """Batch norm's statistics would move twice; there is no parity to run again, and none is run."""
    workload = {"name": "receipts", "images": str(photos), "norm": "batch"} | SIZES
    bundle = reported(home, workload=workload)
    told: list[str] = []
    found = again(bundle, home, tmp_path, tell=told.append)
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", "nothing-recorded", 3)
    assert one.held_in_report is None
    assert "the report refuses the plan there as unsafe to replay" in one.sentence
    assert told == [], "the machine was idle, and nothing was run"


# --- a machine that cannot ------------------------------------------------------------------------


def test_a_machine_that_is_too_small(
    home: Path, gpt: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1000))
    found = again(gpt, home, tmp_path)
    assert {(one.outcome, one.code) for one in found.shapes} == {("cannot_tell", "not-rebuilt")}
    assert "plain needs about" in found.sentence
    assert found.sentence.endswith("Cannot tell at 2 of 2 shapes.")


@pytest.mark.parametrize(
    ("saboteur", "code", "says"),
    [
        (saboteurs.dies_at_once, "not-rebuilt", "the worker ended with exit code 7 and no result"),
        (saboteurs.babbles, "not-rebuilt", "the worker said something unreadable"),
        (saboteurs.leaves_in_canary, "not-completed", "canary: the worker ended with exit code 3"),
    ],
)
def test_a_worker_that_makes_no_sense(
    home: Path,
    own: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    saboteur: Any,
    code: str,
    says: str,
) -> None:
    monkeypatch.setattr(local_engine, "_child", saboteur)
    found = again(own, home, tmp_path)
    (one,) = found.shapes
    assert (one.outcome, one.code, found.exit_code) == ("cannot_tell", code, 3)
    assert says in one.sentence
    assert leftovers(home) == []


# --- who is believed ------------------------------------------------------------------------------


def test_a_tampered_report_runs_nothing(
    home: Path,
    gpt: Bundle,
    written: Callable[[Bundle], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_engine.LocalEngine, "start", lambda *_: pytest.fail("something was run"))
    before = {path: path.read_bytes() for path in folder(home).glob("*.jsonl")}
    path = written(gpt)
    study = path / "evidence" / "study.json"
    study.write_bytes(study.read_bytes().replace(b'"seq_len":16', b'"seq_len":24'))
    common = ["recheck", str(path), "--signers", str(path.with_name("signers.json")), "--json", "-"]
    said = CliRunner().invoke(cli, common, standalone_mode=False)
    assert said.exit_code == 1
    document = json.loads(said.output)
    assert (document["outcome"], document["exit_code"]) == ("refused", 1)
    assert (document["schema"], document["code"]) == ("recompute-recheck/1", "evidence-changed")
    assert document["verification"]["verified"] is False
    said = CliRunner().invoke(cli, common[:-2], standalone_mode=False)
    assert said.exit_code == 1
    assert said.output.startswith("Refused: evidence/study.json was changed after it was signed.")
    assert said.output.endswith("Nothing was run.\n")
    (path / "evidence" / "more").mkdir()
    said = CliRunner().invoke(cli, common[:-2], standalone_mode=False)
    assert (said.exit_code, "Refused: " in said.output) == (1, True)
    assert {path: path.read_bytes() for path in folder(home).glob("*.jsonl")} == before


# --- the history, and what ends a recheck ---------------------------------------------------------


def test_each_recheck_is_kept(
    own: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[[Bundle], Path]
) -> None:
    home = tmp_path / "kept"
    first, second = again(own, home, tmp_path), again(own, home, tmp_path, "threads=2")
    assert first.statement == second.statement
    assert history(home, first.statement) == (first, second)
    (file,) = folder(home).glob("*.jsonl")
    assert file.name == first.statement.removeprefix("sha256:") + ".jsonl"
    monkeypatch.setenv("RECOMPUTE_HOME", str(home))
    path = str(written(own))
    said = CliRunner().invoke(cli, ["recheck", path, "--history"], standalone_mode=False)
    lines = said.output.splitlines()
    assert [line.partition("  ")[2].partition(":")[0] for line in lines] == ["same", "holds, drifted"]
    said = CliRunner().invoke(cli, ["recheck", path, "--history", "--json", "-"], standalone_mode=False)
    document = json.loads(said.output)
    assert document["schema"] == "recompute-recheck-history/1"
    assert document["rechecks"] == [first.document(), second.document()]


def test_what_cannot_be_kept_is_told_all_the_same(own: Bundle, tmp_path: Path) -> None:
    home, warnings = tmp_path / "full", list[str]()
    kept = again(own, home, tmp_path)
    file = folder(home) / f"{kept.statement.removeprefix('sha256:')}.jsonl"
    file.unlink()
    file.mkdir()
    found = again(own, home, tmp_path, warn=warnings.append)
    assert (found.outcome, found.exit_code) == ("same", 0)
    assert warnings == [f"the recheck is not in the history: {file}: Is a directory"]


def test_nobody_waits_for_ever(
    home: Path, own: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_PATIENCE_S", 0.0)
    machine = machine_lock()
    assert machine.acquire(600)
    try:
        with pytest.raises(InputError, match="something is measured; an hour has passed, try again"):
            again(own, home, tmp_path)
    finally:
        machine.release()


def test_waiting_is_said_without_a_terminal_too(capsys: pytest.CaptureFixture[str]) -> None:
    with steps_progress() as tell:
        tell("waiting for the machine")
        tell("plain at T=1 B=1")
    assert capsys.readouterr() == ("", "waiting for the machine\n")


def _rechecking(path: Path, home: str, **also: Any) -> subprocess.Popen[str]:
    """A recheck of a report in a process of its own, with a RECOMPUTE_HOME beside the report."""
    words = ["recheck", str(path), "--signers", str(path.with_name("signers.json"))]
    return subprocess.Popen(
        [sys.executable, "-m", "recompute_core", *words],
        env=os.environ | {"RECOMPUTE_HOME": str(path.parent / home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **also,
    )


def test_control_c_while_the_fork_server_starts(gpt: Bundle, written: Callable[[Bundle], Path]) -> None:
    """It goes to all of a terminal's processes."""
    path = written(gpt)
    with _rechecking(path, "stopped", start_new_session=True) as running:
        try:
            _wait_for(lambda: running.poll() is not None or len(_family(running)) >= 2)
            family = _family(running)
            time.sleep(0.3)
            os.killpg(running.pid, signal.SIGINT)
            said, errors = running.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.returncode, said, errors.strip()) == (4, "", "error: stopped")
    _wait_for(lambda: not any(one.is_running() and one.status() != "zombie" for one in family))


@pytest.fixture
def endless(
    home: Path, own: Bundle, written: Callable[[Bundle], Path], theirs: Callable[[str, str], None]
) -> Iterator[subprocess.Popen[str]]:
    """A recheck in a process of its own that is in the middle of its plain update."""
    theirs("def make():", "def make():\n    import time\n    time.sleep(600)")
    path = written(own)
    with _rechecking(path, "endless") as running:
        try:
            _wait_for(lambda: running.poll() is not None or len(_family(running)) >= 3)
            assert running.poll() is None, running.communicate()
            yield running
        finally:
            running.kill()


def _family(running: "subprocess.Popen[str]") -> list[psutil.Process]:
    """The fork server, the resource tracker and the worker."""
    return psutil.Process(running.pid).children(recursive=True)


def _wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_killed_in_the_middle_it_leaves_no_line(
    endless: "subprocess.Popen[str]", own: Bundle, tmp_path: Path, home: Path
) -> None:
    family, place = _family(endless), tmp_path / "endless"
    endless.kill()
    endless.wait(30)
    _wait_for(lambda: not any(one.is_running() and one.status() != "zombie" for one in family))
    assert list(folder(place).glob("*.jsonl")) == []
    assert len(leftovers(place)) == 1
    somebodys(home.parent)
    found = again(own, place, tmp_path)
    assert found.outcome == "same"
    assert history(place, found.statement) == (found,)
    assert leftovers(place) == [], "what was left of the one that was killed is gone too"


def test_control_c_ends_it_and_leaves_nothing(endless: "subprocess.Popen[str]", tmp_path: Path) -> None:
    family = _family(endless)
    endless.send_signal(signal.SIGINT)
    said, errors = endless.communicate(timeout=60)
    assert (endless.returncode, said, errors.strip()) == (4, "", "error: stopped")
    _wait_for(lambda: not any(one.is_running() and one.status() != "zombie" for one in family))
    assert leftovers(tmp_path / "endless") == []
    assert list(folder(tmp_path / "endless").glob("*.jsonl")) == []


# --- where it runs --------------------------------------------------------------------------------


def test_nothing_here_imports_torch() -> None:
    code = (
        "import sys; from recompute_core.reports import command_recheck, recheck, recheck_history; "
        "from recompute_core.reports.recheck_history import history; "
        "sys.exit(any(name.partition('.')[0] == 'torch' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
