"""One decision as Decision and Verify show it: its gates, what it does not claim, the way back. Pure.

What is shown may come from strangers: every text is escaped, and letters that move a cursor or turn a
line around are replaced.
"""

from collections.abc import Sequence
from html import escape

from recompute_core.gates import GATE_NAMES, chosen, megabytes, plan_verdicts, told_of_plan
from recompute_core.reports.predicate import Predicate, RollbackProof, ShapeDecision
from recompute_core.reports.supplied import SuppliedDecision, SuppliedShape
from recompute_core.rerun import said_of_reruns
from recompute_core.results import Gate, Judged, StudyResult
from recompute_core.spec import Compile, Thresholds
from recompute_core.words import printable, sentence_case, shape_labels

from .markup import facts, mark, outcome_mark, strip, verdict_line, verdict_mark
from .palette import Mark
from .whatif import rejudge
from .words import KINDS, VERDICTS, device_line, figure, interval, plan_label, when

GateKey = tuple[str, str]
"""Shape key and gate id."""
_ORDER = ("adopt", "undecided", "keep_original")


def candidates(result: StudyResult) -> list[str]:
    """The plans of a study: the one its verdict names first, then adopted ones, lowest peak first."""
    verdicts, best = plan_verdicts(result.judged), chosen(result.judged)
    first = best and best.candidate.plan

    def place(plan: str) -> tuple[bool, int, float]:
        verdict = verdicts.get(plan, "keep_original")
        peak = _last_peak(result.judged, plan)
        return plan != first, _ORDER.index(verdict), float("inf") if peak is None else peak

    return sorted(result.spec.plans, key=place)


def candidate_labels(result: StudyResult) -> dict[str, str]:
    """Each plan as it is offered: `every-block: adopt, peak 135.6 MB at T=512`, of the shape that its
    verdict is told of; no two are the same."""
    verdicts = plan_verdicts(result.judged)
    shapes = shape_labels(list(dict.fromkeys(one.candidate.shape_key for one in result.judged)))
    labels: dict[str, str] = {}
    for plan in result.spec.plans:
        told = told_of_plan(result.judged, plan).candidate
        peak = told.memory.candidate.peak_bytes if told.memory is not None else None
        where = f" at {shapes[told.shape_key]}" if len(shapes) > 1 else ""
        cost = "" if peak is None else f", peak {megabytes(peak)}{where}"
        words = f": {VERDICTS[verdicts.get(plan)]}{cost}"
        label = plan_label(plan) + words
        labels[plan] = plan + words if label in labels.values() else label
    return labels


def _last_peak(judged: Sequence[Judged], plan: str) -> int | None:
    """Bytes at the last shape at which it was measured."""
    memories = [one.candidate.memory for one in judged if one.candidate.plan == plan]
    peaks = [memory.candidate.peak_bytes for memory in memories if memory is not None]
    return peaks[-1] if peaks else None


# --- the decision ------------------------------------------------------------------------------------


def verdict(said: Predicate | SuppliedDecision) -> str:
    """The verdict sentence, as everywhere."""
    return verdict_line(said.verdict, printable(said.sentence))


def reruns(said: Predicate) -> str:
    """Which studies this one repeats, after their results were seen."""
    sentences = said_of_reruns(said.declared.follows, said.declared.thresholds)
    return "".join(strip(printable(one), "whatif") for one in sentences)


def decision_facts(said: Predicate, compiled: Compile | None = None) -> str:
    """What was decided on, where, and when the thresholds were declared."""
    declared = said.declared
    items = [
        ("Workload", str(said.workload.get("name", ""))),
        ("Plan", said.plan),
        ("Device", device_line(said.environment, compiled)),
        ("Thresholds declared", when(declared.declared_at)),
        ("First measured", when(declared.first_measured_at)),
        ("Study", said.study.id),
    ]
    return facts([(name, printable(text)) for name, text in items])


def supplied_facts(said: SuppliedDecision) -> str:
    """Whose figures they are; where they were measured is as whoever supplied them wrote it down."""
    items = [
        ("Figures", "supplied, not measured here"),
        ("Supplied by", said.supplied_by or "not named"),
        ("Workload", said.workload),
        ("Plan", said.plan),
        ("Received", when(said.received.received_at)),
        *((f"{name.replace('_', ' ')}, as written", words) for name, words in said.provenance.items()),
    ]
    return facts([(printable(name), printable(text)) for name, text in items])


def not_claimed(said: Predicate | SuppliedDecision) -> str:
    """What nobody should read into it, as a list."""
    items = "".join(f"<li>{escape(printable(one))}</li>" for one in said.not_claimed)
    return f'<div class="rs-lines"><ul>{items}</ul></div>'


# --- gates -------------------------------------------------------------------------------------------


def what_if_gates(result: StudyResult, plan: str, asked: Thresholds | None) -> dict[GateKey, Gate]:
    """The gates of a plan under other thresholds than the declared; nothing where they are the same."""
    if asked is None or asked == result.thresholds:
        return {}
    return {
        (one.candidate.shape_key, gate.id): gate
        for one in rejudge(result, asked).judged
        if one.candidate.plan == plan
        for gate in one.gates
    }


def gate_table(said: Predicate | SuppliedDecision, what_if: dict[GateKey, Gate] | None = None) -> str:
    """Each gate at each shape against its declared threshold, and beside it the what-if."""
    what_if = what_if or {}
    heads: list[tuple[str, str]] = [
        ("Gate", ""),
        ("Outcome", ""),
        ("Observed", "rs-num"),
        ("Threshold, at most", "rs-num"),
        *([("What-if, at most", "")] if what_if else []),
        ("In words", "rs-words"),
    ]
    top = "".join(f'<th scope="col" class="{css}">{escape(head)}</th>' for head, css in heads)
    groups = "".join(_shape(one, what_if, len(heads)) for one in said.shapes)
    return (
        '<div class="rs-scroll" tabindex="0" role="region" aria-label="Every gate at every shape">'
        f'<table class="rs-table rs-decided"><thead><tr>{top}</tr></thead>{groups}</table></div>'
    )


def _shape(one: ShapeDecision | SuppliedShape, what_if: dict[GateKey, Gate], columns: int) -> str:
    rows = "".join(
        _gate(gate, _what(one, gate), what_if.get((one.shape_key, gate.id)), bool(what_if))
        for gate in one.gates
    )
    return (
        f'<tbody><tr class="rs-at"><th scope="rowgroup" colspan="{columns}">'
        f"{escape(printable(one.shape_key))}{verdict_mark(one.verdict)}</th></tr>{rows}</tbody>"
    )


def _gate(gate: Gate, what: str, other: Gate | None, with_what_if: bool) -> str:
    cells = [
        f'<td class="rs-num">{_figure(gate)}</td>',
        f'<td class="rs-num">{_limit(gate)}<span class="rs-sub">{_since(gate)}</span></td>',
    ]
    if with_what_if:
        cells.append(f"<td>{_what_if(gate, other)}</td>")
    return (
        f'<tr><th scope="row">{escape(sentence_case(GATE_NAMES[gate.id]))}'
        f'<span class="rs-sub">{what}</span></th>'
        f"<td>{outcome_mark(gate.outcome)}</td>{''.join(cells)}"
        f'<td class="rs-words">{escape(printable(gate.sentence))}</td></tr>'
    )


def _since(gate: Gate) -> str:
    """Thresholds that came with figures were there before no run that we saw."""
    return "as supplied" if gate.kind == "supplied" else "declared"


_FIGURES = {
    "gradient_parity": "largest gradient gap",
    "memory_saving": "peak, ratio to plain",
    "update_latency": "update time, ratio to plain",
}


def _what(one: ShapeDecision | SuppliedShape, gate: Gate) -> str:
    """What a gate's figure is, and its kind where it was not measured here."""
    name = _FIGURES[gate.id]
    if gate.id == "gradient_parity":
        if isinstance(one, SuppliedShape):
            name = "largest gap"  # of a gradient or relative, as its own words say
        elif one.parity and gate.observed != one.parity.largest_gradient_gap:
            name = "largest relative gap"  # the one that failed, against its own limit
    return name if gate.kind == "measured" else f"{name}, {KINDS[gate.kind]}"


def _figure(gate: Gate) -> str:
    if gate.observed is None:
        return "–"
    is_ratio = gate.id != "gradient_parity"
    edges = interval(gate.ci95, is_ratio)
    if gate.kind == "supplied" and edges == "exact":
        edges = "one value, no interval"
    return f'{figure(gate.observed, is_ratio)}<span class="rs-sub">{edges}</span>'


def _limit(gate: Gate) -> str:
    return f"{gate.threshold:g}" if gate.id != "gradient_parity" else figure(gate.threshold)


def _what_if(declared: Gate, gate: Gate | None) -> str:
    if gate is None or (gate.threshold, gate.outcome) == (declared.threshold, declared.outcome):
        return '<span class="rs-soft">as declared</span>'
    return f'<span class="rs-tag rs-tag-whatif">{_limit(gate)}</span>{outcome_mark(gate.outcome)}'


# --- the way back --------------------------------------------------------------------------------------

_PROOFS: dict[bool | None, tuple[Mark, str]] = {
    True: ("pass", "proven"),
    False: ("fail", "not plain"),
    None: ("not_run", "no proof"),
}


def rollback_proof(proofs: Sequence[RollbackProof]) -> str:
    """Whether plain was plain again, at each shape."""
    return marked_list([(*_PROOFS[one.is_plain], one.sentence) for one in proofs])


def marked_list(items: Sequence[tuple[Mark, str, str]]) -> str:
    """Sentences, each behind its mark and word."""
    rows = "".join(
        f"<li>{mark(kind, word)}<span>{escape(printable(text))}</span></li>"
        for kind, word, text in items
    )
    return f'<ul class="rs-marked">{rows}</ul>'


def outcome_table(
    heads: tuple[str, str, str], rows: Sequence[tuple[str, tuple[Mark, str], str, str]]
) -> str:
    """Rows of a name, an outcome, a sentence and a smaller one; in a narrow window a list."""
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(printable(name))}</th><td>{mark(*outcome)}</td>'
        f'<td class="rs-wrap{" rs-soft" if outcome[0] == "not_run" else ""}">'
        + escape(printable(sentence))
        + (f'<span class="rs-sub">{escape(printable(below))}</span>' if below else "")
        + "</td></tr>"
        for name, outcome, sentence, below in rows
    )
    return (
        f'<div class="rs-scroll" tabindex="0" role="region" aria-label="{escape(heads[0])}">'
        f'<table class="rs-table rs-checks"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def file_slug(study: str, plan: str) -> str:
    """A study and a plan as part of a file's name."""
    letters = (c if c.isascii() and c.isalnum() else "-" for c in plan.lower())
    return f"{study}-{''.join(letters).strip('-')[:60] or 'plan'}"
