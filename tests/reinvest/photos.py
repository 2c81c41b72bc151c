"""A folder of small photos with a manifest, and what a study of them asks."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from recompute_core.workloads.receipts.labels import LABELS

RECEIPTS = 24


def photos(folder: Path) -> Path:
    """Two photos of each receipt; every class on both sides; one in nine rejected."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows = []
    for index in range(2 * RECEIPTS):
        receipt = index // 2
        label = LABELS[receipt % 6]
        pixels = rng.integers(0, 80, (32, 32), np.uint8)
        pixels[:, 4 * (receipt % 6) : 4 * (receipt % 6) + 6] += 120  # a bar that tells the class
        Image.fromarray(pixels).save(folder / f"{index}.png")
        is_rejected = index % 9 == 4
        rows.append(
            {
                "image_path": f"{index}.png",
                "receipt_id": f"r{receipt}",
                "label": label,
                "split": "validation" if receipt >= RECEIPTS - 6 else "train",
                "accepted": "false" if is_rejected else "true",
                "reject_reason": "unreadable" if is_rejected else "",
            }
        )
    pd.DataFrame(rows).to_csv(folder / "manifest.csv", index=False)
    return folder


def receipts_study(folder: Path, **workload: Any) -> dict[str, Any]:
    """A study of a tiny encoder on those photos, which any plan passes."""
    return {
        "workload": {
            "name": "receipts",
            "blocks": 2,
            "width": 32,
            "heads": 2,
            "height": 32,
            "image_width": 32,
            "batch": 4,
            "images": str(folder),
            **workload,
        },
        "plans": ["mlp"],
        "thresholds": {"peak_ratio": 1, "update_ratio": 100},
        "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
        "device": "cpu",
        "threads": 1,
    }


def asked(study: str, **changes: Any) -> dict[str, Any]:
    return {
        "study": study,
        "plan": "mlp",
        "shape": "32x32 B=4",
        "effective_batch": 12,
        "microbatch": 6,
        "training": {
            "seeds": [0, 1],
            "examples": 96,
            "evaluate_every": 3,
            "checkpoint_every": 2,
        },
        "timing": {"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
        **changes,
    }
