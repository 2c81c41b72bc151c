"""What the page says of figures that were supplied: whose they are, and the samples as they came."""

from collections.abc import Sequence
from itertools import zip_longest

from ...intervals import ratio_coverage
from ...spec import Thresholds
from ...words import count
from ..measurements import Measurements
from . import samples as of_studies
from .markup import Column, Group, Html, bullets, el, facts, join, paragraph, table
from .view import ReportView
from .words import gap

_LIMITS = (
    ("gradient_gap", "Gap of a gradient", "largest absolute gap of any gradient"),
    ("relative_gap", "Relative gap", "largest gap of any gradient, of its own largest value"),
    ("peak_ratio", "Peak", "peak memory, ratio to plain"),
    ("update_ratio", "Update time", "median update, ratio to plain"),
)
_UNPAIRED = (
    Column("Sample", number=True),
    Column("Plain (ms), supplied", number=True),
    Column("Recomputed (ms), supplied", number=True),
)
_PEAKS = (
    Column("Sample", number=True),
    Column("Plain (bytes), supplied", number=True),
    Column("Recomputed (bytes), supplied", number=True),
)


def _given(view: ReportView) -> Measurements:
    assert view.supplied is not None
    return view.supplied


def parity(view: ReportView) -> Html:
    """The gaps as they came, and that nobody here has seen a tensor."""
    found = _given(view).gradients
    if found is None:
        return paragraph("Parity was not proven here, and no gap of a gradient was supplied.")
    items = [
        ("Largest gap of a gradient, supplied", gap(found.largest_gradient_gap)),
        ("Largest relative gap, supplied", gap(found.largest_relative_gap)),
    ]
    odd = found.not_comparable
    return join(
        paragraph("Parity was not proven here: no tensor was seen, and no canary was run."),
        facts(items),
        join(paragraph("Not comparable, as supplied:"), bullets(odd)) if odd else None,
    )


def provenance(view: ReportView) -> Html:
    """Who, what and where, in the words of the file."""
    given = _given(view)
    who = given.supplied_by or "not named"
    items = [("supplied by", who), ("workload", given.workload), ("shape", given.shape_key)]
    items += [(name.replace("_", " "), words) for name, words in given.provenance.items()]
    return join(
        paragraph("As the measurements say; nobody here has measured or looked up any of it."),
        facts(items),
    )


def thresholds(view: ReportView) -> Html:
    """What the gates were judged by, and that it was not seen before the figures."""
    limits: Thresholds = view.thresholds
    rows = []
    for name, word, meaning in _LIMITS:
        value = getattr(limits, name)
        rows.append((word, meaning, gap(value) if name.endswith("gap") else f"{value:g}"))
    columns = (Column("Threshold"), Column("Meaning"), Column("At most", number=True))
    return join(paragraph(view.received), table(columns, [Group(rows)], "Thresholds"))


def samples(view: ReportView) -> Html:
    """Every time and every peak."""
    given = _given(view)
    updates, peaks = given.update_s, given.peak_allocated_bytes
    drawn = [
        paragraph("As they were supplied; none was measured here.", css="note"),
        of_studies.samples(view),
    ]
    if updates is not None and updates.plain is not None and updates.candidate is not None:
        plain, own = (
            [f"{each * 1e3:.3f}" for each in side] for side in (updates.plain, updates.candidate)
        )
        words = f"{count(len(plain), 'update')} of plain and {len(own)} recomputed, not in pairs: the "
        covered = 100 * ratio_coverage(len(own), len(plain))
        words += (
            f"interval of the ratio is made of both medians' own, and covers at least {covered:.3g} %."
        )
        drawn.append(
            join(el("h3", "Update times"), paragraph(words), _side_by_side(_UNPAIRED, plain, own))
        )
    if peaks is not None:
        plain, own = ([f"{each:,}" for each in side] for side in (peaks.plain, peaks.candidate))
        drawn.append(join(el("h3", "Peaks"), _side_by_side(_PEAKS, plain, own)))
    return join(drawn)


def _side_by_side(columns: Sequence[Column], plain: Sequence[str], own: Sequence[str]) -> Html:
    """Two lists, whose rows have nothing else to do with each other."""
    rows = [
        (str(number), *both) for number, both in enumerate(zip_longest(plain, own, fillvalue="–"), 1)
    ]
    return table(columns, [Group(rows)], "As they were supplied", "untitled")
