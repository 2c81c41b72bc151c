"""A node of a Ray cluster, killed at a random moment of a study that runs on two of them."""

import random
import time
from importlib.util import find_spec

from . import aftermath
from .ledger import Count
from .scene import MARK, TINY, Scene, ended, eventually, scene

_STORE_BYTES = 100 << 20


def is_there() -> bool:
    return find_spec("ray") is not None


def killed(chance: random.Random) -> Count:
    """One study on two nodes, of which one goes as by a power cut; another takes its place, and the
    study is resumed."""
    from ray.cluster_utils import Cluster

    count = Count("Ray node", runs=1)
    with scene() as here:
        here.write_spec(TINY | {"engine": "ray", "plans": ["every-block", "blocks:1"]})
        head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            here.extra = {"RAY_ADDRESS": str(cluster.address), "RAY_USAGE_STATS_ENABLED": "0"}
            nodes = [_node(cluster, here, number) for number in range(2)]
            started = here.start_study()
            eventually(lambda: here.finished() or started.poll() is not None, 180)
            time.sleep(chance.uniform(0, 5))
            count.injected = int(started.poll() is None)
            before = here.known()
            cluster.remove_node(nodes.pop(chance.randrange(2)), allow_graceful=False)
            said = ended(started)
            _node(cluster, here, 2)
            aftermath.look(here, count, before, said, ended=False)
        finally:
            cluster.shutdown()
        count.orphans += here.orphans(30)
    return count


def _node(cluster: object, here: Scene, number: int) -> object:
    """With a temporary folder, and so a machine's lock, of its own; what runs on it has the mark too."""
    place = here.folder / f"node-{number}"
    place.mkdir()
    return cluster.add_node(  # type: ignore[attr-defined]
        num_cpus=1,
        object_store_memory=_STORE_BYTES,
        env_vars={"TMPDIR": str(place), MARK: here.mark},
    )
