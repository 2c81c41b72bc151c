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

    def block(self, number: int) -> str:
        """FQN of a block."""
        return f"blocks.{number}"

    @property
    def names(self) -> tuple[str, ...]:
        """FQNs of all blocks, in the order of forward."""
        return tuple(self.block(number) for number in range(self.blocks))


def anatomy_of(settings: GptSettings | ReceiptsSettings) -> Anatomy:
    """The anatomy of a workload: both are pre-norm transformers with the same names."""
    return Anatomy(settings.blocks, outside=("stem",) if settings.name == "receipts" else ())
