"""Plans as other trainers take them: one file a trainer, all pure; nothing here imports torch.

`standalone.py` is a text that is written out with a plan in it, and is never imported by us.
"""

from typing import Literal, get_args

Target = Literal["torch", "transformers", "torchtitan", "megatron"]
TARGETS: tuple[Target, ...] = get_args(Target)
