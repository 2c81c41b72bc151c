"""What two studies were asked and what they found around them, where it is not the same."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..results import Reference, StudyResult
from ..settings import OwnSettings, shape_key, size_fields
from ..spec import StudySpec
from .records import Difference, Found

_VERSIONS = ("torch", "python", "numpy", "cuda", "cudnn", "driver", "git_commit")
_FACT_NAMES = {"git_commit": "Recompute Studio's commit"}
_SAME_SECONDS = (
    *("device", "device_name", "threads", "torch", "float32_matmul_precision", "cpu_capability", "cuda"),
    "tf32_matmul",
)
"""Facts of the environment that decide how long the same work takes."""
_MOST = 10_000
_MOST_LETTERS = 2000

Facts = Mapping[str, Any]


def differences(a: StudyResult, b: StudyResult) -> tuple[Difference, ...]:
    """All that differs: what was asked first, then what was found, each topic by name."""
    found: list[Difference] = []
    for asked, of_spec in _ASKED.items():
        found += (
            Difference(asked=asked, name=name, a=one, b=other)
            for name, one, other in _differing(of_spec(a.spec), of_spec(b.spec))
        )
    shapes = [shape for shape in a.references if shape in b.references]
    for topic, of_result in _FOUND.items():
        found += (
            Difference(found=topic, name=name, a=one, b=other)
            for name, one, other in _differing(of_result(a, shapes), of_result(b, shapes))
        )
    return tuple(found[:_MOST])


def seconds_differ(a: StudyResult, b: StudyResult) -> tuple[str, ...]:
    """The facts of the environment for which seconds may not be compared; empty where they may."""
    if not a.environment or not b.environment:
        return ("environment",)
    return tuple(fact for fact in _SAME_SECONDS if a.environment.get(fact) != b.environment.get(fact))


def _differing(a: Facts, b: Facts) -> Iterator[tuple[str, str | None, str | None]]:
    for name in dict.fromkeys((*a, *b)):
        if name not in a or name not in b or a[name] != b[name]:
            yield name, *_said_apart(a.get(name, _ABSENT), b.get(name, _ABSENT))


_ABSENT = object()


def _said_apart(a: Any, b: Any) -> tuple[str | None, str | None]:
    """Both values in words; of two long lists what the other has not."""
    if isinstance(a, list) and isinstance(b, list):
        alone = [one for one in a if one not in b], [one for one in b if one not in a]
        if any(alone) and len(a) + len(b) > 4 and len(a) > len(alone[0]):
            both = f"{len(a) - len(alone[0])} in both"
            first, second = (
                f"{both}, and {_said(own)}" if own else f"{both}, no other" for own in alone
            )
            return first, second
    return _said(a), _said(b)


def _said(value: Any) -> str | None:
    if value is _ABSENT:
        return None
    if value is None or value == "":
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return _cut(", ".join(map(str, value)) or "none")
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


# --- asked -------------------------------------------------------------------------------------------


_APART = {"thresholds", "workload", "shapes", "custom_plans", "follows"}
"""Of a specification: what is said in other ways, and which studies it repeats, which is no setting."""


def _specification(spec: StudySpec) -> dict[str, Any]:
    raw = spec.model_dump(mode="json", exclude=_APART)
    apart = {"anatomy", *size_fields(spec.workload)}  # the shapes name all sizes
    workload = spec.workload.model_dump(mode="json", exclude=apart)
    plans = spec.model_dump(mode="json", include={"custom_plans"})["custom_plans"]
    return {
        **_flat("workload", workload),
        "shapes": [shape_key(spec.at(shape)) for shape in spec.shapes],
        **{name: value for key in raw for name, value in _flat(key, raw[key]).items()},
        **{f"custom_plans.{name}": json.dumps(regions) for name, regions in plans.items()},
    }


def _flat(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    return {key: end for part in value for key, end in _flat(f"{name}.{part}", value[part]).items()}


def _thresholds(spec: StudySpec) -> dict[str, Any]:
    return {name: f"{value:g}" for name, value in spec.thresholds.model_dump().items()}


_ASKED: dict[Any, Callable[[StudySpec], Facts]] = {
    "specification": _specification,
    "thresholds": _thresholds,
}

# --- found -------------------------------------------------------------------------------------------


def _environment(result: StudyResult, _: Sequence[str]) -> dict[str, Any]:
    return {
        name.replace("_", " "): value
        for name, value in result.environment.items()
        if name not in _VERSIONS
    }


def _versions(result: StudyResult, _: Sequence[str]) -> dict[str, Any]:
    return {
        _FACT_NAMES.get(name, name): value
        for name, value in result.environment.items()
        if name in _VERSIONS
    }


def _source(result: StudyResult, _: Sequence[str]) -> dict[str, Any]:
    """The model's own code and anatomy: of the first shape, as every shape runs the same."""
    facts: dict[str, Any] = {}
    if isinstance(result.spec.workload, OwnSettings) and result.spec.workload.anatomy is not None:
        facts["blocks of the model"] = list(result.spec.workload.anatomy.names)
    first = next(iter(result.references.values()), None)
    revisions = first.revisions if first else None
    if revisions is None:
        return facts
    facts |= {"model": revisions.model, "factory": revisions.factory}
    facts |= {"commit of its file": revisions.git_commit, "its file is changed": revisions.git_changed}
    for one in revisions.sources:
        facts[f"source of {one.name}"] = one.sha256 or one.no_source
        if one.library:
            facts[f"package {one.library}"] = one.version
    return facts


def _data(result: StudyResult, shapes: Sequence[str]) -> dict[str, Any]:
    """Digests of data, batch and the fixed update, at the shapes that both studies have."""
    facts: dict[str, Any] = {}
    for shape in shapes:
        found = _of_reference(result.references[shape])
        facts |= {f"{what} at {shape}": value for what, value in found.items()}
    return facts


def _of_reference(reference: Reference) -> dict[str, Any]:
    return {
        "parameters": f"{reference.parameters:,}",
        "data set": reference.data_digest,
        "batch": reference.batch_digest,
        "result of plain's fixed update": reference.digest,
    }


_FOUND: dict[Found, Callable[[StudyResult, Sequence[str]], Facts]] = {
    "environment": _environment,
    "versions": _versions,
    "source": _source,
    "data": _data,
}
