"""Which modules a workload is made of, by name: what recipes speak of. No torch."""

from ..errors import InputError
from ..settings import Anatomy, GptSettings, OwnSettings, Settings

_NORMS = ("norm1", "norm2")


def anatomy_of(settings: Settings) -> Anatomy:
    """The anatomy of a workload; both of ours are pre-norm transformers whose parts have the same names.

    Raises InputError for somebody's own model that nobody has looked at yet (`studies.looking`).
    """
    if isinstance(settings, OwnSettings):
        if settings.anatomy is None:
            raise InputError(f"the blocks of {settings.name} are not known yet")
        return settings.anatomy
    names = tuple(f"blocks.{number}" for number in range(settings.blocks))
    if isinstance(settings, GptSettings):
        attention = ("attn.query", "attn.key", "attn.value", "attn.out")
        return Anatomy.model_construct(
            names=names,
            norms=_NORMS,
            attention="attn",
            mlp="mlp",
            matmuls=(*attention, "mlp.gate", "mlp.up", "mlp.down"),
        )
    return Anatomy.model_construct(
        names=names,
        norms=_NORMS,
        attention="attn",
        mlp="mlp",
        outside=("stem",),
        matmuls=("attn.qkv", "attn.out", "mlp.up", "mlp.down"),
        others=("mlp.dropout", "dropout"),
        layers=tuple(f"stem.{number}" for number in range(10)),
    )
