"""One training step of anybody's model, plain or with blocks recomputed, and all that it leaves."""

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from ..errors import InputError
from ..meters.estimate import LiveBytes
from ..plans.apply import Call, Wrap, applied, shadowed
from ..results import Gap
from ..spec import CheckpointSettings, Region
from ..workloads.device import is_out_of_memory
from ..workloads.job import called_with
from ..workloads.update import seed_everything
from . import python_state
from .python_state import plain_name
from .snapshot import Snapshot, compare

Context = Callable[[], AbstractContextManager[Any]]
Step = Callable[[nn.Module, Any, Callable[[Any], Tensor]], tuple[Any, Tensor]]
"""The user's own forward and backward: `(model, inputs, loss_fn) -> (output, loss)`."""
Loop = Literal[
    "plain", "another_batch", "two_forwards", "context_kept", "eval_before_backward", "step_in_backward"
]
"""What a training loop does between forward and backward; `plain` leaves the contexts and goes on."""

_RATE = 0.1


@dataclass(frozen=True)
class Training:
    """What is trained: every step starts from a fresh model and fresh inputs."""

    build: Callable[[], nn.Module]
    inputs: Any
    loss_fn: Callable[[Any], Tensor]
    context: Context
    """Around forward and loss; left before backward."""
    step: Step | None = None
    candidate: Callable[[], nn.Module] | None = None
    """Builds the same model recomputing by itself; stands in for a plan put on by us."""
    loss_scale: float = 1.0
    """What the loss is multiplied by for backward, and the gradients divided by after it."""


@dataclass(frozen=True)
class Way:
    """How one step is run."""

    blocks: tuple[str, ...] = ()
    """Recomputed, outer before inner; none is plain."""
    settings: CheckpointSettings = field(default_factory=CheckpointSettings)
    own: Call | None = None
    """The user's checkpoint function, called as `own(function, *args, **kwargs)`."""
    seed: int = 0
    loop: Loop = "plain"

    @property
    def plain(self) -> "Way":
        """The step that this one is compared with."""
        return Way(seed=self.seed, loop=self.loop)


@dataclass(frozen=True)
class Left:
    """What a step left behind."""

    error: Exception | None
    has_graph: bool
    """Whether the loss required a gradient."""
    tensors: Snapshot
    state: dict[str, Any]
    """What each place holds that Python code can change, by its name."""
    before: dict[str, Any] | None
    """The same before the step, where a candidate of the user's may start from other attributes."""
    by_hook: dict[str, str]
    """The module whose hook changes a place, for places that only hooks reach."""
    hooks: tuple[str, ...]
    """FQNs of the modules that have forward hooks."""
    calls: "dict[str, BlockCall]"
    """The first call of each watched block."""
    held_bytes: int = 0
    peak_bytes: int = 0


@dataclass
class BlockCall:
    """What is seen of a block's first call in a step."""

    drawn: set[str]
    """Random generators it moved: torch, random, numpy."""
    given: str
    """Digest of its arguments."""
    gave: str
    """Digest of its output."""
    arguments: Any
    """What it was given."""
    after: Any
    """How those were after the call."""
    changed_inside: bool
    """Whether the call changed an argument in place, tensor or container."""
    changed_later: bool = False
    """Whether an argument was changed between the call and backward."""


def run(training: Training, way: Way, watched: tuple[str, ...] = (), metered: bool = False) -> Left:
    """One step from a fresh model; an exception in it is kept, running out of memory is raised."""
    seed_everything(0)
    by_itself = training.candidate is not None and bool(way.blocks)
    model = training.candidate() if training.candidate and by_itself else training.build()
    functions = (training.loss_fn, training.context, training.step)
    before = _state(python_state.places(model, functions)) if training.candidate else None
    theirs = training.step is not None and way.loop == "plain"
    inputs = tree_map(fresh, training.inputs if theirs else by_name(training.inputs))
    leaves = [leaf for leaf in tree_leaves(by_name(inputs)) if isinstance(leaf, Tensor)]
    optimizer = _optimizer(model)
    modules = {} if by_itself else {model.get_submodule(name): name for name in way.blocks}
    regions = tuple(Region.model_construct(modules=(name,), keep=()) for name in modules.values())
    calls: dict[str, BlockCall] = {}
    progress = _Progress(calls)
    if metered:  # gradients are state, as in every other meter, and no part of the peak
        for parameter in model.parameters():
            if parameter.requires_grad and not is_lazy(parameter):
                parameter.grad = torch.zeros_like(parameter)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    tensors_before = (*model.parameters(), *gradients, *model.buffers(), *leaves)
    known = [tensor for tensor in tensors_before if not is_lazy(tensor)]
    meter = LiveBytes(known) if metered else None
    error: Exception | None = None
    output = loss = None
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_watching(model, watched, calls))
        stack.enter_context(_applied(model, regions, way))
        if way.loop == "step_in_backward":
            stack.enter_context(_stepping_in_backward(model))
        seed_everything(way.seed)
        if meter is not None:
            stack.enter_context(meter)
        try:
            if training.step is not None and way.loop == "plain":
                output, loss = training.step(model, inputs, training.loss_fn)
                _checked_loss("step", loss)
                progress.forward_done(None)
            else:
                output, loss = _usual_step(training, way.loop, model, inputs, progress, meter)
        except Exception as raised:
            if is_out_of_memory(raised) or isinstance(raised, InputError):
                raise
            error = raised
        except SystemExit as raised:
            error = RuntimeError(f"the step ends the program: SystemExit {raised.code}")
    has_graph = loss is None or bool(loss.requires_grad)
    tensors: Snapshot = {}
    if error is None and output is not None and loss is not None:
        tensors = _tensors(model, output, loss, leaves)
        if optimizer is not None and way.loop != "step_in_backward":
            optimizer.step()
        tensors |= {f"weight/{plain_name(name)}": _dense(p) for name, p in model.named_parameters()}
    found = python_state.places(model, functions)
    return Left(
        error=error,
        has_graph=has_graph,
        tensors=tensors,
        state=_state(found),
        before=before,
        by_hook={name: place.hook for name, place in found.items() if place.hook is not None},
        hooks=tuple(
            plain_name(name)
            for name, m in model.named_modules()
            if m._forward_hooks or m._forward_pre_hooks
        ),
        calls=calls,
        held_bytes=progress.held,
        peak_bytes=meter.peak if meter else 0,
    )


def _state(found: dict[str, python_state.Place]) -> dict[str, Any]:
    return {name: python_state.content(place.value) for name, place in found.items()}


class _Progress:
    """Looks at what forward has left."""

    def __init__(self, calls: dict[str, BlockCall]) -> None:
        self.held = 0
        self._calls = calls

    def forward_done(self, meter: LiveBytes | None) -> None:
        self.held = meter.alive if meter else 0
        for call in self._calls.values():
            call.changed_later = _condition(call.arguments) != call.after
            call.arguments = None  # they hold the graph, and that the model


def _forward(training: Training, model: nn.Module, inputs: Any) -> tuple[Any, Tensor]:
    args, kwargs = called_with(inputs)
    output = model(*args, **kwargs)
    loss = training.loss_fn(output)
    _checked_loss("loss_fn", loss)
    return output, loss


def _checked_loss(where: str, loss: Any) -> None:
    if not isinstance(loss, Tensor):
        raise InputError(f"{where}: expected the loss as a tensor, got {type(loss).__name__}")
    if loss.numel() != 1:
        raise InputError(f"{where}: expected a loss of one number, got the shape {tuple(loss.shape)}")


def by_name(inputs: Any) -> Any:
    """The inputs, with any mapping of them as a dict: torch sees no tensor inside of another kind."""
    return dict(inputs) if isinstance(inputs, Mapping) else inputs


def _usual_step(
    training: Training,
    loop: Loop,
    model: nn.Module,
    inputs: Any,
    progress: _Progress,
    meter: LiveBytes | None,
) -> tuple[Any, Tensor]:
    """Forward and backward, with what the loop does between them.

    After two forwards, as contrastive and adversarial losses do them, the outputs are a pair.
    """
    with ExitStack() as until_backward_ends:
        with ExitStack() as until_forward_ends:
            until_forward_ends.enter_context(training.context())
            another = tree_map(_turned, inputs) if loop in ("another_batch", "two_forwards") else None
            output, loss = _forward(training, model, another if loop == "another_batch" else inputs)
            if loop == "two_forwards":
                other, more = _forward(training, model, another)
                output, loss = (output, other), loss + more
            if loop == "context_kept":
                until_backward_ends.push(until_forward_ends.pop_all())
        progress.forward_done(meter)
        if loop == "eval_before_backward":
            until_backward_ends.enter_context(_evaluating(model))
        if loss.requires_grad:
            # An optimizer inside backward takes gradients before anybody could divide them.
            scale = 1.0 if loop == "step_in_backward" else training.loss_scale
            (loss * scale).backward()  # type: ignore[no-untyped-call]
            _unscale(model, inputs, scale)
    return output, loss


def _unscale(model: nn.Module, inputs: Any, scale: float) -> None:
    """Divide every gradient, as a gradient scaler does before the optimizer's step."""
    leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
    every = {id(t): t for t in (*model.parameters(), *leaves) if t.is_leaf and t.grad is not None}
    for tensor in every.values() if scale != 1 else ():
        assert tensor.grad is not None
        tensor.grad.div_(scale)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


# --- fresh models and inputs ----------------------------------------------------------------------


def copies_of(model: nn.Module) -> Callable[[], nn.Module]:
    """Makes fresh copies of a model. Raises InputError when it cannot be copied."""

    def build() -> nn.Module:
        try:
            return copy.deepcopy(model, _with_graph_copied(model))
        except Exception as error:
            raise InputError(
                f"model: cannot be copied ({type(error).__name__}: {str(error).splitlines()[0][:120]}); "
                "give a function that builds it instead"
            ) from None

    return build


def _with_graph_copied(model: nn.Module) -> dict[int, Any]:
    """A memo for deepcopy with the tensors that it refuses, those with a history."""
    kept = [leaf for module in model.modules() for leaf in tree_leaves(dict(vars(module)))]
    return {id(t): t.detach().clone() for t in kept if isinstance(t, Tensor) and not t.is_leaf}


def fresh(value: Any) -> Any:
    """A copy of one leaf of the inputs, without a history."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)  # an object that holds tensors, a list that is popped from
    return value.detach().clone().requires_grad_(value.requires_grad)


def _turned(value: Any) -> Any:
    """Another batch made of the same numbers; masks stay."""
    if not isinstance(value, Tensor) or value.dim() == 0 or value.dtype == torch.bool:
        return value
    turned = value.detach().flip(0 if value.shape[0] > 1 else -1)
    scaled = turned * 3 if turned.is_floating_point() or turned.is_complex() else turned
    return scaled.requires_grad_(value.requires_grad)


def _optimizer(model: nn.Module) -> torch.optim.Optimizer | None:
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(trainable, lr=_RATE, foreach=False) if trainable else None


# --- recomputing and watching ---------------------------------------------------------------------


def _applied(model: nn.Module, regions: tuple[Region, ...], way: Way) -> AbstractContextManager[None]:
    own: Wrap | None = None
    if way.own is not None:
        checkpoint = way.own

        def own(call: Call) -> Call:
            return lambda *args, **kwargs: checkpoint(call, *args, **kwargs)

    return applied(model, regions, way.settings, own)


@contextmanager
def _stepping_in_backward(model: nn.Module) -> Iterator[None]:
    """Each weight moves as soon as its gradient is there."""

    def step(parameter: Tensor) -> None:
        if parameter.grad is not None:
            with torch.no_grad():
                parameter.add_(parameter.grad, alpha=-_RATE)

    with ExitStack() as stack:
        for parameter in model.parameters():
            if parameter.requires_grad and not is_lazy(parameter):
                handle = parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
                stack.callback(handle.remove)
        yield


@contextmanager
def _watching(model: nn.Module, watched: tuple[str, ...], calls: dict[str, BlockCall]) -> Iterator[None]:
    with ExitStack() as stack:
        for name in watched:
            module = model.get_submodule(name)
            watching = _watched(name, module._call_impl, calls)
            stack.enter_context(shadowed(module, "_call_impl", watching))
        yield


def _watched(name: str, call: Call, calls: dict[str, BlockCall]) -> Call:
    def watched(*args: Any, **kwargs: Any) -> Any:
        if name in calls:
            return call(*args, **kwargs)
        arguments, given, states = (args, kwargs), _digest((args, kwargs)), _generators()
        before = _condition(arguments)
        result = call(*args, **kwargs)
        after = _condition(arguments)
        calls[name] = BlockCall(
            drawn={kind for kind, state in _generators().items() if state != states[kind]},
            given=given,
            gave=_digest(result),
            arguments=arguments,
            after=after,
            changed_inside=after != before,
        )
        return result

    return watched


def _condition(arguments: Any) -> Any:
    """What shows that arguments were changed: their structure, versions of tensors, other values."""
    leaves, structure = tree_flatten(arguments)
    return str(structure), [
        leaf._version if isinstance(leaf, Tensor) else python_state.content(leaf) for leaf in leaves
    ]


def _digest(value: Any) -> str:
    return repr(python_state.content(tree_flatten(value)[0]))


def _generators() -> dict[str, Any]:
    with torch._C._DisableFuncTorch():  # a step may be inside of a transform
        drawn = [state.numpy().tobytes() for state in _torch_states()]
    return {
        "torch": drawn,
        "random": random.getstate(),
        "numpy": repr(np.random.get_state(legacy=False)),
    }


def _torch_states() -> list[Tensor]:
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *on_devices]


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put the states of torch's, Python's and NumPy's generators back at the end."""
    python, array = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)


# --- what a step leaves ---------------------------------------------------------------------------


def _tensors(model: nn.Module, output: Any, loss: Tensor, leaves: list[Tensor]) -> Snapshot:
    found = {"loss/": _dense(loss)}
    for number, leaf in enumerate(tree_leaves(output)):
        if isinstance(leaf, Tensor):
            found[f"output/{number}"] = _dense(leaf)
    for number, leaf in enumerate(leaves):
        if leaf.grad is not None:
            found[f"input_grad/input {number}"] = _dense(leaf.grad)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"grad/{plain_name(name)}"] = _dense(parameter.grad)
    found |= {f"buffer/{plain_name(name)}": _dense(buffer) for name, buffer in model.named_buffers()}
    for kind, state in _generators().items():
        found[f"rng/{kind}"] = torch.tensor(list(python_state.digest(repr(state))), dtype=torch.uint8)
    return found


def _dense(tensor: Tensor) -> Tensor:
    plain = tensor.detach()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    return plain.to("cpu", copy=True).contiguous()


def gaps(reference: Left, found: Left) -> tuple[Gap, ...]:
    """The gap of every tensor; where plain is not finite, the pattern is compared, and the rest."""
    mine, theirs = dict(reference.tensors), dict(found.tensors)
    for key in mine.keys() & theirs.keys():
        a, b = mine[key], theirs[key]
        if not a.is_floating_point() and not a.is_complex():
            continue
        holes = ~torch.isfinite(a)
        if a.shape == b.shape and holes.any() and _same_pattern(a, b, holes):
            mine[key], theirs[key] = (t.masked_fill(holes, 0) for t in (a, b))
    return compare(mine, theirs)


def _same_pattern(a: Tensor, b: Tensor, holes: Tensor) -> bool:
    if not torch.equal(holes, ~torch.isfinite(b)):
        return False
    kinds = [torch.nan_to_num(t[holes].abs() if t.is_complex() else t[holes], nan=0.5) for t in (a, b)]
    return torch.equal(kinds[0], kinds[1])


def not_finite(left: Left) -> list[str]:
    """The tensors of a step that hold NaN or infinities, buffers aside."""
    return [
        key
        for key, tensor in left.tensors.items()
        if not key.startswith("buffer/")
        and (tensor.is_floating_point() or tensor.is_complex())
        and not bool(torch.isfinite(tensor).all())
    ]


def overflows(left: Left) -> bool:
    """Whether a gradient holds what is not finite."""
    gradients = (t for key, t in left.tensors.items() if key.startswith(("grad/", "input_grad/")))
    return any(not bool(torch.isfinite(t).all()) for t in gradients)


def nothing_finite(left: Left) -> bool:
    """Whether nothing can be compared: no gradient holds a finite number, or no output anything."""
    gradients = [t for key, t in left.tensors.items() if key.startswith(("grad/", "input_grad/"))]
    outputs = [t for key, t in left.tensors.items() if key.startswith("output/")]
    no_gradient = bool(gradients) and not any(bool(torch.isfinite(t).any()) for t in gradients)
    return no_gradient or (bool(outputs) and all(t.numel() == 0 for t in outputs))


def without(way: Way, **changes: Any) -> Way:
    """The way with settings changed; `early_stop` and `variant` belong to its checkpoint settings."""
    inner: dict[str, Any] = {
        key: changes.pop(key) for key in ("early_stop", "variant") if key in changes
    }
    return replace(way, settings=way.settings.model_copy(update=inner), **changes)
