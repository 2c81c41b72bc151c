"""Which modules a workload is made of, by name: what recipes speak of. No torch."""

from dataclasses import dataclass

from ..spec import GptSettings, ReceiptsSettings


@dataclass(frozen=True)
class Anatomy:
    """The blocks of a model and the parts of each, as FQNs relative to the block."""

    blocks: int
    norms: tuple[str, ...] = ("norm1", "norm2")
    attention: str = "attn"
    mlp: str = "mlp"
    outside: tuple[str, ...] = ()
    """FQNs of modules before the blocks that a plan may recompute too; no recipe does."""
    matmuls: tuple[str, ...] = ()
    """The modules in a block that multiply by a weight, in the order of forward."""
    others: tuple[str, ...] = ()
    """The modules in a block that are neither parts nor matmuls."""
    layers: tuple[str, ...] = ()
    """FQNs of the modules inside those of `outside`."""

    def block(self, number: int) -> str:
        """FQN of a block."""
        return f"blocks.{number}"

    @property
    def names(self) -> tuple[str, ...]:
        """FQNs of all blocks, in the order of forward."""
        return tuple(self.block(number) for number in range(self.blocks))

    def has(self, module: str) -> bool:
        """Whether a block, what is recomputed before the blocks, or a module inside them goes by it."""
        inside = (*self.norms, self.attention, self.mlp, *self.matmuls, *self.others)
        known = {f"{block}{part}" for block in self.names for part in ("", *(f".{n}" for n in inside))}
        return module in known or module in self.outside or module in self.layers


def anatomy_of(settings: GptSettings | ReceiptsSettings) -> Anatomy:
    """The anatomy of a workload: both are pre-norm transformers, and their parts have the same names."""
    if settings.name == "gpt":
        attention = ("attn.query", "attn.key", "attn.value", "attn.out")
        return Anatomy(settings.blocks, matmuls=(*attention, "mlp.gate", "mlp.up", "mlp.down"))
    return Anatomy(
        settings.blocks,
        outside=("stem",),
        matmuls=("attn.qkv", "attn.out", "mlp.up", "mlp.down"),
        others=("mlp.dropout", "dropout"),
        layers=tuple(f"stem.{number}" for number in range(10)),
    )
