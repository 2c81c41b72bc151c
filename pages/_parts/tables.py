"""Tables of a study as DataFrames, units in the headers. Pure; refused candidates have no costs."""

from collections.abc import Sequence

import pandas as pd
from pandas.io.formats.style import Styler

from recompute_core.gates import in_mb
from recompute_core.results import Gap, Judged, Reason, StudyResult

from .words import MISSING, plan_label, when


def said_in_mb(frame: pd.DataFrame) -> Styler:
    """The table with its columns in MB said as everywhere else; they are sorted as numbers."""
    columns = [name for name in frame.columns if name.endswith("(MB)")]
    return frame.style.format(lambda mb: in_mb(mb * 1e6), subset=columns, na_rep=MISSING)


def parity_table(judged: Sequence[Judged]) -> pd.DataFrame:
    """Each candidate's parity in one line: how far it is from plain, and from plain's own noise."""
    rows = []
    for one in judged:
        candidate = one.candidate
        parity = candidate.parity
        canary = candidate.canary
        rows.append(
            {
                "Plan": plan_label(candidate.plan),
                "Shape": candidate.shape_key,
                "Parity": _parity_words(one),
                "Tensors": len(parity.gaps) if parity else None,
                "Largest gradient gap": parity.largest_gradient_gap if parity else None,
                "Largest relative gap": parity.largest_relative_gap if parity else None,
                "Noise floor": parity.noise_floor if parity else None,
                "Canary": "not run" if canary is None else "caught" if canary.caught else "missed",
                "Canary's gap": canary.largest_relative_gap if canary else None,
            }
        )
    return pd.DataFrame(rows)


def _parity_words(one: Judged) -> str:
    parity = one.candidate.parity
    if parity is None:
        return "not tested"
    if not parity.passed:
        return "fails"
    return "bitwise equal" if parity.bitwise else "within tolerance"


_PARTS = {
    "output": "output",
    "loss": "loss",
    "input_grad": "gradient of the input",
    "grad": "gradient",
    "buffer": "buffer",
    "rng": "random state",
    "weight": "weight after the update",
}


def worst_table(gaps: Sequence[Gap]) -> pd.DataFrame:
    """The tensors that are furthest off, worst first."""
    return pd.DataFrame(
        {
            "Tensor": [gap.name or "(whole)" for gap in gaps],
            "Part": [_PARTS[gap.part] for gap in gaps],
            "Absolute gap": [gap.absolute for gap in gaps],
            "Relative gap": [gap.relative for gap in gaps],
            "Problem": [gap.problem or "" for gap in gaps],
        }
    )


def legality_lines(judged: Sequence[Judged]) -> list[str]:
    """Every reason and condition that legality gave, once each, with its block's name."""
    lines: dict[str, None] = {}
    for one in judged:
        for block in one.candidate.legality or ():
            for reason in block.reasons:
                lines[f"Refused: {_naming(reason)}"] = None
            for condition in block.conditions:
                lines[f"On a condition: {_naming(condition)}"] = None
    return list(lines)


def _naming(reason: Reason) -> str:
    """A reason's sentence, with its block's name in front unless it is in there already."""
    named = reason.block in reason.sentence
    return reason.sentence if named else f"{reason.block}: {reason.sentence}"


def environment_table(result: StudyResult) -> pd.DataFrame:
    """Where and how this was measured, and the digests that pin it."""
    facts = {
        **{key.replace("_", " "): value for key, value in result.environment.items()},
        "specification": result.spec_hash,
        "thresholds declared": when(result.declared_at),
    }
    for shape, reference in result.references.items():
        facts[f"reference at {shape}"] = reference.digest
        facts[f"batch at {shape}"] = reference.batch_digest
        if reference.data_digest:
            facts[f"data set at {shape}"] = reference.data_digest
    return pd.DataFrame(
        {
            "Fact": list(facts),
            "Value": ["not known" if v is None else str(v) for v in facts.values()],
        }
    )
