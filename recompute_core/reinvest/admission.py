"""Which candidate of a study is reinvested, and whether it may be. No torch."""

from collections.abc import Sequence
from math import lcm
from typing import Any

from ..asking import assign
from ..errors import InputError
from ..results import Measured
from ..settings import shape_key, size_fields
from ..spec import StudySpec, check_not_compiled
from ..studies.assemble import assemble
from ..studies.store import Store
from .asked import ReinvestSpec, first_effective_batch, parse_reinvest, preset
from .result import plain_microbatch


def asked_of(
    store: Store,
    study: str,
    plan: str | None,
    shape: str | None,
    preset_name: str,
    settings: tuple[str, ...] = (),
) -> ReinvestSpec:
    """What a command line or a page asks for, the rest filled in; raises InputError with one line.

    Without a plan or a shape: of the candidates that passed their gates, the one with the lowest peak at
    the study's first shape that has any.
    """
    spec = store.study(study).spec
    _check_alone(spec, study)
    check_not_compiled(spec, "reinvest")
    adopted = adopted_of(store, study)
    found = [one for one in adopted if plan in (None, one.plan) and shape in (None, one.shape_key)]
    if not found:
        what = " ".join(filter(None, (plan or "any plan", shape and f"at {shape}")))
        raise InputError(
            f"reinvest: {what} would have to pass study {study}'s gates; {_passed(adopted)}"
        )
    chosen = first_of(found)
    raw: dict[str, Any] = {
        "study": study,
        "plan": chosen.plan,
        "shape": chosen.shape_key,
        "effective_batch": first_effective_batch(plain_microbatch(spec, chosen.shape_key)),
        **preset(preset_name),
    }
    chosen_by = {"study": "STUDY", "plan": "--candidate", "shape": "--shape"}
    before = {name: raw[name] for name in chosen_by}
    for assignment in settings:
        assign(raw, assignment)
    for name, option in chosen_by.items():
        if raw.get(name) != before[name]:
            raise InputError(f"--set {name}: is chosen by {option}")
    return parse_reinvest(raw)


def first_of(adopted: Sequence[Measured]) -> Measured:
    """The candidate of the lowest peak at the first shape that has any."""
    at_first = [one for one in adopted if one.shape_key == adopted[0].shape_key]
    return min(at_first, key=lambda one: one.memory.candidate.peak_bytes or 0)


def adopted_of(store: Store, study: str) -> list[Measured]:
    """The candidates of a study that passed their gates, in its order."""
    result = assemble(store.study(study), store.cells(study))
    return [
        one.candidate
        for one in result.judged
        if one.verdict == "adopt" and isinstance(one.candidate, Measured)
    ]


def admit(store: Store, asked: ReinvestSpec) -> None:
    """Raises InputError where a study's candidate cannot be reinvested."""
    _check_alone(store.study(asked.study).spec, asked.study)
    check_not_compiled(store.study(asked.study).spec, "reinvest")
    candidate_of(store, asked)
    settings = spec_at(store, asked).workload
    plain = settings.batch
    if plain is None or "batch" not in size_fields(settings):
        raise InputError(f"reinvest: {settings.name} brings its own batch; its size cannot be changed")
    if asked.microbatch is not None and asked.microbatch > asked.recomputed_batch:
        raise InputError(
            f"reinvest: microbatch {asked.microbatch} is more than an update's {asked.recomputed_batch} "
            "examples"
        )
    batches = (asked.effective_batch, asked.recomputed_batch)
    if batches[0] != batches[1] and asked.training.seeds and asked.training.examples % lcm(*batches):
        raise InputError(
            f"reinvest: training.examples {asked.training.examples} is no whole number of updates of "
            f"both {batches[0]} and {batches[1]} examples; {lcm(*batches)} or a multiple of it is"
        )
    if asked.training.seeds and asked.training.examples < max(batches):
        raise InputError(
            f"reinvest: training.examples {asked.training.examples} is less than the {max(batches)} of "
            "one update"
        )
    if asked.effective_batch < plain:
        raise InputError(
            f"reinvest: effective_batch {asked.effective_batch} is less than plain's microbatch {plain}"
        )


def _check_alone(spec: StudySpec, study: str) -> None:
    if spec.ranks is not None:
        raise InputError(
            f"reinvest: study {study} trains over {spec.ranks.count} ranks; a larger microbatch is "
            "tried in one process alone"
        )


def candidate_of(store: Store, asked: ReinvestSpec) -> Measured:
    """The candidate, which must have passed its gates; raises InputError where it did not."""
    adopted = adopted_of(store, asked.study)
    found = [one for one in adopted if (one.plan, one.shape_key) == (asked.plan, asked.shape)]
    if not found:
        raise InputError(
            f"reinvest: {asked.plan} at {asked.shape} did not pass study {asked.study}'s gates; "
            f"{_passed(adopted)}"
        )
    return found[0]


def _passed(adopted: list[Measured]) -> str:
    there = ", ".join(f"{one.plan} at {one.shape_key}" for one in adopted)
    return f"those that did: {there}" if there else "no plan did"


def spec_at(store: Store, asked: ReinvestSpec) -> StudySpec:
    """The study's specification at the one shape, whose sizes become the workload's own."""
    spec = store.study(asked.study).spec
    sizes = next((s for s in spec.shapes if shape_key(spec.at(s)) == asked.shape), None)
    if sizes is None:
        raise InputError(f"reinvest: no shape {asked.shape!r} in this study")
    return spec.model_copy(update={"workload": spec.at(sizes), "shapes": ({},)})
