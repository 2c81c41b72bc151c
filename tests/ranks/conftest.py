"""What tests of ranks share: a machine of their own, and studies at one shape in real processes."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest

from recompute_core.plans.names import Regions
from recompute_core.spec import Region, parse_spec
from recompute_core.studies import one_shape
from recompute_core.studies.one_shape import Asked, Ran, run_shape
from recompute_core.workloads.registered import VARIABLE

Runs = Callable[..., Ran]
EACH = (Region(modules=("0",)), Region(modules=("1",)))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files of our own, with a short name, as sockets lie in it; a lock too."""
    util.get_temp_dir()  # multiprocessing keeps its sockets where they were
    folder = tempfile.mkdtemp(prefix="rr-")
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    yield Path(folder)
    monkeypatch.undo()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs a factory's model over ranks: reference and noise, and `parity` with its canary if asked."""

    def ran(
        factory: str,
        kind: str = "ddp",
        parity: bool = False,
        regions: Regions = EACH,
        **changes: Any,
    ) -> Ran:
        monkeypatch.setenv(VARIABLE, f"{factory}=tests.ranks.factories:{factory}")
        blocks = ["0", "1"]
        spec = parse_spec(
            {
                "workload": {"name": f"own:{factory}", "blocks": blocks, "anatomy": {"names": blocks}},
                "ranks": {"kind": kind, "count": 2},
                "device": "cpu",
                "threads": 1,
                **changes,
            }
        )
        asked = Asked(
            spec=spec,
            shape={},
            shape_key="own batch",
            regions=regions,
            canary="0",
            budget=None,
            home=tmp_path,
            folder=tmp_path,
        )
        if parity:
            return run_shape(asked, lambda _: None)
        found = Ran()
        one_shape._work(asked, ("reference", "noise"), found, lambda _: None, lambda: None)
        return found

    return ran
