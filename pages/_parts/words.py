"""The words and number formats of every page: one name for one thing, units always said."""

import re

from recompute_core.plans.names import RECIPES
from recompute_core.results import FigureKind
from recompute_core.spec import Compile, StudySpec
from recompute_core.studies.store import Status, StudyRow
from recompute_core.words import (
    compiled_words,
    count,
    in_utc,
    printable,
    ranks_words,
    scientific,
    sentence_case,
    with_training,
)
from recompute_core.words import duration as duration

VERDICTS: dict[str | None, str] = {
    "adopt": "adopt",
    "keep_original": "keep original",
    "undecided": "undecided",
    None: "no verdict yet",
}
KINDS: dict[FigureKind, str] = {
    "measured": "measured here",
    "estimated": "estimated",
    "supplied": "supplied",
}
STATUS_SENTENCES: dict[Status, str] = {
    "queued": "Queued",
    "running": "Running",
    "done": "Done",
    "incomplete": "Ended incomplete: some cells could not be measured",
    "cancelled": "Cancelled; what was finished is kept",
    "interrupted": "Interrupted: its driver is gone; what was finished is kept",
}
UNFINISHED_SENTENCES: dict[Status, str] = {
    "queued": "This study waits for its turn.",
    "running": "This study is still being measured.",
    "done": "This study is damaged: it says that it is done, and some of what it measured is missing.",
    **{status: f"{STATUS_SENTENCES[status]}." for status in ("cancelled", "incomplete", "interrupted")},
}
"""What a page about figures says of a study that is not done."""
CELL_MEANING = "A cell is one phase of one plan at one shape"
MISSING = "–"
"""What a table shows where there is no figure."""
TALL_ROW_PX = 66
"""Height of a table's rows from which on Streamlit wraps text: more than 4 rem."""
GATE_MEANINGS = {
    "gradient_parity": "The recomputed update must give the same gradients as plain's.",
    "memory_saving": "The peak may be at most this share of plain's: 0.82 asks for 18 % less.",
    "update_latency": "The median update may take at most this many times as long as plain's: 1.35 "
    "allows 35 % more.",
}

_WORD_JOINER = "\u2060"
_MADE_INTO_MORE = re.compile(
    r"(?=@)|(?<=:)(?=//)|(?i:(?<=www))(?=\.)|(?<=:)(?=[\w+/\\-]+:)|(?<=-)(?=-|\\>)|(?<=<)(?=-)"
)


def literal(text: str) -> str:
    """Text for an element that reads Markdown: what a user or a worker wrote stays what it is, one line.

    No link is made of an address in it, no emoji of a word between colons, no dash of two: Streamlit
    finds them after all escapes, so that a mark which is not seen parts what makes them one.
    """
    text = printable(" ".join(text.splitlines()))
    text = re.sub(r"([\\`*_\[\]<>!$~&#|{}]|:(?=\S)|^[-+=]|^\d+[.)])", r"\\\1", text)
    text = re.sub(r"^\\(\d+)", r"\1\\", text)  # the number of a list: its dot is escaped
    return _MADE_INTO_MORE.sub(_WORD_JOINER, text)


def when(moment: str) -> str:
    """`29 Nov 2026, 16:47 UTC` from ISO 8601."""
    return f"{in_utc(moment):%-d %b %Y, %H:%M} UTC"


def when_short(moment: str) -> str:
    return f"{in_utc(moment):%-d %b %H:%M}"


def workload_label(name: str) -> str:
    """A workload's name without the settings of another's model: `hf:LlamaConfig (4 settings)`."""
    what, _, query = name.partition("?")
    short = what if len(what) <= 40 else f"{what[:39]}…"
    return f"{short} ({count(query.count('&') + 1, 'setting')})" if query else short


def study_label(spec: StudySpec) -> str:
    """The workload in a list of studies, and what tells apart those that train it in other ways."""
    return with_training(workload_label(spec.workload.name), spec)


def millions(number: int) -> str:
    return f"{number / 1e6:.1f} M" if number >= 100_000 else f"{number:,}"


def figure(value: float | None, ratio: bool = False) -> str:
    """A gate's figure: ratios to three places, gaps in scientific notation."""
    if value is None:
        return "–"
    if ratio:
        return f"{value:.3f}"
    if value == 0:
        return "0"
    return scientific(value)


def interval(edges: tuple[float, float] | None, ratio: bool = False) -> str:
    """`1.26 to 1.33`; a point where the figure is exact."""
    if edges is None:
        return "–"
    low, high = (figure(edge, ratio) for edge in edges)
    return "exact" if low == high else f"{low} to {high}"


def plan_label(plan: str) -> str:
    """A plan's name, with runs of blocks shortened: `blocks:0,1,2` reads `blocks:0–2`."""
    if not plan.startswith("blocks:"):
        return "plain" if plan == "none" else plan
    numbers = [int(text) for text in plan.removeprefix("blocks:").split(",")]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"blocks:{numbers[0]}–{numbers[-1]}"
    return plan if len(numbers) <= 8 else f"{plan[:22]}… ({len(numbers)} blocks)"


def plan_meaning(plan: str) -> str:
    """Its whole name, and of a recipe what it recomputes."""
    summary = next((recipe.summary for recipe in RECIPES if recipe.name == plan), "")
    return f"{plan}: {summary}" if summary else plan


def plan_short(plan: str, longest: int = 28) -> str:
    """Its label where there is little room: two names differ at their ends as often as elsewhere."""
    label = plan_label(plan)
    head = (longest - 1) * 3 // 5
    return label if len(label) <= longest else f"{label[:head]}…{label[head + 1 - longest :]}"


def shapes_line(spec: StudySpec) -> str:
    """All shapes of a study in a few words: `T=128, 256 B=4` where only one size varies."""
    from recompute_core.settings import shape_key

    keys = [shape_key(spec.at(shape)) for shape in spec.shapes]
    if len(keys) > 4:
        return f"{keys[0]} … {keys[-1]} ({len(keys)})"
    sizes = [list(dict.fromkeys(part)) for part in zip(*(key.split(" ") for key in keys), strict=True)]
    if sum(len(values) > 1 for values in sizes) > 1:
        return ", ".join(keys)
    return " ".join(
        ", ".join([values[0], *(value.removeprefix(f"{value[0]}=") for value in values[1:])])
        for values in sizes
    )


def shape_note(spec: StudySpec) -> str:
    """What the letters of a shape are: `T: tokens in a sequence; B: sequences in an update.`"""
    from recompute_core.settings import shape_key

    key = shape_key(spec.at(spec.shapes[0]))
    if "T=" in key:
        return "T: tokens in a sequence; B: sequences in an update."
    if "B=" in key:
        return (
            "Height x width of a photo in pixels; B: photos in an update."
            if "x" in key
            else ("B: examples in an update.")
        )
    return ""


def standing(row: StudyRow) -> str:
    """A study's verdict, or its status where that matters more."""
    if row.status == "done" or (row.status == "incomplete" and row.verdict):
        return VERDICTS[row.verdict]
    if row.status == "queued":
        return "waiting"
    return row.status if row.ended else "under way"


def threads_line(spec: StudySpec, environment: dict[str, object]) -> str:
    """`1, set`, or `2, torch's choice`: whether the study has asked for so many."""
    if spec.threads is not None:
        return f"{spec.threads}, set"
    found = environment.get("threads")
    return f"{found}, torch's choice" if isinstance(found, int) else "torch's choice"


def training_line(spec: StudySpec, environment: dict[str, object]) -> str:
    """`On a Ray cluster, over 2 ranks (ddp) that share the batch, gloo.`, `Compiled by inductor.`; empty
    where nothing of this is."""
    parts = ["on a Ray cluster"] if spec.engine == "ray" else []
    if spec.ranks is not None:
        parts += [f"over {ranks_words(spec.ranks.count, spec.ranks.kind)}"]
        parts += [str(environment["ranks_backend"])] if "ranks_backend" in environment else []
    parts += [compiled_words(spec.compile.backend)] if spec.compile else []
    return f"{sentence_case(', '.join(parts))}." if parts else ""


def device_line(environment: dict[str, object], compiled: Compile | None = None) -> str:
    """`CPU AMD EPYC, 2 threads, torch 2.13.0+cpu`, and its ranks, cluster and compiler."""
    if not environment:
        return "device not known yet"
    threads, ranks = environment.get("threads"), environment.get("ranks")
    parts = [
        f"{str(environment.get('device', '')).upper()} {environment.get('device_name', '')}".strip(),
        count(threads, "thread") if isinstance(threads, int) else "",
        f"torch {environment['torch']}" if "torch" in environment else "",
        ranks_words(ranks, environment.get("ranks_kind")) if isinstance(ranks, int) else "",
        "on a Ray cluster" if environment.get("engine") == "ray" else "",
        compiled_words(compiled.backend) if compiled else "",
    ]
    return ", ".join(part for part in parts if part)
