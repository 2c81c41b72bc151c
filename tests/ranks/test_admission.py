"""Whether a machine can hold what a study over ranks needs."""

from types import SimpleNamespace

import pytest

from recompute_core.errors import InputError
from recompute_core.ranks.admission import held_bytes
from recompute_core.spec import Ranks, parse_spec
from recompute_core.studies.admission import check_memory
from recompute_core.workloads.sizes import sizes_of

BIG = {"workload": {"width": 1024, "blocks": 24}, "shapes": [{"seq_len": 16, "batch": 64}]}


@pytest.mark.parametrize(("kind", "held"), [("ddp", 64 * 5), ("fsdp2", 64)])
def test_ranks_hold_their_state_beside_each_other(
    kind: str, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters, gradients, two moments and buckets on each rank of DDP; parameters on one of FSDP2."""
    spec = parse_spec({**BIG, "ranks": {"kind": kind, "count": 64}, "device": "cpu"})
    sizes = sizes_of(spec.at(spec.shapes[0]))
    assert sizes is not None
    needed = held * 4 * sizes.parameters + (sizes.saved_bytes if kind == "ddp" else 0)
    machine = SimpleNamespace(total=needed)
    monkeypatch.setattr("psutil.virtual_memory", lambda: machine)
    check_memory(spec)
    machine.total -= 1
    with pytest.raises(InputError, match=rf"plain over 64 ranks \({kind}\) needs about .* and this"):
        check_memory(spec)
    check_memory(spec.model_copy(update={"ranks": None}))


def test_fsdp2_holds_one_state_and_what_the_whole_batch_keeps() -> None:
    assert held_bytes(Ranks(kind="fsdp2", count=2), 10, 40, 100) == 140
