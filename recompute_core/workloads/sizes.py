"""What a workload takes, from its settings alone. No torch.

Closed forms: estimated and never measured. Good for "does it fit?" and "how long?", not for a verdict.
"""

from dataclasses import dataclass, replace

from ..settings import GptSettings, OwnSettings, ReceiptsSettings, Settings
from ..spec import Precision


@dataclass(frozen=True)
class Sizes:
    """Estimated sizes of one update, in bytes and floating-point operations."""

    parameters: int
    block_saved_bytes: int
    """Activations one block keeps for backward when it is not recomputed."""
    block_input_bytes: int
    """What one block keeps when it is recomputed."""
    saved_bytes: int
    """Activations that the whole plain model keeps."""
    flops: int
    """Forward and backward of one plain update."""
    block_flops: int
    """Of these, what one block does."""
    element_bytes: int = 4
    """Of a parameter, a gradient or a moment."""

    @property
    def state_bytes(self) -> int:
        """Parameters, gradients and AdamW's two moments."""
        return 4 * self.element_bytes * self.parameters

    @property
    def plain_peak_bytes(self) -> int:
        """State and activations together."""
        return self.state_bytes + self.saved_bytes

    def saved_with(self, recomputed: int) -> int:
        """Activations kept when so many blocks are recomputed."""
        return self.saved_bytes - recomputed * (self.block_saved_bytes - self.block_input_bytes)


def sizes_of(settings: Settings, precision: Precision = "float32") -> Sizes | None:
    """The sizes of one update of a workload with these settings; None for somebody's own model.

    The closed forms are for float32; bfloat16 takes half of it, but for the little that stays float32.
    """
    if isinstance(settings, OwnSettings):
        return None
    sizes = _gpt(settings) if isinstance(settings, GptSettings) else _receipts(settings)
    if precision == "float32":
        return sizes
    return replace(
        sizes,
        block_saved_bytes=sizes.block_saved_bytes // 2,
        block_input_bytes=sizes.block_input_bytes // 2,
        saved_bytes=sizes.saved_bytes // 2,
        element_bytes=2,
    )


def _gpt(s: GptSettings) -> Sizes:
    tokens = s.batch * s.seq_len
    hidden = int(8 / 3 * s.width)
    u = 4 * tokens * s.width  # one [B, T, d] tensor
    block = 9 * u + 16 * tokens * hidden + 8 * tokens + 4 * s.heads * tokens
    tail = 3 * u + 4 * tokens * s.vocab + 4 * tokens + 4
    rope = 8 * s.seq_len * (s.width // s.heads)
    weights = 4 * s.width**2 + 3 * s.width * hidden
    parameters = s.blocks * (weights + 2 * s.width) + s.vocab * s.width + s.width
    attention = 4 * s.batch * s.seq_len**2 * s.width  # both products, forward
    work = 6 * tokens * weights + int(3.5 * attention)
    flops = s.blocks * work + 6 * tokens * s.width * s.vocab
    return Sizes(parameters, block + u, u, s.blocks * (block + u) + rope + tail, flops, work)


def _receipts(s: ReceiptsSettings) -> Sizes:
    each = (s.height // 16) * (s.image_width // 16)  # tokens of a photo
    tokens, pixels, d = s.batch * each, s.batch * s.height * s.image_width, s.width
    u = 4 * tokens * d  # one [B, T, d] tensor
    scores = 4 * s.batch * s.heads * each**2
    # With dropout the CPU's attention keeps its scores: 22 u and three score matrices, else 16 u.
    block = 22 * u + 3 * scores if s.dropout else 16 * u
    weights = 12 * d**2 + 13 * d
    parameters = s.blocks * weights + 52_560 + 865 * d + each * d + 8 * d + 6
    attention = 4 * s.batch * each**2 * d
    stem_flops = 3 * 18 * pixels * (150 + 3 * d // 8)
    work = 6 * tokens * 12 * d**2 + 3 * attention
    flops = s.blocks * work + stem_flops
    return Sizes(parameters, block, u, s.blocks * block + 133 * pixels, flops, work)
