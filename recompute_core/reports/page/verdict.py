"""The first page: the verdict, what is signed, and the gates."""

from typing import Any

from ...gates import GATE_NAMES
from ...results import Gate, ParityFailed
from ...words import (
    MB_NOTE,
    OUTCOMES,
    WHOSE_FIGURES,
    compiled_words,
    count,
    fewest_pairs,
    interval_note,
    ranks_words,
    sentence_case,
)
from .markup import Column, Group, Html, bullets, code, el, facts, join, paragraph, table
from .plot import mark
from .view import ReportView
from .words import (
    KINDS,
    VERDICT_OUTCOME,
    VERDICTS,
    gap,
    interval,
    plan_label,
    ratio,
    when,
)

_FIGURES = {
    "gradient_parity": "largest gradient gap",
    "memory_saving": "peak, ratio to plain",
    "update_latency": "time, ratio to plain",
}
_GATES = (
    Column("Gate"),
    Column("Threshold (at most)", number=True),
    Column("Observed", number=True),
    Column("Interval", number=True),
    Column("Outcome", word=True),
    Column("Figure", word=True),
    Column("Threshold was", word=True),
    Column("In words"),
)


def title(view: ReportView) -> str:
    """What the window and the print are called."""
    figures = ", on supplied figures" if view.supplied is not None else ""
    return f"{sentence_case(VERDICTS[view.verdict])}{figures}: {plan_label(view.plan)}"


def head(view: ReportView) -> Html:
    """Title, verdict sentence, the facts one asks for first."""
    outcome = VERDICT_OUTCOME[view.verdict]
    tag = None if view.supplied is None else el("span", "supplied figures", class_="tag")
    here = view.environment
    device = f"{str(here.get('device', '')).upper()} {here.get('device_name', '')}".strip()
    if compiled := view.settings.get("compile"):
        device += f", {compiled_words(compiled['backend'])}"
    items = [
        ("Plan", view.plan),
        ("Workload", str(view.workload.get("name", ""))),
        ("Shapes", count(len(view.shapes), "shape")),
        ("Device", device),
        ("Over", _over(view.settings.get("ranks"))),
        ("Thresholds declared", when(view.declared_at)),
        ("Study", view.study_id),
    ]
    return el(
        "header",
        paragraph("Decision report, Recompute Studio", css="over"),
        el("h1", "Activation recomputation with ", plan_label(view.plan)),
        el(
            "div",
            paragraph(mark(outcome, VERDICTS[view.verdict]), tag, css="stand"),
            paragraph(view.sentence, css="sentence"),
            [paragraph(one) for one in view.reruns],
            class_=f"verdict edge-{outcome}",
            role="status",
        ),
        facts((name, value) for name, value in items if value),
        _signed(),
    )


def _over(ranks: Any) -> str:
    """The ranks of a study that has them, and whose figures there are."""
    return f"{ranks_words(ranks['count'], ranks['kind'])}: {WHOSE_FIGURES}" if ranks else ""


def unsigned() -> Html:
    """What stands above a page that nobody has signed."""
    words = " Nobody has signed this page, and no evidence came with it: nothing in it can be checked."
    return el(
        "aside",
        paragraph(el("b", "Unsigned preview."), words, css="sentence"),
        class_="verdict edge-undecided unsigned",
    )


def _signed() -> Html:
    return el(
        "aside",
        paragraph(
            el("b", "What is signed. "),
            code("report.intoto.jsonl"),
            " holds the verdict, the gates and the SHA-256 of this page and of every file under ",
            code("evidence/"),
            " with a signature over all of it. A page by itself proves nothing: check it with ",
            code("python -m recompute_core verify ."),
            ", which also computes every gate again from the raw samples, or with OpenSSL and sha256sum "
            "alone as ",
            code("VERIFY.md"),
            " says.",
        ),
        class_="signed",
    )


def gates(view: ReportView) -> Html:
    """Each gate at each shape."""
    groups = [
        Group(
            [_row(view, gate) for gate in one.gates],
            join(one.shape_key, " ", mark(VERDICT_OUTCOME[one.verdict], VERDICTS[one.verdict])),
        )
        for one in view.shapes
    ]
    return join(
        table(_GATES, groups, "Every gate at every shape", "gates wide untitled"),
        _troubles(view),
        paragraph(f"{MB_NOTE} {_intervals(view)}", css="note"),
    )


def _intervals(view: ReportView) -> str:
    """What the intervals are, where any time was measured."""
    timings = [one.timing for one in view.shapes if one.timing is not None]
    passing = "A gate passes when its whole interval keeps to the threshold."
    return f"{interval_note(fewest_pairs(timings))} {passing}" if timings else ""


def _row(view: ReportView, gate: Gate) -> tuple[Html | str, ...]:
    is_ratio = gate.id != "gradient_parity"
    what = _FIGURES[gate.id]
    if not is_ratio and gate.threshold != view.thresholds.gradient_gap:
        what = "largest relative gap"  # the one that failed, against its own limit
    name = join(sentence_case(GATE_NAMES[gate.id]), el("small", what))
    return (
        name,
        f"{gate.threshold:g}" if is_ratio else gap(gate.threshold),
        ratio(gate.observed) if is_ratio else gap(gate.observed),
        interval(gate.ci95, is_ratio, gate.kind),
        mark(gate.outcome, OUTCOMES[gate.outcome]),
        KINDS[gate.kind] if gate.observed is not None else "–",
        "declared" if view.supplied is None else "not declared before",
        gate.sentence,
    )


def _troubles(view: ReportView) -> Html | None:
    """Why gates were not run, where the parity gate's own words do not say it."""
    said = [
        f"{one.shape_key}: {trouble}"
        for one in view.shapes
        if not isinstance(one.parity, ParityFailed)
        for trouble in one.troubles
    ]
    return bullets(said) if said else None
