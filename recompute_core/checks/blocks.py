"""Are these blocks of this model safe to recompute? Any model, any module; found by recomputing them.

Plain against plain first; then recomputed against plain with early stop on and off (each hides what the
other shows), under several seeds, in both variants, and with what training loops do between forward and
backward. Never by class name, and never by "has randomness".
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..errors import InputError
from ..plans.apply import Call
from ..results import Comparison, Reason
from ..spec import CheckpointSettings
from ..workloads.update import seed_everything
from . import causes, python_state
from .causes import Trial
from .report import SEVERITY, BlockReport, BlockVerdict, Saving
from .step import (
    Context,
    Left,
    Step,
    Training,
    Way,
    by_name,
    copies_of,
    gaps,
    generators_kept,
    not_finite,
    nothing_finite,
    overflows,
    run,
    without,
)

SEEDS = (0, 1, 2)
EXACT = 1e-6
"""Largest relative gap that passes where plain repeats itself to the last bit: a replay does too."""
TOLERANCES = {"float32": 1e-5, "bfloat16": 1e-3, "float16": 1e-3}
"""The same where it does not, by the precision of the forward; the noise floor may raise it."""
LOSS_SCALE, LEAST_SCALE = 2.0**16, 2.0**-16
"""What a gradient scaler begins with, and how far down it is followed where gradients overflow."""
_NOISE_FACTOR = 4.0

Progress = Callable[[str], None]


def check_blocks(
    model: nn.Module | Callable[[], nn.Module],
    inputs: Any,
    blocks: Sequence[str],
    loss_fn: Callable[[Any], Tensor],
    *,
    rng: Literal["preserve", "ignore"] = "preserve",
    variant: Literal["call", "forward"] = "call",
    autocast: torch.dtype | str | None = None,
    forward_context: Context | None = None,
    step: Step | None = None,
    checkpoint: Call | None = None,
    candidate: Callable[[], nn.Module] | None = None,
    progress: Progress | None = None,
) -> BlockReport:
    """Check whether recomputing `blocks` gives the same gradients and leaves the same state.

    `model` is a module or, better, a function that builds one (a copy shares what its hooks refer to).
    `inputs` are its arguments: a tuple or list, a mapping of keyword arguments, or one tensor. `blocks`
    are FQNs, `""` the model itself; `loss_fn` takes the model's output. `autocast` is the dtype of an
    autocast around forward and loss (with float16 the loss is scaled for backward, as a gradient scaler
    does); `forward_context` makes any other context around them. Both are
    left before backward, as training loops do. `step(model, inputs, loss_fn) -> (output, loss)` replaces
    forward and backward as a whole; `checkpoint(function, *args, **kwargs)` replaces torch's
    non-reentrant checkpoint by your own; `candidate` builds the same model recomputing by itself (a
    helper of its own, a trainer's switch, a compiler's budget), compared as it is. `progress` is told
    what runs.

    The model is left as it was found. A block costs at most 24 training steps. Raises InputError for a
    block that the model does not have and for options that do not exist.
    """
    settings = _settings(rng, variant)
    dtype = _dtype(autocast)
    for name, value, expected in (
        ("model", model, "a module or a function that builds one"),
        ("loss_fn", loss_fn, "a function of the model's output"),
        ("forward_context", forward_context, "a function that makes a context"),
        ("step", step, "a function (model, inputs, loss_fn) -> (output, loss)"),
        ("checkpoint", checkpoint, "a function (function, *args, **kwargs)"),
        ("candidate", candidate, "a function that builds the model recomputing by itself"),
    ):
        is_module = name == "candidate" and isinstance(value, nn.Module)
        if is_module or (not callable(value) and (value is not None or name in ("model", "loss_fn"))):
            raise InputError(f"{name}: expected {expected}, got a {type(value).__name__}")
    build = copies_of(model) if isinstance(model, nn.Module) else model
    training = Training(
        build,
        inputs,
        loss_fn,
        _context(dtype, forward_context, inputs),
        step,
        candidate,
        loss_scale=LOSS_SCALE if dtype == torch.float16 and step is None else 1.0,
    )
    with generators_kept():
        first = model if isinstance(model, nn.Module) else _built(build)
        _checked_values(first)
        if not isinstance(model, nn.Module):
            again = _built(build)
            if _share(first, again):
                training = replace(training, build=copies_of(first))
            else:
                _checked_equal(first, again)
        names = _checked_blocks(first, blocks)
        functions = (training.loss_fn, training.context, training.step)
        restore = python_state.remembered(first, functions)
        tolerance = TOLERANCES[str(dtype or torch.float32).removeprefix("torch.")]
        check = _Check(
            training, names, settings, checkpoint, tolerance, restore, progress or (lambda _: None)
        )
        try:
            return check.report()
        finally:
            restore()


def _built(build: Callable[[], nn.Module]) -> nn.Module:
    seed_everything(0)
    try:
        model = build()
    except TypeError as error:
        if "required positional argument" not in str(error):
            raise
        raise InputError(f"model: the function that builds it takes no argument: {error}") from None
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model: expected a module or a function that builds one, got {type(model).__name__}"
        )
    return model


def _checked_values(model: nn.Module) -> None:
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    bare = next((name for name, tensor in held.items() if tensor.device.type == "meta"), None)
    if bare is not None:
        raise InputError(f"model: {bare} is on the meta device; give a model whose weights have values")


def _checked_equal(first: nn.Module, again: nn.Module) -> None:
    """Raises InputError when a function builds other weights each time under the same seed."""
    mine, theirs = dict(first.named_parameters()), dict(again.named_parameters())
    for name in [name for name in mine if name in theirs]:
        if python_state.content(mine[name]) != python_state.content(theirs[name]):
            raise InputError(
                f"model: the function builds another {name} each time, under the same seed too; seed "
                "what it draws from (torch, random and NumPy are seeded before each call)"
            )


def _share(model: nn.Module, other: nn.Module) -> bool:
    """Whether what a function builds is, in part, what it built before."""
    return not {id(module) for module in model.modules()}.isdisjoint(map(id, other.modules()))


def _settings(rng: str, variant: str) -> CheckpointSettings:
    for name, value, known in (
        ("rng", rng, ("preserve", "ignore")),
        ("variant", variant, ("call", "forward")),
    ):
        if value not in known:
            raise InputError(f"{name}: expected {' or '.join(known)}, got {value!r}")
    return CheckpointSettings(rng=rng, variant=variant)


def _dtype(autocast: torch.dtype | str | None) -> torch.dtype | None:
    dtype = getattr(torch, autocast, None) if isinstance(autocast, str) else autocast
    if autocast is not None and dtype not in (torch.bfloat16, torch.float16):
        raise InputError(f"autocast: expected bfloat16 or float16, got {autocast!r}")
    return dtype


def _context(dtype: torch.dtype | None, inner: Context | None, inputs: Any) -> Context:
    kinds = [leaf.device.type for leaf in tree_leaves(by_name(inputs)) if isinstance(leaf, Tensor)]

    def entered() -> Any:
        stack = ExitStack()
        if dtype is not None:
            stack.enter_context(torch.autocast((kinds or ["cpu"])[0], dtype=dtype))
        stack.enter_context(inner() if inner else nullcontext())
        return stack

    return entered


def _checked_blocks(model: nn.Module, blocks: Sequence[str]) -> tuple[str, ...]:
    """The blocks in the order of the model, outer before inner."""
    if isinstance(blocks, str):
        raise InputError(f"blocks: expected a list of FQNs, got the text {blocks!r}")
    if isinstance(blocks, nn.Module) or not all(isinstance(name, str) for name in blocks):
        raise InputError('blocks: expected the names of modules (FQNs), such as "blocks.0"')
    if not blocks:
        raise InputError("blocks: expected at least one FQN")
    order = [name for name, _ in model.named_modules(remove_duplicate=False)]
    for name in blocks:
        if name not in order:
            known = ", ".join(n for n in order if n and n.count(".") <= name.count("."))[:200]
            raise InputError(f"blocks: the model has no module {name!r}; it has {known}")
    return tuple(sorted(dict.fromkeys(blocks), key=order.index))


@dataclass
class _Check:
    training: Training
    blocks: tuple[str, ...]
    settings: CheckpointSettings
    own: Call | None
    tolerance: float
    restore: Callable[[], None]
    """Puts back what the model shares with the outside, before every step."""
    progress: Progress

    def __post_init__(self) -> None:
        self.steps = 0
        self._plain: dict[Way, Left] = {}
        self.warnings: list[str] = []
        self._gaps: list[float | None] = []
        self._noise = 0.0
        self._ignored: frozenset[str] = frozenset()

    @property
    def _ours(self) -> bool:
        """Whether it is our checkpoint that recomputes, whose settings can be changed."""
        return self.own is None and self.training.candidate is None

    def report(self) -> BlockReport:
        """Everything, cheapest question first."""
        plain = self._first()
        self._plain[Way()] = plain
        noise: float | None = None
        saving: Saving | None = None
        if plain.error is not None:
            verdicts = self._no_baseline(plain)
        elif not plain.has_graph:
            verdicts = [self._verdict(b, "no_saving", causes.no_graph(b)) for b in self.blocks]
        else:
            again = self._run(Way(), watched=self.blocks)
            noise = Comparison(gaps=gaps(plain, again)).largest_relative_gap
            self._note_baseline(plain)
            if nothing_finite(plain):
                verdicts = [self._verdict(b, "error", causes.nothing_finite(b)) for b in self.blocks]
            elif noise is None or noise > self.tolerance:
                verdicts = causes.not_deterministic(self.blocks, plain, again, noise)
            else:
                self._noise = noise
                self.tolerance = max(self.tolerance, _NOISE_FACTOR * noise) if noise else EXACT
                self._ignored = frozenset(causes.changed_state(plain, again))
                self._note_ignored()
                verdicts, saving = self._against_plain(plain)
        return BlockReport(
            blocks=tuple(verdicts),
            tolerance=self.tolerance,
            noise_floor=noise,
            largest_relative_gap=self._largest_gap,
            saving=saving,
            steps=self.steps,
            warnings=tuple(self.warnings),
        )

    def _first(self) -> Left:
        """The plain step; under float16 with the largest scale of the loss that overflows nowhere."""
        plain = self._run(Way(), watched=self.blocks)
        if self.training.loss_scale == 1:
            return plain
        while plain.error is None and overflows(plain) and self.training.loss_scale > LEAST_SCALE:
            self.training = replace(self.training, loss_scale=self.training.loss_scale / 2**8)
            plain = self._run(Way(), watched=self.blocks)
        self.warnings.append(
            f"float16: the loss was scaled by {self.training.loss_scale:g} for backward, as a gradient "
            "scaler does"
        )
        return plain

    @property
    def _largest_gap(self) -> float | None:
        known = [gap for gap in self._gaps if gap is not None]
        return max(known) if known and len(known) == len(self._gaps) else None

    def _note_ignored(self) -> None:
        if self._ignored:
            names = sorted(self._ignored)
            self.warnings.append(
                f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} differs from one plain step to "
                "the next, so what a replay does to it was not compared"
            )

    def _note_baseline(self, plain: Left) -> None:
        odd = not_finite(plain)
        if odd:
            self.warnings.append(
                f"plain itself is not finite ({', '.join(odd[:3])}{' …' if len(odd) > 3 else ''}): "
                "compared by the pattern of NaN and infinities, and in what is finite"
            )

    # --- plain raises ------------------------------------------------------------------------

    def _no_baseline(self, plain: Left) -> list[BlockVerdict]:
        """Plain raises; where only the user's step makes it, a silent recompute is the worse fault."""
        assert plain.error is not None
        if self.training.step is not None:
            found = self._run(self._way(self.blocks))
            usual = self._run(Way(), of=replace(self.training, step=None))
            if found.error is None and usual.error is None:
                return [
                    self._verdict(b, "parity_fail", causes.plain_refuses(b, plain.error))
                    for b in self.blocks
                ]
        return [self._verdict(b, "error", causes.plain_raises(b, plain.error)) for b in self.blocks]

    # --- recomputed against plain ------------------------------------------------------------

    def _against_plain(self, plain: Left) -> tuple[list[BlockVerdict], Saving | None]:
        together = self._trials(self.blocks)
        failed = _worst(together)
        if failed is None:
            return self._all_equal(plain, together)
        verdicts = []
        for block in self.blocks:
            whole = len(self.blocks) == 1 or self.training.candidate is not None
            alone = together if whole else self._trials((block,))
            wrong = _worst(alone)
            if wrong is not None:
                verdicts.append(self._diagnosed(block, wrong))
            elif block not in plain.calls:
                verdicts.append(self._verdict(block, "no_saving", causes.not_called(block)))
            else:
                depends = causes.conditions(block, plain, [], self.settings)
                verdicts.append(BlockVerdict(block=block, verdict="legal", conditions=depends))
        if all(one.verdict in ("legal", "no_saving") for one in verdicts):  # only together
            reason = causes.explain(self.blocks[-1], failed, plain, self.settings, together=self.blocks)
            verdicts[-1] = self._verdict(self.blocks[-1], failed.verdict, reason)
        return verdicts, None

    def _trials(self, blocks: tuple[str, ...]) -> list[Trial]:
        """Recomputed steps in the order in which faults are usually seen; an error ends it."""
        base = self._way(blocks)
        ways = [base]
        if self._ours:
            ways.append(without(base, early_stop=False))
        ways += [without(base, seed=seed) for seed in SEEDS[1:]]
        if self.training.step is None:
            ways.append(without(base, loop="two_forwards"))
        trials: list[Trial] = []
        for way in ways:
            reference = self._reference(way)
            if reference is None:
                continue
            trials.append(self._trial(way, reference))
            if trials[-1].verdict == "error":
                break
            if (trials[-1].verdict, way.loop) == ("illegal", "two_forwards"):
                # Of the last call alone, or a counter that the batch itself happens to leave alone?
                ways.append(without(base, loop="another_batch"))
        return trials

    def _trial(self, way: Way, reference: Left) -> Trial:
        trial = self._compared(way, reference)
        self._gaps.append(trial.gap)
        return trial

    def _compared(self, way: Way, reference: Left) -> Trial:
        found = self._run(way)
        trial = Trial(way, reference, found, self.tolerance, self._noise, self._ignored)
        assert trial.gaps is not None  # compared now, so that what was compared need not be kept
        found.tensors.clear()
        return trial

    def _reference(self, way: Way) -> Left | None:
        """Plain under the same seed and in the same loop; None where plain itself cannot do it."""
        if way.plain not in self._plain:
            self._plain[way.plain] = found = self._run(way.plain, watched=self.blocks)
            for block, call in found.calls.items():  # one that is left out at times is called at others
                self._plain[Way()].calls.setdefault(block, call).drawn |= call.drawn
        found = self._plain[way.plain]
        return None if found.error is not None else found

    def _diagnosed(self, block: str, trial: Trial) -> BlockVerdict:
        """A step or three more, to name the cause."""
        base, others = trial.way, dict[str, Trial]()
        for name, way in self._remedies(base) if trial.verdict != "illegal" else self._torchs(base):
            reference = self._reference(way)
            if reference is not None:
                others[name] = self._compared(way, reference)
        usual = replace(self.training, step=None)
        if self.training.step is not None and trial.verdict != "illegal":
            reference = self._run(Way(), of=usual)
            found = self._run(base, of=usual)
            others["step"] = Trial(base, reference, found, self.tolerance, self._noise, self._ignored)
        plain = self._plain[Way()]
        reasons = causes.explain(block, trial, plain, self.settings, remedies=others)
        return self._verdict(block, trial.verdict, reasons)

    def _remedies(self, base: Way) -> list[tuple[str, Way]]:
        found: list[tuple[str, Way]] = []
        if self.training.step is None and base.loop == "plain":
            found.append(("context", without(base, loop="context_kept")))
        if self._ours:
            found.append(("early_stop", without(base, early_stop=not base.settings.early_stop)))
            other = "forward" if base.settings.variant == "call" else "call"
            found.append(("variant", without(base, variant=other)))
        return found + self._torchs(base)

    def _torchs(self, base: Way) -> list[tuple[str, Way]]:
        """torch's own checkpoint in place of the user's."""
        return [] if self.own is None else [("torch", replace(base, own=None))]

    # --- all equal ---------------------------------------------------------------------------

    def _all_equal(self, plain: Left, trials: list[Trial]) -> tuple[list[BlockVerdict], Saving]:
        base = self._way(self.blocks)
        conditions = [("two_forwards", trial) for trial in trials if trial.failed]
        if self._ours:
            other = "forward" if self.settings.variant == "call" else "call"
            ways = {"variant": without(base, variant=other)}
        else:
            ways = {}
        if self.training.step is None:
            ways["mode"] = without(base, loop="eval_before_backward")
            ways["step_in_backward"] = without(base, loop="step_in_backward")
        for name, way in ways.items():
            reference = self._reference(way)
            if reference is not None:
                trial = self._compared(way, reference)
                if trial.failed:
                    conditions.append((name, trial))
        saving = self._saving(base)
        flat = saving.none and saving.is_telling
        verdicts = []
        for block in self.blocks:
            if block not in plain.calls:
                verdicts.append(self._verdict(block, "no_saving", causes.not_called(block)))
                continue
            depends = causes.conditions(block, plain, conditions, self.settings)
            verdicts.append(
                BlockVerdict(
                    block=block,
                    verdict="no_saving" if flat else "legal",
                    reasons=causes.no_saving(block, saving) if flat else (),
                    conditions=depends,
                )
            )
        return verdicts, saving

    def _saving(self, base: Way) -> Saving:
        plain = self._run(Way(), metered=True)
        recomputed = self._run(base, metered=True)
        return Saving(
            plain_held_bytes=plain.held_bytes,
            recomputed_held_bytes=recomputed.held_bytes,
            plain_peak_bytes=plain.peak_bytes,
            recomputed_peak_bytes=recomputed.peak_bytes,
        )

    # --- running -----------------------------------------------------------------------------

    def _way(self, blocks: tuple[str, ...]) -> Way:
        return Way(blocks, self.settings, self.own)

    def _run(
        self,
        way: Way,
        watched: tuple[str, ...] = (),
        metered: bool = False,
        of: Training | None = None,
    ) -> Left:
        self.steps += 2 if way.loop == "two_forwards" else 1
        self.progress(causes.said(way, self.steps))
        self.restore()
        return copy_context().run(run, of or self.training, way, watched, metered)

    def _verdict(self, block: str, verdict: Any, reasons: Reason | tuple[Reason, ...]) -> BlockVerdict:
        listed = reasons if isinstance(reasons, tuple) else (reasons,)
        return BlockVerdict(block=block, verdict=verdict, reasons=listed)


def _worst(trials: list[Trial]) -> Trial | None:
    """The trial that decides: of the user's own loop before others, in the severest verdict.

    State that is other after two forwards, and only then, is no fault: what a module remembers of its
    last call is of the batch that was replayed last.
    """
    wrong = [t for t in trials if t.failed and (t.verdict, t.way.loop) != ("illegal", "two_forwards")]
    loops = ("plain", "another_batch")
    usual = [t for t in wrong if t.way.loop in loops and t.way.settings.early_stop]
    return max(usual or wrong, key=lambda one: SEVERITY.index(one.verdict), default=None)
