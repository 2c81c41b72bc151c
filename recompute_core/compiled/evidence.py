"""Did a compiled plan recompute what it says? Asked of the graphs, not of what was asked for."""

from ..plans.names import Regions
from ..spec import Region
from .graphs import PART, Graphs, label_of


def check_graphs(found: Graphs, regions: Regions, budget: int | None, plain_replays: int) -> None:
    """Raises RuntimeError where the graphs do not hold what a plan promises: each of its regions again
    in backward, a selective one with something kept, and no other block; under a budget, more of forward
    again than the `plain_replays` ops of plain's own graphs."""
    if found.compiled != 1:
        raise RuntimeError(f"one update was compiled {found.compiled} times; nothing can be said of it")
    for region in regions:
        where = " to ".join(dict.fromkeys((region.modules[0], region.modules[-1])))
        label = label_of(regions, region)
        if not found.replays[label]:
            raise RuntimeError(
                f"no op of {where} stands in the compiled backward graph: the plan did not recompute "
                "what it says"
            )
        _check_parts(found, region)
        ops = {entry.partition(":")[0] for entry in region.keep}
        if ops and not any(found.kept[label, op] for op in ops):
            raise RuntimeError(
                f"{where} kept nothing: no output of the ops to keep is handed to backward"
            )
    touched = {name for region in regions for name in region.modules}
    for block in found.recomputed_blocks:
        inside = (name == block or name.startswith(f"{block}.") for name in touched)
        around = (block.startswith(f"{name}.") for name in touched)
        if not any(inside) and not any(around):
            raise RuntimeError(
                f"{block} is recomputed in the compiled graph, and the plan does not name it"
            )
    if budget is not None and found.replayed <= plain_replays:
        raise RuntimeError(
            f"under a budget of {budget} % the compiler runs {found.replayed} ops again, and "
            f"{plain_replays} in plain: it recomputes nothing more; give a smaller budget"
        )


def _check_parts(found: Graphs, region: Region) -> None:
    """Of each module of a region something runs again, or there is nothing to run again: forward hands
    over nothing that was made in it, but what the last one gives."""
    if len(region.modules) == 1:
        return
    for name in region.modules:
        its_own = found.handed[PART + name] - (name == region.modules[-1])
        if not found.replays[PART + name] and its_own > 0:
            raise RuntimeError(
                f"no op of {name} stands in the compiled backward graph, and forward hands over what "
                "was made in it: it was not recomputed with the rest of the region"
            )
