"""Records: what cannot be built, what is derived, and that all of it survives JSON."""

import json
import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from recompute_core.gates import judge
from recompute_core.results import (
    BlockLegality,
    Candidate,
    Gap,
    Gate,
    Legality,
    Measured,
    Memory,
    MemoryPair,
    Noise,
    Pair,
    Parity,
    ParityFailed,
    PeakAt,
    Proven,
    Record,
    Reference,
    Refused,
    StudyResult,
    Timeline,
    Timing,
)
from recompute_core.spec import StudySpec, Thresholds
from tests.core import records as make

LIMITS = Thresholds()
NEAR = Gap(part="output", name="0", absolute=1e-6, relative=1e-6)
MISSING = Gap(part="grad", name="v", absolute=None, relative=None, problem="missing")


# --- parity before memory -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Measured, Proven])
def test_no_figure_without_a_passed_parity(kind: type[Measured]) -> None:
    good = make.measured().model_dump(by_alias=True) | {"state": kind.__name__.lower()}
    kind.model_validate(good)
    for parity in (make.failed(), make.failed().model_dump(), None):
        with pytest.raises(ValidationError, match="parity"):
            kind.model_validate(good | {"parity": parity})
    without = {name: value for name, value in good.items() if name != "parity"}
    with pytest.raises(ValidationError, match="parity"):
        kind.model_validate(without)


@pytest.mark.parametrize("figure", ["memory", "timing"])
def test_a_refused_candidate_has_no_place_for_a_figure(figure: str) -> None:
    found = getattr(make.measured(), figure)
    with pytest.raises(ValidationError, match=figure):
        make.refused("parity", **{figure: found})
    quiet = make.refused("parity", flops={"plain": 1}, block_calls={}, saved_bytes=7)
    assert {"flops", "block_calls", "saved_bytes"}.isdisjoint(quiet.model_dump())


def test_a_refused_candidate_cannot_hold_a_passed_parity() -> None:
    with pytest.raises(ValidationError, match="parity"):
        make.refused("canary", parity=make.passed())


def test_records_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        make.measured().plan = "another"  # type: ignore[misc]


# --- what is derived ------------------------------------------------------------------------------


def test_comparison() -> None:
    noise = Noise(gaps=(make.SAME, NEAR, make.OFF))
    assert noise.bitwise is False
    assert noise.largest_gradient_gap == 0.5
    assert noise.largest_relative_gap == 0.25
    assert noise.worst == (make.OFF, NEAR)
    assert noise.failures(LIMITS) == (make.OFF,)
    assert Noise(gaps=(make.SAME,)).bitwise is True
    assert Noise(gaps=(make.SAME,)).worst == ()


def test_a_missing_gradient_has_no_gap_and_is_worst_of_all() -> None:
    noise = Noise(gaps=(make.OFF, MISSING))
    assert noise.largest_gradient_gap is None
    assert noise.largest_relative_gap is None
    assert noise.worst == (MISSING, make.OFF)
    assert noise.failures(Thresholds(gradient_gap=1e300, relative_gap=0.99)) == (MISSING,)


def test_comparing_nothing_proves_nothing() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        Noise(gaps=())


def test_only_the_five_worst_are_listed() -> None:
    gaps = [Gap(part="grad", name=str(i), absolute=1.0, relative=i / 100) for i in range(1, 8)]
    assert [gap.name for gap in Noise(gaps=tuple(gaps)).worst] == ["7", "6", "5", "4", "3"]


def test_memory() -> None:
    exact = make.memory(3_000_000)
    assert (exact.peak_above_state_bytes, exact.peak_bytes) == (2_000_000, 3_000_000)
    blind = make.memory()
    assert (blind.peak_above_state_bytes, blind.peak_bytes) == (None, None)
    pair = MemoryPair(plain=make.memory(4_000_000), candidate=exact)
    assert (pair.ratio, pair.ratio_ci95) == (0.75, (0.75, 0.75))
    several = MemoryPair(
        plain=make.memory(4_000_000, 5_000_000, 8_000_000),
        candidate=make.memory(2_000_000, 2_500_000, 3_000_000),
    )
    assert (several.ratio, several.ratio_ci95) == (0.5, (0.25, 0.75))
    no_ratio = MemoryPair(plain=blind, candidate=exact)
    assert (no_ratio.ratio, no_ratio.ratio_ci95) == (None, None)


def test_timing() -> None:
    found = make.timing(1.0, 1.25, 2.0)
    assert found.ratios == (1.0, 1.25, 2.0)
    assert (found.pairs, found.plain_median_s, found.candidate_median_s) == (3, 0.25, 0.3125)
    assert (found.ratio_median, found.ratio_ci95) == (1.25, (1.0, 2.0))


def test_the_ratio_is_the_median_of_paired_ratios_and_not_the_ratio_of_medians() -> None:
    pairs = [(1.0, 4.0), (2.0, 2.0), (4.0, 1.0)]
    samples = tuple(Pair(plain_s=p, candidate_s=c) for p, c in pairs)
    assert Timing(samples=samples[:2], stopped="budget spent").ratio_median == 2.5
    assert Timing(samples=samples, stopped="budget spent").ratio_median == 1.0


def test_timing_needs_a_sample_and_each_took_time() -> None:
    with pytest.raises(ValidationError, match="samples"):
        Timing(samples=(), stopped="budget spent")
    with pytest.raises(ValidationError, match="plain_s"):
        Pair(plain_s=0.0, candidate_s=1.0)


def test_derived_figures_are_derived_again_on_reading() -> None:
    raw = make.timing(1.0, 1.25, 2.0).model_dump(mode="json") | {"ratio_median": 0.5}
    assert Timing.model_validate(raw).ratio_median == 1.25
    raw = Noise(gaps=(make.OFF,)).model_dump(mode="json") | {"bitwise": True}
    assert Noise.model_validate(raw).bitwise is False


def test_legality_of_a_plan() -> None:
    good = BlockLegality(block="blocks.1", verdict="legal")
    found = Legality(blocks=(make.illegal(), good))
    assert found.refusals(("blocks.1",)) == ()
    assert [reason.block for reason in found.refusals(("blocks.0", "blocks.1"))] == ["blocks.0"]


# --- JSON -----------------------------------------------------------------------------------------

REFERENCE = Reference(
    loss=4.25,
    tensors=12,
    digest="sha256:1",
    batch_digest="sha256:2",
    data_digest=None,
    parameters=100,
    block_calls={"blocks.0": 1},
    flops=30,
    envelope_flops=24,
    blocks=("blocks.0",),
)
FULL_MEMORY = Memory(
    source="a meter",
    saved_bytes=10,
    naive_saved_bytes=20,
    state_bytes=30,
    peak_samples=(40, 50),
    process_peak_bytes=60,
    peak_at=PeakAt(phase="backward", module="blocks.0", replaying=True),
    timeline=Timeline(seconds=(0.0, 0.5), bytes=(30, 80), marks=((0.0, "forward"),)),
    not_measured={"peak_reserved_bytes": "no caching allocator"},
)
CANDIDATES = (
    make.measured(),
    make.proven("every-2nd-block", failure="a worker died"),
    make.refused("legality", "all-but-last", reasons=("it moves",), legality=(make.illegal(),)),
    make.refused("parity", "blocks:0", parity=make.failed(MISSING, make.OFF), canary=make.canary()),
)


@pytest.mark.parametrize(
    "record",
    [
        REFERENCE,
        FULL_MEMORY,
        Noise(gaps=(make.SAME, NEAR, MISSING)),
        Legality(blocks=(make.illegal(),)),
        make.canary(),
        make.passed(),
        make.failed(MISSING),
        make.timing(1.0, 1.5),
        *CANDIDATES,
        judge(CANDIDATES[0], LIMITS),
        judge(CANDIDATES[3], LIMITS),
    ],
    ids=lambda record: type(record).__name__,
)
def test_round_trip(record: Record) -> None:
    text = json.dumps(record.model_dump(mode="json", by_alias=True), allow_nan=False)
    again = type(record).model_validate_json(text)
    assert again == record
    assert again.model_dump_json(by_alias=True) == record.model_dump_json(by_alias=True)


@pytest.mark.parametrize("one", CANDIDATES)
def test_a_candidate_is_read_back_as_its_own_kind(one: Record) -> None:
    read = TypeAdapter(Candidate).validate_json(one.model_dump_json(by_alias=True))
    assert type(read) is type(one)
    assert read == one


def test_parity_is_read_back_by_whether_it_passed() -> None:
    read = TypeAdapter(Parity).validate_json(make.failed().model_dump_json())
    assert type(read) is ParityFailed
    with pytest.raises(ValidationError):  # a failed parity does not pass by changing one word
        TypeAdapter(Parity).validate_python(make.failed().model_dump() | {"passed": "yes"})


def result(**changes: Any) -> StudyResult:
    spec = StudySpec()
    facts: dict[str, Any] = {
        "study_id": "s",
        "status": "done",
        "verdict": "adopt",
        "sentence": "Adopt it.",
        "thresholds": spec.thresholds,
        "declared_at": "2026-01-01T00:00:00.000Z",
        "spec": spec,
        "spec_hash": spec.digest(),
        "environment": {"device": "cpu"},
        "references": {"T=128 B=4": REFERENCE},
        "judged": tuple(judge(candidate, LIMITS) for candidate in CANDIDATES),
    }
    return StudyResult(**facts | changes)


def test_document() -> None:
    document = result().document()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    assert document["schema"] == "recompute-study/1"
    assert document["thresholds"] == {
        "gradient_gap": 1e-4,
        "relative_gap": 1e-4,
        "peak_ratio": 0.82,
        "update_ratio": 1.35,
        "declared_at": "2026-01-01T00:00:00.000Z",
    }
    assert (document["study_id"], document["verdict"], document["spec"]["plans"]) == (
        "s",
        "adopt",
        ["every-block"],
    )
    assert "judged" not in document
    assert "declared_at" not in document


def test_document_of_a_measured_candidate_has_the_published_names() -> None:
    candidate = result().document()["candidates"][0]
    assert candidate["canary"]["break"] == "a break"
    assert candidate["parity"]["passed"] is True
    assert {"bitwise", "largest_gradient_gap", "largest_relative_gap", "noise_floor", "worst"} <= set(
        candidate["parity"]
    )
    for side in ("plain", "candidate"):
        assert {
            "saved_bytes",
            "naive_saved_bytes",
            "peak_bytes",
            "peak_above_state_bytes",
            "peak_reserved_bytes",
            "process_peak_bytes",
            "peak_at",
        } <= set(candidate["memory"][side])
    assert {
        "pairs",
        "plain_median_s",
        "candidate_median_s",
        "ratio_median",
        "ratio_ci95",
        "samples",
    } <= set(candidate["timing"])
    assert candidate["flops"] == {"plain": 30, "candidate": 40, "envelope": 24}
    assert candidate["block_calls"] == {"plain": {"blocks.0": 1}, "candidate": {"blocks.0": 2}}
    assert [gate["id"] for gate in candidate["gates"]] == [
        "gradient_parity",
        "memory_saving",
        "update_latency",
    ]
    assert {"outcome", "threshold", "observed", "ci95"} <= set(candidate["gates"][0])
    assert candidate["verdict"] == "adopt"


def test_document_of_a_refused_candidate_has_no_figure() -> None:
    for candidate in result().document()["candidates"][2:]:
        assert candidate["state"] == "refused"
        assert (candidate["memory"], candidate["timing"]) == (None, None)
        text = json.dumps(candidate)
        assert "_bytes" not in text
        assert '_s"' not in text


@pytest.mark.parametrize("where", ["gap", "loss", "pair", "gate", "timeline"])
def test_nothing_that_json_lacks_gets_into_a_record(where: str) -> None:
    def build(value: float) -> Record:
        match where:
            case "gap":
                return Gap(part="grad", name="w", absolute=value, relative=1.0)
            case "loss":
                return Reference.model_validate(REFERENCE.model_dump() | {"loss": value})
            case "pair":
                return Pair(plain_s=1.0, candidate_s=value)
            case "gate":
                return Gate(
                    id="memory_saving",
                    outcome="fail",
                    threshold=1.0,
                    observed=value,
                    ci95=None,
                    sentence="",
                )
            case _:
                return Timeline(seconds=(value,), bytes=(1,), marks=())

    build(1.0)
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValidationError):
            build(value)


def test_refused_and_pending_do_not_look_alike() -> None:
    pending, refusal = make.refused("pending"), make.refused("legality")
    assert isinstance(pending, Refused)
    assert pending.model_dump() != refusal.model_dump()


@pytest.mark.parametrize(
    ("seconds", "more"),
    [
        ((), {"bytes": ()}),
        ((0.0, 0.5), {"bytes": (30,)}),
        ((0.0,), {"bytes": (30, 80)}),
        ((0.0, 0.5), {"bytes": (30, 80), "kept": (30,)}),
        ((0.0, 0.5), {"bytes": (30, 80), "back": (0, 0, 0)}),
    ],
)
def test_a_timeline_has_a_figure_for_each_moment(
    seconds: tuple[float, ...], more: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError, match="a figure for each moment"):
        Timeline(seconds=seconds, marks=(), **more)
