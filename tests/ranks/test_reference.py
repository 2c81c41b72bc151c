"""What data parallel training computes, in one process; and what is said of ranks."""

import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recompute_core.checks.snapshot import compare, fixed_update
from recompute_core.errors import InputError
from recompute_core.ranks import costs
from recompute_core.ranks.admission import check_ranks
from recompute_core.ranks.costs import middle_of, worst_of
from recompute_core.ranks.launch import Ended, why_failed
from recompute_core.ranks.reference import global_update, own_name, view_of
from recompute_core.ranks.shards import shard
from recompute_core.ranks.team import merged_gaps
from recompute_core.results import Gap, Memory, Pair, Timing
from recompute_core.spec import OptimizerSettings, Ranks, StudySpec, parse_spec
from recompute_core.workloads.job import Job
from tests.core.toys import mlps, small_gpt

ALONE = OptimizerSettings()


def test_the_mean_over_ranks_is_the_gradient_of_the_whole_batch() -> None:
    """Equal shares of a mean loss: one process that has the whole batch computes the same."""
    build = partial(small_gpt, batch=8)
    found, _ = global_update(build, StudySpec(), 4)
    whole = fixed_update(build(), ALONE, 0)
    for key, tensor in whole.tensors.items():
        if key.startswith("grad/"):
            torch.testing.assert_close(found.tensors[key], tensor, rtol=1e-5, atol=1e-7)
    outputs = [found.tensors[f"output/0 of rank {rank}"] for rank in range(4)]
    torch.testing.assert_close(torch.cat(outputs), whole.tensors["output/0"])
    losses = [found.tensors[f"loss/of rank {rank}"] for rank in range(4)]
    torch.testing.assert_close(torch.stack(losses).mean(), whole.tensors["loss/"])
    assert found.flops == whole.flops
    assert found.block_calls == {"blocks.0": 1, "blocks.1": 1}


def test_one_step_follows_from_the_mean() -> None:
    """By hand: two shares, their gradients halved and added, one step of AdamW."""
    found, _ = global_update(mlps, StudySpec(), 2)
    shares = [fixed_update(shard(mlps(), rank, 2), ALONE, rank).tensors for rank in range(2)]
    job = mlps()
    for name, parameter in job.model.named_parameters():
        parameter.grad = shares[0][f"grad/{name}"] / 2 + shares[1][f"grad/{name}"] / 2
        assert torch.equal(found.tensors[f"grad/{name}"], parameter.grad)
    torch.optim.AdamW(job.model.parameters(), lr=ALONE.lr, weight_decay=ALONE.weight_decay).step()
    for name, parameter in job.model.named_parameters():
        assert torch.equal(found.tensors[f"weight/{name}"], parameter.detach())


@pytest.mark.parametrize("make", [mlps, partial(small_gpt, batch=4)], ids=["mlps", "gpt"])
def test_ranks_that_are_done_are_let_go(make: Callable[[], Job]) -> None:
    """The reference of many ranks needs no more memory for models than that of two."""
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def build() -> Job:
        alive.append(sum(weight() is not None for weight in made))
        job = make()
        made.append(weakref.ref(next(job.model.parameters())))
        return job

    global_update(build, StudySpec(), 4)
    assert len(alive) == 5
    assert max(alive) <= 1


def test_ranks_draw_random_numbers_of_their_own() -> None:
    build = partial(mlps, between=partial(torch.nn.Dropout, 0.5))
    found, _ = global_update(build, StudySpec(), 2)
    states = [found.tensors[f"rng/torch of rank {rank}"] for rank in range(2)]
    assert not torch.equal(*states)
    alone = fixed_update(shard(build(), 1, 2), ALONE, 1)  # the study's seed, and one more
    mine = view_of(found.tensors, 1)
    assert mine.keys() == alone.tensors.keys()
    own = [gap for gap in compare(mine, alone.tensors) if gap.part not in ("grad", "weight")]
    assert all(gap.bitwise for gap in own)


def test_a_share_has_its_rows_and_its_tokens() -> None:
    job = small_gpt(batch=6)
    tokens, targets = job.batch
    for rank in range(3):
        share = shard(job, rank, 3)
        assert torch.equal(share.batch[0], tokens[2 * rank : 2 * rank + 2])
        assert torch.equal(share.batch[1], targets[2 * rank : 2 * rank + 2])
        assert share.tokens == 2 * 16


def test_ranks_that_call_blocks_differently_are_refused() -> None:
    def build() -> Job:
        job = mlps()
        first = job.model.get_submodule("blocks.0")
        (batch,) = job.batch

        def twice(_: Any, given: tuple[torch.Tensor, ...]) -> None:
            if torch.equal(given[0].detach(), batch[2:]):
                first.forward(given[0])

        job.model.register_forward_pre_hook(twice)
        return job

    with pytest.raises(RuntimeError, match="called 2 times on rank 1 and 1 time on rank 0"):
        global_update(build, StudySpec(), 2)


# --- gaps and figures of several ranks ----------------------------------------------------------


def gap(part: Any, name: str, relative: float | None, problem: str | None = None) -> Gap:
    return Gap(part=part, name=name, absolute=relative, relative=relative, problem=problem)


def test_gaps_of_ranks_are_merged_by_the_worst() -> None:
    merged = merged_gaps(
        [
            (gap("loss", "", 0.0), gap("grad", "w", 1e-9), gap("weight", "w", 0.5)),
            (gap("loss", "", 1e-3), gap("grad", "w", 1e-7), gap("weight", "w", None, "not finite")),
        ]
    )
    assert merged == (
        gap("loss", "of rank 0", 0.0),
        gap("grad", "w", 1e-7),
        gap("weight", "w", None, "not finite"),
        gap("loss", "of rank 1", 1e-3),
    )
    assert own_name("output/0", 3) == "output/0 of rank 3"


def memory(*peaks: int, state: int = 10, process: int | None = None) -> Memory:
    return Memory(
        source="test",
        saved_bytes=1,
        naive_saved_bytes=1,
        state_bytes=state,
        peak_samples=peaks,
        process_peak_bytes=process,
    )


def test_the_rank_with_the_highest_peak_counts() -> None:
    found = worst_of([memory(5), memory(9), memory(7, state=11)])
    assert found.peak_bytes == 19
    assert [one.peak_bytes for one in found.ranks] == [15, 19, 18]
    assert found.source == "test; rank 1, the worst of 3"


def test_of_several_updates_the_one_in_the_middle_is_shown() -> None:
    found, chosen = middle_of([memory(5), memory(9), memory(7)])
    assert chosen == 2
    assert found.peak_samples == (5, 9, 7)
    assert found.peak_above_state_bytes == 7
    assert found.source == "test; the median of 3 updates"


def test_the_peak_of_the_process_is_from_before_events_were_held() -> None:
    found, _ = middle_of([memory(5, process=100), memory(9, process=300), memory(7, process=300)])
    assert found.process_peak_bytes == 100


@pytest.mark.parametrize("rank", [0, 1])
def test_one_trace_is_written_by_the_worst_rank(
    rank: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the update in the middle, once it is known whose counts."""
    own = [memory(5, 9, 7, 6, 8), memory(50, 90, 70, 60, 80)][rank].peak_samples
    written: list[tuple[int, Path]] = []
    left = iter(own)

    def measured(*_: Any, **__: Any) -> tuple[Memory, Any]:
        peak = next(left)

        def keep(path: Path) -> dict[str, Any]:
            written.append((peak, path))
            return {"trace": path.name, "trace_digest": "sha256:1", "not_measured": {}}

        return memory(peak), keep

    said: list[list[Any]] = [[memory(7), memory(70)], [{}, {"trace": "t", "not_measured": {}}]]

    def all_say(mine: Any, _: Any) -> list[Any]:
        heard = said.pop(0)
        heard[rank] = mine if mine else heard[rank]
        return heard

    monkeypatch.setattr(costs, "memory_and_trace", measured)
    for name in ("allocate_state", "update"):
        monkeypatch.setattr(costs, name, lambda *_: None)
    for name in ("collected_parameters", "buckets_bytes"):
        monkeypatch.setattr(costs, name, lambda _: 0)
    team: Any = SimpleNamespace(rank=rank, all_say=all_say)
    job: Any = SimpleNamespace(device=torch.device("cpu"))
    nobody: Any = None
    found = costs.measure_rank_memory(job, nobody, nullcontext, nobody, team, tmp_path / "t")
    assert written == [[], [(70, tmp_path / "t")]][rank]
    assert (found.trace, found.peak_above_state_bytes) == ("t", 70)


def test_the_time_of_ranks_keeps_who_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Timing(
        samples=(Pair(plain_s=1, candidate_s=1),), stopped="all pairs taken", source="by the device"
    )
    monkeypatch.setattr(costs, "measure_time", lambda *_: taken)
    nobody: Any = None
    ranks = Ranks(kind="ddp", count=2)
    found = costs.measure_rank_time(nobody, nobody, nobody, nobody, nobody, nobody, ranks, nobody)
    assert found.source == "by the device, on each of 2 ranks in step (ddp); the slowest rank's time"
    assert found.ranks == 2


# --- why a launch failed ------------------------------------------------------------------------

LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer"
NCCL = "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690"
GONE = "remote process exited or there was a network error, NCCL version 2.27.5"


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        (
            [Ended(0, 1, LOST, 5), Ended(1, -signal.SIGKILL, None)],
            "rank 1 of 2 was killed (signal 9; the kernel does so when memory runs out)",
        ),
        (
            [Ended(0, -signal.SIGTERM, LOST, 1), Ended(1, 1, "ValueError: no", 2)],
            "rank 1 of 2: ValueError: no",
        ),
        (
            [Ended(0, 1, "ValueError: later", 9), Ended(1, 1, "ValueError: first", 2)],
            "rank 1 of 2: ValueError: first",
        ),
        (
            [Ended(0, -signal.SIGTERM, None), Ended(1, -signal.SIGSEGV, None)],
            "rank 1 of 2 died of signal 11 (SIGSEGV)",
        ),
        ([Ended(0, 1, LOST, 5), Ended(1, 1, LOST, 6)], f"rank 0 of 2: {LOST}"),
        (
            [Ended(0, 1, f"{NCCL}, {GONE}", 5), Ended(1, 1, f"{NCCL}, unhandled cuda error", 6)],
            f"rank 1 of 2: {NCCL}, unhandled cuda error",
        ),
    ],
    ids=["killed", "raised", "who was first", "crashed", "nobody knows", "an error of NCCL's own"],
)
def test_the_rank_that_failed_first_is_named(ranks: list[Ended], why: str) -> None:
    assert why_failed(ranks, 2) == why


# --- what may not start -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"workload": {"batch": 3}},
            "shapes[0] (T=512 B=3): a batch of 3 cannot be cut into 2 equal parts, one for each rank",
        ),
        ({"device": "mps"}, "ranks: training over ranks runs on cpu and cuda, not on mps"),
        (
            {
                "plans": ["two"],
                "custom_plans": {"two": [{"modules": ["blocks.0", "blocks.1"]}]},
                "checkpoint": {"variant": "forward"},
                "ranks": {"kind": "fsdp2"},
            },
            "plans[0]: two recomputes several blocks as one, and with the variant 'forward' their "
            "replay would skip FSDP2's hooks and meet parameters that are not collected; use --set "
            "checkpoint.variant=call",
        ),
    ],
)
def test_what_cannot_run_over_ranks_is_refused_in_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as refused:
        check_ranks(parse_spec({"ranks": {"count": 2}, **changes}))
    assert str(refused.value) == line


def test_ranks_change_the_digest_and_their_absence_does_not() -> None:
    assert "ranks" not in StudySpec().model_dump(mode="json")
    kinds = [(kind, count) for kind in ("ddp", "fsdp2") for count in (2, 4)]
    over = [parse_spec({"ranks": {"kind": kind, "count": count}}) for kind, count in kinds]
    assert len({spec.digest() for spec in (*over, StudySpec())}) == 5


def test_a_study_over_ranks_is_admitted_without_torch() -> None:
    """As the browser's process does."""
    code = "import sys, recompute_core.studies.admission; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
