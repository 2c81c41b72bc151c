"""How large each part is: on a GPU, and dry, on the CPU."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Sizes:
    """What the parts run; each mapping is a workload's settings."""

    device: Literal["cuda", "cpu"]
    gpt: dict[str, Any]
    """For parity, for estimates, compiled and over ranks."""
    receipts: dict[str, Any]
    sweep: dict[str, Any]
    """Plain data of the study over lengths."""
    large: dict[str, Any]
    """The GPT whose frontier is planned."""
    beyond: dict[str, int]
    """A shape that no memory holds."""
    within: dict[str, int]
    backend: Literal["inductor", "aot_eager"]
    """What compiles."""
    patience: float
    """How many times as long as on a GPU a part may take."""


_TABLE = {"workload": {"name": "gpt"}, "plans": ["every-block"]}

GPU = Sizes(
    device="cuda",
    gpt={"name": "gpt", "seq_len": 256},
    receipts={"name": "receipts"},
    sweep={
        **_TABLE,
        "shapes": [{"seq_len": t} for t in (128, 256, 512, 768)],
        "timing": {"min_pairs": 15, "max_pairs": 15, "budget_s": 0},
    },
    large={"name": "gpt", "blocks": 24, "width": 1792, "heads": 14, "seq_len": 2048, "batch": 4},
    beyond={"seq_len": 4096, "batch": 2048},
    within={"seq_len": 128, "batch": 8},
    backend="inductor",
    patience=1,
)
"""The GPT of the table is the preset's; the large one has 0.9 billion parameters."""

DRY = Sizes(
    device="cpu",
    gpt={"name": "gpt", "blocks": 2, "width": 32, "heads": 2, "seq_len": 32, "batch": 2},
    receipts={
        "name": "receipts", "blocks": 2, "width": 24, "heads": 2, "batch": 2,
        "height": 32, "image_width": 32,
    },
    sweep={
        "workload": {"name": "gpt", "blocks": 2, "width": 64, "heads": 2, "batch": 2},
        "plans": ["every-block"],
        "shapes": [{"seq_len": 64}, {"seq_len": 128}],
        "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
    },
    large={"name": "gpt", "blocks": 4, "width": 64, "heads": 2, "seq_len": 64, "batch": 2},
    beyond={"seq_len": 65_536, "batch": 2**31 - 1},
    within={"seq_len": 16, "batch": 2},
    backend="aot_eager",  # inductor's needs a C++ compiler
    patience=10,  # the sizes are tiny, but the machine may be busy with anything
)  # fmt: skip
