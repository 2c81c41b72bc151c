"""A Ray cluster on this machine, each node with a folder, and so with a machine's lock, of its own."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from recompute_core.studies.engines import ADDRESS
from recompute_core.studies.store import Store

_STORE_BYTES = 100 << 20


@dataclass
class Nodes:
    """The cluster, and what is started in it."""

    cluster: Any
    folder: Path
    extra: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, name: str, **resources: Any) -> str:
        """Another node; returns its id."""
        place = self.folder / name
        place.mkdir()
        node = self.cluster.add_node(
            object_store_memory=_STORE_BYTES, env_vars={"TMPDIR": str(place)}, **resources
        )
        self.extra.append(node)
        return str(node.node_id)

    def kill(self) -> None:
        """Kill the newest node, as a power cut would."""
        self.cluster.remove_node(self.extra.pop(), allow_graceful=False)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A cluster whose head takes no cells."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES}
    made = Nodes(Cluster(initialize_head=True, head_node_args=head), folder)
    monkeypatch.setenv(ADDRESS, made.address)
    try:
        yield made
    finally:
        made.cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    home = tmp_path / "home"
    monkeypatch.setenv("RECOMPUTE_HOME", str(home))
    assert "RECOMPUTE_HOME" in os.environ
    found = Store(home)
    yield found
    found.close()
