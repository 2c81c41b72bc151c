"""What an export is, and how the setting of a trainer that is nearest to a plan is found. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Literal

from ...errors import printable
from ...gates import megabytes
from ...spec import Region
from ..names import Regions


@dataclass(frozen=True)
class Source:
    """The plan that is exported and where it comes from."""

    plan: str
    plan_hash: str
    study: str
    model: str
    """The workload, its sizes and the shapes of the study, in words."""
    shape: str
    """The shape at which costs are estimated."""
    torch: str
    """The torch version of the study."""
    regions: Regions
    variant: str
    early_stop: bool
    preserve_rng: bool
    blocks: tuple[str, ...] = ()
    """FQNs of all blocks of the study's model, recomputed or not."""
    backend: str | None = None
    """What compiled the study's model."""
    ranks: Literal["ddp", "fsdp2"] | None = None
    """How the study's ranks trained together."""
    module: str | None = None
    """What the module is called, where that was chosen."""
    missed: str | None = None
    """Why the plan should perhaps not be used: the gates that it did not pass, in one sentence."""

    @property
    def line(self) -> str:
        """Where the plan comes from, in one printable line."""
        return _one_line(
            f"Plan {self.plan} ({self.plan_hash}) of study {self.study}: {self.model}, {self.torch}."
        )

    @property
    def warning(self) -> str:
        """What a file of a plan that was not adopted begins with, in one printable line; else empty."""
        return _one_line(f"Warning: {self.missed}") if self.missed else ""

    @property
    def comments(self) -> str:
        """The first lines of a file, as comments."""
        return f"# {self.warning}\n#\n# {self.line}\n" if self.missed else f"# {self.line}\n"

    @property
    def slug(self) -> str:
        """The plan's name as a part of a file's name."""
        return slug_of(self.plan)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def slug_of(plan: str) -> str:
    """A plan's name as a part of a file's name."""
    letters = (c if c.isascii() and c.isalnum() else "_" for c in plan.lower())
    return "".join(letters).strip("_") or "plan"


def module_name(plan: str) -> str:
    """How the module is called that holds a plan for torch."""
    return f"plan_{slug_of(plan)}"


def module_in(file: Path) -> str | None:
    """The name under which a file is imported; None where no `import` can spell it."""
    name = file.stem
    return name if file.suffix == ".py" and name.isidentifier() and not iskeyword(name) else None


@dataclass(frozen=True)
class Cost:
    """What a plan costs by our estimate: one update on fake tensors."""

    peak_bytes: int
    """Highest moment of the update, state included."""
    saved_bytes: int
    replayed_flops: int
    """Floating-point operations that replays add to an update."""

    def beside(self, other: "Cost") -> str:
        """How it differs from another cost, in words."""
        peak = _more(self.peak_bytes - other.peak_bytes, "peak")
        saved = _more(self.saved_bytes - other.saved_bytes, "saved bytes")
        flops = self.replayed_flops - other.replayed_flops
        again = (
            "as much" if not flops else f"{abs(flops) / 1e9:.3g} GFLOP {'less' if flops < 0 else 'more'}"
        )
        return f"{peak}, {saved}, {again} recomputed an update"


def _more(difference: int, what: str) -> str:
    if not difference:
        return f"the same {what}"
    return f"{megabytes(abs(difference))} {'less' if difference < 0 else 'more'} {what}"


@dataclass(frozen=True)
class Option:
    """A setting that a trainer has."""

    words: str
    """What it recomputes."""
    regions: Regions
    arguments: tuple[tuple[str, object], ...] = ()
    """What the trainer is told: names and values."""


Family = tuple[Option, ...]
"""Settings of one kind, from little recomputed and a high peak to much and a low one."""


@dataclass(frozen=True)
class Nearest:
    """The setting of a trainer that is nearest to a plan."""

    option: Option
    exact: bool
    """It recomputes what the plan recomputes."""
    fits: bool
    """Its estimated peak is not above the plan's."""
    chosen: Cost
    cost: Cost


@dataclass(frozen=True)
class Exported:
    """A plan as a trainer takes it."""

    text: str
    filename: str
    exact: bool
    """It does what the plan does."""
    cannot: tuple[str, ...] = ()
    """What the trainer's settings cannot express, and what that costs by our estimate."""
    notes: tuple[str, ...] = ()
    """What to know when using it."""
    nearest: Nearest | None = None
    """The setting that is written; None where the plan itself is."""


def nearest(chosen: Regions, families: Sequence[Family], cost: Callable[[Regions], Cost]) -> Nearest:
    """The setting that recomputes what the plan recomputes; or else, of those whose peak is not above
    the plan's, the one that recomputes least; or else the one of the lowest peak.

    Each family is searched by halving. Settings of the same modules and the same cost are the same: a
    plan may keep the outputs of ops that the model never runs.
    """
    own = cost(chosen)
    options = [option for family in families for option in family]
    for option in options:
        if _content(option.regions) == _content(chosen) or (
            _modules(option.regions) == _modules(chosen) and cost(option.regions) == own
        ):
            return Nearest(option, True, True, own, cost(option.regions))
    reached = [_first_within(family, own.peak_bytes, cost) for family in families]
    fitting = [option for option in reached if cost(option.regions).peak_bytes <= own.peak_bytes]
    if fitting:
        best = min(fitting, key=lambda option: _work(cost(option.regions)))
    else:
        best = min(reached, key=lambda option: cost(option.regions).peak_bytes)
    return Nearest(best, False, bool(fitting), own, cost(best.regions))


def _first_within(family: Family, peak_bytes: int, cost: Callable[[Regions], Cost]) -> Option:
    """The first setting whose peak is within; the last one where none is found."""
    first, last = 0, len(family) - 1
    while first < last:
        middle = (first + last) // 2
        if cost(family[middle].regions).peak_bytes <= peak_bytes:
            last = middle
        else:
            first = middle + 1
    return family[last]


def _work(cost: Cost) -> tuple[int, int]:
    return cost.replayed_flops, cost.peak_bytes


def _content(regions: Regions) -> set[tuple[tuple[str, ...], frozenset[str]]]:
    """What a plan does, whichever way it is written down."""
    return {(region.modules, frozenset(region.keep)) for region in regions}


def _modules(regions: Regions) -> set[tuple[str, ...]]:
    return {region.modules for region in regions}


# --- what the trainers' files share ---------------------------------------------------------------


def whole(blocks: Sequence[str], keep: tuple[str, ...] = ()) -> Regions:
    """Each of these blocks recomputed by itself."""
    return tuple(Region(modules=(name,), keep=keep) for name in blocks)


def costs_words(trainer: str, source: Source, found: Nearest) -> tuple[str, ...]:
    """What a setting that is not the plan costs, and whether it comes down to the plan's peak."""
    if found.exact:
        return ()
    alone = " in one process" if source.ranks else ""
    lines = [
        f"Nearest: {found.option.words}. Estimated at {source.shape}{alone}, against the plan: "
        f"{found.cost.beside(found.chosen)}."
    ]
    if not found.fits:
        lines.append(f"No setting of {trainer} comes down to this plan's estimated peak.")
    return tuple(lines)


def differences(
    blocks: Sequence[str],
    regions: Regions,
    trainer: str,
    keeps: bool,
    chains: bool,
    parts_words: str = "cannot recompute a part of a layer by itself",
) -> list[str]:
    """What of a plan a trainer that recomputes whole blocks has no setting for, in sentences."""
    parts = [name for region in regions for name in region.modules if name not in blocks]
    found = []
    if parts:
        found.append(f"{trainer} {parts_words}: {_some(parts)}.")
    chained = [region.modules for region in regions if len(region.modules) > 1]
    if chained and not chains:
        found.append(
            f"{trainer} cannot recompute several layers as one: {chained[0][0]} to {chained[0][-1]}."
        )
    if any(region.keep for region in regions) and not keeps:
        found.append(f"{trainer} cannot keep the outputs of these ops: {_some(_kept(regions))}.")
    return found


def _kept(regions: Regions) -> list[str]:
    return list(dict.fromkeys(op for region in regions for op in region.keep))


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def remarks(exported: Exported) -> str:
    """What cannot be expressed and what to know, as comments of one line each."""
    head = "This does what the plan does." if exported.exact else "This is not the plan:"
    return "".join(f"# {line}\n" for line in (head, *exported.cannot, *exported.notes, "")).replace(
        "# \n", "#\n"
    )
