"""What was recomputed: the plan's regions in words, and a map of the blocks."""

from collections.abc import Sequence
from typing import Literal

from ...plans.names import ATTENTION, MATMULS, budget_of
from ...spec import Region
from ...words import count, listed
from .markup import Column, Group, Html, bullets, el, join, paragraph, table
from .view import ReportView, ShapeView
from .words import plan_label, runs

State = Literal["kept", "recomputed", "nested", "selective", "partly"]
_STATES: dict[State, str] = {
    "recomputed": "recomputed",
    "nested": "recomputed more than once, in nested regions",
    "selective": "recomputed, some outputs kept",
    "partly": "recomputed in part",
    "kept": "kept",
}
_MOST_DRAWN = 128
_OPS = {**dict.fromkeys(MATMULS, "matmuls"), **dict.fromkeys(ATTENTION, "attention")}
_COSTS = (
    Column("Shape"),
    Column("Path"),
    Column("Forward calls of blocks", number=True),
    Column("FLOPs of an update (10⁹)", number=True),
    Column("FLOPs, ratio to plain", number=True),
)
_GRAPHS = (
    Column("Shape"),
    Column("Path"),
    Column("Ops of forward", number=True),
    Column("Ops of backward", number=True),
    Column("Of these, ops of forward again", number=True),
)


def recomputed(view: ReportView) -> Html:
    """Regions in words, the map, what it adds up to, and under which conditions it is legal."""
    budget = budget_of(view.plan)
    if budget is not None:
        words = (
            f"What the compiler chooses under a memory budget of {budget} %: 100 % is what it keeps by "
            "itself, 0 % what would be kept if the whole model were recomputed."
        )
        return join(paragraph(words), _costs(view), _graphs(view))
    if not view.regions:
        return paragraph("What the plan recomputes is not part of these figures.")
    return join(
        bullets(regions_in_words(view.regions, view.blocks)),
        _map(view) if 0 < len(view.blocks) <= _MOST_DRAWN else None,
        _costs(view),
        _graphs(view),
        _legality(view),
    )


def regions_in_words(regions: Sequence[Region], blocks: Sequence[str]) -> list[str]:
    """Regions that are alike are one line: `Each by itself: blocks.0 to blocks.5.`"""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    lines = []
    for region in regions:
        if len(region.modules) > 1:
            lines.append(f"As one: {runs(region.modules, blocks)}{_kept(region.keep)}.")
            continue
        block, part = _split(region.modules[0], blocks)
        alike.setdefault((part, region.keep), []).append(block)
    for (part, keep), names in alike.items():
        what = f"{part} of " if part else ""
        alone = "" if len(names) == 1 else "Each by itself: "
        line = f"{alone}{what}{runs(names, blocks)}{_kept(keep)}."
        lines.append(line[:1].upper() + line[1:] if part and alone == "" else line)
    return lines


def _split(module: str, blocks: Sequence[str]) -> tuple[str, str]:
    """The block that a module lies in, and its name inside it."""
    around = [block for block in blocks if f"{module}.".startswith(f"{block}.")]
    block = max(around, key=len, default=module)
    return block, module.removeprefix(block).lstrip(".")


def _kept(keep: Sequence[str]) -> str:
    return f"; outputs of {listed(list(dict.fromkeys(map(_op, keep))))} are kept" if keep else ""


def _op(op: str) -> str:
    """`matmuls`, `every second of the matmuls`, `calls 1 and 3 of matmuls`, or the op's own name."""
    name, _, calls = op.partition(":")
    word = _OPS.get(name, name)
    if not calls:
        return word
    if calls in ("even", "odd"):
        return f"every second of the {word}"
    numbers = [str(int(call) + 1) for call in calls.split(",")]
    return f"{'call' if len(numbers) == 1 else 'calls'} {listed(numbers)} of {word}"


def state_of(block: str, regions: Sequence[Region]) -> State:
    """What a plan does to one block."""
    around = [r for r in regions if any(_holds(m, block) for m in r.modules)]
    inside = [r for r in regions if any(m != block and _holds(block, m) for m in r.modules)]
    if not around:
        return "partly" if inside else "kept"
    if len(around) > 1 or inside:
        return "nested"
    return "selective" if around[0].keep else "recomputed"


def _holds(outer: str, inner: str) -> bool:
    return f"{inner}.".startswith(f"{outer}.")


_SQUARE = "M1.5,1.5H16.5V16.5H1.5Z"
_FILLS: dict[State, str] = {
    "kept": "",
    "recomputed": _SQUARE,
    "nested": "M1.5,1.5H16.5V16.5H1.5ZM4,4V14H14V4ZM6.5,6.5H11.5V11.5H6.5Z",
    "selective": "M1.5,1.5H16.5V16.5H1.5ZM6,6V12H12V6Z",
    "partly": "M1.5,9H16.5V16.5H1.5Z",
}


def _square(state: State) -> Html:
    filled = el("path", d=_FILLS[state], class_="fill-recomputed", fill_rule="evenodd")
    edge = el("path", d=_SQUARE, class_=f"block-edge {'is-kept' if state == 'kept' else ''}".strip())
    return el("svg", filled if _FILLS[state] else None, edge, viewBox="0 0 18 18", class_="block",
              aria_hidden="true")  # fmt: skip


def _map(view: ReportView) -> Html:
    """A square for each block, in the order of forward."""
    states = [state_of(block, view.regions) for block in view.blocks]
    squares = [
        el(
            "li",
            _square(state),
            el("small", block.rpartition(".")[2]),
            el("span", f" {_STATES[state]}", class_="hidden"),
            title=f"{block}: {_STATES[state]}",
        )
        for block, state in zip(view.blocks, states, strict=True)
    ]
    meanings = [
        el("li", _square(state), f"{_STATES[state]} ({states.count(state)})")
        for state in _STATES
        if state in states
    ]
    return el(
        "figure",
        el("figcaption", f"{count(len(view.blocks), 'block')} in the order of forward"),
        el("ol", squares, class_="blocks"),
        el("ul", meanings, class_="legend"),
    )


def _costs(view: ReportView) -> Html | None:
    groups = [Group(rows) for one in view.shapes if (rows := _cost_rows(view, one))]
    return table(_COSTS, groups, "What recomputing adds", "wide") if groups else None


def _graphs(view: ReportView) -> Html | None:
    """What compiled updates run, by their graphs."""
    groups = [Group(rows) for one in view.shapes if (rows := _graph_rows(view, one))]
    return table(_GRAPHS, groups, "What the compiled graphs run", "wide") if groups else None


def _graph_rows(view: ReportView, one: ShapeView) -> list[tuple[str, ...]]:
    plain = one.reference.compiled if one.reference else None
    own = one.parity.compiled if one.parity else None
    if plain is None or own is None:
        return []
    return [
        (one.shape_key, path, *map(str, (ran.forward_ops, ran.backward_ops, ran.replayed_ops)))
        for path, ran in (("plain", plain), (plan_label(view.plan), own))
    ]


def _cost_rows(view: ReportView, one: ShapeView) -> list[tuple[str, ...]]:
    if one.parity is None or one.reference is None:
        return []
    kept, own = one.reference, one.parity
    return [
        (one.shape_key, "plain", _calls(kept.block_calls), f"{kept.flops / 1e9:,.2f}", "1"),
        (
            one.shape_key,
            plan_label(view.plan),
            _calls(own.block_calls),
            f"{own.flops / 1e9:,.2f}",
            f"{own.flops / kept.flops:.2f}" if kept.flops else "–",
        ),
    ]


def _calls(calls: dict[str, int]) -> str:
    """Of all blocks; a compiled update has none that could be counted."""
    return f"{sum(calls.values()):,}" if calls else "–"


def _legality(view: ReportView) -> Html | None:
    found = list(dict.fromkeys(each for one in view.shapes for each in one.legality))
    if not found:
        return None
    verdicts = {each.block: each.verdict for each in found}
    legal = [block for block, verdict in verdicts.items() if verdict == "legal"]
    words = f"Safe to replay: {runs(legal, view.blocks)}." if legal else "No block is safe to replay."
    reasons = [reason.sentence for each in found for reason in (*each.reasons, *each.conditions)]
    return join(
        el("h3", "Legality"),
        paragraph(words),
        bullets(dict.fromkeys(reasons)) if reasons else None,
    )
