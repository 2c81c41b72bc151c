"""What one block may do: keep, recompute in whole or in part, selectively, nested; and what each costs.

A block is run by itself on fake tensors under every treatment on the menu: bytes stored from forward to
backward, highest moment of its backward, ops replayed. The parts of a block are its direct children that
have parameters; finer modules are not offered.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..meters.estimate import signature
from ..plans.names import ATTENTION, Regions
from ..results import Legality
from ..workloads.update import storage_of
from .alone import Keep, Relative, placed
from .chain import Option
from .costs import Costs
from .runs import Runs

_BLOCK = ""
_MOST_PARTS = 6
"""Parts whose combinations are looked at, the first ones of a block."""
_MOST_KEPT = 7
"""Ops considered for keeping in one region, the costliest first."""
_PART_KEEPS, _BLOCK_KEEPS = 4, 10
"""Sets of kept ops that are offered for a part and for a whole block."""
_APART, _ALL_APART, _NESTED = 12, 8, 8
"""Treatments of each family that are run on fake tensors."""


@dataclass(frozen=True)
class Treatment:
    """One way to treat a block, with what it costs."""

    regions: Relative
    option: Option

    def on(self, block: str) -> Regions:
        """Its regions in the block of this FQN."""
        return placed(self.regions, block)


@dataclass(frozen=True)
class _Draft:
    """A treatment that has not been run yet: what adding up its parts promises."""

    regions: Relative
    stored: int
    cost_s: float


@dataclass(frozen=True)
class _Call:
    """One op in a block's forward."""

    op: str
    part: str
    number: int
    """Which call of this op it is in its part."""
    number_in_block: int
    bytes: int
    """What its output takes for itself; 0 for a view or a change in place."""
    cost_s: float


class Menu:
    """The treatments of one block."""

    def __init__(self, runs: Runs, name: str, costs: Costs, legality: Legality | None = None) -> None:
        self._runs, self._name, self._costs, self._legality = runs, name, costs, legality
        self.whole_is_legal = self._is_legal(_BLOCK)
        """Whether the block itself may be replayed; where it may not, its legal parts are offered."""
        self._alone = runs.block(name)
        self.input_bytes = self._alone.input_bytes
        parts = [n for n, child in self._alone.block.named_children() if list(child.parameters())]
        self._parts = [part for part in parts if self._is_legal(part)][:_MOST_PARTS]
        with runs.update.mode:
            self._calls = self._trace()
        self.forward_s = sum(call.cost_s for call in self._calls)
        self.treatments = _undominated(self._found())

    def _found(self) -> Iterator[Treatment]:
        (plain,) = self._run(())
        yield plain
        yield from self._run(*(draft.regions for draft in self._apart(plain)))
        if self.whole_is_legal:
            (whole,) = self._run(((_BLOCK, ()),))
            yield whole
            yield from self._outer(whole)

    def _is_legal(self, part: str) -> bool:
        name = f"{self._name}.{part}" if part else self._name
        return self._legality is None or self._legality.of(name).verdict == "legal"

    # --- parts by themselves ---------------------------------------------------------------------

    def _apart(self, plain: Treatment) -> Iterator[_Draft]:
        """Parts recomputed each by itself, in every combination worth running."""
        made = self._run(*((region,) for part in self._parts for region in self._of_part(part)))
        choices = [
            [
                _Draft((), 0, 0.0),
                *(
                    _Draft(m.regions, m.option.stored - plain.option.stored, m.option.cost_s)
                    for m in made
                    if m.regions[0][0] == part
                ),
            ]
            for part in self._parts
        ]
        drafts = [draft for chosen in product(*choices) if (draft := _sum(chosen)).regions]
        yield from _thinned(_cheapest(drafts), _APART)
        yield from _thinned(
            _cheapest(draft for draft in drafts if len(draft.regions) == len(self._parts)), _ALL_APART
        )

    def _of_part(self, part: str) -> Relative:
        """A part recomputed whole, and keeping each set of its ops that is worth it."""
        calls = [call for call in self._calls if call.part == part]
        sets = _worth_keeping(calls, 0.02 * self.forward_s, _PART_KEEPS)
        return ((part, ()), *((part, _keep(chosen, "number")) for chosen in sets))

    # --- the block as one region -----------------------------------------------------------------

    def _outer(self, whole: Treatment) -> Iterator[Treatment]:
        """The block recomputed, with ops kept, with parts recomputed once more inside, with both."""
        keeping = [
            _Draft(
                ((_BLOCK, _keep(chosen, "number_in_block")),),
                sum(call.bytes for call in chosen),
                whole.option.cost_s - sum(call.cost_s for call in chosen),
            )
            for chosen in _worth_keeping(self._calls, 0.02 * self.forward_s, _BLOCK_KEEPS)
        ]
        yield from self._run(*(draft.regions for draft in keeping))
        chosen = chain.from_iterable(
            combinations(self._parts, size) for size in range(1, len(self._parts) + 1)
        )
        nested = self._run(*(((_BLOCK, ()), *((part, ()) for part in parts)) for parts in chosen))
        yield from nested
        lower = [t for t in _undominated(nested) if t.option.peak < whole.option.peak]
        both = [
            (draft.regions[0], *treatment.regions[1:])
            for draft, treatment in product(_thinned(keeping, _NESTED // 3), lower)
        ]
        yield from self._run(*_thinned(both, _NESTED))

    # --- running them ----------------------------------------------------------------------------

    def _run(self, *many: Relative) -> list[Treatment]:
        """The block by itself under each of these."""
        return [
            Treatment(
                regions,
                Option(
                    stored=run.stored,
                    peak=run.peak,
                    cost_s=self._costs.of_replays(run),
                    nests=not any(keep for _, keep in regions),
                ),
            )
            for regions, run in zip(many, self._runs.alone(self._name, many), strict=True)
        ]

    def _trace(self) -> list[_Call]:
        """The ops of the block's forward, each with the part it is in."""
        tracer = _Tracer(self._costs)
        handles = []
        for part in self._parts:
            module = self._alone.block.get_submodule(part)
            handles.append(module.register_forward_pre_hook(tracer.enter(part)))
            handles.append(module.register_forward_hook(tracer.leave))
        try:
            with tracer:
                self._alone.block(*self._alone.args, **self._alone.kwargs)
        finally:
            for handle in handles:
                handle.remove()
        return tracer.calls


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, notes every op with its part, what it takes and what it costs."""

    def __init__(self, costs: Costs) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []
        self._costs = costs
        self._part = _BLOCK
        self._seen: Counter[tuple[str, str]] = Counter()
        self._made: dict[int, int] = {}

    def enter(self, part: str) -> Any:
        def hook(*_: Any) -> None:
            self._part = part

        return hook

    def leave(self, *_: Any) -> None:
        self._part = _BLOCK

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments):
            self._may_not_be_kept(args[0])  # what is kept must not change afterwards
        before = {storage_of(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        made = {storage_of(leaf): leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)}
        op = str(func)
        self.calls.append(
            _Call(
                op=op,
                part=self._part,
                number=self._seen[op, self._part],
                number_in_block=self._seen[op, "*"],
                bytes=sum(made[key].untyped_storage().nbytes() for key in made.keys() - before),
                cost_s=self._costs.of({signature(func, args, kwargs): 1}),
            )
        )
        self._seen[op, self._part] += 1
        self._seen[op, "*"] += 1
        self._made |= dict.fromkeys(made.keys() - before, len(self.calls) - 1)
        if torch.Tag.nondeterministic_seeded in func.tags and op not in ATTENTION:
            self._may_not_be_kept(result)  # a replay without this draw would draw others after it
        return result

    def _may_not_be_kept(self, value: Any) -> None:
        """Count the output that this tensor's storage came from as taking nothing of its own."""
        for leaf in tree_leaves(value):
            if isinstance(leaf, Tensor) and (number := self._made.get(storage_of(leaf))) is not None:
                self.calls[number] = replace(self.calls[number], bytes=0)


# --- choosing what to run -------------------------------------------------------------------------


def _worth_keeping(calls: list[_Call], least_s: float, most: int) -> list[tuple[_Call, ...]]:
    """The sets of ops that save the most time for the bytes their outputs take, fewest bytes first."""
    candidates = sorted(
        (call for call in calls if call.bytes and call.cost_s > least_s),
        key=lambda call: call.cost_s,
        reverse=True,
    )[:_MOST_KEPT]
    sets = [
        chosen for size in range(1, len(candidates) + 1) for chosen in combinations(candidates, size)
    ]
    sets.sort(key=lambda chosen: (sum(c.bytes for c in chosen), -sum(c.cost_s for c in chosen)))
    best, found = 0.0, []
    for chosen in sets:
        saved = sum(call.cost_s for call in chosen)
        if saved > best:
            best = saved
            found.append(chosen)
    return _thinned(found, most)


def _keep(calls: Iterable[_Call], numbering: str) -> Keep:
    """The calls as `Region.keep` writes them."""
    by_op: dict[str, list[int]] = {}
    for call in calls:
        by_op.setdefault(call.op, []).append(getattr(call, numbering))
    return tuple(f"{op}:{','.join(map(str, sorted(n)))}" for op, n in sorted(by_op.items()))


def _sum(drafts: Iterable[_Draft]) -> _Draft:
    parts = list(drafts)
    return _Draft(
        tuple(chain.from_iterable(part.regions for part in parts)),
        sum(part.stored for part in parts),
        sum(part.cost_s for part in parts),
    )


def _cheapest(drafts: Iterable[_Draft]) -> list[_Draft]:
    """Those that no other beats in both bytes and time, least bytes first."""
    best, found = inf, []
    for draft in sorted(drafts, key=lambda d: (d.stored, d.cost_s)):
        if draft.cost_s < best:
            best = draft.cost_s
            found.append(draft)
    return found


def _undominated(treatments: Iterable[Treatment]) -> tuple[Treatment, ...]:
    """Plain, and those that no other beats in bytes stored, peak, time and in where they may stand."""
    kept: list[Treatment] = []
    for one in sorted(treatments, key=lambda t: (t.option.cost_s, t.option.stored, t.option.peak)):
        mine = one.option
        beaten = any(
            t.option.stored <= mine.stored
            and t.option.peak <= mine.peak
            and t.option.nests >= mine.nests
            for t in kept
        )
        if not beaten or not one.regions:
            kept.append(one)
    return tuple(kept)


def _thinned(found: list[Any], most: int) -> list[Any]:
    """At most so many, evenly spread, first and last included."""
    if len(found) <= most:
        return found
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]
