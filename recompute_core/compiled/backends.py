"""The backends of a compiled study, with someone in between who sees the graphs that they are handed."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import fx
from torch._functorch import config as functorch_config

from ..spec import Backend

Compiler = Callable[..., Any]
Look = Callable[[fx.GraphModule, bool], None]
"""Is shown each graph before it is compiled, and whether it is that of backward; it may change it."""


def backend_of(name: Backend, budget: int | None, look: Look) -> Compiler:
    """The backend of this name for one compiled function, under a memory budget in percent.

    Each is an object of its own: by it dynamo tells apart what was compiled for plain and under a plan.
    """

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        # A hit in AOTAutograd's cache would hand over no graph to look at; kernels are cached anyway.
        share = 1.0 if budget is None else budget / 100
        with functorch_config.patch(enable_autograd_cache=False, activation_memory_budget=share):
            return _MAKES[name](look)(graph, inputs)

    return backend


def _inductor(look: Look) -> Compiler:
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def looking(graph: fx.GraphModule, inputs: Any, **settings: Any) -> Any:
        look(graph, bool(settings.get("is_backward")))
        return compile_fx_inner(graph, inputs, **settings)

    return partial(compile_fx, inner_compile=looking)


def _aot_eager(look: Look) -> Compiler:
    from torch._dynamo.backends.debugging import aot_eager

    return partial(aot_eager, fw_compiler=_running(look, False), bw_compiler=_running(look, True))


def _aot_eager_decomposed(look: Look) -> Compiler:
    """As torch makes the backend of this name, which takes no compilers."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    def compiling(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        with functorch_config.patch(unlift_effect_tokens=True):
            return aot_autograd(
                fw_compiler=_running(look, False),
                bw_compiler=_running(look, True),
                decompositions=select_decomp_table,
                partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
            )(graph, inputs)

    return compiling


_MAKES: dict[Backend, Callable[[Look], Compiler]] = {
    "inductor": _inductor,
    "aot_eager": _aot_eager,
    "aot_eager_decomp_partition": _aot_eager_decomposed,
}


def _running(look: Look, is_backward: bool) -> Compiler:
    """What runs a graph op by op."""
    from torch._dynamo.backends.debugging import boxed_nop

    def compiling(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        look(graph, is_backward)
        return boxed_nop(graph, inputs)

    return compiling
