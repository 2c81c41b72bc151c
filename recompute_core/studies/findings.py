"""One finished phase as a sentence, for the log of a terminal and of the page. Pure."""

from typing import Any

from ..gates import gap_words, megabytes, worst_of_ranks
from ..results import Gap
from .flow import PLAIN
from .store import Phase


def finding(shape_key: str, plan: str, phase: Phase, payload: dict[str, Any]) -> str:
    """What a phase found, e.g. `parity: bitwise equal for every-block at T=256 B=8`."""
    who = f"{'plain' if plan == PLAIN else plan} at {shape_key}"
    if payload.get("ran_at"):  # a canary that ran at another shape than the candidate's
        caught = "caught" if payload["caught"] else "MISSED"
        return f"{phase} of {who}: the broken replay was {caught}, at {payload['ran_at']}"
    return f"{phase}: {_said(phase, payload)} for {who}"


def _said(phase: Phase, found: dict[str, Any]) -> str:
    match phase:
        case "reference":
            return f"loss {found['loss']:.4f}, {found['tensors']} tensors kept"
        case "noise":
            ranks = sum(gap["part"] == "loss" for gap in found["gaps"])  # each has a loss of its own
            if ranks > 1:
                equal, other = (
                    f"{ranks} ranks equal one process bitwise",
                    f"{ranks} ranks against one process",
                )
            else:
                equal, other = "plain repeats bitwise", "plain against plain"
            return equal if found["bitwise"] else _gap(found, other)
        case "legality":
            bad = [block["block"] for block in found["blocks"] if block["verdict"] != "legal"]
            return f"refused: {', '.join(bad)}" if bad else f"{len(found['blocks'])} blocks legal"
        case "canary":
            return f"broken replay {'caught' if found['caught'] else 'MISSED'}"
        case "parity":
            if not found["passed"]:
                return f"fails ({gap_words(Gap.model_validate(found['failed'][0]))})"
            return "bitwise equal" if found["bitwise"] else _gap(found, "within tolerance")
        case "memory":
            peak = found["peak_bytes"]
            kept = megabytes(found["saved_bytes"])
            ranks = worst_of_ranks(len(found.get("ranks", ())))
            return (
                f"peak {'not measured' if peak is None else megabytes(peak)}, {kept} kept for backward"
                f"{ranks}"
            )
        case "time":
            low, high = found["ratio_ci95"]
            ranks = worst_of_ranks(found.get("ranks", 1))
            return f"update {found['ratio_median']:.2f} times as long ({low:.2f} to {high:.2f}){ranks}"


def _gap(found: dict[str, Any], words: str) -> str:
    gap = found["largest_relative_gap"]
    return f"{words}, {'not comparable' if gap is None else f'largest relative gap {gap:.2g}'}"
