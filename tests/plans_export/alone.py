"""Measures exported plans where recompute_core cannot be imported: run by `python -I`, with a folder.

The folder holds `gpt.py` (the model's source), `settings.json` and `plan_*.py`. Prints JSON: by file,
what a plan keeps, how high an update climbs, whether its gradients are plain's, and those after it.
One thread: what kernels take for themselves depends on how many there are.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class Saved:
    """Bytes of the storages that autograd and selective regions keep, `own` left out."""

    def __init__(self, own: list[Tensor]) -> None:
        self.own, self.kept, self.bytes = {storage(t) for t in own}, [], {}

    def see(self, tensor: Tensor) -> Tensor:
        if storage(tensor) not in self.own:
            self.bytes[storage(tensor)] = tensor.untyped_storage().nbytes()
            self.kept.append(tensor)
        return tensor

    def contexts(self, policy):  # stands in for torch's, in an exported plan
        def watched(context, operator, *args, **kwargs):
            decided = policy(context, operator, *args, **kwargs)
            if decided == torch.utils.checkpoint.CheckpointPolicy.MUST_SAVE:
                for leaf in torch.utils._pytree.tree_leaves(context.op_output):
                    self.see(leaf) if isinstance(leaf, Tensor) else None
            return decided

        return torch.utils.checkpoint.create_selective_checkpoint_contexts(watched)


def saved_bytes(plan: ModuleType, job: SimpleNamespace) -> int:
    saved = Saved([*job.model.parameters(), *job.batch])
    torchs = plan.create_selective_checkpoint_contexts
    plan.create_selective_checkpoint_contexts = saved.contexts
    with torch.autograd.graph.saved_tensors_hooks(saved.see, lambda tensor: tensor):
        result = job.model(*job.batch)
    plan.create_selective_checkpoint_contexts = torchs
    del result
    return sum(saved.bytes.values())


def peak_bytes(job: SimpleNamespace) -> int:
    """Highest moment of one update above the state, from the CPU allocator's events."""
    optimizer = torch.optim.AdamW(job.model.parameters(), lr=0.0)
    for parameter in job.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        optimizer.zero_grad(set_to_none=False)
        _, loss = job.model(*job.batch)
        loss.backward()
        optimizer.step()
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    alive = peak = 0
    for event in events:
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return peak


def gradients(model: nn.Module, batch: tuple[Tensor, ...]) -> list[Tensor]:
    model.zero_grad()
    model(*batch)[1].backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return found


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def attributes(model: nn.Module) -> list[tuple[str, list[str]]]:
    return [(name, list(vars(module))) for name, module in model.named_modules()]


def measure(folder: Path) -> dict[str, dict[str, object]]:
    gpt = load(folder / "gpt.py")
    settings = SimpleNamespace(**json.loads((folder / "settings.json").read_text()))
    found = {}
    for path in sorted(folder.glob("plan_*.py")):
        plan, job = load(path), gpt.build(settings, seed=0)
        before, plain = attributes(job.model), gradients(job.model, job.batch)
        plan.apply_plan(job.model)
        recomputed = gradients(job.model, job.batch)
        saved = saved_bytes(plan, job)
        peak = peak_bytes(job)
        plan.remove_plan(job.model)
        found[path.stem] = {
            "saved": saved,
            "peak": peak,
            "gradients are plain's": same(recomputed, plain),
            "plain again": same(gradients(job.model, job.batch), plain)
            and attributes(job.model) == before,
        }
    return found


if __name__ == "__main__":
    if importlib.util.find_spec("recompute_core") is not None:
        sys.exit("recompute_core can be imported here")
    torch.set_num_threads(1)
    print(json.dumps(measure(Path(sys.argv[1]))))
