"""May a study over ranks start? What is known before torch is loaded, in one line each. No torch."""

from ..errors import InputError
from ..plans.names import regions_of
from ..settings import shape_key
from ..spec import Ranks, StudySpec


def check_ranks(spec: StudySpec) -> None:
    """Raises InputError for a batch that does not divide, a device without ranks, and a plan that FSDP2
    cannot run."""
    ranks = spec.ranks
    if ranks is None:
        return
    if spec.compile is not None:
        raise InputError("ranks: training over ranks is not compiled here; leave out ranks or compile")
    if spec.device in ("mps", "xpu"):
        raise InputError(f"ranks: training over ranks runs on cpu and cuda, not on {spec.device}")
    for index, shape in enumerate(spec.shapes):
        sizes = spec.at(shape)
        if sizes.batch is not None and sizes.batch % ranks.count:
            raise InputError(
                f"shapes[{index}] ({shape_key(sizes)}): a batch of {sizes.batch} cannot be cut into "
                f"{ranks.count} equal parts, one for each rank"
            )
    if ranks.kind == "fsdp2" and spec.checkpoint.variant == "forward":
        for index, plan in enumerate(spec.plans):
            if any(len(region.modules) > 1 for region in regions_of(spec, plan)):
                raise InputError(
                    f"plans[{index}]: {plan} recomputes several blocks as one, and with the variant "
                    "'forward' their replay would skip FSDP2's hooks and meet parameters that are not "
                    "collected; use --set checkpoint.variant=call"
                )


def held_bytes(ranks: Ranks, parameters: int, state: int, activations: int) -> int:
    """What all ranks hold on this one machine, at the least; the other figures are of one process.

    Shares of a batch keep together what the whole batch does. Under DDP every rank has the whole state,
    and buckets as large as its gradients. Under FSDP2 they share the state, but each builds the whole
    model before it gives shares away.
    """
    if ranks.kind == "ddp":
        return ranks.count * (state + parameters) + activations
    return max(state + activations, ranks.count * parameters)
