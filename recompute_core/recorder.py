# ruff: noqa: B905, E401, E701, I001
# fmt: off
# mypy: ignore-errors
# What stands below is what `gate --recorder` prints: at most 40 lines that need torch alone.
import json, time
import torch

def record(update, switch, model, optimizer, path, workload, plan, shape, pairs=15, supplied_by=None):
    """update(): a whole update, zero_grad to step, on one fixed batch; it leaves the gradients.
    switch(True) recomputes from then on, switch(False) is plain. Call it before you train: it trains."""
    gpu = torch.accelerator if next(model.parameters()).device.type != "cpu" else None
    def run(on):
        switch(on)
        began = time.perf_counter()
        update()
        _ = gpu and gpu.synchronize()
        return time.perf_counter() - began
    def gradients(on):  # from the same weights and random state; one that is missing counts as zero
        _ = model.load_state_dict(weights), torch.manual_seed(0), run(on)
        found = [torch.zeros(1) if p.grad is None else p.grad for p in model.parameters()]
        return [gradient.to("cpu", torch.float64, copy=True) for gradient in found]
    def peak(on):  # bytes; on the CPU without the batch, of two updates: the first makes the gradients
        if gpu:
            return gpu.reset_peak_memory_stats() or (run(on) and gpu.max_memory_allocated())
        kept = [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
        model.zero_grad()
        with torch.profiler.profile(profile_memory=True) as seen:
            _ = run(on), run(on)
        events = sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns())
        alive = torch.tensor([e.nbytes() for e in events if e.name() == "[memory]"]).cumsum(0)
        return int(alive.max()) + sum(t.nbytes for t in [*kept, *model.parameters(), *model.buffers()])
    weights = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    plain, own = gradients(False), gradients(True)
    assert any(gradient.any() for gradient in plain), "update() must leave the gradients where they are"
    far = [(p - q).abs().max().item() for p, q in zip(plain, own)]
    odd = [name for (name, _), gap in zip(model.named_parameters(), far) if not gap < 1e300]
    gaps = [(gap, gap / max(p.abs().max().item(), 1e-30)) for gap, p in zip(far, plain) if gap < 1e300]
    found = {"schema": "recompute-measurements/1", "workload": workload, "plan": plan, "shape": shape,
             "update_s": {"pairs": [(run(False), run(True)) for _ in range(pairs)]},
             "peak_allocated_bytes": {"candidate": [peak(True)], "plain": [peak(False)]},
             "gradients": {"largest_gradient_gap": max([0, *(g for g, _ in gaps)]),
                 "largest_relative_gap": max([0, *(r for _, r in gaps)]), "not_comparable": odd},
             "provenance": {"torch": torch.__version__, "device": str(next(model.parameters()).device)}}
    with open(path, "w") as file: json.dump({**found, "supplied_by": supplied_by}, file)
