"""A candidate of a study as another trainer takes it. Importing this imports no torch."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from types import ModuleType
from typing import Any

from .errors import InputError
from .gates import candidate_sentence
from .plans.anatomy import anatomy_of
from .plans.export import Target, to_megatron, to_torchtitan, to_transformers
from .plans.export.exported import Cost, Exported, Nearest, Source, nearest
from .plans.export.to_torch import budget_to_torch, to_torch
from .plans.names import Regions, budget_of, hash_of, plan_hash, regions_of
from .settings import shape_key, size_fields
from .spec import StudySpec
from .studies.assemble import assemble
from .studies.store import Cell, StudyRow
from .words import ranks_words

_TRAINERS: dict[str, ModuleType] = {
    "transformers": to_transformers,
    "torchtitan": to_torchtitan,
    "megatron": to_megatron,
}


def export(
    row: StudyRow, plan: str, to: Target, said: str | None = None, module: str | None = None
) -> Exported:
    """The plan for a trainer; raises InputError for one that is no candidate of the study.

    `said` is the warning, with which the file then begins; `module` what a module for torch will be
    called, if it is not to have the name that we give it.
    """
    if plan not in row.spec.plans:
        raise InputError(
            f"study {row.id} has no candidate {plan[:80]!r}; it has {', '.join(row.spec.plans)}"
        )
    budget = budget_of(plan)
    if budget is not None:
        if to != "torch":
            raise InputError(
                f"{plan} is a setting of torch's compiler, not of {to}; export it --to torch"
            )
        return budget_to_torch(_source(row, plan, row.spec.shapes[-1], said), budget)
    if to == "torch":
        return to_torch(replace(_source(row, plan, row.spec.shapes[-1], said), module=module))
    regions, anatomy, trainer = regions_of(row.spec, plan), anatomy_of(row.spec.workload), _TRAINERS[to]
    shape = _highest(row.spec, regions)
    found = nearest(regions, trainer.families(anatomy, regions), costs(row.spec, shape))
    exported: Exported = trainer.export(_source(row, plan, shape, said), found, anatomy)
    return exported


def warning(row: StudyRow, cells: list[Cell], plan: str) -> str | None:
    """Why the plan should perhaps not be used: it did not pass its gates at every shape. One line."""
    judged = [one for one in assemble(row, cells).judged if one.candidate.plan == plan]
    missed = [candidate_sentence(one) for one in judged if one.verdict != "adopt"]
    if not missed:
        return None
    more = f" It did not pass at {len(missed)} of {len(judged)} shapes." if len(judged) > 1 else ""
    return f"{plan} did not pass its gates in study {row.id}: {missed[0]}{more}"


def _source(row: StudyRow, plan: str, shape: dict[str, int], said: str | None) -> Source:
    spec, how = row.spec, row.spec.checkpoint
    shapes = ", ".join(shape_key(spec.at(each)) for each in spec.shapes)
    sizes = spec.workload.model_dump(
        exclude={"name", "images", "anatomy", *size_fields(spec.workload)}, exclude_none=True
    )
    words = " ".join(f"{name}={value}" for name, value in sizes.items())
    over = f", measured over {ranks_words(spec.ranks.count, spec.ranks.kind)}" if spec.ranks else ""
    return Source(
        plan=plan,
        plan_hash=hash_of(spec, plan),
        study=row.id,
        model=f"{spec.workload.name} ({words[:200]}) at {shapes}{over}",
        shape=shape_key(spec.at(shape)),
        torch=f"torch {row.environment.get('torch', 'of an unknown version')}",
        regions=regions_of(spec, plan),
        variant=how.variant,
        early_stop=how.early_stop,
        preserve_rng=how.rng == "preserve",
        blocks=anatomy_of(spec.workload).names,
        backend=spec.compile.backend if spec.compile else None,
        ranks=spec.ranks.kind if spec.ranks else None,
        missed=said,
    )


# --- what a setting costs -------------------------------------------------------------------------


def _highest(spec: StudySpec, regions: Regions) -> dict[str, int]:
    """The shape at which the plan climbs highest, by our estimate."""
    if len(spec.shapes) == 1:
        return spec.shapes[0]
    return max(spec.shapes, key=lambda shape: costs(spec, shape)(regions).peak_bytes)


def costs(spec: StudySpec, shape: dict[str, int]) -> Callable[[Regions], Cost]:
    """What each plan costs in an update of the study's workload at a shape, on fake tensors."""
    from torch.utils.flop_counter import FlopCounterMode

    from .meters.estimate import FakeUpdate
    from .meters.flops import FORMULAS
    from .plans.apply import applied
    from .workloads import build_blank
    from .workloads.device import cast
    from .workloads.update import gradients, optimizer_of

    settings = spec.at(shape)
    fake = FakeUpdate(lambda: cast(build_blank(settings, 0), spec.precision), spec.optimizer)
    with fake.mode:
        optimizer = optimizer_of(fake.job, spec.optimizer)

    def flops(regions: Regions) -> int:
        with (
            fake.mode,
            applied(fake.job.model, regions, spec.checkpoint),
            FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter,
        ):
            gradients(fake.job, optimizer)
        return int(counter.get_total_flops())

    plain = flops(())

    @cache
    def cost(regions: Regions) -> Cost:
        found = fake.run(regions, spec.checkpoint).estimate
        return Cost(found.peak_bytes, found.saved_bytes, flops(regions) - plain)

    return cost


# --- the published JSON ---------------------------------------------------------------------------


def document(
    row: StudyRow, plan: str, to: Target, exported: Exported, said: str | None
) -> dict[str, Any]:
    """`recompute-export/1`; `said` is the warning."""
    return {
        "schema": "recompute-export/1",
        "study_id": row.id,
        "plan": plan,
        "plan_hash": hash_of(row.spec, plan),
        "to": to,
        "written_for": getattr(_TRAINERS.get(to), "VERSION", None) or row.environment.get("torch"),
        "exact": exported.exact,
        "cannot": list(exported.cannot),
        "notes": list(exported.notes),
        "warning": said,
        "nearest": None if exported.nearest is None else _nearest(row, exported.nearest),
        "filename": exported.filename,
        "text": exported.text,
    }


def _nearest(row: StudyRow, found: Nearest) -> dict[str, Any]:
    regions = found.option.regions
    return {
        "words": found.option.words,
        "regions": [region.model_dump(mode="json") for region in regions],
        "plan_hash": plan_hash(regions, row.spec.checkpoint),
        "fits": found.fits,
        "kind": "estimated",
        "plan_cost": asdict(found.chosen),
        "cost": asdict(found.cost),
    }
