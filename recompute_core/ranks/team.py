"""What the ranks of one update settle among them, over the CPU, apart from the update's own traffic."""

from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from pydantic import TypeAdapter

from ..results import Gap
from ..together import Together
from .reference import is_shared, own_name

Said = TypeVar("Said")


class Team(Together):
    """The ranks of this machine; each method is called by all of them, in the same order."""

    def __init__(self, rank: int, count: int, patience: timedelta) -> None:
        self.rank, self.count = rank, count
        self._group = dist.new_group(backend="gloo", timeout=patience)

    def all_say(self, own: Said, kind: Any) -> list[Said]:
        """What every rank says, by rank, of a `kind` that pydantic knows: as JSON, which runs nothing,
        whoever may be at the other end."""
        record: TypeAdapter[Said] = TypeAdapter(kind)
        said = torch.frombuffer(bytearray(record.dump_json(own, by_alias=True)), dtype=torch.uint8)
        sizes = self._gather(torch.tensor([len(said)]))
        longest = max(map(int, sizes))
        heard = self._gather(torch.nn.functional.pad(said, (0, longest - len(said))))
        return [
            record.validate_json(bytes(one[: int(size)].tolist()))
            for one, size in zip(heard, sizes, strict=True)
        ]

    def _gather(self, own: torch.Tensor) -> list[torch.Tensor]:
        heard = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(heard, own, group=self._group)
        return heard

    def gaps(self, own: tuple[Gap, ...]) -> tuple[Gap, ...]:
        """What all have alike by the worst rank's gap; what is each rank's own under its name."""
        return merged_gaps(self.all_say(own, tuple[Gap, ...]))

    def names(self, own: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for said in self.all_say(own, tuple[str, ...]) for name in said))

    def total(self, own: int) -> int:
        return sum(self.all_say(own, int))

    def slowest(self, seconds: float) -> float:
        longest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(longest, dist.ReduceOp.MAX, group=self._group)
        return float(longest)

    def wait(self) -> None:
        dist.barrier(group=self._group)

    def decided(self, stopped: str | None) -> str | None:
        return self.all_say(stopped, str | None)[0]


def merged_gaps(by_rank: list[tuple[Gap, ...]]) -> tuple[Gap, ...]:
    """One list of gaps from those of every rank, named as in the reference."""
    found: dict[str, Gap] = {}
    for rank, gaps in enumerate(by_rank):
        for gap in gaps:
            key = f"{gap.part}/{gap.name}"
            if not is_shared(key):
                key = own_name(key, rank)
                gap = gap.model_copy(update={"name": key.partition("/")[2]})
            if key not in found or _badness(gap) > _badness(found[key]):
                found[key] = gap
    return tuple(found.values())


def _badness(gap: Gap) -> tuple[bool, float]:
    return gap.problem is not None, gap.relative or 0.0
