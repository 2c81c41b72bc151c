"""A study's published JSON, `recompute-study/1`, read back from a file: data, checked and bounded.

Nothing of it is run and nothing is kept. Gates and verdicts are derived once more from its samples; what
it says of them is not read. Whether the samples are true it cannot show: that takes a signed report.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from ..errors import InputError
from ..gates import judge, study_sentence, study_verdict
from ..reading import read_at_most
from ..reports.refusal import Untrusted
from ..reports.strict_json import parse
from ..results import Judged, Refused, StudyResult, Verdict
from ..settings import shape_key
from ..spec import explain
from ..studies.store import Status
from ..words import printable, utc_moment

SCHEMA = "recompute-study/1"
MOST_BYTES = 20_000_000
MOST_PAIRS = 1000
"""Of one candidate, as in a specification."""
_MOST_FACTS = 100
_MOST_LETTERS = 300


def read_file(path: Path) -> StudyResult:
    """The study in a file; raises InputError with one line."""
    return read_document(read_at_most(path, MOST_BYTES, f"more than {MOST_BYTES} bytes"), str(path))


def read_document(data: bytes, what: str) -> StudyResult:
    """The study in these bytes, judged anew; raises InputError with one line that begins with `what`."""
    try:
        raw = parse(data, most_bytes=MOST_BYTES, what=what)
    except Untrusted as refusal:
        raise InputError(str(refusal)) from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        other = raw.get("schema") if isinstance(raw, dict) else None
        given = f"its schema is {printable(other)[:40]}" if isinstance(other, str) else "it has none"
        raise InputError(
            f"{what}: not the result of a study: expected the schema {SCHEMA}, {given}; 'study --json' "
            "and 'Download the result as JSON' write one"
        )
    try:
        result = StudyResult.model_validate(_nested(raw))
    except ValidationError as error:
        raise InputError(f"{what}: {printable(explain(error))}") from None
    for problem in _problems(result):
        raise InputError(f"{what}: {problem}")
    return _judged_anew(result)


def _nested(raw: dict[str, Any]) -> dict[str, Any]:
    """The published document as the record that it came from."""
    thresholds, candidates = raw.get("thresholds"), raw.get("candidates")
    if isinstance(thresholds, dict):
        raw["declared_at"] = thresholds.pop("declared_at", None)
    rows = candidates if isinstance(candidates, list) else []
    raw["judged"] = [{"candidate": row, "gates": (), "verdict": "undecided"} for row in rows]
    return raw


def _problems(result: StudyResult) -> Iterable[str]:
    """What a study cannot be, though each record in it is well formed."""
    spec = result.spec
    asked = {(shape_key(spec.at(shape)), plan) for shape in spec.shapes for plan in spec.plans}
    found = [(one.candidate.shape_key, one.candidate.plan) for one in result.judged]
    if len(set(found)) < len(found):
        yield "a candidate stands twice"
    if set(found) != asked:
        yield "the candidates are not those of its specification"
    if not set(result.references) <= {shape for shape, _ in asked}:
        yield "references: a shape that the specification does not have"
    if result.thresholds != spec.thresholds:
        yield "the thresholds are not those of its specification"
    if result.status not in get_args(Status):
        yield "status: no such status"
    if len(result.environment) > _MOST_FACTS:
        yield f"environment: more than {_MOST_FACTS} facts"
    try:
        utc_moment(result.declared_at)
    except ValueError:
        yield "thresholds.declared_at: no time in UTC"
    for one in result.judged:
        where = f"{printable(one.candidate.plan)[:40]} at {one.candidate.shape_key}"
        if one.candidate.timing is not None and len(one.candidate.timing.samples) > MOST_PAIRS:
            yield f"{where}: more than {MOST_PAIRS} pairs"
        if one.candidate.memory is not None:
            for memory in (one.candidate.memory.plain, one.candidate.memory.candidate):
                if memory.peak_samples and not memory.state_bytes + min(memory.peak_samples):
                    yield f"{where}: a peak of 0 bytes"


def _judged_anew(result: StudyResult) -> StudyResult:
    judged = tuple(judge(one.candidate, result.thresholds) for one in result.judged)
    verdict = _verdict(result, judged)
    environment = {
        printable(name)[:60]: value
        if value is None or isinstance(value, bool | int | float)
        else printable(str(value))[:_MOST_LETTERS]
        for name, value in result.environment.items()
    }
    return result.model_copy(
        update={
            "study_id": printable(result.study_id)[:60],
            "judged": judged,
            "verdict": verdict,
            "sentence": study_sentence(judged) if verdict else "Not decided yet.",
            "spec_hash": result.spec.digest(),
            "environment": environment,
        }
    )


def _verdict(result: StudyResult, judged: tuple[Judged, ...]) -> Verdict | None:
    if result.verdict is None:
        return None
    refused = [one.candidate for one in judged if isinstance(one.candidate, Refused)]
    if any(one.stopped_by == "canary" for one in refused):
        return "undecided"
    return study_verdict(judged)
