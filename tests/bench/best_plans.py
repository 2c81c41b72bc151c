"""Our plans against every recipe: at each recipe's peak, what does ours cost, estimated and measured?

A study measures every recipe and, for each, our cheapest plan whose estimated peak is no higher. Shares
are means over the recipes that cost at least half a percent of an update.
"""

import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

from recompute_core.planning import Wish, measure, plan
from recompute_core.results import PlanPoint, PlanResult
from recompute_core.spec import StudySpec, parse_spec

CASES: dict[str, tuple[dict[str, Any], float, float]] = {
    "gpt, 6 blocks of 256, T=512 B=8": ({"name": "gpt", "seq_len": 512}, 0.75, 0.80),
    "receipts, 192x96 B=16": ({"name": "receipts"}, 0.85, 0.85),
    "gpt, 24 blocks of 128, T=128 B=4": (
        {"name": "gpt", "blocks": 24, "width": 128, "seq_len": 128, "batch": 4},
        0.85,
        0.85,
    ),
}
"""Workload, largest mean share of the recipes' overhead, largest share of every-block's peak."""
_WORTH = 0.005


def beside(found: PlanResult, recipe: PlanPoint) -> PlanPoint:
    """Our cheapest plan at a recipe's peak."""
    fitting = [point for point in found.points if point.peak_bytes <= recipe.peak_bytes]
    return min(fitting, key=lambda point: point.overhead)


def compared(spec: StudySpec) -> tuple[PlanResult, float]:
    """The answer with every recipe and our plan beside it measured; seconds that the search took."""
    started = time.perf_counter()
    found = plan(spec, Wish(frontier=True, against_recipes=True))
    spent = time.perf_counter() - started
    ours = {point.plan for point in (*(beside(found, r) for r in found.recipes), found.floor)}
    few = found.model_copy(update={"points": tuple(p for p in found.points if p.plan in ours)})
    with tempfile.TemporaryDirectory() as home:
        return measure(spec, few, Path(home)), spent


def _ratio(point: PlanPoint) -> str:
    if point.measured_ratio is None or point.measured_ratio_ci95 is None:
        return "not measured"
    return "{:.3f} ({:.3f} to {:.3f})".format(point.measured_ratio, *point.measured_ratio_ci95)


def report(name: str, found: PlanResult, share: float, floor_share: float) -> None:
    """Print one case's table and what it comes to."""
    print(f"\n### {name}\n")
    print("| recipe | peak MB | overhead, est. | ratio | ours | peak MB | overhead, est. | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    estimated, measured = [], []
    for recipe in found.recipes:
        ours = beside(found, recipe)
        print(
            f"| {recipe.plan} | {recipe.peak_bytes / 1e6:.1f} | {recipe.overhead:.3f} | "
            f"{_ratio(recipe)} | {ours.plan} | {ours.peak_bytes / 1e6:.1f} | {ours.overhead:.3f} | "
            f"{_ratio(ours)} |"
        )
        if recipe.overhead >= _WORTH:
            estimated.append((ours.overhead, recipe.overhead))
            if ours.measured_ratio and recipe.measured_ratio:
                measured.append((ours.measured_ratio - 1, recipe.measured_ratio - 1))
    every = next(recipe for recipe in found.recipes if recipe.plan == "every-block")
    for kind, pairs in (("estimated", estimated), ("measured", measured)):
        if pairs:
            ours_s, theirs_s = sum(a for a, _ in pairs), sum(b for _, b in pairs)
            print(
                f"\nOverhead, {kind}: ours {ours_s / len(pairs):.3f} of an update on average, the "
                f"recipes' {theirs_s / len(pairs):.3f}: {ours_s / theirs_s:.2f} of it (at most "
                f"{share:g}); mean of the shares {mean(a / b for a, b in pairs):.2f}."
            )
    print(
        f"Lowest peak: {found.floor.peak_above_state_bytes / every.peak_above_state_bytes:.3f} of "
        f"every-block's above the state (at most {floor_share:g}), "
        f"{found.floor.peak_bytes / every.peak_bytes:.3f} with the state."
    )
    everything = (*found.points, *found.recipes)
    misses = [abs(point.miss) for point in everything if point.miss is not None]
    print(
        f"Parity: {sorted({str(p.parity) for p in everything if p.regions})}. Measured peak off its "
        f"estimate by at most {100 * max(misses, default=0):.2f} %."
    )


def main() -> None:
    """Print the tables."""
    for name, (workload, share, floor_share) in CASES.items():
        found, spent = compared(parse_spec({"workload": workload}))
        report(name, found, share, floor_share)
        print(f"The search with all recipes took {spent:.0f} s.")


if __name__ == "__main__":
    main()
