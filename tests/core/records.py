"""Hand-made records for the tests: small, exact, and without torch."""

from collections.abc import Sequence
from typing import Any

from recompute_core.results import (
    BlockLegality,
    Canary,
    Gap,
    Measured,
    Memory,
    MemoryPair,
    Pair,
    ParityFailed,
    ParityPassed,
    PlanPoint,
    PlanResult,
    Proven,
    Reason,
    Refused,
    Rollback,
    Timing,
)
from recompute_core.spec import Region

SAME = Gap(part="grad", name="w", absolute=0.0, relative=0.0)
OFF = Gap(part="grad", name="w", absolute=0.5, relative=0.25)


def passed(*gaps: Gap) -> ParityPassed:
    gaps = gaps or (SAME,)
    return ParityPassed(
        gaps=gaps,
        noise_floor=0.0,
        block_calls={"blocks.0": 2},
        flops=40,
        rollback=Rollback(compared=len(gaps)),
    )


def failed(*gaps: Gap) -> ParityFailed:
    gaps = gaps or (OFF,)
    return ParityFailed(gaps=gaps, failed=gaps, noise_floor=0.0, block_calls={"blocks.0": 2}, flops=40)


def canary(caught: bool = True) -> Canary:
    return Canary(caught=caught, block="blocks.0", break_="a break", largest_relative_gap=0.01)


def memory(*peaks: int, state: int = 1_000_000, saved: int = 10) -> Memory:
    """A memory record whose whole peaks, state included, are `peaks`."""
    return Memory(
        source="a meter",
        saved_bytes=saved,
        naive_saved_bytes=2 * saved,
        state_bytes=state,
        peak_samples=tuple(peak - state for peak in peaks),
    )


def timing(*ratios: float, plain_s: float = 0.25) -> Timing:
    """Pairs with these ratios; give powers of two for exact figures."""
    return Timing(
        samples=tuple(Pair(plain_s=plain_s, candidate_s=plain_s * ratio) for ratio in ratios),
        stopped="all pairs taken",
    )


def facts(plan: str = "every-block", seq_len: int = 128) -> dict[str, Any]:
    return {
        "plan": plan,
        "plan_hash": f"sha256:{plan}",
        "shape": {"seq_len": seq_len, "batch": 4},
        "shape_key": f"T={seq_len} B=4",
        "blocks": ("blocks.0",),
        "regions": (Region(modules=("blocks.0",)),),
    }


def proof_of(parity: ParityPassed | None = None) -> dict[str, Any]:
    return {
        "legality": (BlockLegality(block="blocks.0", verdict="legal"),),
        "canary": canary(),
        "parity": parity or passed(),
    }


def measured(
    plan: str = "every-block",
    seq_len: int = 128,
    peaks: tuple[int, int] = (4_000_000, 2_000_000),
    ratios: Sequence[float] = (1.25, 1.25, 1.25),
    parity: ParityPassed | None = None,
) -> Measured:
    """A measured candidate; `peaks` are plain's and its own. A longer shape saves more."""
    return Measured(
        **facts(plan, seq_len),
        **proof_of(parity),
        memory=MemoryPair(plain=memory(peaks[0], saved=10 * seq_len), candidate=memory(peaks[1])),
        timing=timing(*ratios),
        flops={"plain": 30, "candidate": 40, "envelope": 24},
        block_calls={"plain": {"blocks.0": 1}, "candidate": {"blocks.0": 2}},
    )


def proven(plan: str = "every-block", seq_len: int = 128, **found: Any) -> Proven:
    return Proven(**facts(plan, seq_len), **proof_of(), **found)


def refused(stopped_by: str, plan: str = "every-block", seq_len: int = 128, **found: Any) -> Refused:
    return Refused(**facts(plan, seq_len), stopped_by=stopped_by, **found)


def illegal(block: str = "blocks.0") -> BlockLegality:
    reason = Reason(code="running_statistics", block=block, sentence=f"{block}: it moves.")
    return BlockLegality(block=block, verdict="illegal", reasons=(reason,))


def plan_point(plan: str, peak: int, *modules: str) -> PlanPoint:
    """A plan of these blocks; the state is 1 MB."""
    return PlanPoint(
        plan=plan,
        plan_hash=f"sha256:{plan}",
        regions=tuple(Region(modules=(name,)) for name in modules),
        peak_bytes=peak,
        peak_above_state_bytes=peak - 1_000_000,
        saved_bytes=10,
        overhead=0.25,
    )


def plan_answer(*points: PlanPoint) -> PlanResult:
    """An answer that chose the first of these plans; plain's peak is 4 MB."""
    plain = plan_point("none", 4_000_000)
    return PlanResult(
        sentence="",
        workload={"name": "gpt"},
        shape_key="T=128 B=4",
        state_bytes=1_000_000,
        plain_s=1.0,
        plain=plain,
        floor=points[-1],
        chosen=points[0],
        points=(plain, *points),
        recipes=points[:1],
    )
