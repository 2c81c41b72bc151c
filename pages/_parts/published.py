"""Figures of activation checkpointing that were published for the GPT of the preset `gpt-sweep`. Pure.

Supplied, not measured here. Every block goes through `torch.utils.checkpoint` (`use_reentrant=False`);
batch 8, float32. *Naive* counts the tensors handed to `torch.autograd.graph.saved_tensors_hooks` once
per `data_ptr`, parameters and token ids included; *activations* counts once per storage, parameters and
inputs left out. The peak is of forward and backward, above parameters and inputs.
"""

from dataclasses import dataclass

from recompute_core.gates import in_mb
from recompute_core.results import StudyResult
from recompute_core.settings import GptSettings
from recompute_core.spec import StudySpec

from . import markup

PLAN = "every-block"
_MODEL = {"blocks": 6, "width": 256, "heads": 8, "vocab": 65}
_BATCH = 8


@dataclass(frozen=True)
class Row:
    """One length: bytes kept for backward and peaks, plain and with every block recomputed."""

    tokens: int
    naive: tuple[int, int]
    activations: tuple[int, int]
    peak_mb: tuple[float, float]


PUBLISHED = (
    Row(128, (152_610_820, 9_791_492), (133_652_484, 9_707_524), (137.2, 34.0)),
    Row(256, (286_279_684, 19_515_396), (267_304_964, 19_415_044), (274.4, 67.8)),
    Row(512, (553_617_412, 38_963_204), (534_609_924, 38_830_084), (548.7, 135.6)),
    Row(768, (820_955_140, 58_411_012), (801_914_884, 58_245_124), (822.9, 203.4)),
)


def is_that_model(spec: StudySpec) -> bool:
    """Whether a study measures the model and the plan of the published figures."""
    workload = spec.workload
    return (
        isinstance(workload, GptSettings)
        and {name: getattr(workload, name) for name in _MODEL} == _MODEL
        and spec.precision == "float32"
        and spec.compile is None
        and spec.ranks is None
        and PLAN in spec.plans
    )


@dataclass(frozen=True)
class Beside:
    """A published row and what was measured here at that length."""

    published: Row
    naive: tuple[int, int]
    activations: tuple[int, int]
    peak: tuple[int | None, int | None]
    """Of the whole update, above the model's state."""


def beside(result: StudyResult) -> list[Beside]:
    """The published lengths that this study has measured too."""
    if not is_that_model(result.spec):
        return []
    memories = {
        one.candidate.shape["seq_len"]: one.candidate.memory
        for one in result.judged
        if one.candidate.plan == PLAN
        and one.candidate.shape["batch"] == _BATCH
        and one.candidate.memory is not None
    }
    found = []
    for row in PUBLISHED:
        memory = memories.get(row.tokens)
        if memory is not None:
            plain, own = memory.plain, memory.candidate
            found.append(
                Beside(
                    row,
                    (plain.naive_saved_bytes, own.naive_saved_bytes),
                    (plain.saved_bytes, own.saved_bytes),
                    (plain.peak_above_state_bytes, own.peak_above_state_bytes),
                )
            )
    return found


def table(rows: list[Beside]) -> str:
    """Ours next to the published figures, both to the byte where bytes are counted."""
    heads = [("Tokens", True), ("What is counted", False)]
    heads += [(f"{whose}, {path}", True) for path in ("plain", PLAN) for whose in ("Published", "Here")]
    heads += [("Published ratio", True), ("Ratio here", True)]
    lines = []
    for row in rows:
        first = f"{row.published.tokens:,}"
        for name, theirs, ours in (
            ("Saved, naive (bytes)", row.published.naive, row.naive),
            ("Saved, activations only (bytes)", row.published.activations, row.activations),
        ):
            figures = [f"{count:,}" for pair in zip(theirs, ours, strict=True) for count in pair]
            ratios = [f"{plain / own:.2f}" for plain, own in (theirs, ours)]
            lines.append([first, name, *figures, *ratios])
            first = ""
        lines.append(["", "Peak above state (MB)", *_peaks(row)])
    return markup.table(heads, lines, "Published for this model, and measured here")


def _peaks(row: Beside) -> list[str]:
    theirs, (plain, own) = row.published.peak_mb, row.peak
    cells = []
    for published, here in zip(theirs, (plain, own), strict=True):
        cells += [f"{published:.1f}", "–" if here is None else in_mb(here)]
    ratio = f"{plain / own:.2f}" if plain and own else "–"
    return [*cells, f"{theirs[0] / theirs[1]:.2f}", ratio]


def sentence(rows: list[Beside]) -> str:
    """Whether the counts agree, in one sentence."""
    same = all(
        (row.naive, row.activations) == (row.published.naive, row.published.activations) for row in rows
    )
    if same:
        return "Every count of saved bytes measured here equals the published one to the byte."
    return "Counts of saved bytes measured here differ from the published ones: see the table."
