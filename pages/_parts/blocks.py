"""The block map of Set up: the model block by block, and what each chosen plan does to it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from recompute_core.checks.report import BlockVerdict
from recompute_core.gates import in_mb
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import Regions, regions_of
from recompute_core.settings import Anatomy, GptSettings, shape_key
from recompute_core.spec import StudySpec
from recompute_core.studies.checking import Checked, asked_check
from recompute_core.words import count

from . import ask, planmap
from .badges import BADGES, why
from .markup import mark
from .words import plan_label

_LONGEST_NAME = 22


@dataclass(frozen=True)
class Block:
    """A block, or what stands before or after all of them."""

    name: str
    number: int | None
    """Of a block; None for what no recipe recomputes."""
    bytes: int | None
    """Activations that plain keeps of it."""
    work: float | None
    """Its share of an update's floating-point operations."""
    verdict: BlockVerdict | None = None


@dataclass(frozen=True)
class Column:
    """A plan, and what it does to each block."""

    plan: str
    cells: tuple[planmap.Cell, ...]
    saved: str
    """Activations kept in MB, or a dash."""


@dataclass(frozen=True)
class BlockMap:
    """All that is drawn."""

    blocks: tuple[Block, ...]
    columns: tuple[Column, ...]
    by_hand: frozenset[int]
    estimated: bool
    """Whether the bytes are an estimate; else the check measured them."""
    source: str
    """Where bytes and work come from, in a sentence."""


def block_map(spec: StudySpec, by_hand: Sequence[int], checked: Checked | None) -> BlockMap:
    """The map of a specification's model at its largest shape."""
    anatomy = anatomy_of(spec.workload)
    verdicts = {one.block: one for one in checked.report.blocks} if checked else {}
    blocks, estimated, source = _weights(spec, anatomy, checked)
    return BlockMap(
        tuple(_with(one, verdicts.get(one.name)) for one in blocks),
        tuple(
            Column(plan, at_a_glance(regions_of(spec, plan), anatomy), saved)
            for plan, saved in ask.saved_estimates(spec)
        ),
        frozenset(by_hand),
        estimated,
        source,
    )


def _with(block: Block, verdict: BlockVerdict | None) -> Block:
    return Block(block.name, block.number, block.bytes, block.work, verdict)


def _weights(
    spec: StudySpec, anatomy: Anatomy, checked: Checked | None
) -> tuple[list[Block], bool, str]:
    sizes = ask.largest_sizes(spec)
    if sizes is not None:
        kept, work = sizes.block_saved_bytes, sizes.block_flops / sizes.flops
        every = [Block(name, number, kept, work) for number, name in enumerate(anatomy.names)]
        rest = Block(
            "embedding, head, loss" if isinstance(spec.workload, GptSettings) else "stem",
            None,
            max(0, sizes.saved_bytes - anatomy.blocks * kept),
            max(0.0, 1 - anatomy.blocks * work),
        )
        ordered = [*every, rest] if isinstance(spec.workload, GptSettings) else [rest, *every]
        where = shape_key(spec.at(ask.largest_shape(spec)))
        return ordered, True, f"Activations and work estimated at {where}; work is of an update's FLOPs."
    known: Mapping[str, int] = checked.activation_bytes if checked else {}
    every = [Block(name, number, known.get(name), None) for number, name in enumerate(anatomy.names)]
    if not known:
        return every, False, "What each block keeps is measured when the blocks are checked, below."
    at = shape_key(asked_check(spec).workload)
    return every, False, f"Activations measured by the check, at {at}."


@lru_cache(maxsize=256)
def at_a_glance(regions: Regions, anatomy: Anatomy) -> tuple[planmap.Cell, ...]:
    """What a plan does to each block as a whole."""
    return tuple(planmap.whole(row) for row in planmap.plan_map(regions, anatomy))


# --- drawn ---------------------------------------------------------------------------------------


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """A long FQN without its middle; its end tells blocks apart."""
    if len(name) <= longest:
        return name
    head = (longest - 1) // 3
    return f"{name[:head]}…{name[head + 1 - longest :]}"


def drawn(found: BlockMap) -> str:
    """The map as a table, a row a block; every state has its shape and its word."""
    largest = max((one.bytes for one in found.blocks if one.bytes), default=0)
    has_bytes, has_work = largest > 0, any(one.work is not None for one in found.blocks)
    has_verdict = any(one.verdict is not None for one in found.blocks)
    heads = [
        '<th scope="col">Block</th>',
        '<th scope="col" colspan="2">Activations<span class="rs-sub">MB'
        f"{', estimated' if found.estimated else ', measured'}</span></th>"
        if has_bytes
        else "",
        '<th scope="col" class="rs-num">Work<span class="rs-sub">%, estimated</span></th>'
        if has_work
        else "",
        '<th scope="col">Recompute?</th>' if has_verdict else "",
        *map(_plan_head, found.columns),
    ]
    body = "".join(
        _row(found, place, one, largest, has_work, has_verdict) for place, one in enumerate(found.blocks)
    )
    before = 1 + 2 * has_bytes + has_work + has_verdict
    foot = "".join(f'<td class="rs-plan-cell">{escape(one.saved)}</td>' for one in found.columns)
    return (
        '<div class="rs-scroll" tabindex="-1" role="region" aria-label="Block map">'
        f'<table class="rs-table rs-blocks"><thead><tr>{"".join(heads)}</tr></thead>'
        f'<tbody>{body}</tbody><tfoot><tr><th scope="row" colspan="{before}">'
        f"Kept in all (MB, estimated; – unknown)</th>{foot}</tr></tfoot></table></div>"
    )


def _plan_head(column: Column) -> str:
    label = plan_label(column.plan)
    return (
        f'<th scope="col" class="rs-plan-head" title="{escape(column.plan)}">'
        f"<span>{escape(shortened(label, 24))}</span></th>"
    )


def _row(
    found: BlockMap, place: int, one: Block, largest: int, has_work: bool, has_verdict: bool
) -> str:
    picked = one.number is not None and one.number in found.by_hand
    cells = [_name(one, picked, first=place == _first(found.blocks))]
    if largest:
        guess = " class=rs-guess" if found.estimated else ""
        width = 100 * (one.bytes or 0) / largest
        cells.append(f'<td class="rs-weight"><i{guess} style="width:{width:.1f}%"></i></td>')
        cells.append(f'<td class="rs-num">{"–" if one.bytes is None else in_mb(one.bytes)}</td>')
    if has_work:
        cells.append(f'<td class="rs-num">{"–" if one.work is None else f"{100 * one.work:.1f}"}</td>')
    if has_verdict:
        cells.append(_verdict(one))
    cells += [_plan_cell(column, one) for column in found.columns]
    row = "" if one.number is None else f' data-block="{one.number}"'
    return f"<tr{row}{' class=rs-picked' if picked else ''}>{''.join(cells)}</tr>"


def _first(blocks: Sequence[Block]) -> int:
    return next(place for place, one in enumerate(blocks) if one.number is not None)


def _name(one: Block, picked: bool, first: bool) -> str:
    name = escape(shortened(one.name))
    title = f' title="{escape(one.name)}"'
    if one.number is None:
        return f'<th scope="row"><span class="rs-rest"{title}>{name}</span></th>'
    return (
        f'<th scope="row"><button type="button" class="rs-pick" data-block="{one.number}"{title} '
        f'tabindex="{0 if first else -1}" aria-pressed="{str(picked).lower()}">{name}'
        '<span class="rs-vh">: recompute by hand</span></button></th>'
    )


def _verdict(one: Block) -> str:
    if one.verdict is None:
        return "<td></td>"
    return f'<td title="{escape(why(one.verdict))}">{mark(*BADGES[one.verdict.verdict])}</td>'


def _plan_cell(column: Column, one: Block) -> str:
    cell = planmap.Cell("", "kept", 0) if one.number is None else column.cells[one.number]
    title = f"{plan_label(column.plan)}, {one.name}: {cell.word}"
    return (
        f'<td class="rs-plan-cell rs-part-{cell.state}" title="{escape(title)}">'
        f'<span aria-hidden="true">{planmap.GLYPHS[cell.state]}</span>'
        f'<span class="rs-vh">{escape(cell.word)}</span></td>'
    )


def legend(found: BlockMap) -> str:
    """The states that occur, each with its shape, and where the figures come from."""
    words = {
        "kept": "kept",
        "recomputed": "recomputed",
        "nested": "recomputed more than once",
        "selective": "recomputed but for what its ops keep",
        "partly": "in part",
    }
    seen = {cell.state for column in found.columns for cell in column.cells}
    said = ", ".join(
        f"{planmap.GLYPHS[state]} {words[state]}" for state in planmap.GLYPHS if state in seen
    )
    return f"{said}. {found.source}"


def summary(found: BlockMap) -> str:
    """The plan by hand in words."""
    blocks = sum(one.number is not None for one in found.blocks)
    if not found.by_hand:
        return "By hand: none. Click a block, or use the arrow keys and Space; with Shift several."
    return f"By hand: {len(found.by_hand)} of {count(blocks, 'block')} recomputed."
