"""One update accumulated over microbatches: the loss is the sum over accepted examples divided by how
many are accepted in the whole effective batch.

A mean of microbatch means is another objective as soon as microbatches hold unequal numbers of accepted
examples. Rejected examples are left out before the forward, so that they count nowhere, not even in
statistics over the microbatch; a microbatch of rejected examples alone is not run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..checks.snapshot import compare
from ..errors import InputError
from ..plans.apply import Applied
from ..results import Comparison, Gap
from ..workloads.job import Job, with_tensors
from ..workloads.update import seed_everything
from .found import Accumulation


@dataclass(frozen=True)
class Microbatch:
    """The accepted examples of a microbatch, as a job that has them for its batch."""

    job: Job
    accepted: int


def microbatches(job: Job, accepted: Sequence[bool], size: int) -> Iterator[Microbatch]:
    """The job's effective batch in microbatches of `size` drawn examples, the last one short.

    The first dimension of every tensor of the batch, and of those that the loss holds, is the example.
    Raises InputError where no tensor has one row for each.
    """
    drawn = len(accepted)
    if not any(tensor.shape[:1] == (drawn,) for tensor in job.inputs):
        raise InputError(f"no tensor of the batch has {drawn} rows, one for each example")
    for start in range(0, drawn, size):
        places = [i for i in range(start, min(start + size, drawn)) if accepted[i]]
        if places:
            yield Microbatch(_of_examples(job, drawn, places), len(places))


def _of_examples(job: Job, drawn: int, places: list[int]) -> Job:
    if len(places) == drawn:
        return job
    is_slice = places[-1] - places[0] + 1 == len(places)
    index = torch.tensor(places, device=job.device)

    def taken(tensor: Tensor) -> Tensor:
        if tensor.shape[:1] != (drawn,):
            return tensor
        if is_slice:
            return tensor[places[0] : places[-1] + 1]
        return tensor.index_select(0, index)

    return replace(job.with_batch(taken), loss=with_tensors(job.loss, taken))


def accumulate(parts: Iterable[Microbatch], share: Callable[[Microbatch], float]) -> Tensor:
    """Add the gradient of an effective batch to `.grad`; returns its loss.

    `share` is the weight of a microbatch's mean loss. `parts` may be made as they are asked for.
    """
    total = torch.zeros(())
    for part in parts:
        loss = part.job.forward()[1] * share(part)
        loss.backward()  # type: ignore[no-untyped-call]
        total = total + loss.detach().float().cpu()
    return total


def by_examples(accepted: int) -> Callable[[Microbatch], float]:
    """Each accepted example of the effective batch weighs alike, wherever it stands."""
    return lambda part: part.accepted / accepted


def by_means(passes: int) -> Callable[[Microbatch], float]:
    """The mistake: each microbatch weighs alike, however many examples it has."""
    return lambda part: 1 / passes


# --- are the two sizes one objective? --------------------------------------------------------


def compare_accumulated(
    job: Job,
    accepted: Sequence[bool],
    sizes: tuple[int, int],
    put_on: Applied,
    seed: int,
) -> Accumulation:
    """The gradient of the job's effective batch at plain's microbatch, and at the plan's under the plan.

    Gaps are relative to each gradient's own largest value (see `_to_scale`). Dropout modules are off:
    masks are drawn microbatch by microbatch, so that other sizes draw others.
    """
    plain_size, own_size = sizes
    if not any(accepted):
        raise InputError(f"none of the {len(accepted)} examples of an update is accepted")
    dropout_off = _without_dropout(job.model)
    rightly = by_examples(sum(accepted))

    def gradients(
        size: int,
        share: Callable[[Microbatch], float] = rightly,
        applied: Applied = nullcontext,
        seed: int = seed,
    ) -> dict[str, Tensor]:
        job.model.zero_grad(set_to_none=True)
        seed_everything(seed)
        with applied():
            accumulate(microbatches(job, accepted, size), share)
        named = job.model.named_parameters()
        return {f"grad/{name}": p.grad.cpu() for name, p in named if p.grad is not None}

    plain_counts, own_counts = _counts(accepted, plain_size), _counts(accepted, own_size)
    plain = gradients(plain_size)

    def gap(found: dict[str, Tensor]) -> Comparison:
        return Comparison(gaps=tuple(_to_scale(compare(plain, found), plain)))

    found = gap(gradients(own_size, applied=put_on))
    again = gap(gradients(plain_size))
    otherwise = gap(gradients(plain_size, seed=seed + 1))
    mistakes = [
        gap(gradients(size, by_means(sum(count > 0 for count in counts)), applied)).largest_relative_gap
        for size, counts, applied in (
            (plain_size, plain_counts, nullcontext),
            (own_size, own_counts, put_on),
        )
    ]
    return Accumulation(
        effective_batch=len(accepted),
        accepted=sum(accepted),
        plain_microbatches=plain_counts,
        recomputed_microbatches=own_counts,
        gaps=found.gaps,
        noise_floor=again.largest_relative_gap,
        mean_of_means_gap=None if None in mistakes else max(filter(None, mistakes), default=0.0),
        batch_statistics=batch_statistics(job.model),
        rounding=max(torch.finfo(gradient.dtype).eps for gradient in plain.values()),
        draws=again.bitwise and not otherwise.bitwise,
        dropout_off=dropout_off,
    )


def _to_scale(gaps: Iterable[Gap], plain: dict[str, Tensor]) -> Iterator[Gap]:
    """A gradient that is all but zero is compared on the scale of a thousandth of the largest of all.

    A key's bias moves no loss: its gradient is rounding and nothing else, and another order of adding up
    gives another.
    """
    own = {name: float(gradient.abs().max()) for name, gradient in plain.items()}
    least = max(own.values()) / 1000
    for gap in gaps:
        scale = own.get(f"{gap.part}/{gap.name}", 0.0)
        if gap.absolute is None or scale >= least or least == 0:
            yield gap
        else:
            yield gap.model_copy(update={"relative": gap.absolute / least, "problem": None})


def _counts(accepted: Sequence[bool], size: int) -> tuple[int, ...]:
    return tuple(sum(accepted[start : start + size]) for start in range(0, len(accepted), size))


def _without_dropout(model: nn.Module) -> bool:
    """Turn the model's dropout modules, and attention's own dropout, off; whether there was one."""
    off = False
    for module in model.modules():
        is_dropout = isinstance(module, nn.modules.dropout._DropoutNd)
        for name in ("p",) if is_dropout else ("dropout", "attention_dropout", "dropout_prob"):
            if isinstance(getattr(module, name, None), float) and getattr(module, name) > 0:
                setattr(module, name, 0.0)
                off = True
    return off


def batch_statistics(model: nn.Module) -> tuple[str, ...]:
    """FQNs of the modules that normalise over the examples of a microbatch now."""
    return tuple(
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and (module.training or not module.track_running_stats)
    )
