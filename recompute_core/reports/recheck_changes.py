"""What is not as it was when a report was made: the machine, the code, the data, the reference. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from ..results import Fingerprint, Gap, Reference, Revisions, SourceRevision
from .recheck_record import Change, Drift, Effect, TensorDrift

_ABOUT: dict[str, Literal["library", "device", "numerics", "code"]] = {
    "torch": "library",
    "numpy": "library",
    "python": "library",
    "cuda": "library",
    "cudnn": "library",
    "driver": "library",
    "cxx": "library",
    "device": "device",
    "device_name": "device",
    "cpu_count": "device",
    "cpu_capability": "device",
    "compute_capability": "device",
    "device_memory_bytes": "device",
    "platform": "device",
    "git_commit": "code",
}
"""Other facts of an environment are numeric settings: threads, determinism, TF32."""
_WITHOUT_EFFECT = ("cpu_count", "git_commit")
"""Facts that no figure follows from: threads are counted, and sources are compared, by themselves."""


def machine_changes(
    then: Mapping[str, Any], here: Mapping[str, Any], made_by: str, made_by_here: str
) -> tuple[Change, ...]:
    """The facts that a report has recorded of its machine and that are others here."""
    changes = [
        Change(
            about=_ABOUT.get(fact, "numerics"),
            what=fact,
            old=_plain(old),
            new=_plain(here.get(fact)),
            effect="none" if fact in _WITHOUT_EFFECT else "drift",
        )
        for fact, old in then.items()
        if here.get(fact) != old
    ]
    ours, ours_here = (text.rpartition(" ")[2] for text in (made_by, made_by_here))
    if ours != ours_here:
        changes.append(
            Change(about="library", what="recompute_core", old=ours, new=ours_here, effect="drift")
        )
    order = ("library", "device", "numerics", "code")
    return tuple(sorted(changes, key=lambda one: order.index(one.about)))


def _plain(value: Any) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# --- code and data ---------------------------------------------------------------------------


def update_changes(
    then: Reference, here: Reference, torch_then: str | None, torch_here: str | None
) -> tuple[Change, ...]:
    """What of the model, its code, its data and its optimizer is not as it was."""
    changes = [
        Change(about=about, what=what, old=old, new=new, effect=effect)
        for about, what, old, new, effect in _facts(then, here)
        if old != new
    ]
    if then.revisions is not None and here.revisions is not None:
        libraries = (_versions(then.revisions, torch_then), _versions(here.revisions, torch_here))
        changes += _libraries(*libraries)
        changes += _sources(then.revisions, here.revisions, *libraries)
        changes += _commit(then.revisions, here.revisions)
    return tuple(changes)


_Fact = tuple[Literal["code", "data", "library"], str, Any, Any, Effect]


def _facts(then: Reference, here: Reference) -> Iterator[_Fact]:
    yield "data", "data set", then.data_digest, here.data_digest, "none"
    yield "data", "batch", then.batch_digest, here.batch_digest, "another"
    yield "code", "number of parameters", then.parameters, here.parameters, "another"
    yield "code", "blocks", ", ".join(then.blocks), ", ".join(here.blocks), "another"
    if then.optimizer is not None and here.optimizer is not None:
        yield "code", "optimizer", then.optimizer.name, here.optimizer.name, "another"
        old, new = then.optimizer.settings, here.optimizer.settings
        for name in dict.fromkeys((*old, *new)):
            yield "library", f"optimizer: {name}", str(old.get(name)), str(new.get(name)), "drift"


_Versions = Mapping[str, str | None]


def _versions(revisions: Revisions, torch: str | None) -> _Versions:
    """The version of each library that classes come from, by its name."""
    found = {one.library: one.version for one in revisions.sources if one.library is not None}
    return ({"torch": torch} if torch else {}) | found


def _libraries(then: _Versions, here: _Versions) -> Iterator[Change]:
    for name, old in then.items():
        new = here.get(name)
        if name != "torch" and new is not None and new != old:  # torch is a fact of the machine
            yield Change(about="library", what=name, old=old, new=new, effect="drift")


def _sources(
    then: Revisions, here: Revisions, libraries_then: _Versions, libraries_here: _Versions
) -> Iterator[Change]:
    """Classes and the factory whose source is another, is no longer used, or was not used before."""
    old, new = _by_name(then), _by_name(here)
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        digests = _digests(before), _digests(after)
        if digests[0] == digests[1] and before is not None and after is not None:
            continue
        one = [*(after or ()), *(before or ())][0]
        has_moved = one.library is not None and libraries_then.get(one.library) != libraries_here.get(
            one.library
        )
        yield Change(
            about="code",
            what=f"source of {name} ({one.file or 'no file'})",
            old=digests[0],
            new=digests[1],
            effect="drift" if has_moved and one.library not in _OURS else "another",
        )


_OURS = ("recompute_core", "recompute-core", "recompute-studio")
"""Under these names our own workloads are installed: they are what was reported and no library of it."""


def _by_name(revisions: Revisions) -> dict[str, list[SourceRevision]]:
    found: dict[str, list[SourceRevision]] = defaultdict(list)
    for one in revisions.sources:
        found[one.name].append(one)
    return found


def _digests(sources: Iterable[SourceRevision] | None) -> str | None:
    if sources is None:
        return None
    return ", ".join(one.sha256 or f"no source: {one.no_source}" for one in sources)


def _commit(then: Revisions, here: Revisions) -> Iterator[Change]:
    if then.git_commit != here.git_commit:
        yield Change(
            about="code",
            what="git commit of the model",
            old=then.git_commit,
            new=here.git_commit,
            effect="none",
        )
    if then.git_changed != here.git_changed:
        yield Change(
            about="code",
            what="the model's file differs from its commit",
            old=then.git_changed,
            new=here.git_changed,
            effect="none",
        )


# --- the reference ---------------------------------------------------------------------------


def drift_of(then: Reference, here: Reference, gaps: tuple[Gap, ...] | None) -> Drift:
    """How far plain's update is from the recorded one.

    `gaps` are exact, from the recorded tensors, where they are at hand. Without them the fingerprints
    say which tensors differ, and that none has moved by less than its norm has.
    """
    if then.digest == here.digest:
        return Drift(bitwise=True, by="digest", tensors=here.tensors, off=0, largest_gradient_drift=0.0)
    if gaps is not None:
        found = [_exact(gap) for gap in gaps if not gap.bitwise]
    elif then.fingerprints is not None and here.fingerprints is not None:
        found = list(_bounds(then.fingerprints, here.fingerprints))
    else:
        return Drift(bitwise=False, by="nothing", tensors=here.tensors, off=None)
    gradients = [one for one in found if one.name.startswith(("grad/", "input_grad/"))]
    sizes = [one.size for one in gradients]
    return Drift(
        bitwise=False,
        by="fingerprints" if gaps is None else "reference",
        tensors=here.tensors,
        off=len(found),
        worst=tuple(sorted(found, key=_badness, reverse=True)[:5]),
        largest_gradient_drift=None if None in sizes else max((s for s in sizes if s), default=0.0),
    )


def _exact(gap: Gap) -> TensorDrift:
    return TensorDrift(name=f"{gap.part}/{gap.name}", gap=gap, problem=gap.problem)


def _bounds(then: tuple[Fingerprint, ...], here: tuple[Fingerprint, ...]) -> Iterator[TensorDrift]:
    old, new = ({one.name: one for one in found} for found in (then, here))
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            problem = "missing here" if after is None else "not in the report"
            yield TensorDrift(name=name, problem=problem)
        elif before.sha256 != after.sha256:
            yield _bound(before, after)


def _bound(before: Fingerprint, after: Fingerprint) -> TensorDrift:
    if before.norm is None or after.norm is None:
        problem = None if before.norm == after.norm else "not finite"
        return TensorDrift(name=before.name, problem=problem)
    if before.norm == 0:
        return TensorDrift(name=before.name, problem="all zero in the report" if after.norm else None)
    return TensorDrift(name=before.name, at_least=abs(after.norm - before.norm) / before.norm)


def _badness(one: TensorDrift) -> tuple[bool, float]:
    return one.problem is not None, one.size or 0.0
