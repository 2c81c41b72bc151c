"""How a batch is cut for ranks: along dimension 0, where all of its tensors are equally long."""

from typing import Any

from ..errors import InputError
from .job import named_tensors


def rows_to_share(batch: Any, count: int) -> int:
    """How long a batch is along dimension 0; raises InputError where `count` ranks cannot share it."""
    lengths = {name: len(given) if given.dim() else 0 for name, given in named_tensors(batch)}
    first, rows = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != rows or not length:
            raise InputError(
                f"ranks: the batch cannot be cut along dimension 0, where input {first} has {rows} rows "
                f"and input {name} {length}"
            )
    if rows % count:
        raise InputError(f"ranks.count: a batch of {rows} cannot be cut into {count} equal parts")
    return rows
