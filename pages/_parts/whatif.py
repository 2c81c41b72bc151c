"""What the same figures would mean under other thresholds. Pure.

Nothing measured changes; only gates and verdicts are formed again.
"""

from recompute_core.gates import judge, study_sentence, study_verdict
from recompute_core.results import Refused, StudyResult
from recompute_core.spec import Thresholds


def rejudge(result: StudyResult, thresholds: Thresholds) -> StudyResult:
    """`result` judged by other thresholds, without reading its cells again."""
    if thresholds == result.thresholds:
        return result
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
