"""Two results in, one comparison out. Pure."""

from ..results import StudyResult
from .candidates import paired
from .facts import differences, seconds_differ
from .records import Compared, StudyComparison
from .sentences import cautions, sentences


def compare(
    a: StudyResult, b: StudyResult, supplied: tuple[bool, bool] = (False, False)
) -> StudyComparison:
    """What `b` is next to `a`; `supplied` says which of them was read from a file."""
    facts = differences(a, b)
    apart = seconds_differ(a, b)
    pairings, unpaired = paired(a.judged, b.judged, seconds=not apart)
    both = _compared(a, supplied[0]), _compared(b, supplied[1])
    return StudyComparison(
        a=both[0],
        b=both[1],
        sentences=sentences(*both, facts, pairings, unpaired),
        cautions=cautions(a, b, apart, pairings),
        seconds_compared=not apart,
        differences=facts,
        pairings=pairings,
        unpaired=unpaired,
    )


def _compared(result: StudyResult, supplied: bool) -> Compared:
    environment = result.environment
    named = str(environment.get("device_name") or "device not known")[:200]
    threads = environment.get("threads")
    return Compared(
        study_id=result.study_id,
        kind="supplied" if supplied else "measured",
        workload=result.spec.workload.name,
        device=named + (f", {threads} threads" if isinstance(threads, int) else ""),
        status=result.status,
        verdict=result.verdict,
        thresholds=result.thresholds,
        declared_at=result.declared_at,
    )
