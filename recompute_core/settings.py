"""What may be trained: the settings of each workload, and the sizes that a shape may change. No torch.

Every setting's one-line docstring is its help text on the command line and its tooltip in the browser.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
Fqn = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^.\s]+(\.[^.\s]+)*$")]


class Frozen(BaseModel):
    """A record that is checked once and never changes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, raw: Any) -> Any:
        for name, value in raw.items() if isinstance(raw, dict) else ():
            field = cls.model_fields.get(name) if isinstance(name, str) else None
            if isinstance(value, bool) and field is not None and field.annotation is not bool:
                raise ValueError(f".{name}: expected a value, got {str(value).lower()}")
        return raw


class GptSettings(Frozen):
    """A pre-norm GPT (RMSNorm, RoPE, SwiGLU, tied head) on seeded token ids."""

    name: Literal["gpt"] = "gpt"
    blocks: Annotated[int, Field(ge=1, le=1024)] = 6
    """Transformer blocks."""
    width: Positive = 256
    """Model width; a multiple of twice the number of heads."""
    heads: Positive = 8
    """Attention heads."""
    vocab: Annotated[int, Field(ge=2, le=2**31 - 1)] = 65
    """Vocabulary size."""
    seq_len: Positive = 512
    """Tokens in a sequence."""
    batch: Positive = 8
    """Sequences in a batch."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "GptSettings":
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width {self.width} must be a multiple of {2 * self.heads}, twice the number of heads"
            )
        return self


class ReceiptsSettings(Frozen):
    """A receipt-quality encoder: a convolutional stem and transformer blocks on grey photos."""

    name: Literal["receipts"] = "receipts"
    blocks: Annotated[int, Field(ge=1, le=1024)] = 6
    """Transformer blocks."""
    width: Positive = 192
    """Model width; a multiple of the number of heads."""
    heads: Positive = 6
    """Attention heads."""
    height: Annotated[int, Field(ge=32, le=4096, multiple_of=16)] = 192
    """Photo height in pixels; a multiple of 16."""
    image_width: Annotated[int, Field(ge=32, le=4096, multiple_of=16)] = 96
    """Photo width in pixels; a multiple of 16."""
    batch: Positive = 16
    """Photos in the fixed labelled batch."""
    norm: Literal["layer", "batch"] = "layer"
    """Normalisation inside the blocks: layer or batch."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout probability inside the blocks."""
    images: str | None = None
    """Folder with a manifest.csv or manifest.parquet of your own photos; empty for the rendered set."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "ReceiptsSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of the {self.heads} heads")
        return self


class Anatomy(Frozen):
    """The blocks of a model, and the parts of each, as FQNs relative to it: what plans speak of."""

    names: Annotated[tuple[Fqn, ...], Field(min_length=1, max_length=1024)]
    """FQNs of all blocks, in the order of forward."""
    norms: tuple[Fqn, ...] = ()
    attention: str = ""
    """Empty where no part of every block is known as its attention; so is `mlp`."""
    mlp: str = ""
    outside: tuple[Fqn, ...] = ()
    """FQNs of modules before the blocks that a plan may recompute too; no recipe does."""
    matmuls: tuple[Fqn, ...] = ()
    """The modules in a block that multiply by a weight, in the order of forward."""
    others: tuple[Fqn, ...] = ()
    """The modules in a block that are neither parts nor matmuls."""
    layers: tuple[Fqn, ...] = ()
    """FQNs of the modules inside those of `outside`."""
    parameters: int = 0
    """Of the whole model, where a look at it has counted them."""
    alike: bool = True
    """Whether all blocks have weights of the same shapes, so that counting them is weighing them."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self.names)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a block that recipes speak of; those that are known."""
        return (*self.norms, *filter(None, (self.attention, self.mlp)))

    def has(self, module: str) -> bool:
        """Whether a block, what is recomputed before the blocks, or a module inside them goes by it."""
        if module in self.names or module in self.outside or module in self.layers:
            return True
        inside = (*self.parts, *self.matmuls, *self.others)
        return any(
            module.removeprefix(f"{block}.") in inside
            for block in self.names
            if module.startswith(f"{block}.")
        )


class OwnSettings(Frozen):
    """Somebody's own model: hf:CONFIG of transformers, timm:MODEL, or own:NAME, a registered factory."""

    name: Annotated[str, Field(max_length=400, pattern=r"^(hf|timm|own):\S+$")]
    batch: Positive | None = None
    """Sequences or images in a batch, 2 unless said; a factory brings its own batch."""
    seq_len: Positive | None = None
    """Tokens in a sequence of an hf: model, 64 unless said."""
    blocks: Annotated[tuple[Fqn, ...], Field(max_length=1024)] = ()
    """FQNs of the candidate blocks, in the order of forward; empty: repeated modules are taken."""
    anatomy: Anatomy | None = None
    """What a look at the model has found; filled in when a study of it is admitted."""

    @model_validator(mode="before")
    @classmethod
    def _sizes_in_the_name(cls, raw: Any) -> Any:
        """`?batch=4` and `?seq_len=128` of a name are sizes, which a shape may change."""
        if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
            return raw
        what, _, query = raw["name"].partition("?")
        kind = what.partition(":")[0]
        usual: dict[str, Any] = {"hf": {"batch": 2, "seq_len": 64}, "timm": {"batch": 2}}.get(kind, {})
        kept, given = [], {}
        for part in filter(None, query.split("&")):
            key, equals, text = part.partition("=")
            if equals and key in usual and key not in given:
                given[key] = text
            else:
                kept.append(part)
        found = {key: value for key, value in raw.items() if value is not None}
        name = "?".join(filter(None, (what, "&".join(kept))))
        return {**usual, **given, **found, "name": name}

    @model_validator(mode="after")
    def _sizes_it_has(self) -> "OwnSettings":
        known = size_fields(self)
        for size in ("batch", "seq_len"):
            if getattr(self, size) is not None and size not in known:
                raise ValueError(f".{size}: {self.name} has no such size")
        return self

    @property
    def kind(self) -> str:
        """Who makes it: hf, timm or own."""
        return self.name.partition(":")[0]


Settings = GptSettings | ReceiptsSettings | OwnSettings
OURS: dict[str, type[GptSettings] | type[ReceiptsSettings]] = {
    "gpt": GptSettings,
    "receipts": ReceiptsSettings,
}
"""Our own workloads."""
OTHERS = "hf:CONFIG, timm:MODEL, own:NAME"
"""How others' models are named."""


def is_own(name: str) -> bool:
    """Whether a workload's name is that of somebody's own model."""
    return name.partition(":")[0] in ("hf", "timm", "own") and ":" in name


def _tag(raw: Any) -> str:
    name = raw.get("name", "gpt") if isinstance(raw, dict) else raw.name
    return name if name in OURS else "own"


WorkloadSettings = Annotated[
    Annotated[GptSettings, Tag("gpt")]
    | Annotated[ReceiptsSettings, Tag("receipts")]
    | Annotated[OwnSettings, Tag("own")],
    Discriminator(_tag),
]


def size_fields(settings: Settings) -> tuple[str, ...]:
    """The settings of a workload that a shape may override."""
    if isinstance(settings, OwnSettings):
        return {"hf": ("seq_len", "batch"), "timm": ("batch",)}.get(settings.kind, ())
    if isinstance(settings, GptSettings):
        return ("seq_len", "batch")
    return ("height", "image_width", "batch")


def shape_key(settings: Settings) -> str:
    """A short name of a shape, the same everywhere: `T=512 B=8` or `192x96 B=16`."""
    if isinstance(settings, ReceiptsSettings):
        return f"{settings.height}x{settings.image_width} B={settings.batch}"
    short = {"seq_len": "T", "batch": "B"}
    sizes = [f"{short[name]}={getattr(settings, name)}" for name in size_fields(settings)]
    return " ".join(sizes) or "own batch"
