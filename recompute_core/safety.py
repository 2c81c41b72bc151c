"""Which blocks of a workload are safe to recompute: from a name to a report.

`gpt`, `receipts`, a registered factory, `hf:…` and `timm:…` all become one record, `OwnModel`, which
`check_blocks` then runs. Where no block is named, repeated modules are taken.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from .checks.blocks import check_blocks
from .checks.causes import listed
from .checks.report import BlockReport
from .checks.step import by_name, fresh
from .errors import InputError
from .meters.modules import Seen, watch_forward
from .settings import OwnSettings
from .spec import StudySpec
from .studies.store import home_folder
from .words import count
from .workloads import Progress, build, prepare
from .workloads.device import cast, is_out_of_memory, move, pick_device
from .workloads.job import Job, called_with
from .workloads.others import model_of
from .workloads.own import OwnModel, default_loss, own_loss
from .workloads.stacks import repeated
from .workloads.update import seed_everything


@dataclass(frozen=True)
class Safety:
    """The report on the asked blocks, and what one plain forward has shown."""

    report: BlockReport
    """Of the blocks, in the order of what they keep."""
    activation_bytes: dict[str, int]
    """What each block keeps for backward, by FQN; without those that were not called."""
    notes: tuple[str, ...]
    """What was chosen for the user, and what a refusal leaves."""

    @property
    def lines(self) -> list[str]:
        """What is said under the table."""
        report = self.report
        gap = (
            "could not be compared"
            if report.largest_relative_gap is None
            else (f"{report.largest_relative_gap:.2g}")
        )
        noise = (
            ""
            if report.noise_floor is None
            else (
                f"; largest relative gap {gap}, plain against plain {report.noise_floor:.2g}, "
                f"tolerance {report.tolerance:.2g}"
            )
        )
        return [
            f"{count(report.steps, 'training step')}{noise}.",
            *self.notes,
            *report.warnings,
        ]

    def document(self) -> list[dict[str, Any]]:
        """One object a block; `check` is of all of them together."""
        whole = self.report.model_dump(mode="json", exclude={"blocks", "reasons", "conditions"})
        return [
            {
                **one.model_dump(mode="json"),
                "activation_bytes": self.activation_bytes.get(one.block),
                "check": {**whole, "notes": list(self.notes)},
            }
            for one in self.report.blocks
        ]


def own_model(spec: StudySpec, photos: Progress) -> OwnModel:
    """The workload of `spec`; `photos` is told how far the receipts' photos are."""
    if spec.threads:
        torch.set_num_threads(spec.threads)
    device = pick_device(spec.device)
    if isinstance(spec.workload, OwnSettings):
        own = model_of(spec.workload, spec.seed, device, for_a_check=True)
        anatomy, blocks = spec.workload.anatomy, spec.workload.blocks
        return replace(own, blocks=anatomy.names if anatomy else blocks or own.blocks)
    prepare(spec.workload, home_folder(), photos)
    job = cast(build(spec.workload, spec.seed, home_folder()), spec.precision)
    return of_job(move(job, device))


def of_job(job: Job) -> OwnModel:
    """A workload of ours, whose model returns output and loss."""
    return OwnModel(
        build=lambda: copy.deepcopy(job.model),
        inputs=job.batch,
        loss_fn=_second,
        blocks=(*job.outside, *job.blocks),
    )


def _second(output: tuple[Any, Tensor]) -> Tensor:
    return output[1]


def check(
    own: OwnModel,
    spec: StudySpec,
    asked: tuple[str, ...] = (),
    autocast: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Safety:
    """Check the asked blocks, or the model's candidates, or what repeats in it.

    Of `spec` the checkpoint settings count. Raises InputError for a block that the model does not have.
    """
    progress("one plain forward: what each module keeps")
    blocks, weights, seen = _looked(own, asked, autocast)
    report = check_blocks(
        own.build,
        by_name(own.inputs),
        blocks,
        own.loss_fn,
        rng=spec.checkpoint.rng,
        variant=spec.checkpoint.variant,
        autocast=autocast,
        progress=progress,
    )
    kept = seen.activation_bytes if seen else {}
    order = sorted(report.blocks, key=lambda one: -kept.get(one.block, 0))  # stable: ties as they were
    notes = [own.batch_words] if own.batch_words else []
    if not (asked or own.blocks):
        found = count(len(blocks), "block")
        notes.append(f"{found} found: repeated modules, those first that keep most")
    if seen and own.loss_fn is default_loss:
        notes.append(f"the loss is {seen.output}")
    return Safety(
        report=report.model_copy(update={"blocks": tuple(order)}),
        activation_bytes={name: kept[name] for name in blocks if name in kept},
        notes=(*notes, *_free(weights, report, seen)),
    )


def _looked(
    own: OwnModel, asked: tuple[str, ...], autocast: str | None
) -> tuple[tuple[str, ...], dict[str, bool], Seen | None]:
    """The blocks, which modules have weights, what a plain forward shows. Holds no model afterwards."""
    seed_everything(0)
    model = own.build()
    names = _checked(model, asked, own.blocks)
    weights = {name: any(True for _ in module.parameters()) for name, module in names.items()}
    seen = _seen(model, own, autocast)
    return asked or own.blocks or _found(model, seen), weights, seen


def _checked(model: nn.Module, asked: tuple[str, ...], own: tuple[str, ...]) -> dict[str, nn.Module]:
    """The modules of the model by FQN."""
    names = dict(model.named_modules())
    for place, given in (("--block", asked), ("blocks", own)):
        missing = next((name for name in given if name not in names), None)
        if missing is not None:
            known = ", ".join((() if given is own else own) or repeated(model) or list(names)[1:])
            raise InputError(f"{place}: no block {missing!r}; the blocks are {known[:300]}")
    return names


def _seen(model: nn.Module, own: OwnModel, autocast: str | None) -> Seen | None:
    """What a plain forward shows; None where it raises, which the check then says of every block.

    Its output is words on the loss, as the model's own would keep the graph.
    """
    args, kwargs = called_with(tree_map(fresh, by_name(own.inputs)))

    def forward() -> str:
        output = model(*args, **kwargs)
        own.loss_fn(output)
        return _loss_words(output)

    try:
        return watch_forward(model, forward, _autocast(model, autocast))
    except InputError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None


def _autocast(model: nn.Module, dtype: str | None) -> AbstractContextManager[Any]:
    if dtype is None:
        return nullcontext()
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    return torch.autocast(device, getattr(torch, dtype))


def _found(model: nn.Module, seen: Seen | None) -> tuple[str, ...]:
    """Repeated modules that forward calls."""
    found = repeated(model)
    if seen is not None:
        found = tuple(name for name in found if name in seen.activation_bytes)
    if not found:
        known = ", ".join(name for name, _ in model.named_children())
        raise InputError(
            f"no block is named and no module is repeated; name one with --block; the model has {known}"
        )
    return found


def _loss_words(output: Any) -> str:
    return (
        "the output's own" if own_loss(output) is not None else "the mean square of the model's output"
    )


def _free(weights: dict[str, bool], report: BlockReport, seen: Seen | None) -> list[str]:
    """Where running statistics refuse a block: which blocks, or else which modules in it, have none."""
    refused = [reason.block for reason in report.reasons if reason.code == "running_statistics"]
    if seen is None or not refused:
        return []

    def is_free(name: str) -> bool:
        return not any(one == name or one.startswith(f"{name}.") for one in seen.moved)

    blocks = [one.block for one in report.blocks if is_free(one.block)]
    if blocks:
        return [f"free of running statistics: {listed(blocks, 8)}"]
    inside = dict.fromkeys(
        name.removeprefix(f"{block}.")
        for block in refused
        for name in _outermost_free(block, weights, is_free)
    )
    what = f"in the refused ones {listed(inside, 8)} are" if inside else "no module in them is"
    return [f"free of running statistics: no block; {what} (look at one with --block)"]


def _outermost_free(block: str, weights: dict[str, bool], is_free: Callable[[str], bool]) -> list[str]:
    """FQNs of the largest modules with weights inside a block that move no statistics."""
    found: list[str] = []
    for name in weights:
        inside = name.startswith(f"{block}.") and not any(name.startswith(f"{one}.") for one in found)
        if inside and is_free(name) and weights[name]:
            found.append(name)
    return found
