"""In which order an exported plan, a wrapper and the compiler go on: as the exported file says."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recompute_core.plans.export.to_torch import to_torch
from recompute_core.plans.names import Regions
from recompute_core.spec import CheckpointSettings

from .plans import region, source

EACH = (region("0"), region("1"))
AS_ONE = (region("0", "1"),)
ORDER = "In this order: apply_plan, then fully_shard (each block, then the model) or\nDistributedData"


@pytest.mark.parametrize(("regions", "variant"), [(EACH, "call"), (EACH, "forward"), (AS_ONE, "call")])
def test_a_plan_then_a_wrapper_then_the_compiler(regions: Regions, variant: Any, tmp_path: Path) -> None:
    exported = to_torch(source(regions, checkpoint=CheckpointSettings(variant=variant)))
    assert ORDER in exported.text
    (tmp_path / "plan.py").write_text(exported.text)
    script = Path(__file__).with_name("in_order.py")
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [name for name, one in found.items() if not one["equal"]] == []
    assert found["ddp"]["runs"] == found["fully_shard"]["runs"] == [2, 2]


def test_it_says_what_the_study_ran_under() -> None:
    alone = source(AS_ONE)
    assert "The study ran under none of the three.\n" in to_torch(alone).text
    assert "The study ran under fully_shard.\n" in to_torch(replace(alone, ranks="fsdp2")).text
    assert "The study ran under DistributedData" in to_torch(replace(alone, ranks="ddp")).text
    assert "The study ran under torch.compile.\n" in to_torch(replace(alone, backend="inductor")).text
    forward = replace(alone, variant="forward")
    assert "Not for fully_shard: with VARIANT forward, modules recomputed" in to_torch(forward).text
    assert "Not for fully_shard" not in to_torch(replace(forward, regions=EACH)).text
