"""A job in another number format: everything that is computed with, and nothing else."""

import torch

from recompute_core.settings import GptSettings, ReceiptsSettings
from recompute_core.spec import OptimizerSettings
from recompute_core.workloads import gpt
from recompute_core.workloads.device import cast
from recompute_core.workloads.receipts import build_blank
from recompute_core.workloads.sizes import sizes_of
from recompute_core.workloads.update import make_optimizer, update


def test_weights_buffers_and_photos_are_cast_and_classes_are_not() -> None:
    settings = ReceiptsSettings(
        blocks=1, width=24, heads=2, height=32, image_width=32, batch=2, norm="batch"
    )
    job = cast(build_blank(settings, 0), "bfloat16")
    tensors = [*job.model.parameters(), *(b for b in job.model.buffers() if b.is_floating_point())]
    assert {tensor.dtype for tensor in (*tensors, job.batch[0])} == {torch.bfloat16}
    assert job.batch[1].dtype == torch.long
    assert job.model.get_submodule("blocks.0.norm1").num_batches_tracked.dtype == torch.long


def test_an_update_stays_in_bfloat16_and_tied_weights_stay_tied() -> None:
    settings = GptSettings(blocks=1, width=32, heads=2, vocab=17, seq_len=16, batch=2)
    job = cast(gpt.build(settings, 0), "bfloat16")
    optimizer = make_optimizer(job.model, OptimizerSettings())
    output, loss = update(job, optimizer)
    gradients = [p.grad for p in job.model.parameters() if p.grad is not None]
    moments = [m for state in optimizer.state.values() for name, m in state.items() if name != "step"]
    assert {t.dtype for t in (output, loss, *gradients, *moments)} == {torch.bfloat16}
    assert job.model.get_parameter("head.weight") is job.model.get_parameter("embedding.weight")
    assert sizes_of(settings, "bfloat16").state_bytes * 2 == sizes_of(settings).state_bytes


def test_float32_changes_nothing() -> None:
    job = gpt.build(GptSettings(blocks=1, width=32, heads=2, vocab=17, seq_len=16, batch=2), 0)
    before = [(p.data_ptr(), p.dtype) for p in job.model.parameters()]
    same = cast(job, "float32")
    assert [(p.data_ptr(), p.dtype) for p in same.model.parameters()] == before
    assert same.batch_digest == job.batch_digest
