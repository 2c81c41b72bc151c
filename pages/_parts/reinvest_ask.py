"""From what was chosen on Reinvest to a checked request, and about how long it takes. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from recompute_core.errors import InputError
from recompute_core.gates import megabytes, plan_verdicts
from recompute_core.reinvest.admission import first_of
from recompute_core.reinvest.asked import SIDES, ReinvestSpec, parse_reinvest, preset
from recompute_core.reinvest.result import plain_microbatch, trains
from recompute_core.results import Judged, Measured
from recompute_core.settings import ReceiptsSettings, size_fields
from recompute_core.spec import StudySpec
from recompute_core.words import count

from .words import VERDICTS, plan_label

Key = tuple[str, str]
"""Plan and shape of a candidate."""


@dataclass(frozen=True)
class Wanted:
    """What the page's fields hold, as they hold it."""

    study: str
    plan: str
    shape: str
    preset: str
    effective_batch: int
    recomputed_effective_batch: int | None = None
    microbatch: int | None = None
    seeds: Sequence[str] | None = None
    """None: as the preset has them."""
    examples: int | None = None
    thresholds: dict[str, float] = field(default_factory=dict)


def request_of(wanted: Wanted) -> ReinvestSpec:
    """What was chosen, checked; raises InputError with what and what would be right."""
    raw: dict[str, Any] = {
        "study": wanted.study,
        "plan": wanted.plan,
        "shape": wanted.shape,
        "effective_batch": wanted.effective_batch,
        "microbatch": wanted.microbatch,
        "thresholds": wanted.thresholds,
        **preset(wanted.preset),
    }
    if wanted.recomputed_effective_batch != wanted.effective_batch:
        raw["recomputed_effective_batch"] = wanted.recomputed_effective_batch
    training = raw.setdefault("training", {})
    if wanted.seeds is not None:
        training["seeds"] = seeds_of(wanted.seeds)
    if wanted.examples is not None:
        training["examples"] = wanted.examples
    return parse_reinvest(raw)


def seeds_of(texts: Iterable[str]) -> list[int]:
    """Whole numbers from 0 up, in the order in which they were given."""
    found = []
    for text in texts:
        plain = str(text).strip()
        if not (plain.isascii() and plain.isdigit() and len(plain) <= 10):
            raise InputError(f"Seeds: {plain[:40]!r} is not a whole number from 0 up")
        found.append(int(plain))
    return found


# --- what may be chosen --------------------------------------------------------------------------


def candidates(adopted: Sequence[Measured], judged: Sequence[Judged]) -> dict[Key, str]:
    """The candidates that passed, each with what it saves; that of the lowest peak at the first shape
    comes first, as on the command line. Where a plan passed at some of its shapes only, that is said."""
    best, verdicts = first_of(adopted), plan_verdicts(judged)
    ordered = [best, *(one for one in adopted if one is not best)]
    labels = {}
    for one in ordered:
        whole = verdicts.get(one.plan)
        also = "" if whole == "adopt" else f" ({VERDICTS[whole]} over all shapes)"
        labels[one.plan, one.shape_key] = _saves(one) + also
    return labels


def _saves(one: Measured) -> str:
    label = f"{plan_label(one.plan)} at {one.shape_key}"
    plain, own = one.memory.plain.peak_bytes, one.memory.candidate.peak_bytes
    if plain is None or own is None:
        return label
    return f"{label}: peak {megabytes(own)} instead of {megabytes(plain)}"


def lead(spec: StudySpec) -> str:
    """What a run measures, in a sentence."""
    goes = "how far it goes, whether the training objective stays the same"
    speed = "what it buys in examples per second"
    ends = f", {speed}, and what it does to rare defects" if trains(spec) else f", and {speed}"
    spent = "A plan that passed leaves memory free. Spent on a larger microbatch it is another run"
    return f"{spent}: {goes}{ends}."


def what_is_missing(spec: StudySpec) -> str | None:
    """Why no verdict of a run can be adopt, where none can; None where one can."""
    if trains(spec):
        return None
    name = spec.workload.name.partition("?")[0]
    return (
        f"The verdict cannot be adopt: one gate asks what becomes of a rare class, and {name} has none. "
        "What is measured is how far the microbatch goes, whether gradients stay the same, and speed."
    )


def why_not(spec: StudySpec, adopted: Sequence[Measured]) -> str | None:
    """Why no candidate of a study can be reinvested, in a sentence; None where one can."""
    if "batch" not in size_fields(spec.workload):
        return f"{spec.workload.name} brings its own batch, whose size cannot be changed."
    if not adopted:
        return "No candidate of this study passed its gates, so there is no saved memory to spend."
    if all(one.memory.plain.peak_bytes is None for one in adopted):
        return "This device has no peak counter, so there is no budget to spend."
    return None


def preset_words(name: str, spec: StudySpec) -> str:
    """A preset in a sentence; only of receipts a class is trained and looked at."""
    raw = preset(name)
    pairs = raw["timing"]["min_pairs"]
    if not trains(spec):
        return f"{pairs} pairs of updates or more."
    ends = {
        "quick": "a first look, in which the encoder learns little",
        "full": "until the encoder has learnt",
    }[name]
    return f"{raw['training']['examples']:,} examples a run, {pairs} pairs of updates or more: {ends}."


# --- how long it takes ---------------------------------------------------------------------------

_VALIDATION_PHOTOS = 700
"""Of the rendered set, about."""
_FORWARD = 1 / 3
"""Of an update's time."""
_REACH_S = 25.0
"""Parity and memory at two sizes, each in processes of their own."""


def forecast_s(spec: StudySpec, one: Measured, asked: ReinvestSpec) -> float | None:
    """About how long it takes, at the pace of the study's own updates; None where that cannot tell."""
    batch = plain_microbatch(spec, one.shape_key)
    plain_s, own_s = one.timing.plain_median_s / batch, one.timing.update_s / batch
    update_s = asked.effective_batch * plain_s + asked.recomputed_batch * own_s
    known = _REACH_S + (asked.timing.min_pairs + 5) * update_s
    if not isinstance(spec.workload, ReceiptsSettings) or not asked.training.seeds:
        return known
    if spec.workload.images is not None:
        return None  # of somebody's own photos it is not known how many there are to look at
    looks = sum(n // asked.training.evaluate_every + 2 for n in map(asked.updates_of, SIDES))
    learning = asked.training.examples * (plain_s + own_s)
    looking = looks * _VALIDATION_PHOTOS * _FORWARD * plain_s
    return known + len(asked.training.seeds) * (learning + looking)


def work_words(spec: StudySpec, asked: ReinvestSpec) -> str:
    """`6 training runs of 10 updates`."""
    seeds = len(asked.training.seeds)
    if not trains(spec) or not seeds:
        return "no training"
    each = sorted(set(map(asked.updates_of, SIDES)))
    updates = " and ".join(f"{number:,}" for number in each)
    return f"{count(2 * seeds, 'training run')} of {updates} {'update' if each == [1] else 'updates'}"
