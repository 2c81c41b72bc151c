"""What follows from what a recheck found, without running one."""

from typing import Any

import pytest

from recompute_core.reports.command_recheck import _shape
from recompute_core.reports.recheck_changes import drift_of, machine_changes, update_changes
from recompute_core.reports.recheck_outcome import drift_words, judged, shape_sentence
from recompute_core.reports.recheck_record import Change, ShapeRecheck, TensorDrift, worst_of
from recompute_core.results import (
    Fingerprint,
    Gap,
    Noise,
    OptimizerUsed,
    ParityFailed,
    Reference,
    Revisions,
    Rollback,
    SourceRevision,
)
from recompute_core.spec import Ranks, Thresholds
from recompute_core.studies.one_shape import Ran
from tests.core import records
from tests.core.cells import reference

LIMITS = Thresholds()
FAR = Gap(part="grad", name="w", absolute=0.5, relative=0.5)
NEAR = Gap(part="grad", name="w", absolute=1e-9, relative=1e-9)
SAME = records.SAME


def source(name: str = "my.Block", sha256: str | None = "a", **library: Any) -> SourceRevision:
    no_source = None if sha256 else "typed in"
    return SourceRevision(name=name, file="net.py", sha256=sha256, no_source=no_source, **library)


def revisions(*sources: SourceRevision, **facts: Any) -> Revisions:
    return Revisions(model="my.Net", sources=sources or (source(),), **facts)


def ref(**changes: Any) -> Reference:
    return reference().model_copy(update={"revisions": revisions(), **changes})


# --- the machine ----------------------------------------------------------------------------------


def test_what_of_the_machine_has_changed() -> None:
    then = {"threads": 1, "torch": "2.13.0", "device_name": "A", "git_commit": "abc", "cudnn": 9}
    here = {"threads": 2, "torch": "2.14.0", "device_name": "A", "git_commit": "abd", "more": True}
    assert machine_changes(then, here, "recompute_core 0.1.0", "recompute_core 0.2.0") == (
        Change(about="library", what="torch", old="2.13.0", new="2.14.0", effect="drift"),
        Change(about="library", what="cudnn", old=9, new=None, effect="drift"),
        Change(about="library", what="recompute_core", old="0.1.0", new="0.2.0", effect="drift"),
        Change(about="numerics", what="threads", old=1, new=2, effect="drift"),
        Change(about="code", what="git_commit", old="abc", new="abd", effect="none"),
    )
    assert machine_changes(then, then, "recompute_core 0.1.0", "recompute_core 0.1.0") == ()


# --- code and data --------------------------------------------------------------------------------


def whats(then: Reference, here: Reference, *torch: str) -> list[tuple[str, str]]:
    found = update_changes(then, here, *(torch or ("2.13.0", "2.13.0")))
    return [(change.what, change.effect) for change in found]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"data_digest": "sha256:2"}, [("data set", "none")]),
        ({"batch_digest": "sha256:9"}, [("batch", "another")]),
        ({"parameters": 7}, [("number of parameters", "another")]),
        ({"blocks": ("other.0",)}, [("blocks", "another")]),
        ({"revisions": None}, []),
        ({"revisions": revisions(source(sha256="b"))}, [("source of my.Block (net.py)", "another")]),
        ({"revisions": revisions(source(sha256=None))}, [("source of my.Block (net.py)", "another")]),
        (
            {"revisions": revisions(source(), source("my.New"))},
            [("source of my.New (net.py)", "another")],
        ),
        ({"revisions": revisions(git_commit="abc")}, [("git commit of the model", "none")]),
        (
            {"revisions": revisions(git_changed=True)},
            [("the model's file differs from its commit", "none")],
        ),
    ],
)
def test_what_of_the_update_has_changed(changes: Any, expected: list[tuple[str, str]]) -> None:
    assert whats(ref(), ref(**changes)) == expected
    if "revisions" not in changes:
        assert whats(ref(**changes), ref()) == expected, "and back again"


@pytest.mark.parametrize(
    ("then", "here", "expected"),
    [
        (("a", "5.0"), ("a", "5.1"), [("transformers", "drift")]),
        (
            ("a", "5.0"),
            ("b", "5.1"),
            [("transformers", "drift"), ("source of my.Block (net.py)", "drift")],
        ),
        (("a", "5.0"), ("b", "5.0"), [("source of my.Block (net.py)", "another")]),
    ],
)
def test_a_librarys_class(then: Any, here: Any, expected: list[tuple[str, str]]) -> None:
    """Another source is drift if the library has another version; else somebody has edited it."""
    both = [
        ref(revisions=revisions(source(sha256=sha, library="transformers", version=version)))
        for sha, version in (then, here)
    ]
    assert whats(*both) == expected


def test_our_own_workloads_are_no_library() -> None:
    both = [
        ref(revisions=revisions(source(sha256=sha, library="recompute_core", version=version)))
        for sha, version in (("a", "1"), ("b", "2"))
    ]
    assert ("source of my.Block (net.py)", "another") in whats(*both)


def test_a_class_that_came_with_another_torch() -> None:
    new = source("torch.nn.New", "n", library="torch", version="2.14.0")
    here = ref(revisions=revisions(source(), new))
    assert whats(ref(), here, "2.13.0", "2.14.0") == [("source of torch.nn.New (net.py)", "drift")]
    assert whats(ref(), here, "2.14.0", "2.14.0") == [("source of torch.nn.New (net.py)", "another")]


def test_an_optimizers_new_default_is_the_librarys() -> None:
    both = [
        ref(optimizer=OptimizerUsed(name="AdamW", settings=settings, state_digest="s"))
        for settings in ({"lr": 0.1}, {"lr": 0.1, "new": None, "more": True})
    ]
    assert whats(*both) == [("optimizer: more", "drift")]


# --- the reference --------------------------------------------------------------------------------


def prints(**norms: float | None) -> tuple[Fingerprint, ...]:
    """One for each tensor; the digest follows from the norm."""
    return tuple(
        Fingerprint(name=f"grad/{name}", sha256=f"of {norm}", norm=norm, largest=norm)
        for name, norm in norms.items()
    )


def test_equal_digests_are_bitwise_equal() -> None:
    found = drift_of(ref(), ref(), None)
    assert (found.bitwise, found.by, found.off, found.worst) == (True, "digest", 0, ())


def test_exact_gaps() -> None:
    gone = Gap(part="buffer", name="b", absolute=None, relative=None, problem="missing")
    found = drift_of(ref(), ref(digest="sha256:2"), (SAME, NEAR, FAR, gone))
    assert (found.by, found.bitwise, found.off) == ("reference", False, 3)
    assert [one.gap for one in found.worst] == [gone, FAR, NEAR]
    assert found.largest_gradient_drift == 0.5
    assert drift_words(found) == "buffer b: missing"


def test_fingerprints_bound_the_drift() -> None:
    then = ref(fingerprints=prints(a=4.0, b=1.0, c=2.0, d=0.0, e=None, gone=1.0))
    here = ref(digest="sha256:2", fingerprints=prints(a=5.0, b=1.0, c=2.5, d=1.0, e=None, new=1.0))
    found = drift_of(then, here, None)
    assert (found.by, found.bitwise, found.off) == ("fingerprints", False, 5)
    by_name = {one.name: one for one in found.worst}
    assert by_name["grad/a"].at_least == by_name["grad/c"].at_least == 0.25
    assert by_name["grad/d"].problem == "all zero in the report"
    assert by_name["grad/gone"].problem == "missing here"
    assert by_name["grad/new"].problem == "not in the report"
    assert found.largest_gradient_drift is None, "one of them has no figure"
    assert [one.problem is None for one in found.worst] == [False] * 3 + [True] * 2


def test_words_of_a_bound() -> None:
    then = ref(fingerprints=prints(a=4.0))
    found = drift_of(then, ref(digest="sha256:2", fingerprints=prints(a=5.0)), None)
    assert (found.largest_gradient_drift, drift_words(found)) == (
        0.25,
        "grad/a: by at least 0.25 of its norm",
    )
    turned = (Fingerprint(name="grad/a", sha256="other", norm=4.0, largest=4.0),)
    found = drift_of(then, ref(digest="sha256:2", fingerprints=turned), None)
    assert (found.off, drift_words(found)) == (1, "grad/a: its norm is the same")


def test_a_report_without_fingerprints() -> None:
    found = drift_of(ref(), ref(digest="sha256:2", fingerprints=prints(a=1.0)), None)
    assert (found.by, found.off, found.largest_gradient_drift) == ("nothing", None, None)


# --- the outcome ----------------------------------------------------------------------------------

THREADS = Change(about="numerics", what="threads", old=1, new=2, effect="drift")
COMMIT = Change(about="code", what="git_commit", old="a", new="b", effect="none")
SOURCE = Change(about="code", what="source of my.Block (net.py)", old="a", new="b", effect="another")
BATCH = Change(about="data", what="batch", old="a", new="b", effect="another")
MODEL = Change(about="code", what="number of parameters", old=1, new=2, effect="another")
STUCK = Rollback(compared=3, left=("blocks.0._call_impl",))


def ran(**found: Any) -> Ran:
    usual: dict[str, Any] = {
        "reference": ref(),
        "noise": Noise(gaps=(SAME,)),
        "canary": records.canary(),
        "parity": records.passed(),
    }
    return Ran(**usual | found)


def stuck() -> ParityFailed:
    return ParityFailed(
        gaps=(SAME,), failed=(), noise_floor=0.0, block_calls={}, flops=1, rollback=STUCK
    )


def outcome(found: Ran, *changes: Change, then: Reference | None = None) -> tuple[str, str, str]:
    then = then or ref()
    drift = None if found.reference is None else drift_of(then, found.reference, None)
    return judged(then, found, changes, drift, LIMITS)


DRIFTED = {"reference": ref(digest="sha256:2", fingerprints=prints(a=5.0))}


@pytest.mark.parametrize(
    ("found", "changes", "code"),
    [
        ({}, (), "same bitwise"),
        ({}, (THREADS, COMMIT), "same bitwise"),
        ({"parity": records.passed(NEAR)}, (), "same bitwise"),
        (DRIFTED, (THREADS,), "holds_drifted drifted"),
        (DRIFTED | {"noise": Noise(gaps=(NEAR,))}, (), "holds_drifted drifted"),
        (DRIFTED, (), "cannot_tell unexplained-drift"),
        (DRIFTED, (COMMIT,), "cannot_tell unexplained-drift"),
        ({}, (SOURCE,), "cannot_tell another-source"),
        ({}, (BATCH,), "cannot_tell another-batch"),
        ({}, (BATCH, SOURCE), "cannot_tell another-source"),
        ({}, (MODEL, BATCH), "cannot_tell another-model"),
        ({"parity": records.failed()}, (SOURCE,), "cannot_tell another-source"),
        ({"parity": records.failed()}, (THREADS,), "lost parity"),
        (DRIFTED | {"parity": records.failed()}, (), "lost parity"),
        ({"parity": stuck()}, (), "lost rollback"),
        ({"canary": records.canary(caught=False), "parity": None}, (), "cannot_tell canary"),
        ({"noise": Noise(gaps=(FAR,)), "canary": None, "parity": None}, (), "cannot_tell noise"),
    ],
)
def test_outcomes(found: dict[str, Any], changes: tuple[Change, ...], code: str) -> None:
    assert " ".join(outcome(ran(**found), *changes)[:2]) == code


def test_noise_over_ranks_is_said_of_ranks_and_one_process() -> None:
    found = ran(noise=Noise(gaps=(FAR,)), canary=None, parity=None)
    assert found.reference is not None
    drift = drift_of(ref(), found.reference, None)
    code = judged(ref(), found, (), drift, LIMITS, Ranks(count=2))
    assert code[:2] == ("cannot_tell", "noise")
    assert code[2].startswith("plain over 2 ranks (ddp) is not what one process computes, gradient of w")
    assert judged(ref(), found, (), drift, LIMITS)[2].startswith("plain differs from plain on this")


@pytest.mark.parametrize(
    ("floor", "ranks", "said"),
    [
        (0.0, 1, "plain repeats itself bitwise"),
        (0.0, 2, "2 ranks equal one process bitwise"),
        (2e-7, 1, "plain differs from plain, largest relative gap 2e-07"),
        (2e-7, 2, "2 ranks differ from one process, largest relative gap 2e-07"),
    ],
)
def test_what_the_command_says_plain_was_compared_with(floor: float, ranks: int, said: str) -> None:
    shape = ShapeRecheck(
        shape_key="T=1",
        shape={},
        outcome="same",
        code="bitwise",
        sentence="",
        held_in_report=True,
        drift=drift_of(ref(), ref(), None),
        noise_floor=floor,
    )
    assert f"  noise      {said}" in list(_shape(shape, ranks))


@pytest.mark.parametrize("missing", ["noise", "canary", "parity"])
def test_a_phase_that_was_not_completed(missing: str) -> None:
    """As far as it got, nothing was lost; so nobody can tell."""
    order = ("noise", "canary", "parity")
    left = dict.fromkeys(order[order.index(missing) :])
    found = ran(**left, failed=(missing, "RuntimeError: it broke"))
    assert outcome(found) == ("cannot_tell", "not-completed", f"{missing}: RuntimeError: it broke")


def test_an_update_that_cannot_be_rebuilt() -> None:
    nothing = Ran(failed=("reference", "own:theirs is not registered here"))
    assert outcome(nothing) == (
        "cannot_tell",
        "not-rebuilt",
        "the update cannot be rebuilt here: own:theirs is not registered here",
    )


def test_drift_of_a_report_that_names_no_sources() -> None:
    """Whether it is the same block cannot be known, unless the update is bitwise the same."""
    then = ref(revisions=None)
    assert outcome(ran(**DRIFTED), THREADS, then=then)[:2] == ("cannot_tell", "unexplained-drift")
    assert outcome(ran(), THREADS, then=then)[:2] == ("same", "bitwise")


@pytest.mark.parametrize(
    ("held", "end"),
    [(True, "off."), (False, "off. Nor did it hold in the report."), (None, "not looked at.")],
)
def test_what_held_in_the_report_is_said(held: bool | None, end: str) -> None:
    assert shape_sentence("T=16", "lost", "off", held, ran()).endswith(end)


def test_the_worst_shape_decides() -> None:
    def at(outcome: Any) -> ShapeRecheck:
        return ShapeRecheck(
            shape_key=outcome,
            shape={},
            outcome=outcome,
            code="bitwise",
            sentence="",
            held_in_report=True,
        )

    order = ["same", "holds_drifted", "cannot_tell", "lost"]
    for index, name in enumerate(order):
        shapes = tuple(at(one) for one in (*order[: index + 1], *order[: index + 1]))
        assert worst_of(shapes) is shapes[index]
        assert worst_of(shapes).outcome == name


def test_a_drift_has_the_exact_size_where_there_is_one() -> None:
    assert TensorDrift(name="grad/w", gap=FAR).size == 0.5
    assert TensorDrift(name="grad/w", at_least=0.25).size == 0.25
