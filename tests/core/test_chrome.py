"""The profiler's events as a trace: what Perfetto reads, what it tells, and what it does not."""

import gzip
import hashlib
import json
import platform
import re
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import record_function

from recompute_core.meters import chrome, memory
from recompute_core.meters.chrome import UPDATE, chrome_events, without_folders
from recompute_core.meters.memory import measure_memory
from recompute_core.meters.timeline import Trace
from recompute_core.plans.apply import applied
from recompute_core.results import Memory
from recompute_core.spec import CheckpointSettings, OptimizerSettings
from recompute_core.studies.artifacts import trace_name
from recompute_core.workloads.job import Job
from recompute_core.workloads.update import make_optimizer
from tests.core import records as make
from tests.core.toys import each, small_gpt


def measured(job: Job, trace: Path | None, blocks: tuple[str, ...] = ()) -> Memory:
    optimizer = make_optimizer(job.model, OptimizerSettings())
    put_on = partial(applied, job.model, each(*blocks), CheckpointSettings())
    return measure_memory(job, optimizer, put_on, make.passed(), trace)


def events_in(path: Path) -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert set(document) == {"displayTimeUnit", "traceEvents"}
    return document["traceEvents"]  # type: ignore[no-any-return]


# --- what is kept ---------------------------------------------------------------------------------


def test_every_event_is_one_that_perfetto_reads(tmp_path: Path) -> None:
    found = measured(small_gpt(), tmp_path / "trace.json.gz")
    events = events_in(tmp_path / "trace.json.gz")
    assert {event["ph"] for event in events} == {"M", "X", "i", "C"}
    for event in events:
        assert event["pid"] == 1
        assert isinstance(event["name"], str)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert isinstance(event["tid"], int)
    threads = {event["tid"] for event in events if event["ph"] == "X"}
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert named == threads
    assert {"aten::mm", "aten::embedding"} <= {event["name"] for event in events}
    assert found.trace == "trace.json.gz"
    digest = hashlib.sha256((tmp_path / "trace.json.gz").read_bytes()).hexdigest()
    assert found.trace_digest == f"sha256:{digest}"
    assert "trace" not in found.not_measured


def test_its_highest_moment_is_the_peak(tmp_path: Path) -> None:
    job = small_gpt()
    found = measured(job, tmp_path / "trace", job.blocks)
    alive = [event["args"]["bytes"] for event in events_in(tmp_path / "trace") if event["ph"] == "C"]
    assert max(alive) == found.peak_bytes


def test_it_shows_phases_and_blocks(tmp_path: Path) -> None:
    job = small_gpt()
    measured(job, tmp_path / "trace", job.blocks)
    track = [event for event in events_in(tmp_path / "trace") if event.get("tid") == 0]
    assert track[1]["args"] == {"name": UPDATE}
    phases = [event for event in track if event["ph"] == "X"]
    assert [event["name"] for event in phases] == ["zero_grad", "forward", "backward", "optimizer"]
    for one, after in pairwise(phases):
        assert one["ts"] + one["dur"] == pytest.approx(after["ts"])
    moments = [event["name"] for event in track if event["ph"] == "i"]
    assert moments.count("replay blocks.0") == 1
    assert moments.index("block blocks.1") < moments.index("replay blocks.1")


def test_it_names_neither_this_machine_nor_its_folders(tmp_path: Path) -> None:
    job = small_gpt()
    forward = job.model.blocks[0].forward

    def annotated(*args: Any) -> Any:
        with record_function("/home/somebody/secret project/net.py: C:\\Users\\somebody\\net.py"):
            return forward(*args)

    job.model.blocks[0].forward = annotated
    measured(job, tmp_path / "trace")
    text = gzip.decompress((tmp_path / "trace").read_bytes()).decode()
    assert "net.py" in text
    assert "somebody" not in text
    assert not re.search(r'"/|/home|/tmp|/work|/root', text)
    assert f'"{platform.node()}"' not in text


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("aten::mm", "aten::mm"),
        ("a/b per c/d", "a/b per c/d"),
        ("/home/me/net.py(12): forward", "net.py(12): forward"),
        ("at C:\\Users\\me\\net.py", "at net.py"),
        ("block blocks.0.mlp", "block blocks.0.mlp"),
    ],
)
def test_folders_are_taken_out(text: str, without: str) -> None:
    assert without_folders(text) == without


# --- it disturbs nothing --------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [(), ("blocks.0", "blocks.1")], ids=["plain", "every-block"])
def test_keeping_it_changes_no_figure(tmp_path: Path, blocks: tuple[str, ...]) -> None:
    without, found = (measured(small_gpt(), place, blocks) for place in (None, tmp_path / "trace"))
    for figure in ("peak_samples", "saved_bytes", "naive_saved_bytes", "state_bytes", "peak_at"):
        assert getattr(without, figure) == getattr(found, figure)
    assert without.timeline is not None and found.timeline is not None
    assert max(without.timeline.bytes) == max(found.timeline.bytes)


def test_the_process_peak_is_read_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    keep, peak = memory.keep_trace, memory.process_peak_bytes
    monkeypatch.setattr(memory, "keep_trace", lambda *a: order.append("trace") or keep(*a))
    monkeypatch.setattr(memory, "process_peak_bytes", lambda: order.append("peak") or peak())
    measured(small_gpt(), tmp_path / "trace")
    assert order == ["peak", "trace"]


# --- it cannot be kept ----------------------------------------------------------------------------


def test_one_that_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = partial(chrome.keep_trace, most_bytes=1000)
    monkeypatch.setattr(memory, "keep_trace", keep)
    found = measured(small_gpt(), tmp_path / "trace")
    assert (found.trace, found.trace_digest) == (None, None)
    assert re.fullmatch(r"\d+ bytes; at most 1000 are kept", found.not_measured["trace"])
    assert list(tmp_path.iterdir()) == []
    assert found.peak_bytes


def test_without_a_place_to_write_the_figures_are_kept(tmp_path: Path) -> None:
    found = measured(small_gpt(), tmp_path / "gone" / "trace")
    assert found.trace is None
    assert found.not_measured["trace"] == "it cannot be written: No such file or directory"
    assert found.peak_bytes


def test_an_update_of_nothing() -> None:
    events = [json.loads(line) for line in chrome_events([], Trace((), (), ()), 0)]
    assert [event["ph"] for event in events] == ["M", "M"]


# --- its name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        ("none", "trace T=128 B=4 none.json.gz"),
        ("every-2nd-block", "trace T=128 B=4 every-2nd-block.json.gz"),
        ("best-55.5mb", "trace T=128 B=4 best-55.5mb.json.gz"),
    ],
)
def test_a_recipe_names_its_trace(plan: str, name: str) -> None:
    assert trace_name("T=128 B=4", plan) == name


plans = st.from_regex(r"\A\S(.{0,78}\S)?\Z").filter(lambda plan: len(plan) <= 80)


@given(plans)
def test_any_plan_names_a_file_that_every_system_takes(plan: str) -> None:
    name = trace_name("T=128 B=4", plan)
    assert re.fullmatch(r"trace T=128 B=4 [a-z0-9][a-z0-9=,. -]*\.json\.gz", name), name
    assert len(name) < 120


@given(st.lists(plans, min_size=2, max_size=6, unique=True))
def test_two_plans_have_two_traces(some: list[str]) -> None:
    names = {trace_name("T=128 B=4", plan).lower() for plan in some}
    assert len(names) == len(some)


def test_names_that_would_be_one_are_two() -> None:
    alike = ["blocks:0,1", "blocks/0,1", "Blocks:0,1", "blocks-0,1", "..", "../..", "é", "ê"]
    assert len({trace_name("own batch", plan).lower() for plan in alike}) == len(alike)
