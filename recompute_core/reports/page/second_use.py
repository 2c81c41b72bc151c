"""What the saved memory buys, apart from the decision: gates and verdict of each reinvestment."""

from ...reinvest.found import ClassRecall, ReinvestGate
from ...reinvest.gates import GATE_NAMES
from ...words import OUTCOMES, count, scientific, sentence_case
from ..second_use import SecondUse
from .markup import Column, Group, Html, el, join, paragraph, table
from .plot import mark
from .view import ReportView
from .words import VERDICT_OUTCOME, VERDICTS, when

_GATES = (
    Column("Gate"),
    Column("Threshold", number=True),
    Column("Observed", number=True),
    Column("Interval", number=True),
    Column("Outcome", word=True),
    Column("In words"),
)
_CLASSES = (
    Column("Class"),
    Column("Receipts", number=True),
    Column("Photos", number=True),
    Column("Plain", number=True),
    Column("95 % interval", number=True),
    Column("Recomputed", number=True),
    Column("95 % interval", number=True),
)


def second_use(view: ReportView) -> Html | None:
    """Each reinvestment; nothing where there is none."""
    if not view.second_use:
        return None
    about = (
        "A larger microbatch is another run, with thresholds and a verdict of its own. Nothing here "
        "changes the decision above."
    )
    return join(paragraph(about), map(_one, view.second_use))


def _one(one: SecondUse) -> Html:
    outcome = VERDICT_OUTCOME[one.verdict]
    changed = f"{one.objective} Every figure below is to be read with that." if one.objective else None
    return el(
        "section",
        el("h3", f"{one.shape_key}, run {one.run_id} ", mark(outcome, VERDICTS[one.verdict])),
        paragraph(one.sentence),
        paragraph(el("b", changed)) if changed else None,
        paragraph(
            f"In plain: microbatch {one.plain_microbatch}, effective batch {one.effective_batch}. Under "
            f"the plan: microbatch {one.microbatch or 'none larger'}, effective batch "
            f"{one.recomputed_effective_batch}. Thresholds declared {when(one.declared_at)}; the run is "
            "named by their digest, with all else that was asked."
        ),
        table(_GATES, [Group([_gate(gate) for gate in one.gates])], "Gates of the second use", "wide"),
        _recall(one),
    )


def _gate(gate: ReinvestGate) -> tuple[Html | str, ...]:
    return (
        sentence_case(GATE_NAMES[gate.id]),
        f"{gate.bound} {_figure(gate, gate.threshold)}",
        "–" if gate.observed is None else _figure(gate, gate.observed),
        _interval(gate),
        mark(gate.outcome, OUTCOMES[gate.outcome]),
        gate.sentence,
    )


def _interval(gate: ReinvestGate) -> str:
    if gate.ci95 is None:
        return "–"
    return "exact" if gate.is_exact else " to ".join(_figure(gate, edge) for edge in gate.ci95)


def _figure(gate: ReinvestGate, value: float) -> str:
    if gate.id == "same_objective":
        return scientific(value) if value else "0"
    return f"{value:.2f}"


def _recall(one: SecondUse) -> Html | None:
    if not one.classes:
        return None
    seeds = {
        side: ", ".join(f"{share:.3f}" for share in shares) for side, shares in one.accuracy.items()
    }
    return join(
        table(
            _CLASSES,
            [Group([_class(recall) for recall in one.classes])],
            "Recall on validation: mean over receipts of the share of their photos, "
            f"{count(len(one.seeds), 'seed')} of {one.examples:,} examples each",
            "wide",
        ),
        paragraph(
            "Intervals are Wilson's of as many trials as there are receipts, widened where seeds "
            "differ by more than their receipts explain. Accuracy by seed: plain "
            f"{seeds['plain']}; recomputed {seeds['recomputed']}.",
            css="note",
        ),
    )


def _class(one: ClassRecall) -> tuple[str, ...]:
    return (
        one.label,
        str(one.receipts),
        str(one.photos),
        f"{one.plain:.2f}",
        f"{one.plain_ci95[0]:.2f} to {one.plain_ci95[1]:.2f}",
        f"{one.recomputed:.2f}",
        f"{one.recomputed_ci95[0]:.2f} to {one.recomputed_ci95[1]:.2f}",
    )
