"""Small pieces of HTML that Streamlit has no element for. Pure: text in, markup out, all escaped.

Colours come from the classes of style.css, which know both themes; every mark has a shape and, beside
it or in its label, a word.
"""

from collections.abc import Sequence
from html import escape

from recompute_core.gates import GATE_NAMES, is_open
from recompute_core.results import Gate, Judged, Outcome, Verdict
from recompute_core.studies.store import Phase
from recompute_core.words import OUTCOMES, printable, sentence_case, shape_labels

from .palette import VERDICT_MARK, Mark
from .progress import PHASE_MEANINGS, GridCell, State, Step
from .words import KINDS, VERDICTS, figure, interval, plan_label, plan_meaning, plan_short


def mark(kind: Mark, words: str, quiet: bool = False) -> str:
    """A shape in its colour, drawn by style.css, with its word."""
    css = "rs-vh" if quiet else "rs-word"
    return f'<span class="rs-mark rs-{kind}"><span class="{css}">{escape(words)}</span></span>'


def outcome_mark(outcome: Outcome) -> str:
    return mark(outcome, OUTCOMES[outcome])


def verdict_mark(verdict: Verdict | None) -> str:
    return mark(VERDICT_MARK[verdict], VERDICTS[verdict])


def verdict_line(verdict: Verdict | None, sentence: str, what_if: bool = False) -> str:
    """The verdict sentence, with its mark in front: the same everywhere."""
    kind = VERDICT_MARK[verdict]
    shape = mark(kind, VERDICTS[verdict], quiet=True)
    note = '<span class="rs-tag rs-tag-whatif">what-if</span>' if what_if else ""
    return (
        f'<div class="rs-verdict rs-edge-{kind}" role="status">{shape}'
        f"<p>{note}{escape(sentence)}</p></div>"
    )


def facts(items: Sequence[tuple[str, str]]) -> str:
    """A row of small labelled facts."""
    cells = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in items)
    return f'<dl class="rs-facts">{cells}</dl>'


def strip(text: str, kind: str) -> str:
    """One line across the page; `kind` is `whatif` or `plain`."""
    return f'<div class="rs-strip rs-strip-{kind}" role="status">{escape(text)}</div>'


def caution(text: str) -> str:
    """What to know before anything under it is used, across the page."""
    return (
        f'<div class="rs-strip rs-strip-changed" role="alert">{mark("undecided", "", quiet=True)}'
        f"<span>{escape(printable(text))}</span></div>"
    )


def table(
    heads: Sequence[tuple[str, bool]],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    stacks: bool = False,
) -> str:
    """A table; each head is its text and whether its column holds numbers. Cells are markup already.

    One that `stacks` is a list where there is little room: each cell behind what its head says.
    """
    top = "".join(
        f'<th scope="col"{" class=rs-num" if num else ""}>{escape(head)}</th>' for head, num in heads
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{" class=rs-num" if num else ""} data-head="{escape(head)}">{cell}</td>'
            for (head, num), cell in zip(heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    words = f"<caption>{escape(caption)}</caption>" if caption else ""
    box = "rs-scroll rs-stacks" if stacks else "rs-scroll"
    return (
        f'<div class="{box}" tabindex="0" role="region" aria-label="{escape(caption or "table")}">'
        f'<table class="rs-table">{words}<thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


# --- gates ---------------------------------------------------------------------------------------------


def gate_table(judged: Sequence[Judged], live: bool) -> str:
    """Every candidate with its three gates: outcome, figure and interval against the threshold.

    What is still open is `not yet` while the study goes on, and `not run` once it has ended.
    """
    if not judged:
        return ""
    limits = {gate.id: gate.threshold for gate in judged[0].gates}
    heads = "".join(
        f'<th scope="colgroup" colspan="2">{escape(sentence_case(GATE_NAMES[gate]))}'
        f'<span class="rs-sub">{_FIGURE_NAMES[gate]}, at most {_limit(gate, limit)}</span></th>'
        for gate, limit in limits.items()
    )
    below = '<th scope="col">Outcome</th><th scope="col" class="rs-num">Observed</th>' * 3
    rows = "".join(_gate_row(one, live) for one in judged)
    return (
        '<div class="rs-scroll" tabindex="0" role="region" aria-label="Gates of every candidate">'
        '<table class="rs-table rs-gates"><thead><tr><th scope="col" rowspan="2">Candidate</th>'
        f'<th scope="col" rowspan="2">Verdict</th>{heads}</tr>'
        f"<tr>{below}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


_FIGURE_NAMES = {
    "gradient_parity": "largest absolute gap",
    "memory_saving": "peak, ratio to plain",
    "update_latency": "update time, ratio to plain",
}


def _gate_row(one: Judged, live: bool) -> str:
    candidate = one.candidate
    still = ("not yet" if live else "not run") if is_open(one) else None
    cells = "".join(_gate_cells(gate, still) for gate in one.gates)
    verdict = mark("not_run", still) if still else verdict_mark(one.verdict)
    return (
        f'<tr><th scope="row"><span class="rs-plan" title="{escape(plan_meaning(candidate.plan))}">'
        f"{escape(plan_label(candidate.plan))}</span>"
        f'<span class="rs-sub">{escape(candidate.shape_key)}</span></th>'
        f"<td>{verdict}</td>{cells}</tr>"
    )


def _gate_cells(gate: Gate, still: str | None) -> str:
    ratio = gate.id != "gradient_parity"
    title = f"{gate.sentence} ({KINDS[gate.kind]})"
    observed = figure(gate.observed, ratio)
    outcome = (
        mark("not_run", still) if still and gate.outcome == "not_run" else outcome_mark(gate.outcome)
    )
    if gate.observed is not None:
        observed += f'<span class="rs-sub">{interval(gate.ci95, ratio)}</span>'
    # A narrow window shows no heads, and in front of each outcome this.
    name = f"{sentence_case(GATE_NAMES[gate.id])}, at most {_limit(gate.id, gate.threshold)}"
    return (
        f'<td class="rs-first" title="{escape(title)}" data-gate="{escape(name)}">{outcome}</td>'
        f'<td class="rs-num">{observed}</td>'
    )


def _limit(gate: str, limit: float) -> str:
    return f"{limit:g}" if gate != "gradient_parity" else figure(limit)


# --- live --------------------------------------------------------------------------------

_STATE_WORDS: dict[State, str] = {
    "waiting": "waiting",
    "running": "running now",
    "done": "done",
    "failed": "failed",
    "skipped": "not run",
}


def step_row(steps: Sequence[Step]) -> str:
    """The phases in their order, the present one marked."""
    items = "".join(_step(step) for step in steps)
    return f'<ol class="rs-steps" aria-label="Phases">{items}</ol>'


def _step(step: Step) -> str:
    now = " aria-current=step" if step.state == "running" else ""
    return (
        f'<li class="rs-step rs-is-{step.state}" title="{escape(_meaning(step.name))}"{now}>'
        f'<span class="rs-dot" aria-hidden="true"></span>'
        f'<span class="rs-step-name">{escape(step.name)}</span>'
        f'<span class="rs-step-count">{_step_count(step)}'
        f'<span class="rs-vh">, {_STATE_WORDS[step.state]}</span></span></li>'
    )


def _meaning(name: str) -> str:
    meaning = PHASE_MEANINGS.get(name, "")
    return f"{sentence_case(name)}: {meaning}" if meaning else ""


def _step_count(step: Step) -> str:
    if step.state == "skipped" and not step.done:
        return "not run"
    if step.failed:
        return f"{step.failed} of {step.total} failed"
    return f"{step.done} of {step.total}"


def cell_grid(board: Sequence[GridCell]) -> str:
    """Shapes down, plans across; each phase a small mark that fills as it finishes."""
    shapes = list(dict.fromkeys(one.shape_key for one in board))
    plans = list(dict.fromkeys(one.plan for one in board))
    known = {(one.shape_key, one.plan): one for one in board}
    heads = "".join(
        f'<th scope="col" title="{escape(plan_meaning(plan))}">{escape(plan_short(plan))}</th>'
        for plan in plans
    )
    names = shape_labels(shapes)
    rows = "".join(
        f'<tr><th scope="row" title="{escape(shape)}">{escape(names[shape])}</th>'
        + "".join(f"<td>{_grid_cell(known[shape, plan])}</td>" for plan in plans)
        + "</tr>"
        for shape in shapes
    )
    return (
        '<div class="rs-scroll" tabindex="0" role="region" aria-label="Cells: phases by shape and plan">'
        f'<table class="rs-table rs-grid"><thead><tr><th scope="col">Shape</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _grid_cell(one: GridCell) -> str:
    bits = "".join(_bit(phase, state) for phase, state in one.phases)
    note = verdict_mark(one.verdict) if one.verdict and not one.note else escape(one.note)
    if (one.verdict and one.note) or one.note == "failed":
        note = mark("fail", one.note)
    why = (
        f'<div class="rs-why" title="{escape(one.why)}">{escape(_short(one.why))}</div>'
        if one.why
        else ""
    )
    return (
        f'<div class="rs-cell"><span class="rs-bits">{bits}</span>'
        f'<span class="rs-note">{note}</span></div>{why}'
    )


def _bit(phase: Phase, state: State) -> str:
    words = f"{phase}: {_STATE_WORDS[state]}"
    return (
        f'<i class="rs-bit rs-is-{state}" title="{words}; {PHASE_MEANINGS[phase]}">{phase[0].upper()}'
        f'<span class="rs-vh">{words}. </span></i>'
    )


def _short(text: str, longest: int = 160) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def lines(heading: str, texts: Sequence[str]) -> str:
    """A heading with a short list under it."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<div class="rs-lines"><b>{escape(heading)}</b><ul>{items}</ul></div>'
