"""From what a recomputed step left to a verdict, its cause, and what to do about it. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..results import Gap, Reason
from ..spec import CheckpointSettings
from .report import BlockVerdict, Saving, Verdict
from .step import Left, Way, gaps

_NUMBERS = ("loss", "output", "grad", "input_grad")
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
GENERATORS = {"random": "Python's random module", "numpy": "NumPy's global generator"}


def named(block: str) -> str:
    """How a sentence calls a block."""
    return block or "the model"


@dataclass(frozen=True)
class Trial:
    """A recomputed step beside the plain one that it should equal."""

    way: Way
    reference: Left
    found: Left
    tolerance: float
    noise: float
    """What buffers may differ by: plain against plain does."""
    ignored: frozenset[str]
    """Places that differ from plain to plain."""

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """Of every tensor; none when the recomputed step raised."""
        return () if self.found.error is not None else gaps(self.reference, self.found)

    @cached_property
    def off(self) -> tuple[Gap, ...]:
        """The tensors that differ, worst first."""
        wrong = [gap for gap in self.gaps if self._is_off(gap)]
        return tuple(sorted(wrong, key=lambda gap: (gap.relative is not None, -(gap.relative or 0))))

    def _is_off(self, gap: Gap) -> bool:
        if gap.part == "rng" or (gap.part == "buffer" and self.noise == 0):
            return not gap.bitwise
        return gap.relative is None or gap.relative > self.tolerance

    @property
    def numbers(self) -> tuple[Gap, ...]:
        """Outputs, losses and gradients that differ."""
        return tuple(gap for gap in self.off if gap.part in _NUMBERS)

    @cached_property
    def state(self) -> list[str]:
        """Places whose content differs, as a sentence calls them."""
        changed = changed_state(self.reference, self.found)
        return [place for place in changed if place not in self.ignored]

    @property
    def verdict(self) -> Verdict:
        if self.found.error is not None:
            return "error"
        if self.numbers:
            return "parity_fail"
        return "illegal" if self.off or self.state else "legal"

    @property
    def failed(self) -> bool:
        return self.verdict != "legal"

    @property
    def gap(self) -> float | None:
        """Largest relative gap of the numbers; None when one could not be compared."""
        if self.found.error is not None:
            return None
        found = [gap.relative for gap in self.gaps if gap.part in _NUMBERS]
        return None if any(one is None for one in found) else max((g or 0.0 for g in found), default=0.0)


def changed_state(reference: Left, found: Left) -> list[str]:
    """Places that hold something else in the two, as a sentence calls them."""
    return [
        place
        for place in {**reference.state, **found.state}
        if reference.state.get(place) != found.state.get(place)
        and not (_untouched(reference, place) and _untouched(found, place))
    ]


def _untouched(left: Left, place: str) -> bool:
    return left.before is not None and left.before.get(place) == left.state.get(place)


# --- why a block fails ----------------------------------------------------------------------------


def explain(
    block: str,
    trial: Trial,
    plain: Left,
    settings: CheckpointSettings,
    remedies: Mapping[str, Trial] | None = None,
    together: tuple[str, ...] = (),
) -> tuple[Reason, ...]:
    """The reasons against a block, the cause first; `remedies` are steps that change one thing each."""
    helps = {name for name, other in (remedies or {}).items() if not other.failed}
    call = plain.calls.get(block)
    drawn = call.drawn if call else set()

    def because(code: str, what: str) -> Reason:
        return Reason(code=code, block=block, sentence=f"{named(block)}{_seen(trial)}: {what}")

    found: list[Reason] = []
    raised = [_raised(block, trial.found.error)] if trial.found.error is not None else []
    if raised and raised[0].code not in _VAGUE:
        found += raised
    restored = all(gap.bitwise for gap in trial.gaps if (gap.part, gap.name) == ("rng", "torch"))
    if "torch" in drawn and (settings.rng == "ignore" or not restored):
        found.append(
            because(
                "rng_not_preserved",
                "it draws random numbers and a replay draws others; preserve the random state.",
            )
        )
    for kind in ("random", "numpy"):
        if kind in drawn:
            found.append(
                because(
                    "foreign_generator",
                    f"it draws from {GENERATORS[kind]}, whose state checkpoint does not restore, so a "
                    "replay draws other numbers; use torch's generator.",
                )
            )
    if "context" in helps:
        found.append(
            because(
                "context_left",
                "a context around forward has been left when backward replays it; enter it inside the "
                "block, or keep it open until backward has ended.",
            )
        )
    if trial.way.loop == "two_forwards" and trial.numbers:
        found.append(
            because(
                "two_forwards",
                "with two forwards before a backward, a replay of the first finds what the second has "
                "set; pass it as an argument instead of keeping it on an object.",
            )
        )
    if call and call.changed_inside:
        found.append(
            because(
                "input_changed",
                "it changes its input in place (a tensor, or a list that it pops from), so a replay "
                "starts from something else; change a copy.",
            )
        )
    if call and call.changed_later:
        found.append(
            because(
                "input_changed_later",
                "an argument is changed in place after the call, and a replay reads the changed one "
                "(keyword and nested arguments carry no version check); change a copy.",
            )
        )
    found += _state_reasons(block, trial)
    if "torch" in helps:
        found.append(
            because(
                "own_checkpoint",
                "your checkpoint function is what breaks it: with torch's own, non-reentrant and "
                "preserving the random state, it passes; use that.",
            )
        )
    if "step" in helps:
        found.append(
            because(
                "step",
                "with a usual step (one forward, then its backward) it passes: a replay meets what your "
                "step does in between (a second forward, weights that move); pass what the block needs "
                "as an argument, and change nothing until backward has ended.",
            )
        )
    if "early_stop" in helps:
        state = "off" if trial.way.settings.early_stop else "on"
        found.append(
            because(
                "early_stop",
                "a replay that stops as soon as the last tensor is back leaves an op's work half done; "
                f"with early stop {state} it passes: set early stop {state}, or wrap less.",
            )
        )
    if "variant" in helps:
        other = "forward" if settings.variant == "call" else "call"
        found.append(
            because(
                "variant",
                f"what hooks do is not replayed alike; under the variant {other} it passes: use that.",
            )
        )
    if together:
        found.append(
            because(
                "together",
                f"each block passes alone; recomputed together ({', '.join(map(named, together))}) they "
                "share something that a replay finds changed: a weight, a cache, a list.",
            )
        )
    if not found and not raised:
        found.append(_plainly_off(block, trial))
    found += raised
    return tuple(_unique(found))


def _seen(trial: Trial) -> str:
    """What was seen of the fault, in a few words."""
    if trial.found.error is not None:
        return " cannot be replayed"
    if not trial.numbers:
        return ""
    worst = trial.numbers[0]
    what = {"grad": "the gradient of ", "input_grad": "the gradient of ", "loss": "the loss"}.get(
        worst.part, "output "
    )
    gap = worst.relative or 0.0
    far = f"is off by {gap:.2g} times its size" if gap >= 10 else f"differs by {gap:.2g} of its size"
    how = worst.problem or far
    return f" ({what}{worst.name if worst.part != 'loss' else ''} {_verb(how)})"


def _verb(how: str) -> str:
    return f"is {how}" if how.startswith(("missing", "not ", "shape", "dtype", "all zero")) else how


def _state_reasons(block: str, trial: Trial) -> Iterator[Reason]:
    """Buffers, weights and Python state that a replay changes once more."""

    def because(code: str, what: str) -> Reason:
        return Reason(code=code, block=block, sentence=f"{named(block)}{_seen(trial)}: {what}")

    buffers = [gap.name for gap in trial.off if gap.part == "buffer"]
    norms = dict.fromkeys(n.rpartition(".")[0] for n in buffers if n.rpartition(".")[2] in STATISTICS)
    if norms:
        yield because(
            "running_statistics",
            f"the running statistics of {listed(map(named, norms))} move on every forward, so a replay "
            "moves them twice; recompute around them, or use a norm without them.",
        )
    for name in buffers:
        if name.rpartition(".")[2] not in STATISTICS:
            yield because(
                "buffer_changed",
                f"the buffer {name} changes on every forward, so a replay changes it twice; move it out "
                "of the block.",
            )
    weights = [gap.name for gap in trial.off if gap.part == "weight"]
    if weights and not trial.numbers:
        yield because(
            "weight_changed",
            f"forward changes the weight {weights[0]} in place, so a replay changes it twice; change it "
            "outside of the block.",
        )
    for kind in ("random", "numpy"):
        if any(gap.part == "rng" and gap.name == kind for gap in trial.off):
            yield because(
                "foreign_generator",
                f"it draws from {GENERATORS[kind]}, so a replay draws once more and every number after "
                "it is another; use torch's generator.",
            )
    for place in trial.state[:3]:
        yield because(*_of_place(place, trial))


def _of_place(place: str, trial: Trial) -> tuple[str, str]:
    """A place that a replay changes once more: code and sentence."""
    value = trial.found.state.get(place)
    hook = trial.found.by_hook.get(place, trial.reference.by_hook.get(place))
    if isinstance(value, tuple) and value[0] == "generator":
        return "private_generator", (
            f"{place} is a generator of its own, which checkpoint does not restore, so a replay draws "
            "other numbers; use torch's default generator."
        )
    if place.startswith("the number of hooks"):
        return "hook_repeats", (
            f"{place} grows on every forward, so a replay adds to it once more; register hooks outside "
            "of the block."
        )
    if hook is not None:
        return "hook_repeats", (
            f"a hook on {named(hook)} changes {place} and fires again in a replay; remove it, or "
            "recompute less than what it sits on (under the variant forward a block's own run once)."
        )
    return "attribute_changed", (
        f"{place} changes on every forward (a counter, cache or tracker), so a replay changes it twice; "
        "move it out of the block."
    )


def listed(names: Iterable[str], most: int = 3) -> str:
    """Names with commas, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


_ADVICE: tuple[tuple[str, str, str], ...] = (
    (
        "different number of tensors|different metadata|save more tensors|tensors was saved",
        "replay_differs",
        "the replay saved other tensors than the forward: it took another branch or met other shapes, "
        "by state, a context or a random number that is not restored; make what decides an argument",
    ),
    (
        "mutated",
        "selective_changed",
        "an output that is kept is changed in place afterwards; keep another op, or change a copy",
    ),
    (
        "found in storage|encountered during recompute|never in the forward|tried to compute",
        "selective_missing",
        "a selective replay runs an op that the forward did not (autocast's cached casts, most often); "
        "pass cache_enabled=False to autocast, or recompute the block whole",
    ),
    (
        "inplace operation",
        "input_changed",
        "a tensor that the replay needs is changed in place after it was kept; change a copy",
    ),
    (
        "range() arg 3 must not be zero",
        "too_many_segments",
        "checkpoint_sequential is asked for more segments than there are layers; ask for fewer",
    ),
    (
        "second time|ready only once|incompatible with .grad|incompatible with inputs|use_reentrant"
        "|setup_context|vmap|support saved tensor hooks",
        "variant_refuses",
        "the reentrant variant, or a transform of torch.func, cannot go through this; use the "
        "non-reentrant one (use_reentrant=False) and .backward()",
    ),
)


_VAGUE = ("replay_differs", "replay_raises", "input_changed")
"""What torch says without naming a cause."""
_ELSE = (
    "replay_raises",
    "what its first run used up or left behind is not as it was; pass it in, or recompute less",
)


def _raised(block: str, error: Exception) -> Reason:
    """torch's message, translated into what to change."""
    text = _text(error)
    known = ((c, a) for patterns, c, a in _ADVICE if any(p in text for p in patterns.split("|")))
    code, advice = next(known, _ELSE)
    return Reason(
        code=code,
        block=block,
        sentence=f"{named(block)}: the recomputed step raises {type(error).__name__}: {advice} "
        f"({_short(text)}).",
    )


def _text(error: Exception) -> str:
    return " ".join(str(error).split())


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:160].rsplit(' ', 1)[0]} …"


def _plainly_off(block: str, trial: Trial) -> Reason:
    if any(gap.problem == "missing" for gap in trial.numbers):
        return Reason(
            code="gradient_missing",
            block=block,
            sentence=f"{named(block)}{_seen(trial)}: the recomputed step gives it none; the reentrant "
            "variant does so when no input requires a gradient: use use_reentrant=False.",
        )
    return Reason(
        code="numbers_differ",
        block=block,
        sentence=f"{named(block)}{_seen(trial)}: a replay is not what the forward was, and no state "
        "that can be seen explains it; recompute smaller parts to find the op.",
    )


def _unique(reasons: list[Reason]) -> Iterator[Reason]:
    seen: set[str] = set()
    for reason in reasons:
        if reason.code not in seen or reason.code in ("attribute_changed", "buffer_changed"):
            seen.add(reason.code)
            yield reason


# --- no baseline ----------------------------------------------------------------------------------


def _reason(block: str, code: str, what: str) -> Reason:
    return Reason(code=code, block=block, sentence=f"{named(block)}: {what}")


def plain_raises(block: str, error: Exception) -> Reason:
    return _reason(
        block,
        "plain_raises",
        f"there is nothing to compare with: the plain step itself raises "
        f"{type(error).__name__} ({_short(_text(error))}); mend that first.",
    )


def plain_refuses(block: str, error: Exception) -> Reason:
    return _reason(
        block,
        "plain_refuses",
        f"the plain step refuses what your step does between forward and "
        f"backward ({type(error).__name__}: {_short(_text(error))}), and the recomputed one goes on "
        "silently with other values; do it after backward.",
    )


def nothing_finite(block: str) -> Reason:
    return _reason(
        block,
        "nothing_finite",
        "no gradient of the plain step holds a finite number, or its "
        "output is empty, so there is nothing to compare; give a batch and a loss that are finite.",
    )


def no_graph(block: str) -> Reason:
    return _reason(
        block,
        "no_graph",
        "the loss requires no gradient (no_grad, or nothing trainable), so "
        "nothing is kept for backward and there is nothing to save or to compare.",
    )


def not_called(block: str) -> Reason:
    return _reason(
        block,
        "not_called",
        "it is not called in this step, so recomputing it saves nothing and "
        "nothing was seen of it; name the modules that are called (a ModuleList is not).",
    )


def not_deterministic(
    blocks: tuple[str, ...], plain: Left, again: Left, noise: float | None
) -> list[BlockVerdict]:
    """Plain differs from plain; a block that gives another output for equal arguments is told so."""
    apart = "" if noise is None else f" by {noise:.2g} of a tensor's size"

    def verdict(block: str) -> BlockVerdict:
        one, other = plain.calls.get(block), again.calls.get(block)
        here = one and other and one.given == other.given and one.gave != other.gave
        where = "it gives another output" if here else "the model gives other numbers"
        return BlockVerdict(
            block=block,
            verdict="illegal",
            reasons=(
                Reason(
                    code="not_deterministic",
                    block=block,
                    sentence=f"{named(block)}: {where} when the plain step is run again under the same "
                    f"seed{apart}, so there is no baseline; seed what it draws from, or use "
                    "torch.use_deterministic_algorithms.",
                ),
            ),
        )

    return [verdict(block) for block in blocks]


# --- legal, and what it depends on ----------------------------------------------------------------


def no_saving(block: str, saving: Saving) -> tuple[Reason, ...]:
    """Why the peak does not fall."""
    held, plain_held = saving.recomputed_held_bytes, saving.plain_held_bytes
    if saving.nothing_dropped:
        what = (
            f"forward keeps {_kb(held)} instead of {_kb(plain_held)}: what these blocks keep for "
            "backward is little more than the inputs that a replay needs, or something inside keeps "
            "it all the same (saved-tensor hooks, a selective policy); wrap more at once"
        )
        code = "nothing_dropped"
    else:
        what = (
            f"forward keeps {_kb(held)} instead of {_kb(plain_held)}, but the peak stays at "
            f"{_kb(saving.recomputed_peak_bytes)}: a replay brings back at once what it dropped, or the "
            "peak is elsewhere; wrap several smaller blocks"
        )
        code = "peak_stays"
    return (Reason(code=code, block=block, sentence=f"{named(block)}: no saving: {what}."),)


def _kb(count: int) -> str:
    return f"{count / 1e3:,.0f} kB" if count < 10_000_000 else f"{count / 1e6:,.1f} MB"


def conditions(
    block: str, plain: Left, failed: list[tuple[str, Trial]], settings: CheckpointSettings
) -> tuple[Reason, ...]:
    """What being legal depends on."""
    call = plain.calls.get(block)
    found: list[Reason] = []

    def depends(code: str, what: str) -> None:
        found.append(Reason(code=code, block=block, sentence=f"{named(block)}: {what}"))

    if call and "torch" in call.drawn:
        depends("rng_preserved", "draws random numbers: legal with the random state preserved.")
    inside = f"{block}." if block else ""
    hooked = [name for name in plain.hooks if name == block or name.startswith(inside)]
    if settings.variant == "forward":
        hooked = [name for name in hooked if name != block]
    if hooked:
        depends(
            "hooks_repeat",
            f"the hooks of {listed(hooked)} fire again in every replay; nothing that is seen changes.",
        )
    for name, trial in failed:
        where = (trial.state or [gap.name for gap in trial.off] or ["its state"])[0]
        if name == "variant":
            other = trial.way.settings.variant
            depends(
                "variant", f"legal for the variant {settings.variant}; under {other}{_seen(trial)} not."
            )
        elif name == "mode" and call and call.drawn:
            depends("mode_kept", "legal while the model stays in its mode until backward has ended.")
        elif name == "two_forwards":
            depends(
                "two_forwards",
                f"legal while each forward is followed by its backward; after two of them {where} is as "
                "the batch left it that was replayed last.",
            )
        elif name == "step_in_backward":
            depends("no_step_in_backward", "legal unless an optimizer steps inside backward.")
    return tuple(found)


def said(way: Way, number: int) -> str:
    """What a step is, for whoever waits."""
    what = f"recompute {listed(map(named, way.blocks))}" if way.blocks else "plain"
    loop = "" if way.loop == "plain" else f", {way.loop.replace('_', ' ')}"
    stop = "" if way.settings.early_stop else ", early stop off"
    return f"step {number}: {what}, seed {way.seed}{loop}{stop}, variant {way.settings.variant}"
