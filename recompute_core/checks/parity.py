"""Reference, noise floor, canary and parity: does a recomputed update equal plain's?

Parity includes the way back: a plan that cannot be taken off again has not passed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..compiled.evidence import check_graphs
from ..compiled.job import compiled
from ..meters.estimate import is_replaying
from ..plans.apply import Applied, Call, Happened, Wrap, applied, happening, recompute
from ..plans.names import Regions
from ..results import Canary, Comparison, Noise, Parity, ParityFailed, ParityPassed, Rollback
from ..spec import CheckpointSettings, Region, StudySpec
from ..together import ALONE, Together
from ..workloads.job import Job, own_share
from .snapshot import Observed, Snapshot, compare, fixed_update

Build = Callable[[], Job]
"""Makes a fresh job; every update starts from one."""


def plain_update(job: Job, spec: StudySpec) -> Observed:
    """Plain's fixed update, compiled where the study is."""
    return _compiled_update(job, spec) if spec.compile else fixed_update(job, spec.optimizer, spec.seed)


def _compiled_update(
    job: Job,
    spec: StudySpec,
    regions: Regions = (),
    budget: int | None = None,
    broken: bool = False,
    watched: Callable[[Applied], Applied] = lambda put_on: put_on,
) -> Observed:
    assert spec.compile is not None
    torch._dynamo.reset()  # dynamo keeps a few versions of one function, and refuses more
    on = compiled(job, spec.compile, regions, spec.checkpoint, budget, broken)
    return fixed_update(on.job, spec.optimizer, spec.seed, watched(on.put_on), on.graphs)


def check_noise(job: Job, spec: StudySpec, reference: Snapshot, together: Together = ALONE) -> Noise:
    """Plain against plain, each from a fresh model: what the device changes by itself."""
    again = plain_update(job, spec)
    return Noise(gaps=together.gaps(compare(reference, again.tensors)))


def check_canary(
    build: Build, spec: StudySpec, reference: Snapshot, block: str, together: Together = ALONE
) -> Canary:
    """Recompute one block, break every replay of it on purpose, and see whether parity catches it."""
    job = build()
    alone = (Region(modules=(block,)),)
    if spec.compile:
        found = _compiled_update(job, spec, alone, broken=True)
    else:
        put_on = partial(applied, job.model, alone, spec.checkpoint, wrap=_breaking(spec.checkpoint))
        found = fixed_update(job, spec.optimizer, spec.seed, put_on)
    broken = Comparison(gaps=together.gaps(compare(reference, found.tensors)))
    return Canary(
        caught=bool(broken.failures(spec.thresholds)),
        block=block,
        break_="every second feature of the replay's input is 1 % too large",
        largest_relative_gap=broken.largest_relative_gap,
        largest_gradient_gap=broken.largest_gradient_gap,
        problem=next((gap.problem for gap in broken.worst if gap.problem), None),
    )


def _breaking(settings: CheckpointSettings) -> Wrap:
    """A block recomputed whole, of which every replay is broken and the forward is not."""
    recomputing = recompute(settings)

    def wrap(call: Call) -> Call:
        def body(*args: Any, **kwargs: Any) -> Any:
            if is_replaying():
                args, kwargs = tree_map(_disturbed, (args, kwargs))
            return call(*args, **kwargs)

        return recomputing(body)

    return wrap


def _disturbed(value: Any) -> Any:
    if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    if value.dim() == 0:
        return value * 1.01
    disturbed = value.clone()
    disturbed[..., ::2] *= 1.01
    return disturbed


def check_parity(
    build: Build,
    spec: StudySpec,
    reference: Snapshot,
    regions: Regions,
    noise_floor: float | None,
    plain_calls: dict[str, int],
    together: Together = ALONE,
    budget: int | None = None,
    plain_replays: int = 0,
) -> Parity:
    """The plan's update against the reference, under the thresholds declared in `spec`.

    After it has passed, plain's update follows on the same model, off which the plan was taken again.
    `plain_calls` are the forward calls of each block in the reference, `plain_replays` the ops that its
    compiled graphs run again; `budget` is that of a plan by which the compiler chooses what comes again.
    Raises RuntimeError when the plan did not recompute what it says: a region was not replayed, or a
    block outside them was.
    """
    found, off = _try(build(), spec, regions, budget)
    if found.graphs is not None:
        check_graphs(found.graphs, regions, budget, plain_replays)
    else:
        named = {name for region in regions for name in region.modules}
        _check_regions(off.happened, regions)
        _check_left_alone(found.block_calls, {k: v for k, v in plain_calls.items() if k not in named})
    comparison = Comparison(gaps=together.gaps(compare(reference, found.tensors)))
    failed = comparison.failures(spec.thresholds)
    facts: dict[str, Any] = {
        "gaps": comparison.gaps,
        "noise_floor": noise_floor,
        "block_calls": found.block_calls,
        "flops": together.total(found.flops),
        "compiled": found.graphs and found.graphs.record(),
    }
    if failed:
        return ParityFailed(failed=failed, **facts)
    del found
    rollback = check_rollback(build, spec, reference, off, noise_floor, plain_calls, together)
    if not rollback.is_plain(noise_floor):
        return ParityFailed(failed=(), rollback=rollback, **facts)
    return ParityPassed(rollback=rollback, **facts)


@dataclass(frozen=True)
class TakenOff:
    """A plan that was on for one update."""

    job: Job
    """Its weights and buffers are again those from before that update."""
    happened: Happened
    replays: int
    """Calls that were run again in that update; ops where it was compiled."""
    left: tuple[str, ...]
    """What putting the plan on or taking it off changed and is not as it was: `blocks.0._call_impl`."""


def _try(
    job: Job, spec: StudySpec, regions: Regions, budget: int | None = None
) -> tuple[Observed, TakenOff]:
    """The fixed update under a plan, and what is left once the plan is off."""
    kept = [
        (share, share.to("cpu", copy=True))
        for tensor in (*job.model.parameters(), *job.model.buffers())
        for share in (own_share(tensor.detach()),)
    ]
    left: list[str] = []

    def watched(put_on: Applied) -> Applied:
        return partial(_watched, job.model, put_on, left)

    with happening() as happened:
        if spec.compile:
            found = _compiled_update(job, spec, regions, budget, watched=watched)
        else:
            put_on = partial(applied, job.model, regions, spec.checkpoint)
            found = fixed_update(job, spec.optimizer, spec.seed, watched(put_on))
    with torch.no_grad():
        for tensor, before in kept:
            tensor.copy_(before)
    job.model.zero_grad(set_to_none=True)
    replays = found.graphs.replayed if found.graphs else happened.replays.total()
    return found, TakenOff(job, happened, replays, tuple(left))


@contextmanager
def _watched(model: nn.Module, put_on: Applied, left: list[str]) -> Iterator[None]:
    """The plan is on; afterwards `left` names what is left of it. What the model does to itself in an
    update, such as a tensor that it keeps, is not the plan's."""
    before = _belongings(model)
    with put_on():
        on = _belongings(model)
        yield
        used = _belongings(model)
    after = _belongings(model)
    touched = {*_changes(before, on), *_changes(used, after)}
    left += [place for place in _changes(before, after) if place in touched]


def check_rollback(
    build: Build,
    spec: StudySpec,
    reference: Snapshot,
    off: TakenOff,
    noise_floor: float | None,
    plain_calls: dict[str, int],
    together: Together = ALONE,
) -> Rollback:
    """Plain's fixed update on the model that the plan was on, against the reference.

    Equal tensors alone would not show a plan that is still on, as a recomputed update has them too: so
    what each module carries and how often it is called are compared as well. A model that remembers its
    updates gives another second one by itself: then plain's second update is what it is compared with.
    """
    with happening() as happened:
        again = plain_update(off.job, spec)

    def against(plain: Snapshot, calls: dict[str, int]) -> Rollback:
        gaps = together.gaps(compare(plain, again.tensors))
        others = list(again.graphs.recomputed_blocks) if again.graphs else []
        others += [name for name, number in calls.items() if again.block_calls[name] != number]
        others += [name for region in happened.replays for name in region.modules]
        return Rollback(
            compared=len(gaps),
            off=tuple(gap for gap in gaps if not gap.bitwise),
            left=together.names(off.left),
            replayed=together.names(tuple(dict.fromkeys(others))),
            replays_before=together.total(off.replays),
        )

    rollback = against(reference, plain_calls)
    if not rollback.left and not rollback.is_plain(noise_floor):
        second = plain_update(_try(build(), spec, ())[1].job, spec)
        rollback = against(second.tensors, second.block_calls)
    return rollback


Belongings = dict[str, dict[str, Any]]
"""By module, what its instance carries: attributes, and what lies in those that are mappings."""


def _belongings(model: nn.Module) -> Belongings:
    return {
        name: {
            place: held
            for attribute, value in vars(module).items()
            for place, held in _held(attribute, value).items()
        }
        for name, module in model.named_modules()
    }


def _held(attribute: str, value: Any) -> dict[str, Any]:
    """An attribute and, as hooks, parameters and buffers lie in mappings, what lies in it."""
    inside = dict(value) if isinstance(value, dict) else {}
    return {attribute: value} | {f"{attribute}[{key!r}]": held for key, held in inside.items()}


def _changes(before: Belongings, after: Belongings) -> tuple[str, ...]:
    """What is on one side alone, or another thing on the other: `blocks.0._call_impl`."""
    nothing: dict[str, Any] = {}
    missing = object()
    return tuple(
        f"{name}.{place}".lstrip(".")
        for name in dict.fromkeys([*before, *after])
        for place in dict.fromkeys([*before.get(name, nothing), *after.get(name, nothing)])
        if before.get(name, nothing).get(place, missing)
        is not after.get(name, nothing).get(place, missing)
    )


def _check_regions(happened: Happened, regions: Regions) -> None:
    for region in regions:
        where = " to ".join(dict.fromkeys((region.modules[0], region.modules[-1])))
        if happened.replays[region] < 1:
            raise RuntimeError(
                f"{where} was not called again in backward: the plan did not recompute what it says"
            )
        if region.keep and not happened.kept[region]:
            raise RuntimeError(f"{where} kept nothing: none of the ops to keep is called in it")


def _check_left_alone(found: dict[str, int], plain: dict[str, int]) -> None:
    """`plain` are the plain calls of the blocks that no region names."""
    for name, calls in plain.items():
        if found[name] != calls:
            raise RuntimeError(
                f"{name} was called {found[name]} times, and {calls} times in plain: "
                "the plan recomputed what it does not name"
            )
