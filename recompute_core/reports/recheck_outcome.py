"""What came of a recheck at a shape, and how it is said. Pure; `recheck` says what outcomes mean."""

from ..gates import gap_words, stuck_sentence
from ..results import Parity, Reference
from ..spec import Ranks, Thresholds
from ..studies.one_shape import Ran
from ..words import noise_found
from .recheck_record import (
    WORDS,
    Change,
    Code,
    Drift,
    ParityHere,
    RecheckOutcome,
    ShapeRecheck,
    worst_of,
)


def judged(
    then: Reference,
    ran: Ran,
    changes: tuple[Change, ...],
    drift: Drift | None,
    thresholds: Thresholds,
    ranks: Ranks | None = None,
) -> tuple[RecheckOutcome, Code, str]:
    """The outcome at one shape, why for machines, and why in words. Pure."""
    if ran.reference is None or drift is None:
        return "cannot_tell", "not-rebuilt", f"the update cannot be rebuilt here: {_reason(ran)}"
    other = [change for change in changes if change.effect == "another"]
    if other:
        return "cannot_tell", *_another(other, ran)
    if ran.noise is None:
        return "cannot_tell", "not-completed", _reason(ran)
    noise = ran.noise.failures(thresholds)
    if noise:
        worst = gap_words(noise[0])
        return "cannot_tell", "noise", f"{noise_found(ranks)}, {worst}"
    if ran.canary is None:
        return "cannot_tell", "not-completed", _reason(ran)
    if not ran.canary.caught:
        why = f"a replay of {ran.canary.block} that was broken on purpose passed"
        return "cannot_tell", "canary", f"{why}, so that parity would prove nothing"
    if ran.parity is None:
        return "cannot_tell", "not-completed", _reason(ran)
    lost = _lost(ran.parity)
    if lost is not None:
        return "lost", *lost
    if drift.bitwise:
        return "same", "bitwise", f"plain's update is bitwise the reported one, and {_holds(ran.parity)}"
    moved = _moved(drift)
    if not _is_explained(then, ran, changes):
        named = "" if then.revisions is not None else ", and the report names no sources"
        why = f"{moved}, and nothing that changed can have done that{named}: code that no digest covers"
        return "cannot_tell", "unexplained-drift", f"{why}; {_holds(ran.parity)}"
    return "holds_drifted", "drifted", f"{_holds(ran.parity)}; {moved}"


def _another(other: list[Change], ran: Ran) -> tuple[Code, str]:
    first = other[0]
    source = next((one for one in other if one.what.startswith("source of ")), None)
    more = f" (and {len(other) - 1} more)" if len(other) > 1 else ""
    here = ""
    if ran.parity is not None:
        here = f"; here {_holds(ran.parity)}" if ran.parity.passed else "; here parity does not hold"
    if source is not None:
        why = f"the {source.what} changed{more}: parity of another block says nothing about this report"
        return "another-source", why + here
    if first.what == "batch" and len(other) == 1:
        why = "the batch is another one: parity on other data says nothing about this report"
        return "another-batch", why + here
    why = f"the {first.what} changed{more}: what is trained here is not what was reported"
    return "another-model", why + here


def _lost(parity: Parity) -> tuple[Code, str] | None:
    if parity.passed:
        return None
    if parity.failed:
        return "parity", f"the recomputed update differs from plain's, {gap_words(parity.failed[0])}"
    assert parity.rollback is not None
    sentence = stuck_sentence(parity.rollback, parity.noise_floor).removesuffix(".")
    return "rollback", sentence[0].lower() + sentence[1:]


def _is_explained(then: Reference, ran: Ran, changes: tuple[Change, ...]) -> bool:
    """Whether what is named can have moved plain's update."""
    is_noisy = ran.noise is not None and not ran.noise.bitwise
    return then.revisions is not None and (is_noisy or any(one.effect == "drift" for one in changes))


def _holds(parity: Parity) -> str:
    if parity.bitwise:
        return f"parity holds, all {len(parity.gaps)} tensors bitwise"
    return f"parity holds, largest relative gap {parity.largest_relative_gap:.2g}"


def _moved(drift: Drift) -> str:
    if drift.by == "nothing" or not drift.worst:
        return "plain's update is not bitwise the reported one"
    where = f"{drift.off} of {drift.tensors} tensors"
    return f"plain's update drifted in {where}, most in {drift_words(drift)}"


def drift_words(drift: Drift) -> str:
    """The tensor that drifted most, in words."""
    worst = drift.worst[0]
    if worst.gap is not None:
        return gap_words(worst.gap)
    if worst.at_least is None:
        return worst.name + (f": {worst.problem}" if worst.problem else "")
    if worst.at_least == 0:
        return f"{worst.name}: its norm is the same"
    return f"{worst.name}: by at least {worst.at_least:.2g} of its norm"


def _reason(ran: Ran) -> str:
    """Why a phase was not completed."""
    if ran.failed is None:
        return "it was not reached"
    phase, reason = ran.failed
    return reason if phase == "reference" else f"{phase}: {reason}"


def parity_here(parity: Parity, thresholds: Thresholds) -> ParityHere:
    return ParityHere(
        passed=parity.passed,
        bitwise=parity.bitwise,
        tensors=len(parity.gaps),
        largest_gradient_gap=parity.largest_gradient_gap,
        largest_relative_gap=parity.largest_relative_gap,
        failed=len(parity.failures(thresholds)),
        worst=parity.worst,
        rollback=parity.rollback,
    )


def shape_sentence(key: str, outcome: RecheckOutcome, why: str, held: bool | None, ran: Ran) -> str:
    before = ""
    if held is False:
        before = " Nor did it hold in the report." if outcome == "lost" else " In the report it did not."
    elif held is None and ran.parity is not None:
        before = " In the report it was not looked at."
    return f"{WORDS[outcome].capitalize()} at {key}: {why}.{before}"


def sentence_of(shapes: tuple[ShapeRecheck, ...]) -> str:
    worst = worst_of(shapes)
    alike = sum(one.outcome == worst.outcome for one in shapes)
    said = WORDS[worst.outcome].capitalize()
    more = f" {said} at {alike} of {len(shapes)} shapes." if len(shapes) > 1 else ""
    return worst.sentence + more
