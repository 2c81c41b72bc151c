"""Tables and strips of Reinvest. Pure: text in, markup out, all escaped."""

from collections.abc import Sequence
from html import escape

from recompute_core.gates import in_mb
from recompute_core.reinvest.found import (
    SIZE_WORDS,
    Accumulation,
    Reach,
    ReinvestGate,
    ReinvestGateId,
    ReinvestResult,
    Throughput,
    Training,
    Tried,
)
from recompute_core.reinvest.gates import GATE_NAMES
from recompute_core.words import printable, sentence_case

from . import markup
from .palette import Mark
from .reinvest_words import accepted_words
from .words import KINDS, figure, interval

_FIGURES: dict[ReinvestGateId, str] = {
    "plain_peak": "peak, ratio to plain's",
    "same_objective": "largest relative gap",
    "throughput": "ratio to plain's",
    "rare_recall": "recall lost, share of 1",
}


def changed_strip(objective: str, then: str = "Every figure here is to be read with that.") -> str:
    """That the two settings do not train for the same thing, at the top of the page."""
    return markup.caution(f"{objective} {then}")


def changed_tag(objective: str) -> str:
    """The same beside a section's figures, in short: what stands before the colon."""
    short = objective.partition(":")[0]
    return f'<span class="rs-tag rs-tag-changed">{escape(printable(short))}</span>'


# --- gates -----------------------------------------------------------------------------------------


def gate_table(gates: Sequence[ReinvestGate], is_live: bool) -> str:
    """Each gate with its outcome, its figure and its declared threshold."""
    heads = (
        ("Gate", ""),
        ("Outcome", ""),
        ("Observed", "rs-num"),
        ("Threshold", "rs-num"),
        ("In words", "rs-words"),
    )
    top = "".join(f'<th scope="col" class="{css}">{escape(head)}</th>' for head, css in heads)
    rows = "".join(_gate(gate, is_live) for gate in gates)
    return (
        '<div class="rs-scroll" tabindex="0" role="region" aria-label="Gates of the reinvestment">'
        f'<table class="rs-table rs-decided rs-spent"><thead><tr>{top}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _gate(gate: ReinvestGate, is_live: bool) -> str:
    is_pending = is_live and gate.outcome == "not_run"
    outcome = markup.mark("not_run", "not yet") if is_pending else markup.outcome_mark(gate.outcome)
    is_ratio = gate.id != "same_objective"
    what = _FIGURES[gate.id]
    if gate.kind != "measured":
        what = f"{what}, {KINDS[gate.kind]}"
    observed = figure(gate.observed, is_ratio)
    if gate.observed is not None:
        observed += f'<span class="rs-sub">{interval(gate.ci95, is_ratio)}</span>'
    return (
        f'<tr><th scope="row">{sentence_case(GATE_NAMES[gate.id])}'
        f'<span class="rs-sub">{what}</span></th>'
        f'<td>{outcome}</td><td class="rs-num" data-head="Observed">{observed}</td>'
        f'<td class="rs-num" data-head="Threshold">{gate.bound} {limit_words(gate)}'
        '<span class="rs-sub">declared</span></td>'
        f'<td class="rs-words">{escape(printable(gate.sentence))}</td></tr>'
    )


def limit_words(gate: ReinvestGate) -> str:
    return figure(gate.threshold) if gate.id == "same_objective" else f"{gate.threshold:g}"


# --- how far it goes ---------------------------------------------------------------------------------


def reach_table(reach: Reach) -> str:
    """Plain and every size that was tried, each with a bar whose end is plain's peak."""
    what = SIZE_WORDS[reach.field].capitalize()
    heads = [
        (what, True),
        ("Estimated peak (MB)", True),
        ("Measured peak (MB)", True),
        ("Of plain's peak", False),
        ("What was found", False),
    ]
    plain = [
        f"{reach.plain_size:,}",
        "–",
        in_mb(reach.budget_bytes),
        _bar(1.0, "plain", "1.000"),
        "plain: the budget",
    ]
    rows = [_tried(one, reach) for one in sorted(reach.tried, key=lambda one: one.size)]
    return markup.table(
        heads, [plain, *rows], f"{_TRIED[reach.field]} that were tried under the plan", stacks=True
    )


_TRIED = {"batch": "Microbatches", "seq_len": "Sequence lengths"}


def _tried(one: Tried, reach: Reach) -> list[str]:
    if one.peak_bytes is None:
        share = one.estimated_peak_bytes / reach.budget_bytes
        bar = _bar(share, "estimated", f"{share:.3f} estimated")
    else:
        share = one.peak_bytes / reach.budget_bytes
        bar = _bar(share, "fits" if share <= 1 else "over", f"{share:.3f}")
    return [
        f"{one.size:,}",
        in_mb(one.estimated_peak_bytes),
        "–" if one.peak_bytes is None else in_mb(one.peak_bytes),
        bar,
        _found(one, reach),
    ]


def _found(one: Tried, reach: Reach) -> str:
    if one.problem is not None:
        return markup.mark("fail", printable(one.problem))
    if one.peak_bytes is None:
        return markup.mark("not_run", "not measured")
    parity = "gradients bitwise plain's" if one.bitwise else "gradients within tolerance"
    if one.without_plain is not None:
        parity = f"no plain update of this size to compare with: {printable(one.without_plain)}"
    is_best = reach.largest is not None and reach.largest.size == one.size
    kind: Mark = "pass" if one.peak_bytes <= reach.budget_bytes else "fail"
    words = "fits" if kind == "pass" else "above plain's peak"
    return markup.mark(kind, f"{words}, the largest" if is_best else words) + _below(parity)


def _below(words: str) -> str:
    return f'<span class="rs-sub">{escape(words)}</span>'


_MOST = 1.25
"""Where a bar ends, in plain's peaks."""


def _bar(share: float, kind: str, words: str) -> str:
    width = 100 * min(share, _MOST) / _MOST
    return (
        f'<span class="rs-bar rs-bar-{kind}"><i style="width:{width:.1f}%"></i></span>'
        f'<span class="rs-bar-words">{escape(words)}</span>'
    )


# --- the same objective ------------------------------------------------------------------------------


def microbatch_table(result: ReinvestResult, found: Accumulation) -> str:
    """Accepted examples in each microbatch of one update, on both sides."""
    rows = [
        _passes("plain", result.plain_microbatch, found.plain_microbatches),
        _passes("recomputed", result.microbatch, found.recomputed_microbatches),
    ]
    heads = [
        ("Setting", False),
        ("Microbatch", True),
        ("Passes", True),
        ("Accepted in each", True),
        ("Together", True),
    ]
    return markup.table(heads, rows, "Accepted examples in each microbatch of one update", stacks=True)


def _passes(side: str, size: int | None, accepted: Sequence[int]) -> list[str]:
    return [
        side,
        "–" if size is None else f"{size:,}",
        f"{len(accepted):,}",
        f'<span class="rs-accepted">{accepted_words(accepted)}</span>',
        f"{sum(accepted):,}",
    ]


def gaps_table(found: Accumulation, tolerance: float) -> str:
    """The gap of the right weights against its tolerance, the mistake beside it, and the noise floor."""
    heads = [
        ("Compared with", False),
        ("Largest relative gap", True),
        ("What that says", False),
    ]
    gap, means = found.largest_relative_gap, found.mean_of_means_gap
    is_within = not found.failures(tolerance)
    words = f"{'within' if is_within else 'not within'} {figure(tolerance)}"
    rows = [
        [
            _long("the plan's, every accepted example weighing the same"),
            _gap(gap),
            markup.mark("pass" if is_within else "fail", words),
        ],
        [
            _long("a mean of microbatch means, the mistake that this avoids"),
            _gap(means),
            _mistake(gap, means, tolerance),
        ],
        [
            _long("plain's own again: the noise floor"),
            _gap(found.noise_floor),
            '<span class="rs-soft">for comparison</span>',
        ],
    ]
    return markup.table(
        heads, rows, "Plain's accumulated gradient, and how far others are from it", stacks=True
    )


def _long(words: str) -> str:
    """A cell that may take several lines in a narrow window."""
    return f'<span class="rs-long">{escape(words)}</span>'


def _gap(value: float | None) -> str:
    return "not to be compared" if value is None else figure(value)


def _mistake(gap: float | None, means: float | None, tolerance: float) -> str:
    if means is None:
        return '<span class="rs-soft">would be another objective</span>'
    if means <= tolerance:
        return '<span class="rs-soft">microbatches of equal weight: no difference here</span>'
    times = _below(f"{means / gap:,.0f} times the gap above") if gap else ""
    return markup.mark("fail", f"would not be within {figure(tolerance)}") + times


# --- what it buys --------------------------------------------------------------------------------------


def speed_table(result: ReinvestResult, found: Throughput) -> str:
    """Both settings side by side: passes, update time, examples per second, peak."""
    timing, used = found.timing, result.used
    budget = result.reaches.batch.budget_bytes if result.reaches else None
    own = used.peak_bytes if used else None
    low, high = found.rate_ratio_ci95
    heads = [("In an update", False), ("Plain", True), ("Recomputed", True), ("Ratio", True)]
    microbatch = "–" if result.microbatch is None else f"{result.microbatch:,}"
    rows = [
        ["Microbatch", f"{result.plain_microbatch:,}", microbatch, ""],
        ["Passes", f"{found.plain_microbatches:,}", f"{found.recomputed_microbatches:,}", ""],
        [
            "Accepted examples",
            f"{found.plain_examples:,}",
            f"{found.recomputed_examples:,}",
            _ratio(found.recomputed_examples, found.plain_examples),
        ],
        [
            "Update time (s)",
            f"{timing.plain_median_s:.3g}",
            f"{timing.update_s:.3g}",
            f"{timing.ratio_median:.3f}{_below(interval(timing.ratio_ci95, True))}",
        ],
        [
            "Examples per second",
            f"{found.plain_rate:.1f}",
            f"{found.recomputed_rate:.1f}",
            f"{found.rate_ratio:.3f}{_below(interval((low, high), True))}",
        ],
        [
            "Peak (MB)",
            "–" if budget is None else in_mb(budget),
            "–" if own is None else in_mb(own),
            "–" if own is None or budget is None else f"{own / budget:.3f}",
        ],
    ]
    return markup.table(heads, rows, "Whole accumulated updates, measured in turn")


def _ratio(own: int, plain: int) -> str:
    return f"{own / plain:.3f}"


# --- rare defects --------------------------------------------------------------------------------------


def recall_table(found: Training) -> str:
    """Recall of each class, both settings, with Wilson's intervals."""
    heads = [
        ("Class", False),
        ("Receipts", True),
        ("Photos", True),
        ("Plain", True),
        ("Recomputed", True),
    ]
    rare = found.rare.label if found.rare else None
    rows = [
        [
            f"<strong>{escape(one.label)}</strong>{_below('the rare one')}"
            if one.label == rare
            else escape(one.label),
            f"{one.receipts:,}",
            f"{one.photos:,}",
            f"{one.plain:.2f}{_below(_edges(one.plain_ci95))}",
            f"{one.recomputed:.2f}{_below(_edges(one.recomputed_ci95))}",
        ]
        for one in found.classes
    ]
    return markup.table(heads, rows, "Recall on validation, with 95 % intervals")


def _edges(edges: tuple[float, float]) -> str:
    low, high = edges
    return f"{low:.2f} to {high:.2f}"


def seeds_table(found: Training) -> str:
    """Accuracy and recall of the rare class on validation, seed by seed."""
    rare = next((one for one in found.classes if found.rare and one.label == found.rare.label), None)
    figures = [("Accuracy", found.accuracy, 3)]
    figures += [(f"Recall of {rare.label}", rare.by_seed, 2)] if rare else []
    heads = [("Seed", True)]
    rows = [[str(seed)] for seed in found.seeds]
    for name, shares, digits in figures:
        heads += [(f"{name}, plain", True), ("recomputed", True), ("difference", True)]
        for row, plain, own in zip(rows, shares["plain"], shares["recomputed"], strict=True):
            row += [f"{plain:.{digits}f}", f"{own:.{digits}f}", _signed(own - plain, digits)]
    return markup.table(heads, rows, "On validation, seed by seed", stacks=True)


def _signed(value: float, digits: int) -> str:
    words = f"{value:+.{digits}f}"
    return words.replace("-", "−") if float(words) else f"{0:.{digits}f}"
