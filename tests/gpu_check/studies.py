"""Parts that are studies, measured by workers of their own."""

from datetime import UTC, datetime
from threading import Timer
from typing import Any

from recompute_core.errors import Cancelled
from recompute_core.estimating import estimate
from recompute_core.planning import Wish, measured, plan, study_of
from recompute_core.plans.names import ATTENTION, Regions, plan_hash
from recompute_core.reports.bundle import write_bundle
from recompute_core.reports.evidence import gather
from recompute_core.reports.keys import new_key
from recompute_core.reports.release import release
from recompute_core.reports.signers import Signers
from recompute_core.reports.verify import verify_path
from recompute_core.results import Memory, PlanPoint, PlanResult, StudyResult
from recompute_core.spec import CheckpointSettings, StudySpec, parse_spec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.driver import drive
from recompute_core.studies.flow import PLAIN
from recompute_core.studies.store import Store
from recompute_core.workloads.sizes import sizes_of

from .parts import Outcome, Place

_SPARE_S = 8.0
"""Left of a part's time for what follows its study."""


def _run(place: Place, spec: StudySpec, until_s: float) -> tuple[Store, StudyResult]:
    """A study, stopped after so many seconds with what it has finished."""
    store = Store(place.home)
    study = store.create(spec)
    end = Timer(max(until_s, 1.0), store.ask_cancel, [study])
    end.daemon = True
    end.start()

    def hear(kind: str, key: Any, _: Any) -> None:
        if kind == "start" and key:
            place.say(" ".join(key))

    try:
        drive(store, study, listener=hear)
    except Cancelled:
        place.say("out of time; what was finished is kept")
    finally:
        end.cancel()
    return store, assemble(store.study(study), store.cells(study))


def _trouble(result: StudyResult) -> str | None:
    troubles = [why for judged in result.judged for why in judged.candidate.troubles]
    if result.status != "done":
        return "; ".join(dict.fromkeys([f"the study is {result.status}", *troubles]))
    return "; ".join(dict.fromkeys(troubles)) or None


# --- the table ------------------------------------------------------------------------------------


def table(place: Place) -> Outcome:
    spec = parse_spec({**place.sizes.sweep, "device": place.sizes.device})
    _, result = _run(place, spec, place.until_s - _SPARE_S)
    rows = [_row(spec, one.candidate) for one in result.judged if one.candidate.memory is not None]
    return {"study": result.study_id, "verdict": result.verdict, "rows": rows}, _trouble(result)


def _row(spec: StudySpec, candidate: Any) -> dict[str, Any]:
    pair, timing = candidate.memory, candidate.timing

    def cpu(plan: str) -> dict[str, int]:
        """What this plan keeps with the CPU's kernels: exact, and of another device where attention's
        kernel keeps something else."""
        return {"cpu_saved_bytes": estimate(spec, candidate.shape, plan).saved_bytes}

    return {
        "shape": candidate.shape_key,
        "bitwise": candidate.parity.bitwise,
        "plain": _memory(pair.plain) | cpu(PLAIN),
        "candidate": _memory(pair.candidate) | cpu(candidate.plan),
        "peak_ratio": pair.ratio,
        "plain_median_s": timing and timing.plain_median_s,
        "update_ratio": timing and timing.ratio_median,
        "update_ratio_ci95": timing and timing.ratio_ci95,
        "time_source": timing and timing.source,
    }


def _memory(found: Memory) -> dict[str, Any]:
    timeline = found.timeline
    return {
        "saved_bytes": found.saved_bytes,
        "state_bytes": found.state_bytes,
        "peak_bytes": found.peak_bytes,
        "peak_samples": found.peak_samples,
        "peak_reserved_bytes": found.peak_reserved_bytes,
        "process_peak_bytes": found.process_peak_bytes,
        "peak_at": found.peak_at and found.peak_at.words,
        "timeline_peak_bytes": timeline and max(timeline.bytes),
        "timeline_marks": timeline and len(timeline.marks),
        "trace": found.trace is not None,
        "history": found.history is not None,
        "source": found.source,
        "not_measured": found.not_measured,
    }


# --- the decision ---------------------------------------------------------------------------------


def decision(place: Place) -> Outcome:
    """Of the newest finished study, which is the table's."""
    store = Store(place.home)
    done = [row for row in store.studies(limit=20) if row.status == "done"]
    if not done:
        return {}, "no study was finished that a decision could be made of"
    study, candidate = done[0].id, done[0].spec.plans[0]
    key = new_key()
    released = release(gather(store, study, candidate), key)
    bundle = place.home / "decision"
    write_bundle(bundle, released.bundle)
    now = datetime.now(UTC)
    checked = verify_path(bundle, Signers().with_trust(key.public_key(), "this check", now), now)
    found = {
        "study": study,
        "plan": candidate,
        "verdict": released.predicate.verdict,
        "files": len(released.bundle.files),
        "bytes": sum(map(len, released.bundle.files.values())),
        "not_recorded": released.predicate.not_recorded,
        "verified": checked.verified,
        "sentence": checked.sentence,
    }
    return found, None if checked.verified else checked.sentence


# --- out of memory --------------------------------------------------------------------------------


def beyond_memory(place: Place) -> Outcome:
    """A shape that nothing holds, then one that is small; both in one study."""
    spec = parse_spec(
        {
            "workload": {**place.sizes.gpt},
            "shapes": [place.sizes.beyond, place.sizes.within],
            "plans": ["every-block"],
            "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
            "device": place.sizes.device,
        }
    )
    store, result = _run(place, spec, place.until_s - _SPARE_S)
    cells = [
        {"shape": cell.shape_key, "plan": cell.plan, "phase": cell.phase, "state": cell.state}
        | {"reason": cell.reason, "seconds": cell.seconds}
        for cell in store.cells(result.study_id)
    ]
    first, *after = cells or [{"reason": None}]
    found = {"cells": cells}
    if not (first["reason"] or "").startswith("out of memory: "):
        return found, f"the shape that nothing holds was not out of memory: {first['reason']}"
    failed = [cell for cell in after if cell["state"] != "done"]
    if failed or len(after) < 8:
        return found, f"{len(after) - len(failed)} of 8 cells after it were measured"
    return found, None


# --- compiled, and over ranks ---------------------------------------------------------------------


def compiled(place: Place) -> Outcome:
    return _otherwise(place, {"compile": {"backend": place.sizes.backend}})


def over_ranks(place: Place) -> Outcome:
    """DDP, over NCCL on GPUs; where there is one of these alone it says so and is no failure."""
    if place.sizes.device == "cuda":
        import torch

        if (there := torch.cuda.device_count()) < 2:
            return {"not_tried": f"2 ranks need 2 GPUs, and {there} is visible here"}, None
    return _otherwise(place, {"ranks": {"kind": "ddp", "count": 2}})


def _otherwise(place: Place, how: dict[str, Any]) -> Outcome:
    """The small GPT trained in another way: one plan at one shape, through all phases."""
    spec = parse_spec(
        {
            "workload": place.sizes.gpt,
            "plans": ["every-block"],
            "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
            "device": place.sizes.device,
            **how,
        }
    )
    _, result = _run(place, spec, place.until_s - _SPARE_S)
    (one,) = (judged.candidate for judged in result.judged)
    found: dict[str, Any] = {"study": result.study_id, "sentence": result.sentence}
    if one.parity is not None:
        found |= {"bitwise": one.parity.bitwise, "largest_gap": one.parity.largest_relative_gap}
    if one.memory is not None:
        found |= {
            "plain_peak_bytes": one.memory.plain.peak_bytes,
            "candidate_peak_bytes": one.memory.candidate.peak_bytes,
        }
    if one.timing is not None:
        found |= {"plain_median_s": one.timing.plain_median_s, "update_ratio": one.timing.ratio_median}
    return found, _trouble(result)


# --- the frontier ---------------------------------------------------------------------------------


def frontier(place: Place) -> Outcome:
    """Planned on the CPU's kernels; plain and two of the plans found are then measured on the device."""
    asked = parse_spec({"workload": place.sizes.large, "precision": "bfloat16", "device": "cpu"})
    place.say("planning")
    began = datetime.now(UTC)
    answer = plan(asked, Wish(frontier=True))
    took = (datetime.now(UTC) - began).total_seconds()
    found: dict[str, Any] = {
        "workload": answer.workload,
        "parameters": _parameters(asked),
        "sentence": answer.sentence,
        "planned_in_s": took,
        "points": [_point(one) for one in answer.points],
    }
    place.tell(found)
    chosen = on_any_device(answer.model_copy(update={"points": _some(answer)}), asked.checkpoint)
    spec = study_of(asked, chosen).model_copy(update={"device": place.sizes.device})
    _, result = _run(place, spec, place.until_s - took - _SPARE_S)
    filled = measured(chosen, result)
    found["measured"] = [_point(filled.plain), *(_point(one) for one in filled.points)]
    found["study"] = result.study_id
    found["costs"] = [
        {"plan": one.candidate.plan, "plain": _memory(pair.plain), "candidate": _memory(pair.candidate)}
        for one in result.judged
        if (pair := one.candidate.memory) is not None
    ]
    return found, _trouble(result)


def _parameters(spec: StudySpec) -> int:
    sizes = sizes_of(spec.at({}))
    assert sizes is not None
    return sizes.parameters


def _some(answer: PlanResult) -> tuple[PlanPoint, ...]:
    """The plan nearest to the middle of the peaks, and the lowest."""
    points = [one for one in answer.points if one.regions]
    middle = (answer.plain.peak_bytes + answer.floor.peak_bytes) / 2
    near = min(points, key=lambda one: abs(one.peak_bytes - middle))
    return tuple({one.plan: one for one in (near, answer.floor)}.values())


def on_any_device(answer: PlanResult, checkpoint: CheckpointSettings) -> PlanResult:
    """The plans with attention kept whichever kernel runs it: the search saw the CPU's."""

    def named(one: PlanPoint) -> PlanPoint:
        regions = whichever_attention(one.regions)
        return one.model_copy(update={"regions": regions, "plan_hash": plan_hash(regions, checkpoint)})

    return answer.model_copy(update={"points": tuple(map(named, answer.points))})


def whichever_attention(regions: Regions) -> Regions:
    """The regions, with every fused kernel named where one is; an op that never runs keeps nothing."""
    cpu, *others = (op for op in ATTENTION if "attention" in op)
    return tuple(
        region.model_copy(
            update={
                "keep": tuple(
                    name
                    for kept in region.keep
                    for name in (kept, *(kept.replace(cpu, op) for op in others if cpu in kept))
                )
            }
        )
        for region in regions
    )


def _point(one: PlanPoint) -> dict[str, Any]:
    return {
        "plan": one.plan,
        "estimated_peak_bytes": one.peak_bytes,
        "estimated_overhead": one.overhead,
        "measured_peak_bytes": one.measured_peak_bytes,
        "peak_error": one.miss,
        "measured_ratio": one.measured_ratio,
        "measured_ratio_ci95": one.measured_ratio_ci95,
        "parity": one.parity,
    }
