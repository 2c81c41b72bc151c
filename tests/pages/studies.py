"""Stores filled with made-up studies through the Store's own interface: fast, and in every state.

The figures are invented; the records are the real ones, so a page sees what a study would give it.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from recompute_core.plans.anatomy import anatomy_of
from recompute_core.results import (
    BlockLegality,
    Canary,
    Fingerprint,
    Gap,
    Legality,
    Memory,
    Noise,
    Pair,
    ParityFailed,
    ParityPassed,
    PeakAt,
    RankMemory,
    Reason,
    Record,
    Reference,
    Rollback,
    StateParts,
    Timeline,
    Timing,
)
from recompute_core.settings import shape_key
from recompute_core.spec import StudySpec, parse_spec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.flow import PLAIN, block_names
from recompute_core.studies.store import Phase, Store

ENVIRONMENT = {
    "device": "cpu",
    "device_name": "Test processor",
    "threads": 2,
    "torch": "2.13.0+cpu",
    "python": "3.11.7",
}
PHOTOS = "sha256:" + "f" * 64
"""Digest of the photos of a made-up study of receipts."""
EQUAL = tuple(
    Gap(part="grad", name=f"blocks.{i}.attn.weight", absolute=0.0, relative=0.0) for i in range(120)
)
PRINTS = tuple(
    Fingerprint(name=f"{gap.part}/{gap.name}", sha256="c" * 64, norm=1.2345678901, largest=0.098765432)
    for gap in EQUAL
)


def spec_of(**changes: Any) -> StudySpec:
    """Two shapes and two plans of a small gpt."""
    return parse_spec(
        {
            "workload": {"name": "gpt", "batch": 4},
            "shapes": [{"seq_len": 128}, {"seq_len": 256}],
            "plans": ["every-block", "every-2nd-block"],
            "timing": {"min_pairs": 7},
            **changes,
        }
    )


class Filled:
    """A study in a store, filled phase by phase."""

    def __init__(self, store: Store, spec: StudySpec, larger: int = 1) -> None:
        self.store, self.spec, self.larger = store, spec, larger
        self.id = store.create(spec)
        self.names = anatomy_of(spec.workload).names
        store.set_environment(self.id, ENVIRONMENT)
        store.set_status(self.id, "running")

    def _keep(self, shape: str, plan: str, phase: Phase, record: Record) -> None:
        self.store.begin_cell(self.id, shape, plan, phase)
        payload = record.model_dump(mode="json", by_alias=True)
        self.store.finish_cell(self.id, shape, plan, phase, payload)

    def prepare(self, shape: str, illegal: Sequence[str] = ()) -> None:
        """Reference, noise and legality of plain."""
        calls = dict.fromkeys(self.names, 1)
        self._keep(
            shape,
            PLAIN,
            "reference",
            Reference(
                loss=4.2,
                tensors=120,
                digest="sha256:" + "a" * 64,
                batch_digest="sha256:" + "b" * 64,
                data_digest=PHOTOS if self.spec.workload.name == "receipts" else None,
                parameters=4_700_000,
                block_calls=calls,
                flops=30_000_000_000,
                envelope_flops=28_000_000_000,
                blocks=self.names,
                fingerprints=PRINTS,
            ),
        )
        self._keep(shape, PLAIN, "noise", Noise(gaps=EQUAL))
        self._keep(
            shape,
            PLAIN,
            "legality",
            Legality(
                blocks=tuple(
                    BlockLegality(
                        block=name,
                        verdict="illegal" if name in illegal else "legal",
                        reasons=(
                            Reason(
                                code="running-statistics",
                                block=name,
                                sentence=f"{name}.norm keeps running statistics",
                            ),
                        )
                        if name in illegal
                        else (),
                    )
                    for name in self.names
                )
            ),
        )

    def prove(self, shape: str, plan: str, passes: bool = True) -> None:
        """Canary and parity of a candidate."""
        canary = Canary(
            caught=True,
            block=next(iter(block_names(self.spec, plan)), "blocks.0"),  # a budget names none
            break_="every second feature is 1 % too large",
            largest_relative_gap=0.026,
        )
        self._keep(shape, plan, "canary", canary)
        touched = block_names(self.spec, plan)
        common = {
            "noise_floor": 0.0,
            "block_calls": {name: 2 if name in touched else 1 for name in self.names},
            "flops": 40_000_000_000,
        }
        if passes:
            off_again = Rollback(compared=len(EQUAL), replays_before=len(touched))
            self._keep(shape, plan, "parity", ParityPassed(gaps=EQUAL, rollback=off_again, **common))
            return
        off = Gap(part="grad", name="blocks.3.attn.weight", absolute=28.5, relative=0.7)
        others = tuple(gap for gap in EQUAL if gap.name != off.name)
        failed = ParityFailed(gaps=(off, *others), failed=(off,), **common)
        self._keep(shape, plan, "parity", failed)

    def weigh(self, shape: str, plan: str, peak_ratio: float = 0.6) -> None:
        """Memory of a plan; plain's ratio is 1."""
        state, above = 76_000_000 * self.larger, 200_000_000 * self.larger
        peak = int((state + above) * peak_ratio) - state
        self._keep(
            shape,
            plan,
            "memory",
            Memory(
                source="test",
                saved_bytes=int(130_000_000 * peak_ratio),
                naive_saved_bytes=int(150_000_000 * peak_ratio),
                state_bytes=state,
                state_parts=StateParts(
                    parameters=19_000_000, gradients=19_000_000, optimizer=37_900_000, other=100_000
                ),
                peak_samples=(peak, peak, peak),
                peak_at=PeakAt(phase="backward", module="blocks.5", replaying=peak_ratio < 1),
                timeline=Timeline(
                    seconds=(0.001, 0.1, 0.2, 0.3),
                    bytes=(state, state + peak // 2, state + peak, state),
                    kept=(0, peak // 2, peak // 4, 0),
                    back=(0, 0, peak // 2 if peak_ratio < 1 else 0, 0),
                    marks=(
                        (0.0, "zero_grad"),
                        (0.01, "forward"),
                        (0.1, "backward"),
                        (0.15, "backward of blocks.5"),
                        (0.29, "optimizer"),
                    ),
                ),
                not_measured={"peak_reserved_bytes": "no caching allocator on the CPU"},
                ranks=tuple(
                    RankMemory(
                        rank=rank,
                        saved_bytes=int(130_000_000 * peak_ratio),
                        state_bytes=state,
                        peak_bytes=state + peak - rank,
                    )
                    for rank in range(self.spec.ranks.count if self.spec.ranks else 0)
                ),
            ),
        )

    def clock(self, shape: str, plan: str, ratios: Sequence[float]) -> None:
        """Time of a candidate, pair by pair."""
        self.store.begin_cell(self.id, shape, plan, "time")
        pairs = tuple(Pair(plain_s=0.2, candidate_s=0.2 * ratio) for ratio in ratios)
        for pair in pairs:
            self.store.add_event(
                self.id,
                "pair",
                (shape, plan, "time"),
                plain_s=pair.plain_s,
                candidate_s=pair.candidate_s,
            )
        ranks = self.spec.ranks.count if self.spec.ranks else 1
        timing = Timing(samples=pairs, stopped="narrow enough", ranks=ranks)
        self.store.finish_cell(self.id, shape, plan, "time", timing.model_dump(mode="json"))

    def conclude(self, status: str = "done") -> str:
        """Write the verdict as the driver does; returns the id."""
        result = assemble(self.store.study(self.id), self.store.cells(self.id))
        self.store.conclude(self.id, status, result.verdict, result.sentence)  # type: ignore[arg-type]
        return self.id

    @property
    def shapes(self) -> list[str]:
        return [shape_key(self.spec.at(shape)) for shape in self.spec.shapes]


NARROW = (1.20, 1.21, 1.19, 1.20, 1.22, 1.20, 1.21)
WIDE = (1.20, 1.55, 1.19, 1.50, 1.22, 1.52, 1.36)


def filled(
    store: Store,
    spec: StudySpec | None = None,
    ratios: Sequence[float] = NARROW,
    peak_ratio: float = 0.6,
    larger: int = 1,
) -> str:
    """A study that is done, with every candidate measured; its peaks are so many times as large."""
    study = Filled(store, spec or spec_of(), larger)
    for shape in study.shapes:
        study.prepare(shape)
        for plan in study.spec.plans:
            study.prove(shape, plan)
        study.weigh(shape, PLAIN, 1.0)
        for index, plan in enumerate(study.spec.plans):
            blocks = len(block_names(study.spec, plan))
            share = blocks / len(study.names)
            study.weigh(shape, plan, 1 - (1 - peak_ratio) * share)
            study.clock(shape, plan, [1 + (ratio - 1) * share + index * 1e-4 for ratio in ratios])
    return study.conclude()


def refused_by_parity(store: Store) -> str:
    """Every candidate fails parity; nothing was measured."""
    study = Filled(store, spec_of(checkpoint={"rng": "ignore"}))
    for shape in study.shapes:
        study.prepare(shape)
        for plan in study.spec.plans:
            study.prove(shape, plan, passes=False)
    return study.conclude()


def refused_by_legality(store: Store) -> str:
    """BatchNorm in the blocks; nothing was measured."""
    study = Filled(store, spec_of())
    for shape in study.shapes:
        study.prepare(shape, illegal=study.names)
    return study.conclude()


def failed(store: Store) -> str:
    """One candidate's time could not be measured."""
    study = Filled(store, spec_of(shapes=[{"seq_len": 128}]))
    shape = study.shapes[0]
    study.prepare(shape)
    for plan in study.spec.plans:
        study.prove(shape, plan)
    study.weigh(shape, PLAIN, 1.0)
    for plan in study.spec.plans:
        study.weigh(shape, plan)
    study.clock(shape, "every-block", NARROW)
    store.begin_cell(study.id, shape, "every-2nd-block", "time")
    store.fail_cell(study.id, shape, "every-2nd-block", "time", "the worker was killed (signal 9)")
    return study.conclude("incomplete")


def running(store: Store) -> Filled:
    """A study in the middle of timing; whoever calls it holds its driver lock."""
    study = Filled(store, spec_of(shapes=[{"seq_len": 128}]))
    shape = study.shapes[0]
    study.prepare(shape)
    for plan in study.spec.plans:
        study.prove(shape, plan)
    study.weigh(shape, PLAIN, 1.0)
    for plan in study.spec.plans:
        study.weigh(shape, plan)
    study.clock(shape, "every-block", NARROW)
    store.begin_cell(study.id, shape, "every-2nd-block", "time")
    for ratio in NARROW[:4]:
        store.add_event(
            study.id,
            "pair",
            (shape, "every-2nd-block", "time"),
            plain_s=0.2,
            candidate_s=0.2 * ratio,
        )
    return study


LONG_MODEL = "hf:LlamaForCausalLMConfig?" + "&".join(
    f"{name}={number}"
    for name, number in {
        "num_hidden_layers": 6,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    }.items()
)
LONG_PLAN = "recompute-every-second-decoder-layer-but-keep-its-attention-and-the-last-one-too"


def long_names(store: Store) -> str:
    """A study whose model, plans, blocks and processor have names as long as they may be."""
    blocks = [f"model.language_model.decoder.layers.{number}" for number in range(6)]
    spec = spec_of(
        workload={"name": LONG_MODEL, "batch": 4, "anatomy": {"names": blocks}},
        plans=[LONG_PLAN, LONG_PLAN[:-4] + "2nd", "x" * 80, "blocks:0,2,4"],
        custom_plans={
            LONG_PLAN: [{"modules": [name]} for name in blocks],
            LONG_PLAN[:-4] + "2nd": [{"modules": [name]} for name in blocks[:4]],
            "x" * 80: [{"modules": blocks[:2]}],
        },
    )
    study = filled(store, spec)
    store.set_environment(study, {**ENVIRONMENT, "device_name": f"Test processor {'9' * 60} core"})
    return study


def many(store: Store, candidates: int = 200) -> str:
    """A study of so many candidates: 20 or 50 shapes, and as many plans as it takes."""
    pairs_and_more = [blocks for size in (2, 3, 4) for blocks in combinations(range(6), size)]
    shapes = 20 if candidates <= 300 else 50
    plans = [f"blocks:{','.join(map(str, blocks))}" for blocks in pairs_and_more][: candidates // shapes]
    lengths = [{"seq_len": 64 * n} for n in range(1, shapes + 1)]
    return filled(store, spec_of(shapes=lengths, plans=plans))
