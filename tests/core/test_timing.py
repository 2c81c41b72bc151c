"""When sampling stops, who goes first, and what must hold before; on a clock that the test moves."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recompute_core.meters import timing
from recompute_core.meters.timing import _why_stop, measure_time
from recompute_core.plans.apply import applied
from recompute_core.results import Pair
from recompute_core.spec import CheckpointSettings, OptimizerSettings, TimingSettings
from recompute_core.workloads.update import make_optimizer
from tests.core import records as make
from tests.core.toys import each, small_gpt

SETTINGS = TimingSettings(min_pairs=3, max_pairs=5, width=0.125, budget_s=10)


def pairs(*ratios: float) -> list[Pair]:
    return [Pair(plain_s=1.0, candidate_s=ratio) for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "elapsed_s", "why"),
    [
        ([1.25], 0, None),
        ([1.25, 1.25], 99, None),  # min_pairs are owed whatever they cost
        ([1.25, 1.25, 1.25], 0, "narrow enough"),
        ([1.25, 1.3125, 1.375], 0, "narrow enough"),  # an interval exactly as wide as allowed
        ([1.25, 1.3125, 1.376], 0, None),
        ([1.0, 1.25, 2.0], 9.99, None),
        ([1.0, 1.25, 2.0], 10, "budget spent"),
        ([1.0, 1.25, 2.0, 2.0], 10, "budget spent"),
        ([1.0, 1.25, 1.5, 2.0, 3.0], 0, "all pairs taken"),
        ([1.0, 1.25, 1.5, 2.0, 3.0], 99, "all pairs taken"),
        ([1.25] * 5, 99, "narrow enough"),
    ],
)
def test_stop_rules(ratios: list[float], elapsed_s: float, why: str | None) -> None:
    assert _why_stop(pairs(*ratios), elapsed_s, SETTINGS) == why


def test_without_a_budget_only_the_owed_pairs_are_taken() -> None:
    none_left = SETTINGS.model_copy(update={"budget_s": 0.0})
    assert _why_stop(pairs(1.0, 2.0), 0.0, none_left) is None
    assert _why_stop(pairs(1.0, 2.0, 4.0), 0.0, none_left) == "budget spent"


class Bench:
    """Stands in for the clock and the update: each update takes as long as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plain_s: float, candidate_s: list[float]):
        self.now = 0.0
        self.on = False
        self.order: list[str] = []
        self.states: list[int] = []
        self.collecting: list[bool] = []
        self._plain_s, self._candidate_s = plain_s, iter(candidate_s)
        monkeypatch.setattr(timing, "update", self.update)
        monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: self.now))

    @contextmanager
    def applied(self) -> Iterator[None]:
        self.on = True
        yield
        self.on = False

    def update(self, job: Any, optimizer: torch.optim.Optimizer) -> None:
        self.order.append("candidate" if self.on else "plain")
        self.states.append(len(optimizer.state))
        self.collecting.append(gc.isenabled())
        self.now += next(self._candidate_s) if self.on else self._plain_s

    def measure(self, settings: TimingSettings = SETTINGS, tell: Any = lambda pair: None) -> Any:
        job = small_gpt()
        optimizer = make_optimizer(job.model, OptimizerSettings())
        return measure_time(job, optimizer, self.applied, settings, make.passed(), tell)


def test_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, told = Bench(monkeypatch, 1.0, [64.0, 1.0, 1.5, 2.0, 3.0]), []
    found = bench.measure(SETTINGS.model_copy(update={"max_pairs": 4, "budget_s": 99.0}), told.append)
    # The first of each is a warm-up and counts nowhere; then the one that goes first alternates.
    assert bench.order == ["plain", "candidate"] + ["plain", "candidate", "candidate", "plain"] * 2
    assert found.samples == tuple(pairs(1.0, 1.5, 2.0, 3.0))
    assert told == list(found.samples)
    assert found.stopped == "all pairs taken"
    assert found.ratio_median == 1.75


def test_the_optimizers_state_exists_before_the_first_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, 1.0, [1.0] * 9)
    bench.measure()
    assert set(bench.states) == {len(list(small_gpt().model.parameters()))}


def test_the_budget_counts_sampling_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, 1.0, [64.0, 1.0, 1.25, 2.0, 4.0])
    found = bench.measure(SETTINGS.model_copy(update={"budget_s": 9.0}))
    # 2.0 + 2.25 + 3.0 s make 7.25 s after three pairs and 12.25 s after four.
    assert (found.pairs, found.stopped) == (4, "budget spent")


def test_no_garbage_is_collected_while_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, 1.0, [1.0] * 9)
    bench.measure()
    assert set(bench.collecting) == {False}
    assert gc.isenabled()


def test_collection_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, 1.0, [1.0])  # the second candidate finds no time left to take
    with pytest.raises((StopIteration, RuntimeError)):
        bench.measure()
    assert gc.isenabled()


def test_without_a_passed_parity_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, job = Bench(monkeypatch, 1.0, []), small_gpt()
    optimizer = make_optimizer(job.model, OptimizerSettings())
    with pytest.raises(RuntimeError, match="parity"):
        measure_time(job, optimizer, bench.applied, SETTINGS, make.failed())  # type: ignore[arg-type]
    assert bench.order == []


def test_real_updates() -> None:
    job = small_gpt()
    before = {name: set(vars(module)) for name, module in job.model.named_modules()}
    optimizer = make_optimizer(job.model, OptimizerSettings())
    put_on = partial(applied, job.model, each(*job.blocks), CheckpointSettings())
    settings = TimingSettings(min_pairs=3, max_pairs=3, budget_s=0, width=1e-9)
    found = measure_time(job, optimizer, put_on, settings, make.passed())
    assert found.pairs == 3
    assert all(pair.plain_s > 0 and pair.candidate_s > 0 for pair in found.samples)
    steps = {int(state["step"]) for state in optimizer.state.values()}
    assert steps == {1 + 2 * (1 + 3)}  # the state's making, and a warm-up and three pairs
    assert {name: set(vars(module)) for name, module in job.model.named_modules()} == before
