"""Decisions on figures that were supplied: the same gates as a study's, and labelled so everywhere.

Nobody here has measured anything. So there is no study, no proof of parity and no way back to speak of,
and the statement is of a type of its own: who asks for measured decisions is never handed one of these.

`evidence/measurements.json` (or `.csv`) holds the file's bytes as they came, `evidence/supplied.json`
the thresholds and when both were received.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from ..gates import GATE_NAMES, latency_gate, memory_gate, not_run, outcome_of, verdict_of
from ..intervals import extremes, median, ratio_interval
from ..plans.names import in_a_sentence
from ..results import Gate, Outcome, Verdict
from ..spec import Thresholds, explain
from ..words import quotation, utc_moment
from .evidence import MADE_BY, Evidence
from .measurements import Gradients, Measurements, Peaks, Updates, is_csv, read_measurements
from .predicate import Figure, Said
from .read_evidence import says_no_more
from .refusal import Untrusted, quoted
from .strict_json import canonical, parse

SUPPLIED = "supplied.json"
_FILES = ("measurements.json", "measurements.csv")
_SOURCE = "supplied in {file}; not measured here"


# --- gates -----------------------------------------------------------------------------------


def gates_of_supplied(given: Measurements, thresholds: Thresholds) -> tuple[Gate, ...]:
    """The three gates, every one of the kind `supplied`."""
    return (
        _parity(given.gradients, thresholds),
        _saving(given.peak_allocated_bytes, thresholds),
        _latency(given.update_s, thresholds),
    )


def _parity(given: Gradients | None, thresholds: Thresholds) -> Gate:
    """A gap that is missing is never taken for a small one."""
    limit, relative_limit = thresholds.gradient_gap, thresholds.relative_gap
    if given is None:
        return not_run("gradient_parity", limit, "No gap of a gradient was supplied.", "supplied")
    gap, relative = given.largest_gradient_gap, given.largest_relative_gap
    outcome: Outcome = "pass"
    if given.not_comparable:
        more = f", and {len(given.not_comparable) - 1} more" if len(given.not_comparable) > 1 else ""
        outcome, sentence = "fail", f"Not comparable: {given.not_comparable[0]}{more}."
    elif gap is not None and gap > limit:
        outcome, sentence = "fail", f"Largest gap of a gradient {gap:.2g}, absolute."
    elif relative is None:
        outcome, sentence = (
            "undecided",
            "No relative gap was supplied, and an absolute one says too little.",
        )
    elif relative > relative_limit:
        outcome, sentence = "fail", f"Largest relative gap {relative:.2g}."
        limit, gap = relative_limit, relative
    elif gap == relative == 0:
        sentence = "Every compared gradient is equal."
    else:
        sentence = f"Largest relative gap {relative:.2g}."
    return Gate(
        id="gradient_parity",
        outcome=outcome,
        threshold=limit,
        observed=gap,
        ci95=None if gap is None else (gap, gap),
        kind="supplied",
        sentence=sentence,
    )


def _saving(given: Peaks | None, thresholds: Thresholds) -> Gate:
    if given is None:
        return not_run("memory_saving", thresholds.peak_ratio, "No peak was supplied.", "supplied")
    plain, own = int(median(given.plain)), int(median(given.candidate))
    return memory_gate(plain, own, extremes(given.candidate, given.plain), "supplied", thresholds)


def _latency(given: Updates | None, thresholds: Thresholds) -> Gate:
    limit = thresholds.update_ratio
    if given is None:
        return not_run("update_latency", limit, "No update time was supplied.", "supplied")
    if given.timing is not None:
        return latency_gate(given.timing, thresholds)
    assert given.plain is not None
    assert given.candidate is not None
    plain, own = median(given.plain), median(given.candidate)
    edges = ratio_interval(given.candidate, given.plain)
    return Gate(
        id="update_latency",
        outcome=outcome_of(edges, limit),
        threshold=limit,
        observed=own / plain,
        ci95=edges,
        kind="supplied",
        sentence=f"Update {own * 1e3:.0f} ms instead of {plain * 1e3:.0f} ms; {len(given.plain)} and "
        f"{len(given.candidate)} updates, not in pairs.",
    )


def supplied_sentence(given: Measurements, gates: tuple[Gate, ...]) -> str:
    """The verdict with its figures; it says that they were supplied."""
    verdict, name = verdict_of(gates), f"{in_a_sentence(given.plan)} at {given.shape_key}"
    figures = ", ".join(_figure_words(given, gates))
    if verdict == "adopt":
        return f"Adopt {name}, on supplied figures: {figures}."
    words = {"fail": "fails", "undecided": "is undecided", "not_run": "was not run"}
    misses = [
        f"{GATE_NAMES[gate.id]} {words[gate.outcome]}"
        for gate in gates
        if gate.outcome != "pass" and (verdict == "undecided" or gate.outcome == "fail")
    ]
    head = "Keep the original rather than" if verdict == "keep_original" else "Undecided on"
    return f"{head} {name}, on supplied figures: {' and '.join(misses)} ({figures})."


def _figure_words(given: Measurements, gates: tuple[Gate, ...]) -> Iterator[str]:
    parity, saving, latency = gates
    if saving.observed is not None:
        yield f"{saving.sentence[0].lower()}{saving.sentence[1:-1]} ({saving.observed:.2f})"
    if latency.observed is not None and latency.ci95 is not None:
        low, high = latency.ci95
        yield f"update {latency.observed:.2f} times as long ({low:.2f} to {high:.2f})"
    if given.gradients is None:
        yield "gradients not compared"
    elif parity.outcome == "pass":
        yield "gradients equal" if parity.sentence.startswith("Every") else "gradients within tolerance"
    else:
        yield f"gradients: {parity.sentence[0].lower()}{parity.sentence[1:-1]}"


# --- what a report says ----------------------------------------------------------------------


class SuppliedFile(Said):
    """The measurements as they came."""

    name: str
    sha256: str
    """Of its bytes, hexadecimal."""


class Received(Said):
    """The thresholds, and that nobody here saw them before the figures."""

    thresholds: Thresholds
    received_at: str
    """When the figures and the thresholds came to us: UTC, ISO 8601."""
    set_afterwards: dict[str, float]
    """Thresholds that are neither the file's nor, where the file names none, the default ones."""
    sentence: str


class SuppliedShape(Said):
    """What was supplied at the one shape of the file."""

    shape_key: str
    shape: dict[str, int]
    verdict: Verdict
    sentence: str
    gates: tuple[Gate, ...]
    figures: tuple[Figure, ...]


class SuppliedDecision(Said):
    """A decision on figures that were supplied, `https://recompute-studio.dev/supplied-decision/v1`."""

    TYPE: ClassVar = "https://recompute-studio.dev/supplied-decision/v1"
    ASKED: ClassVar = f"evidence/{SUPPLIED}"

    schema_name: Literal["recompute-supplied-decision/1"] = Field(
        "recompute-supplied-decision/1", alias="schema"
    )
    kind: Literal["supplied"]
    """Of every figure in it."""
    made_by: str
    """Which version of ours wrote it."""
    supplied_by: str | None
    measurements: SuppliedFile
    workload: str
    plan: str
    verdict: Verdict
    sentence: str
    received: Received
    shapes: tuple[SuppliedShape, ...]
    provenance: dict[str, str]
    """Where it was measured, as whoever supplied it wrote it down."""
    not_claimed: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As it is signed."""
        return self.model_dump(mode="json", by_alias=True)


@dataclass(frozen=True)
class SuppliedFound:
    """Evidence on supplied figures, read."""

    given: Measurements
    file: SuppliedFile
    thresholds: Thresholds
    received_at: str
    made_by: str
    files: Evidence
    """What all of this was read from."""


def gather_supplied(
    data: bytes, name: str, thresholds: Thresholds, received_at: datetime
) -> dict[str, bytes]:
    """The evidence for a file of measurements, under these thresholds.

    Raises Untrusted as `read_measurements`.
    """
    read_measurements(data, name)
    kept = _FILES[is_csv(name)]
    about = {
        "schema": "recompute-supplied/1",
        "made_by": MADE_BY,
        "measurements": kept,
        "received_at": received_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "thresholds": thresholds.model_dump(mode="json"),
    }
    return {kept: data, SUPPLIED: canonical(about)}


class _About(Said):
    schema_name: Literal["recompute-supplied/1"] = Field(alias="schema")
    made_by: str
    measurements: Literal["measurements.json", "measurements.csv"]
    received_at: str
    thresholds: Thresholds


def read_supplied_evidence(evidence: Evidence) -> SuppliedFound:
    """The measurements and thresholds in evidence.

    Raises Untrusted: evidence-missing, evidence-form, and as `read_measurements`.
    """
    raw = parse(evidence[SUPPLIED], most_bytes=100_000, what=f"evidence/{SUPPLIED}")
    try:
        about = _About.model_validate(raw)
    except ValidationError as error:
        raise _odd(quoted(explain(error))) from None
    if not says_no_more(raw, about.model_dump(mode="json", by_alias=True)):
        raise _odd("holds something that is no part of it")
    try:
        utc_moment(about.received_at)
    except ValueError:
        raise _odd(f"received_at {quoted(about.received_at)} is no time") from None
    if evidence.keys() != {SUPPLIED, about.measurements}:
        raise Untrusted(
            "evidence-missing" if about.measurements not in evidence else "evidence-form",
            f"evidence: expected {SUPPLIED} and {about.measurements}, and nothing else",
        )
    data = evidence[about.measurements]
    return SuppliedFound(
        given=read_measurements(data, f"evidence/{about.measurements}"),
        file=SuppliedFile(name=about.measurements, sha256=hashlib.sha256(data).hexdigest()),
        thresholds=about.thresholds,
        received_at=about.received_at,
        made_by=about.made_by,
        files=evidence,
    )


def _odd(sentence: str) -> Untrusted:
    return Untrusted("evidence-form", f"evidence/{SUPPLIED}: {sentence}")


def derive_supplied(evidence: Evidence) -> SuppliedDecision:
    """What follows from evidence on supplied figures. Raises Untrusted as `read_supplied_evidence`."""
    return decide_supplied(read_supplied_evidence(evidence))


def decide_supplied(found: SuppliedFound) -> SuppliedDecision:
    """The decision. Pure."""
    given = found.given
    gates = gates_of_supplied(given, found.thresholds)
    verdict, sentence = verdict_of(gates), supplied_sentence(given, gates)
    received = _received(found)
    shape = SuppliedShape(
        shape_key=given.shape_key,
        shape=given.shape,
        verdict=verdict,
        sentence=sentence,
        gates=gates,
        figures=tuple(_figures(found)),
    )
    return SuppliedDecision(
        schema="recompute-supplied-decision/1",
        kind="supplied",
        made_by=found.made_by,
        supplied_by=given.supplied_by,
        measurements=found.file,
        workload=given.workload,
        plan=given.plan,
        verdict=verdict,
        sentence=sentence,
        received=received,
        shapes=(shape,),
        provenance=given.provenance,
        not_claimed=tuple(_not_claimed(found, received)),
    )


def _received(found: SuppliedFound) -> Received:
    named = found.given.thresholds
    moved = {
        name: value
        for name, value in found.thresholds.model_dump().items()
        if value != getattr(named, name)
    }
    others = " and ".join(f"{name} {value:g}" for name, value in moved.items())
    return Received(
        thresholds=found.thresholds,
        received_at=found.received_at,
        set_afterwards=moved,
        sentence="The thresholds were not declared before a run that we saw: they were received with "
        f"the figures at {found.received_at}"
        + (f"; {others} set by whoever made this report, not by the file." if moved else "."),
    )


def _figures(found: SuppliedFound) -> Iterator[Figure]:
    peaks, updates = found.given.peak_allocated_bytes, found.given.update_s
    source = _SOURCE.format(file=found.file.name)
    if peaks is not None:
        yield Figure(
            name="peak_bytes",
            unit="bytes",
            plain=int(median(peaks.plain)),
            candidate=int(median(peaks.candidate)),
            kind="supplied",
            source=f"medians of {len(peaks.plain)} and {len(peaks.candidate)} samples, {source}",
        )
    if updates is not None:
        pairs = updates.pairs or ()
        plain = updates.plain or tuple(pair[0] for pair in pairs)
        own = updates.candidate or tuple(pair[1] for pair in pairs)
        how = f"{len(pairs)} pairs" if pairs else f"{len(plain)} and {len(own)} updates, not in pairs"
        yield Figure(
            name="update_s",
            unit="seconds",
            plain=median(plain),
            candidate=median(own),
            kind="supplied",
            source=f"medians of {how}, {source}",
        )


def _not_claimed(found: SuppliedFound, received: Received) -> Iterator[str]:
    given = found.given
    who = quotation(given.supplied_by) if given.supplied_by else "somebody whom the file does not name"
    yield (
        f"The figures were supplied by {who}; nobody here has measured them, nor seen that they are of "
        "one model, one batch and one machine."
    )
    yield (
        "Parity was not proven here: "
        + ("no gap was supplied." if given.gradients is None else "the gaps are as supplied, ")
        + ("" if given.gradients is None else "and no canary has shown that the comparison can fail.")
    )
    yield received.sentence
    yield from given.warnings
    yield "Machine, libraries and their versions are as they were written down; nothing was looked up."
    yield "Whether the plan can be taken off, and leaves plain as it was, was not looked at."
    yield (
        f"Nothing is claimed of another shape than {given.shape_key}, nor of convergence over many "
        "steps."
    )
    yield "A signature says who released this, not that the figures are true."
