"""What signing and verifying a report take: a study of 200 cells, its records as large as real ones."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from recompute_core.reports.evidence import gather
from recompute_core.reports.release import release
from recompute_core.results import Record, Timeline
from recompute_core.studies.store import Phase, Store
from tests.pages import studies
from tests.reports.decisions import checked
from tests.reports.signing import ANN

Made = TypeVar("Made")
_POINTS = 400
"""Of a timeline: as many as are kept at most."""
RATIOS = [1.2 + 0.001 * number for number in range(31)]


class _Large(studies.Filled):
    """120 tensors, of each its fingerprint; 31 pairs of updates; timelines of 400 points."""

    def _keep(self, shape: str, plan: str, phase: Phase, record: Record) -> None:
        timeline: Any = getattr(record, "timeline", None)
        if timeline is not None:
            top = max(timeline.bytes)
            whole = Timeline(
                seconds=tuple(number * 0.00123456 for number in range(_POINTS)),
                bytes=tuple(top - abs(_POINTS // 2 - number) * 1024 for number in range(_POINTS)),
                marks=timeline.marks,
            )
            record = record.model_copy(update={"timeline": whole})
        super()._keep(shape, plan, phase, record)


def evidence() -> dict[str, bytes]:
    """25 shapes."""
    shapes = [{"seq_len": 64 * number} for number in range(1, 26)]
    spec = studies.spec_of(shapes=shapes, plans=["every-block"])
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        study = _Large(store, spec)
        for shape in study.shapes:
            study.prepare(shape)
            study.prove(shape, "every-block")
            study.weigh(shape, "none", 1.0)
            study.weigh(shape, "every-block")
            study.clock(shape, "every-block", RATIOS)
        found = gather(store, study.conclude(), "every-block")
        store.close()
    return found


def seconds(make: Callable[[], Made]) -> tuple[float, Made]:
    """Of the processor, the least of three runs, and what was made."""
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        made = make()
        best = min(best, time.process_time() - begun)
    return best, made


def main() -> None:
    """Print both; signing includes our own verification of what was signed."""
    files = evidence()
    signing, bundle = seconds(lambda: release(files, ANN).bundle)
    verifying, _ = seconds(lambda: checked(bundle))
    print(
        f"200 cells, {sum(map(len, files.values())) / 1e6:.1f} MB of evidence, seconds of the processor:"
    )
    print(f"sign {signing:.2f}  verify {verifying:.2f}")
