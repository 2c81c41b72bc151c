"""Does the evidence support what a report says? What was said beside what follows. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from ..results import Gate
from ..spec import Thresholds
from .evidence import Found
from .predicate import Predicate, check_declared_first, check_spec_hash
from .refusal import Untrusted, quoted
from .statement import Decision, name_of_test
from .strict_json import canonical
from .supplied import SuppliedDecision, SuppliedFound
from .verification import Check


def compare_specification(said: Predicate, found: Found) -> str:
    sentence = check_spec_hash(found)
    if said.study.spec_hash != found.row.spec_hash:
        raise Untrusted("spec-hash", "the report and its evidence name two specifications")
    return sentence


def compare_thresholds(said: Predicate, found: Found) -> str:
    sentence = check_declared_first(found)
    _same_limits(said.declared.thresholds, found.asked.thresholds, "the study declared")
    if said.declared.declared_at != found.row.declared_at:
        raise Untrusted(
            "thresholds-differ",
            f"the report says that the thresholds were declared at {quoted(said.declared.declared_at)}; "
            f"the study says {found.row.declared_at}",
        )
    return sentence


def compare_received(said: SuppliedDecision, found: SuppliedFound) -> str:
    _same_limits(said.received.thresholds, found.thresholds, "its evidence holds")
    if said.received.received_at != found.received_at:
        raise Untrusted(
            "thresholds-differ",
            f"the report says that it received the thresholds at {quoted(said.received.received_at)}; "
            f"its evidence says {found.received_at}",
        )
    return (
        f"The thresholds are those received at {found.received_at}; nobody here saw them declared "
        "before a run."
    )


def _same_limits(said: Thresholds, found: Thresholds, whose: str) -> None:
    for name, limit in found.model_dump().items():
        claimed = getattr(said, name)
        if claimed != limit:
            raise Untrusted(
                "thresholds-differ", f"the report judges by {name} {claimed:g}; {whose} {limit:g}"
            )


def compare_gates(said: Decision, derived: Decision) -> Iterator[Check]:
    claimed = {(shape.shape_key, gate.id): gate for shape in said.shapes for gate in shape.gates}
    for shape in derived.shapes:
        for gate in shape.gates:
            name = name_of_test(gate.id, shape.shape_key)
            one = claimed.pop((shape.shape_key, gate.id), None)
            if one is not None and _figures(one) == _figures(gate):
                sentence = f"{name}: the report says {_words(gate)}, and its samples give the same."
                yield Check(f"gate: {name}", "pass", sentence)
                continue
            reported = "leaves it out" if one is None else f"says {_words(one)}"
            sentence = f"{name}: the report {reported}; its own samples give {_words(gate)}."
            yield Check(f"gate: {name}", "fail", sentence, "gate-differs")
    for shape_key, gate_id in claimed:
        name = quoted(name_of_test(gate_id, shape_key))
        yield Check(f"gate: {name}", "fail", f"{name}: nothing was measured of it.", "gate-differs")


def _figures(gate: Gate) -> Gate:
    """A gate without the sentence, whose wording is looked at among the facts."""
    return gate.model_copy(update={"sentence": ""})


def _words(gate: Gate) -> str:
    kind = "" if gate.kind == "measured" else f", {gate.kind}"
    if gate.observed is None:
        return f"{gate.outcome} (no figure, threshold {gate.threshold:g}{kind})"
    low, high = gate.ci95 or (gate.observed, gate.observed)
    interval = "" if low == high == gate.observed else f", {low:.6g} to {high:.6g}"
    return f"{gate.outcome} ({gate.observed:.6g}{interval}, threshold {gate.threshold:g}{kind})"


def compare_verdict(said: Decision, derived: Decision) -> str:
    if said.verdict != derived.verdict:
        raise Untrusted(
            "verdict-differs",
            f"the report says {_VERDICTS[said.verdict]}; its evidence says {_VERDICTS[derived.verdict]}",
        )
    return f"The verdict follows from the gates: {_VERDICTS[derived.verdict]}."


_VERDICTS = {"adopt": "adopt", "keep_original": "keep the original", "undecided": "undecided"}


WORDS = (
    "sentence",
    "not_claimed",
    "received.sentence",
    "rollback.proof[].sentence",
    "rollback.words",
    "shapes[].figures[].not_measured",
    "shapes[].figures[].source",
    "shapes[].gates[].sentence",
    "shapes[].sentence",
    "shapes[].troubles",
)
"""Where a predicate holds words that another version may choose otherwise, while they mean the same.

Code is none of them: people run it.
"""


def compare_facts(said: dict[str, Any], supported: dict[str, Any], *, with_words: bool) -> str:
    """That all that was said follows. A report of another version may say less, and in other words."""
    if canonical(said) != canonical(supported):
        where = _first_difference(said, supported, with_words, "")
        if where is not None:
            raise Untrusted("facts-differ", f"the report's {where} does not follow from its evidence")
    what = "figure, digest and sentence" if with_words else "figure and digest (but not the wording)"
    return f"Every other {what} follows from the evidence too, those of second uses included."


def _first_difference(said: Any, supported: Any, with_words: bool, where: str) -> str | None:
    """The path of the first value that differs; None when all are equal."""
    if not with_words and re.sub(r"\[\d+\]", "[]", where) in WORDS:
        return None
    pairs: list[tuple[str, Any, Any]]
    if isinstance(said, dict) and isinstance(supported, dict):
        if said.keys() - supported.keys() or (with_words and supported.keys() - said.keys()):
            return quoted(where or "content").strip("'")
        pairs = [(f"{where}.{name}".lstrip("."), said[name], supported[name]) for name in said]
    elif isinstance(said, list) and isinstance(supported, list) and len(said) == len(supported):
        both = zip(said, supported, strict=True)
        pairs = [(f"{where}[{number}]", *pair) for number, pair in enumerate(both)]
    else:
        return None if canonical(said) == canonical(supported) else quoted(where).strip("'")
    found = (_first_difference(one, other, with_words, place) for place, one, other in pairs)
    return next(filter(None, found), None)
