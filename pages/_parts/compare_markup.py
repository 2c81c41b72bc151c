"""Tables of a comparison as HTML. Pure: records in, markup out, all escaped."""

import re
from collections.abc import Sequence
from html import escape

from recompute_core.comparing.records import (
    Change,
    Compared,
    Difference,
    FigureId,
    Pairing,
    StudyComparison,
    Unpaired,
)
from recompute_core.comparing.sentences import percent
from recompute_core.gates import in_mb, signed_mb
from recompute_core.words import printable

from . import markup
from .palette import VERDICT_MARK
from .words import KINDS, VERDICTS, plan_label, when, workload_label

FIGURES: dict[FigureId, str] = {
    "update_ratio": "Update ratio",
    "update_s": "Update, ms",
    "plain_update_s": "Plain's update, ms",
    "peak_bytes": "Peak, MB",
    "peak_ratio": "Peak ratio",
    "plain_peak_bytes": "Plain's peak, MB",
    "saved_bytes": "Saved, MB",
}
VIEWS: dict[str, tuple[FigureId, ...]] = {
    "Summary": ("update_ratio", "peak_bytes"),
    "Time": ("update_ratio", "update_s", "plain_update_s"),
    "Memory": ("peak_ratio", "peak_bytes", "plain_peak_bytes", "saved_bytes"),
}
_TOPICS = {
    "specification": "Specification",
    "thresholds": "Thresholds",
    "environment": "Environment",
    "versions": "Versions",
    "source": "Source of the model",
    "data": "Data and results of plain",
}
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{64}|[0-9a-f]{40}")


def headline(found: StudyComparison) -> str:
    """What matters: the first sentence large, the others under it."""
    first, *others = found.sentences
    more = "".join(f"<li>{escape(line)}</li>" for line in others)
    return (
        f'<div class="rs-verdict rs-edge-not_run" role="status"><div><p>{escape(first)}</p>'
        f"{f'<ul class=rs-compare-more>{more}</ul>' if more else ''}</div></div>"
    )


def cautions(found: StudyComparison) -> str:
    """What to know before reading a figure."""
    if not found.cautions:
        return ""
    return markup.lines("Read the figures with this in mind", found.cautions)


def side_facts(letter: str, side: Compared, has_figures: bool) -> str:
    """One of the two studies in a few facts."""
    kind = "measured here" if side.kind == "measured" else f"{KINDS[side.kind]}, from a file"
    if not has_figures:
        kind = "none yet" if side.status in ("queued", "running") else "none"
    verdict = markup.mark(VERDICT_MARK[side.verdict], VERDICTS[side.verdict])
    facts = markup.facts(
        [
            ("Workload", printable(workload_label(side.workload))),
            ("Device", printable(side.device)),
            ("Thresholds declared", when(side.declared_at)),
            ("Figures", kind),
            ("Study", printable(side.study_id)),
        ]
    )
    return (
        f'<div class="rs-compare-side rs-compare-{letter.lower()}"><p><b>{letter}</b> {verdict}</p>'
        f"{facts}</div>"
    )


# --- what differs --------------------------------------------------------------------------------------


def differences_table(facts: Sequence[Difference]) -> str:
    """Asked, then found: topic by topic, only what is not the same."""
    rows, topic = [], None
    for one in facts:
        here = one.asked or one.found
        if here != topic:
            kind = "asked" if one.asked else "found"
            rows.append(
                f'<tr class="rs-at"><th scope="rowgroup" colspan="3">{_TOPICS[str(here)]}'
                f' <span class="rs-soft">{kind}</span></th></tr>'
            )
            topic = here
        rows.append(
            f'<tr><th scope="row">{escape(printable(one.name))}</th>'
            f'<td class="rs-wrap">{_value(one.a)}</td><td class="rs-wrap">{_value(one.b)}</td></tr>'
        )
    return (
        '<div class="rs-scroll" tabindex="0" role="region" aria-label="What differs">'
        '<table class="rs-table rs-checks rs-decided rs-compare-facts"><thead><tr>'
        '<th scope="col">What</th><th scope="col">A</th>'
        f'<th scope="col">B</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _value(text: str | None) -> str:
    if text is None:
        return '<span class="rs-soft">not there</span>'
    said = printable(text)
    short = _DIGEST.sub(lambda found: f"{found[0].removeprefix('sha256:')[:12]}…", said)
    return f'<span title="{escape(said)}">{escape(short)}</span>' if short != said else escape(said)


# --- candidates ----------------------------------------------------------------------------------------


def candidates_table(pairings: Sequence[Pairing], figures: Sequence[FigureId]) -> str:
    """A row a candidate, for each figure both values and how far they are apart."""
    groups = "".join(f'<th scope="colgroup" colspan="3">{FIGURES[figure]}</th>' for figure in figures)
    columns = (
        '<th scope="col" class="rs-num">A</th><th scope="col" class="rs-num">B</th>'
        '<th scope="col" class="rs-num">B minus A</th>'
    )
    return (
        '<div class="rs-scroll rs-gates" tabindex="0" role="region" aria-label="Candidates in both">'
        '<table class="rs-table"><thead><tr><th scope="col" rowspan="2">Candidate</th>'
        f'<th scope="colgroup" colspan="2">Verdict</th>{groups}</tr>'
        f'<tr><th scope="col">A</th><th scope="col">B</th>{columns * len(figures)}</tr></thead>'
        f"<tbody>{''.join(_row(one, figures) for one in pairings)}</tbody></table></div>"
    )


def _row(one: Pairing, figures: Sequence[FigureId]) -> str:
    name = escape(printable(plan_label(one.plan)))
    also = [escape(printable(one.shape_key))]
    if one.b.plan != one.plan:
        also.append(f"in B {escape(printable(plan_label(one.b.plan)))}")
    if not one.same_plan:
        also.append("another plan in B")
    if one.a.gradients != one.b.gradients:
        also.append(f"gradients: {one.a.gradients} in A, {one.b.gradients} in B")
    verdicts = "".join(
        f"<td>{markup.mark(VERDICT_MARK[side.verdict], VERDICTS[side.verdict])}</td>"
        for side in (one.a, one.b)
    )
    cells = "".join(_cells(one, figure) for figure in figures)
    return (
        f'<tr><th scope="row"><span class="rs-plan" title="{escape(printable(one.plan))}">{name}</span>'
        f'<span class="rs-sub">{", ".join(also)}</span></th>{verdicts}{cells}</tr>'
    )


def _cells(one: Pairing, figure: FigureId) -> str:
    change = one.change(figure)
    if change is None:
        side = "A" if one.a.trouble else "B"
        why = one.a.trouble or one.b.trouble
        said = f"not in {side}: {printable(why)}" if why else "not in both"
        return (
            '<td class="rs-num" colspan="3"><span class="rs-soft rs-compare-why">'
            f"{escape(said)}</span></td>"
        )
    a, b, difference, low_high = written(change)
    share = percent(change.relative)
    if change.relative_interval is not None:
        edges = " to ".join(percent(edge).removesuffix(" %") for edge in change.relative_interval)
        share = f"{share} ({edges})"
    css = "rs-beyond" if change.beyond else "rs-within"
    word = "" if change.beyond else '<span class="rs-vh">, no difference beyond the interval</span>'
    return (
        f'<td class="rs-num">{a}</td><td class="rs-num">{b}</td>'
        f'<td class="rs-num {css}">{difference}{word}<span class="rs-sub">{low_high}</span>'
        f'<span class="rs-sub">{share}</span></td>'
    )


def written(change: Change) -> tuple[str, str, str, str]:
    """Both values, their difference and its interval, in the unit of the column."""
    if change.unit == "bytes":
        edges = change.interval and " to ".join(signed_mb(edge) for edge in change.interval)
        values = in_mb(change.a), in_mb(change.b), signed_mb(change.difference)
    else:
        scale, places = (1e3, 1) if change.unit == "s" else (1, 3)
        edges = change.interval and " to ".join(
            f"{scale * edge:+.{places}f}" for edge in change.interval
        )
        values = (
            f"{scale * change.a:.{places}f}",
            f"{scale * change.b:.{places}f}",
            f"{scale * change.difference:+.{places}f}",
        )
    return *values, edges or "exact"


def alone(unpaired: Sequence[Unpaired]) -> str:
    """The candidates of one study alone."""
    rows = [
        (
            one.side.upper(),
            f'<span class="rs-plan">{escape(printable(plan_label(one.plan)))}</span>',
            escape(printable(one.shape_key)),
            markup.mark(VERDICT_MARK[one.verdict], VERDICTS[one.verdict]),
        )
        for one in unpaired
    ]
    return markup.table([("In", False), ("Plan", False), ("Shape", False), ("Verdict", False)], rows)
