"""Whole studies over two ranks: what they find, and what each rank measured of itself."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recompute_core.plans.apply import applied
from recompute_core.plans.names import regions_of
from recompute_core.ranks.shards import shard
from recompute_core.reports.evidence import gather
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.release import release
from recompute_core.results import Measured, MemoryPair, StudyResult
from recompute_core.spec import StudySpec, parse_spec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.driver import drive
from recompute_core.studies.store import Store
from recompute_core.workloads import build
from tests.reports.signing import ANN

GPT = {"name": "gpt", "blocks": 2, "width": 32, "heads": 2, "vocab": 17, "seq_len": 16, "batch": 4}


def spec_of(workload: dict[str, Any], kind: str) -> StudySpec:
    return parse_spec(
        {
            "workload": workload,
            "plans": ["every-block"],
            "thresholds": {"peak_ratio": 1, "update_ratio": 100},
            "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
            "ranks": {"kind": kind, "count": 2},
            "device": "cpu",
            "threads": 1,
        }
    )


def studied(folder: Path, workload: dict[str, Any], kind: str) -> tuple[Store, str, StudyResult]:
    store = Store(folder)
    study = store.create(spec_of(workload, kind))
    drive(store, study)
    return store, study, assemble(store.study(study), store.cells(study))


def the_one(result: StudyResult) -> Measured:
    (judged,) = result.judged
    assert isinstance(judged.candidate, Measured), judged.candidate.troubles
    return judged.candidate


def saved_alone(spec: StudySpec, home: Path, plan: str) -> int:
    """What one process keeps for backward of a rank's share."""
    from recompute_core.meters.saved import SavedBytes

    job = shard(build(spec.workload, spec.seed, home), 0, 2)
    meter = SavedBytes([*job.model.parameters(), *job.inputs])
    regions = () if plan == "none" else regions_of(spec, plan)
    with applied(job.model, regions, spec.checkpoint), meter:
        job.forward()
    return meter.distinct


def check(found: Measured, result: StudyResult, home: Path) -> MemoryPair:
    """What holds under both wrappers; returns what was measured of memory."""
    assert found.parity.bitwise  # of two summands the order does not count
    assert found.canary.caught
    assert found.parity.rollback is not None
    assert found.parity.rollback.bitwise
    assert found.parity.rollback.replays_before == 4  # of two blocks on two ranks
    assert found.block_calls == {
        "plain": {"blocks.0": 1, "blocks.1": 1},
        "candidate": {"blocks.0": 2, "blocks.1": 2},
    }
    assert found.timing.ranks == 2
    assert "2 ranks in step" in found.timing.source
    assert "the worst of 2 ranks" in result.sentence
    here = result.environment
    assert (here["ranks"], here["ranks_backend"], here["threads"]) == (2, "gloo", 1)
    for plan, memory in (("none", found.memory.plain), ("every-block", found.memory.candidate)):
        assert [one.rank for one in memory.ranks] == [0, 1]
        assert {one.saved_bytes for one in memory.ranks} == {saved_alone(result.spec, home, plan)}
        assert memory.peak_bytes == max(one.peak_bytes or 0 for one in memory.ranks)
        assert len(memory.peak_samples) == 5
        trace = home / "studies" / result.study_id / (memory.trace or "")
        drawn = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
        assert max(one["args"]["bytes"] for one in drawn if one["ph"] == "C") == memory.peak_bytes
        digest = hashlib.sha256(trace.read_bytes()).hexdigest()
        assert memory.trace_digest == f"sha256:{digest}"
    return found.memory


@pytest.fixture
def ddp(machine: Path, tmp_path: Path) -> tuple[Store, str, StudyResult]:
    return studied(tmp_path, GPT, "ddp")


def test_a_study_under_ddp_and_its_report(ddp: tuple[Store, str, StudyResult], machine: Path) -> None:
    store, study, result = ddp
    found = the_one(result)
    memory = check(found, result, store.home)
    reference = result.references["T=16 B=4"]
    weights = 4 * reference.parameters
    parts = memory.plain.state_parts
    assert parts is not None
    assert parts.parameters == weights
    assert parts.gradients == 2 * weights  # and DDP's buckets
    names = {print_.name for print_ in reference.fingerprints or ()}
    assert {"loss/of rank 0", "loss/of rank 1", "rng/torch of rank 1", "weight/norm.gain"} <= names
    assert not list(machine.glob("recompute-ranks-*"))

    evidence = gather(store, study, "every-block")
    claims = " ".join(release(evidence, ANN).predicate.not_claimed)
    assert "otherwise than over 2 ranks of ddp on one machine" in claims
    cells = evidence["cells.json"]
    assert b'"ranks"' in cells
    one_less = cells.replace(b'"rank":1', b'"rank":2')
    assert one_less != cells
    with pytest.raises(Untrusted, match="other ranks than the study has"):
        release({**evidence, "cells.json": one_less}, ANN)
    for changes, says in (
        ({"saved_bytes": 7}, "not that of the rank with the highest peak"),
        ({"peak_bytes": None}, "is of some ranks alone"),
        ({"peak_bytes": 3}, "below what it holds all the time"),
    ):
        edited = json.loads(cells)
        for cell in edited:
            for rank in cell["payload"]["ranks"] if cell["phase"] == "memory" else ():
                rank |= changes
        with pytest.raises(Untrusted, match=says):
            release({**evidence, "cells.json": json.dumps(edited).encode()}, ANN)
    elsewhere = json.loads(evidence["study.json"])
    elsewhere["environment"]["ranks"] = 64
    with pytest.raises(Untrusted, match="of other ranks than the specification asks for"):
        release({**evidence, "study.json": json.dumps(elsewhere).encode()}, ANN)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A user's own folder of six small photos."""
    folder = tmp_path / "photos"
    folder.mkdir()
    lines = ["image_path,receipt_id,label,split"]
    for index, label in enumerate(("ok", "blurry", "faint", "glare", "torn", "ok")):
        pixels = np.random.default_rng(index).integers(0, 256, (32, 32), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
        lines.append(f"{index}.png,r{index},{label},{'validation' if index > 3 else 'train'}")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_a_study_of_the_receipts_under_fsdp2(machine: Path, tmp_path: Path, photos: Path) -> None:
    """With dropout, which each rank draws for itself."""
    sizes = {"blocks": 2, "width": 48, "heads": 2, "height": 32, "image_width": 32, "batch": 4}
    workload = {"name": "receipts", "images": str(photos), "dropout": 0.5, **sizes}
    store, _, result = studied(tmp_path, workload, "fsdp2")
    memory = check(the_one(result), result, store.home)
    reference = result.references["32x32 B=4"]
    parts = memory.plain.state_parts
    assert parts is not None
    whole = 4 * reference.parameters
    assert whole / 2 <= parts.parameters < 0.6 * whole  # rows that do not halve are filled up
    assert parts.gradients <= parts.parameters
    prints = {print_.name: print_.sha256 for print_ in reference.fingerprints or ()}
    assert prints["rng/torch of rank 0"] != prints["rng/torch of rank 1"]
    store.close()
