"""What the same figures would mean under other thresholds. Pure.

Nothing measured changes; only gates and verdicts are formed again.
"""

from recompute_core.gates import judge, outcome_of, study_sentence, study_verdict, verdict_of
from recompute_core.results import Gate, Judged, Refused, StudyResult
from recompute_core.spec import Thresholds


def rejudge(result: StudyResult, thresholds: Thresholds) -> StudyResult:
    """`result` judged by other thresholds, without reading its cells again."""
    before = result.thresholds
    if thresholds == before:
        return result
    if (thresholds.gradient_gap, thresholds.relative_gap) == (before.gradient_gap, before.relative_gap):
        judged = tuple(_lines_moved(one, thresholds) for one in result.judged)
    else:
        judged = tuple(judge(one.candidate, thresholds) for one in result.judged)
    verdict, sentence = result.verdict, result.sentence
    unproven = any(
        isinstance(one.candidate, Refused) and one.candidate.stopped_by == "canary" for one in judged
    )
    if verdict is not None and not unproven:
        verdict, sentence = study_verdict(judged), study_sentence(judged)
    return result.model_copy(
        update={
            "judged": judged,
            "thresholds": thresholds,
            "verdict": verdict,
            "sentence": sentence,
        }
    )


def _lines_moved(one: Judged, thresholds: Thresholds) -> Judged:
    """What `judge` gives where no gap's threshold is another: parity, the costly gate, stays."""
    parity, saving, latency = one.gates
    gates = (
        parity,
        _moved(saving, thresholds.peak_ratio),
        _moved(latency, thresholds.update_ratio),
    )
    candidate = one.candidate
    kept = isinstance(candidate, Refused) and candidate.stopped_by in ("noise", "legality")
    verdict = "keep_original" if kept else verdict_of(gates)
    return one.model_copy(update={"gates": gates, "verdict": verdict})


def _moved(gate: Gate, threshold: float) -> Gate:
    if gate.threshold == threshold:
        return gate
    outcome = "not_run" if gate.outcome == "not_run" else outcome_of(gate.ci95, threshold)
    return gate.model_copy(update={"threshold": threshold, "outcome": outcome})
