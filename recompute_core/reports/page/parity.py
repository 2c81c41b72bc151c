"""Parity: how far the recomputed update is from plain's, and what shows that the test can see."""

from collections.abc import Iterable

from ...results import Canary, Gap, ParityFailed, ParityPassed
from ...words import count, listed, noise_words
from .markup import Column, Group, Html, bullets, el, join, paragraph, table
from .view import ReportView, ShapeView
from .words import PARTS, gap

_SUMMARY = (
    Column("Shape"),
    Column("Tensors compared", number=True),
    Column("Bitwise equal", number=True),
    Column("Largest gap of a gradient", number=True),
    Column("Largest relative gap", number=True),
    Column("Noise floor, relative", number=True),
)
_WORST: tuple[Column, ...] = (
    Column("Tensor", code=True),
    Column("Part"),
    Column("Absolute gap", number=True),
    Column("Relative gap", number=True),
)
_PROBLEM = Column("Not comparable")
_COMPARED = {
    "output": "the output",
    "loss": "the loss",
    "input_grad": "gradients of inputs",
    "grad": "gradients of parameters",
    "buffer": "buffers",
    "rng": "random states",
    "weight": "weights after the step",
}
_MOST_FAILED = 10
"""Rows of tensors outside the tolerance that are listed a shape."""


def parity(view: ReportView) -> Html:
    """Largest gaps and noise floor at each shape, the worst tensors, the canary."""
    tested = [(one, one.parity) for one in view.shapes if one.parity is not None]
    if not tested:
        return join(paragraph("Parity was not tested."), _canaries(view))
    limits = view.thresholds
    return join(
        paragraph(
            "One update with the plan on is compared with plain's, tensor by tensor: ",
            _parts(found.gaps for _, found in tested),
            ". Allowed: ",
            el("span", gap(limits.gradient_gap), class_="keep"),
            " absolute for a gradient, ",
            el("span", gap(limits.relative_gap), class_="keep"),
            " of a tensor's own largest value for every tensor. The noise floor is ",
            f"{noise_words((view.settings.get('ranks') or {}).get('count', 1))}.",
        ),
        table(
            _SUMMARY, [Group([_summary(one, found) for one, found in tested])], "Parity by shape", "wide"
        ),
        [_worst(one, found) for one, found in tested],
        paragraph("Every compared tensor is bitwise equal at every shape that was tested.")
        if all(found.bitwise for _, found in tested)
        else None,
        _canaries(view),
    )


def _parts(gaps: Iterable[Iterable[Gap]]) -> str:
    present = {one.part for found in gaps for one in found}
    return listed([words for part, words in _COMPARED.items() if part in present])


def _summary(one: ShapeView, found: ParityPassed | ParityFailed) -> tuple[str, ...]:
    return (
        one.shape_key,
        f"{len(found.gaps):,}",
        f"{sum(each.bitwise for each in found.gaps):,}",
        gap(found.largest_gradient_gap),
        gap(found.largest_relative_gap),
        gap(found.noise_floor),
    )


def _worst(one: ShapeView, found: ParityPassed | ParityFailed) -> Html | None:
    """The tensors outside the tolerance, or else the five furthest off; nothing when all are equal."""
    failed = found.failed if isinstance(found, ParityFailed) else ()
    shown = failed[:_MOST_FAILED] or found.worst
    if not shown:
        return None
    columns, problems = _WORST, any(each.problem for each in shown)
    if problems:
        columns = (*_WORST, _PROBLEM)
    rows = [
        (
            each.name or each.part,
            PARTS[each.part],
            gap(each.absolute),
            gap(each.relative),
            *([each.problem or "–"] if problems else []),
        )
        for each in shown
    ]
    title = f"Outside the tolerance at {one.shape_key}" if failed else f"Furthest off at {one.shape_key}"
    more = len(failed) - len(shown)
    return join(
        table(columns, [Group(rows)], title, "wide"),
        paragraph(f"And {count(more, 'more tensor')} outside the tolerance.", css="note")
        if more > 0
        else None,
    )


def _canaries(view: ReportView) -> Html | None:
    found = [(one.shape_key, one.canary) for one in view.shapes if one.canary is not None]
    if not found:
        return None
    return join(
        el("h3", "Canary"),
        paragraph(
            "A replay is broken on purpose; if parity did not see it, the test would prove nothing."
        ),
        bullets(_canary(shape, canary) for shape, canary in found),
    )


def _canary(shape: str, canary: Canary) -> str:
    seen = "caught" if canary.caught else "missed"
    where = f" (run at {canary.ran_at})" if canary.ran_at else ""
    size = (
        f", relative gap {gap(canary.largest_relative_gap)}"
        if canary.largest_relative_gap is not None
        else ""
    )
    return f"{shape}: {canary.break_} in {canary.block}: {seen}{size}{where}."
