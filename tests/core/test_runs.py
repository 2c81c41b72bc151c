"""Runs on fake tensors that several processes share."""

import os
import signal
from functools import partial

import pytest

from recompute_core.meters.estimate import FakeUpdate, LiveBytes
from recompute_core.planner.runs import Runs, shared_runs
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import named_regions
from recompute_core.spec import CheckpointSettings, OptimizerSettings
from recompute_core.workloads import build_blank
from recompute_core.workloads.job import Job
from recompute_core.workloads.update import update
from tests.core.toys import SMALL

PLANS = [named_regions(name, anatomy_of(SMALL)) for name in ("none", "every-block", "nested", "mlp")]
TREATMENTS = [(), (("", ()),), (("mlp", ()),)]


def job_of(server: int) -> Job:
    """The small GPT, but in no other process than that of `server`: there, an error."""
    if os.getpid() != server:
        raise MemoryError("no room")
    return build_blank(SMALL, 0)


def test_processes_answer_as_this_one_does() -> None:
    made = partial(build_blank, SMALL, 0), OptimizerSettings(), CheckpointSettings()
    here = Runs(*made)
    with shared_runs(*made) as shared:
        assert shared.whole(PLANS) == here.whole(PLANS)
        assert shared.alone("blocks.0", TREATMENTS) == here.alone("blocks.0", TREATMENTS)
        assert shared._pool is not None
        processes = list(shared._pool._processes)  # type: ignore[attr-defined]
        for process in processes:
            os.kill(process, signal.SIGKILL)
        assert shared.whole(PLANS) == here.whole(PLANS), "without them, in this process"
        assert shared._pool is None


def test_a_process_that_cannot_be_made_costs_time_and_nothing_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    made = partial(job_of, os.getpid()), OptimizerSettings(), CheckpointSettings()
    with shared_runs(*made) as shared:
        assert [run.estimate.saved_bytes for run in shared.whole(PLANS[:2])] == [
            run.estimate.saved_bytes for run in Runs(*made).whole(PLANS[:2])
        ]
    capfd.readouterr()


def test_the_optimizers_step_that_ran_once_is_that_of_every_update() -> None:
    """What a run ends with is what a whole update, run anew, ends with."""
    fake = FakeUpdate(partial(build_blank, SMALL, 0), OptimizerSettings())
    live = LiveBytes(fake._state)
    with fake.mode, live:
        update(fake.job, fake._optimizer)
    step = len(fake._step.samples)
    assert step > len(list(fake.job.model.parameters()))
    for plan in PLANS:
        trace = fake.run(plan, CheckpointSettings()).trace
        assert trace.alive[-step:] == tuple(live.samples[-step:])
        assert max(trace.alive[-step:]) > trace.alive[-1] == live.samples[-1]
