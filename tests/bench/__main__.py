"""`python -m tests.bench [NAME ...]`: measure the product itself and print tables."""

import sys

from . import (
    best_plans,
    estimate_error,
    first_figures,
    first_page,
    history_speed,
    nn_modules,
    page_latency,
    plan_speed,
    second_use,
    sign_speed,
    study_cost,
)

BENCHES = {
    "study-cost": study_cost.main,
    "first-figures": first_figures.main,
    "first-page": first_page.main,
    "page-latency": page_latency.main,
    "history": history_speed.main,
    "estimate-error": estimate_error.main,
    "plan-speed": plan_speed.main,
    "best-plans": best_plans.main,
    "nn-modules": nn_modules.main,
    "second-use": second_use.main,
    "sign": sign_speed.main,
}


def main() -> None:
    """Run the named benches, or all of them."""
    names = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no bench {unknown[0]!r}; known: {', '.join(BENCHES)}")
    for name in names:
        print(f"\n## {name}\n", flush=True)
        BENCHES[name]()


if __name__ == "__main__":
    main()
