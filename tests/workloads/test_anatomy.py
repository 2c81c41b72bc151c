"""What is known of the models without torch is what they are."""

import pytest
from torch import nn

from recompute_core.plans.anatomy import anatomy_of
from recompute_core.settings import GptSettings, ReceiptsSettings
from recompute_core.workloads import build_blank

SMALL = {"blocks": 2, "width": 32, "heads": 2, "batch": 2}
BOTH = pytest.mark.parametrize(
    "settings",
    [
        GptSettings(**SMALL, vocab=17, seq_len=16),
        ReceiptsSettings(**SMALL, height=32, image_width=32),
        ReceiptsSettings(**SMALL, height=32, image_width=32, norm="batch", dropout=0.1),
    ],
)


@BOTH
def test_the_modules_that_a_plan_may_name(settings: GptSettings | ReceiptsSettings) -> None:
    anatomy = anatomy_of(settings)
    everything = {name for name, _ in build_blank(settings, 0).model.named_modules()}
    within = ("blocks.", *anatomy.outside)
    assert {name for name in everything if anatomy.has(name)} == {
        name for name in everything if name.startswith(within)
    }
    for part in (*anatomy.norms, anatomy.attention, *anatomy.matmuls, *anatomy.others):
        assert f"blocks.1.{part}" in everything
    assert set(anatomy.layers) <= everything
    assert not any(map(anatomy.has, ("blocks", "blocks.2", "blocks.0.gone", "stem.10", "norm")))


@BOTH
def test_matmuls_are_in_the_order_of_forward(settings: GptSettings | ReceiptsSettings) -> None:
    job, called = build_blank(settings, 0), []
    for name, module in job.model.get_submodule("blocks.1").named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    job.model(*job.batch)
    assert tuple(called) == anatomy_of(settings).matmuls
