"""What the graphs say that AOTAutograd hands to a backend: which ops of forward run again in backward.

Counters in Python see nothing of a compiled update. But what backward computes again stands in its
graph, a backend cannot take it out (forward hands over only what the partition lists), and each op
carries the labels of the region and the block that it was traced in.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from ..meters.flops import FORMULAS
from ..plans.names import Regions
from ..results import CompiledUpdate
from ..spec import Region

REGION, BLOCK, PART = "recomputed ", "block ", "part "
"""Prefixes of the labels that ops carry from the trace on."""


@dataclass
class Graphs:
    """The graphs of one compiled job."""

    compiled: int = 0
    """How often the backend was asked; more than once: something made it compile anew."""
    forward_ops: int = 0
    backward_ops: int = 0
    replayed: int = 0
    """Ops of forward that stand in the backward graph too; the partition makes plain do so as well."""
    replays: Counter[str] = field(default_factory=Counter)
    """By label of a region, a block, or a part of a region of several modules: its ops that run again
    because they were checkpointed."""
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By label of a region and name of an op: outputs of it that were to be kept, and are."""
    handed: Counter[str] = field(default_factory=Counter)
    """By label as in `replays`: ops whose output forward hands over, though no policy is to keep it."""
    flops: int = 0
    """Of forward and backward."""

    @property
    def recomputed_blocks(self) -> dict[str, int]:
        """By FQN of a block: its ops that run again because they were checkpointed."""
        return {
            label.removeprefix(BLOCK): ops
            for label, ops in self.replays.items()
            if label.startswith(BLOCK)
        }

    def record(self) -> CompiledUpdate:
        return CompiledUpdate(
            forward_ops=self.forward_ops,
            backward_ops=self.backward_ops,
            replayed_ops=self.replayed,
            recomputed_ops=self.recomputed_blocks,
        )

    def take_forward(self, graph: fx.Graph) -> None:
        self.forward_ops += sum(1 for _ in _computing(graph))
        self.flops += sum(map(_flops, graph.nodes))
        handed = {id(node) for node in graph.output_node().all_input_nodes}
        for node in _computing(graph):
            if id(node) not in handed and not any(id(user) in handed for user in _seen_as(node)):
                continue
            if _is_kept(node):
                self.kept.update((label, str(node.target)) for label in _labels(node))
            else:
                self.handed.update(_labels(node))

    def take_backward(self, graph: fx.Graph) -> None:
        self.backward_ops += sum(1 for _ in _computing(graph))
        self.flops += sum(map(_flops, graph.nodes))
        for node in _computing(graph):
            if is_replayed(node):
                self.replayed += 1
                if "ac_graph_id" in node.meta:
                    self.replays.update(_labels(node))


def label_of(regions: Regions, region: Region) -> str:
    """The label of a plan's region, told apart from one of the same modules inside it."""
    return f"{REGION}{regions.index(region)}: {' '.join(region.modules)}"


def is_replayed(node: fx.Node) -> bool:
    """Whether a node of a backward graph is one of forward, as the partition has marked it."""
    return node.meta.get("partitioner_tag") == "is_forward"


def _is_kept(node: fx.Node) -> bool:
    return getattr(node.meta.get("recompute"), "name", "") == "MUST_SAVE"


def _labels(node: fx.Node) -> Iterator[str]:
    return iter(node.meta.get("custom") or ())


def _computing(graph: fx.Graph) -> Iterator[fx.Node]:
    """The nodes that compute something: no views, no items of tuples, no inputs."""
    return filter(_computes, graph.nodes)


def _computes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and not _is_view(node.target)


def _seen_as(node: fx.Node) -> Iterator[fx.Node]:
    """Views and items of what a node gives."""
    return (user for user in node.users if not _computes(user))


def _is_view(operator: torch._ops.OpOverload) -> bool:
    """Whether an op's result is its argument, seen in another way."""
    returns = operator._schema.returns
    return bool(returns) and returns[0].alias_info is not None


def _flops(node: fx.Node) -> int:
    """Floating-point operations of a node, by the formulas that the counter of eager updates has."""
    operator, given = node.target, node.args
    if isinstance(operator, torch._ops.HigherOrderOperator):  # `run_with_rng_state(state, op, …)`
        inner = [one for one in given if isinstance(one, torch._ops.OpOverload)]
        if not inner:
            return 0
        operator, given = inner[0], given[given.index(inner[0]) + 1 :]
    packet = getattr(operator, "overloadpacket", None)
    values = tree_map(_value, (given, node.kwargs))
    if packet in FORMULAS:
        formula: Any = FORMULAS[packet]
        return int(formula(*tree_map(_shape, values[0]), **tree_map(_shape, values[1])))
    if packet not in flop_registry:
        return 0
    formula = flop_registry[packet]
    return int(formula(*values[0], **values[1], out_val=node.meta.get("val")))


def _value(leaf: Any) -> Any:
    return leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf


def _shape(leaf: Any) -> Any:
    return leaf.shape if isinstance(leaf, torch.Tensor) else leaf


# --- the canary -----------------------------------------------------------------------------------


def break_replay(graph: fx.Graph) -> int:
    """Make every second feature of what a checkpointed replay takes in 1 % too large, in a backward
    graph; returns how many of its inputs were. Weights are left alone unless it takes in nothing else.
    """
    replayed = {node for node in graph.nodes if is_replayed(node) and "ac_graph_id" in node.meta}
    entering = dict.fromkeys(
        given
        for node in graph.nodes
        if node in replayed
        for given in node.all_input_nodes
        if given not in replayed and _is_floating(given)
    )
    made = [node for node in entering if not node.name.startswith("primals")] or list(entering)
    for node in made:
        users = [user for user in node.users if user in replayed]
        with graph.inserting_before(min(users, key=list(graph.nodes).index)):
            disturbed = _disturbed(graph, node)
        for user in users:
            user.replace_input_with(node, disturbed)
    return len(made)


def _is_floating(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _disturbed(graph: fx.Graph, node: fx.Node) -> fx.Node:
    aten, last = torch.ops.aten, node.meta["val"].dim() - 1
    if last < 0:
        return _call(graph, aten.mul.Tensor, (node, 1.01))
    every_second = (last, 0, node.meta["val"].shape[last], 2)
    chosen = _call(graph, aten.slice.Tensor, (node, *every_second))
    larger = _call(graph, aten.mul.Tensor, (chosen, 1.01))
    return _call(graph, aten.slice_scatter.default, (node, larger, *every_second))


def _call(graph: fx.Graph, operator: Any, given: tuple[Any, ...]) -> fx.Node:
    node = graph.call_function(operator, given)
    values = tree_map(_value, given)
    mode = next(value.fake_mode for value in values if isinstance(value, FakeTensor))
    with mode:
        node.meta["val"] = operator(*values)
    return node
