"""Puts an exported plan on, then wraps, then compiles: run by `python -I`, with a folder and a plan.

Prints JSON: by wrapper, whether gradients are plain's in the same wrapper, and how often each block of
the recomputed model was run. Compiled models do not count.
"""

import copy
import importlib.util
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.runs += 1
        return x + self.down(nn.functional.gelu(self.up(x)))


def sharded(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (1,))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def gradients(model: nn.Module, called: nn.Module) -> list[Tensor]:
    called(torch.linspace(-1, 1, 32).reshape(4, 8)).square().mean().backward()
    return [getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for p in model.parameters()]


def main() -> None:
    folder = Path(sys.argv[1])
    spec = importlib.util.spec_from_file_location("plan", folder / "plan.py")
    plan = importlib.util.module_from_spec(spec)
    sys.modules["plan"] = plan  # where dynamo looks for its globals
    spec.loader.exec_module(plan)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 1), rank=0, world_size=1)
    torch.manual_seed(0)
    first, found = nn.Sequential(Block(), Block()), {}
    wrappers = {
        "ddp": DistributedDataParallel,
        "fully_shard": sharded,
        "compiled": lambda model: torch.compile(model, backend="aot_eager", fullgraph=True),
        "compiled ddp": lambda model: torch.compile(DistributedDataParallel(model), backend="aot_eager"),
    }
    for name, wrap in wrappers.items():
        plain, model = copy.deepcopy(first), copy.deepcopy(first)
        expected = gradients(plain, wrap(plain))
        plan.apply_plan(model)
        given = gradients(model, wrap(model))
        equal = all(map(torch.equal, expected, given))
        found[name] = {"equal": equal, "runs": [block.runs for block in model]}
        plan.remove_plan(model)
    dist.destroy_process_group()
    print(json.dumps(found))


main()
