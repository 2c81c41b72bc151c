"""Putting a plan on a model and taking it off again, leaving the very same model.

A plan shadows one method of each block on the instance: `_call_impl` for the variant `call` (the
module's hooks are recomputed too) or `forward` for the variant `forward` (hooks run once). No module
is wrapped, so FQNs, parameters and state dicts stay as they are.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from ..spec import CheckpointSettings

Call = Callable[..., Any]
Wrap = Callable[[Call], Call]
Applied = Callable[[], AbstractContextManager[None]]
"""Puts a plan on a model for as long as the context lasts."""


def recompute(settings: CheckpointSettings) -> Wrap:
    """What turns a block's call into a recomputed one (`torch.utils.checkpoint`, non-reentrant)."""

    def wrap(call: Call) -> Call:
        return partial(
            checkpoint,
            call,
            use_reentrant=False,
            preserve_rng_state=settings.rng == "preserve",
            early_stop=settings.early_stop,
        )

    return wrap


@contextmanager
def applied(
    model: nn.Module,
    blocks: tuple[str, ...],
    settings: CheckpointSettings,
    wrap: Wrap | None = None,
) -> Iterator[None]:
    """Within the context, the named blocks (FQNs) of `model` are recomputed in backward.

    `wrap` replaces the way a call is recomputed; the canary uses it to break one on purpose.
    """
    wrap = wrap or recompute(settings)
    method = "_call_impl" if settings.variant == "call" else "forward"
    with ExitStack() as stack:
        for name in blocks:
            module = model.get_submodule(name)
            stack.enter_context(shadowed(module, method, wrap(getattr(module, method))))
        yield


@contextmanager
def shadowed(module: nn.Module, method: str, replacement: Call) -> Iterator[None]:
    """Within the context, `replacement` stands in for a method of this one instance."""
    earlier = vars(module).get(method)
    setattr(module, method, replacement)
    try:
        yield
    finally:
        if earlier is None:
            delattr(module, method)
        else:
            setattr(module, method, earlier)
