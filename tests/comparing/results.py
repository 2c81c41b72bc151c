"""Small results made by hand, exact and without torch."""

from collections.abc import Sequence
from typing import Any

from recompute_core.gates import judge, study_sentence, study_verdict
from recompute_core.results import Candidate, Reference, StudyResult
from recompute_core.spec import parse_spec

ENVIRONMENT = {"device": "cpu", "device_name": "Test processor", "threads": 2, "torch": "2.13.0+cpu"}


def reference(**changes: Any) -> Reference:
    facts = {
        "loss": 4.0,
        "tensors": 2,
        "digest": "sha256:" + "a" * 64,
        "batch_digest": "sha256:" + "b" * 64,
        "data_digest": None,
        "parameters": 100,
        "block_calls": {"blocks.0": 1},
        "flops": 30,
        "envelope_flops": 24,
        "blocks": ("blocks.0",),
    }
    return Reference.model_validate(facts | changes)


def result(
    candidates: Sequence[Candidate],
    environment: dict[str, Any] | None = None,
    references: dict[str, Reference] | None = None,
    study_id: str = "s",
    status: str = "done",
    **spec: Any,
) -> StudyResult:
    """A study of these candidates, judged by its thresholds."""
    asked = {
        "workload": {"name": "gpt", "batch": 4},
        "shapes": [{"seq_len": n} for n in dict.fromkeys(c.shape["seq_len"] for c in candidates)],
        "plans": list(dict.fromkeys(c.plan for c in candidates)),
    }
    wanted = parse_spec(asked | spec)
    judged = tuple(judge(candidate, wanted.thresholds) for candidate in candidates)
    return StudyResult(
        study_id=study_id,
        status=status,
        verdict=study_verdict(judged),
        sentence=study_sentence(judged),
        thresholds=wanted.thresholds,
        declared_at="2026-11-29T00:00:00.000Z",
        spec=wanted,
        spec_hash=wanted.digest(),
        environment=ENVIRONMENT if environment is None else environment,
        references={"T=128 B=4": reference()} if references is None else references,
        judged=judged,
    )
