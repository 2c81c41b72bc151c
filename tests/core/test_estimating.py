"""What is estimated, what is advised, and how far a budget reaches: exact figures."""

import pytest

from recompute_core import estimate
from recompute_core.errors import InputError
from recompute_core.estimating import (
    LIMITS,
    advice,
    document,
    estimates,
    fit_document,
    largest,
    last_that_fits,
    reach,
    reached_words,
)
from recompute_core.results import Estimate, PeakAt, PeakParts, Timeline
from recompute_core.settings import GptSettings, ReceiptsSettings
from recompute_core.spec import Region, StudySpec, Thresholds

GPT = StudySpec()
TINY = StudySpec(workload=GptSettings(blocks=2, width=32, heads=2, vocab=17, seq_len=16, batch=2))


def an_estimate(**parts: int) -> Estimate:
    """An estimate whose peak is made of these parts."""
    return Estimate(
        source="test",
        saved_bytes=0,
        naive_saved_bytes=0,
        parts=PeakParts(**{**dict.fromkeys(PeakParts.model_fields, 0), **parts}),
        peak_at=PeakAt(phase="backward", module=None, replaying=False),
        timeline=Timeline(seconds=(0,), bytes=(0,), marks=()),
    )


# --- estimates --------------------------------------------------------------------------------


def test_the_default_gpt_under_two_plans() -> None:
    plain, every = estimates(GPT, {}, ("none", "every-block"))
    assert (plain.saved_bytes, every.saved_bytes) == (534_609_924, 38_830_084)
    assert plain.peak_above_state_bytes == 548_488_200
    assert every.peak_above_state_bytes == 135_447_560
    assert plain.state_bytes == every.state_bytes == 75_964_640
    assert plain.peak_at.words == "backward of blocks.5"
    assert every.peak_at.words == "backward, blocks.5 recomputed"
    assert plain.kind == "estimated"


def test_in_a_process_of_its_own_or_in_this_one_it_is_the_same() -> None:
    assert estimates(TINY, {}, ("every-block",)) == (estimate(TINY, {}, "every-block"),)


def test_saved_bytes_grow_in_proportion_to_the_sequence() -> None:
    one, four = (estimate(TINY, {"seq_len": n}, "none").saved_bytes for n in (64, 256))
    scalar = 4  # the count of targets, which the loss keeps
    assert four - scalar == 4 * (one - scalar)


def test_bfloat16_halves_weights_and_moments() -> None:
    whole = estimate(GPT, {}, "none")
    half = estimate(GPT.model_copy(update={"precision": "bfloat16"}), {}, "none")
    tokens = 2 * 8 * 512 * 8  # ids and targets stay int64
    steps = 56 * 4  # AdamW counts its steps in float32
    assert 0 < half.state_bytes * 2 - whole.state_bytes <= tokens + 2 * steps
    assert half.saved_bytes < 0.52 * whole.saved_bytes


def test_receipts_need_no_data_set() -> None:
    spec = StudySpec(workload=ReceiptsSettings(blocks=1, images="/nowhere"))
    assert estimate(spec, {}, "every-block").saved_bytes < estimate(spec, {}, "none").saved_bytes


def test_a_custom_plan_is_estimated() -> None:
    both = {"pair": (Region(modules=("blocks.0", "blocks.1")),)}
    spec = TINY.model_copy(update={"plans": ("pair",), "custom_plans": both})
    assert estimate(spec, {}, "pair").saved_bytes < estimate(spec, {}, "every-block").saved_bytes


@pytest.mark.parametrize(
    ("shape", "plan", "says"),
    [
        ({}, "sideways", "unknown plan 'sideways'"),
        ({}, "blocks:7", "no block 7"),
        ({"seq_len": 0}, "none", "seq_len: input should be greater than or equal to 1, got 0"),
    ],
)
def test_what_cannot_be_is_one_line(shape: dict[str, int], plan: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        estimate(TINY, shape, plan)


# --- advice -----------------------------------------------------------------------------------


def test_blocks_that_make_the_peak_need_no_advice() -> None:
    assert advice(TINY, {}, an_estimate(state=60, blocks=30)) == ()


def test_state_that_makes_the_peak_says_not_to_recompute() -> None:
    single = TINY.model_copy(update={"workload": TINY.at({"batch": 1})})
    plain = an_estimate(state=930_000_000, blocks=50_000_000, outside=20_000_000)
    assert advice(single, {}, plain) == (
        "Do not recompute here. 93 % of plain's peak of 1,000.0 MB is state (parameters, gradients, "
        "AdamW's moments): recomputing can touch 5 %, and no plan can bring the peak to 0.82 of "
        "plain's.",
        "Weights, gradients and moments in bfloat16: half of the state, 465.0 MB less (estimated).",
        "AdamW's moments sharded over 8 devices: 406.9 MB less on each (estimated).",
    )


def test_bfloat16_is_not_advised_twice() -> None:
    spec = TINY.model_copy(
        update={"workload": TINY.at({"batch": 1}), "precision": "bfloat16", "thresholds": Thresholds()}
    )
    said = advice(spec, {}, an_estimate(state=700_000_000, blocks=300_000_000))
    assert said[0] == (
        "70 % of plain's peak of 1,000.0 MB is state (parameters, gradients, AdamW's moments): "
        "recomputing can touch 30 %."
    )
    assert [line.split(":")[0] for line in said[1:]] == ["AdamW's moments sharded over 8 devices"]


def test_logits_that_make_the_peak_advise_half_the_batch_and_a_loss_in_chunks() -> None:
    spec = StudySpec(
        workload=GptSettings(blocks=1, width=32, heads=2, vocab=50_000, seq_len=64, batch=4)
    )
    plain = estimate(spec, {}, "none")
    half = estimate(spec, {"batch": 2}, "none")
    logits = 4 * 4 * 64 * 50_000
    assert 2 * logits < plain.parts.outside < 2.1 * logits  # the logits and their log-softmax
    said = advice(spec, {}, plain)
    assert "made outside the blocks (embedding, head, logits and loss)" in said[0]
    saved = (plain.peak_bytes - half.peak_bytes) / 1e6
    assert said[1] == (
        f"Batch 2 instead of 4: plain's peak would be {half.peak_bytes / 1e6:.1f} MB, "
        f"{saved:.1f} MB less (estimated)."
    )
    assert said[2].startswith("A loss in 8 chunks: logits and loss would take 12.")


# --- how far a budget reaches -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "wanted"),
    [(99, None), (109, None), (110, 1), (119, 1), (120, 2), (5_000, 490), (10**9, 1_000)],
)
@pytest.mark.parametrize("start", [1, 37, 1_000])
def test_the_last_size_that_fits(budget: int, wanted: int | None, start: int) -> None:
    asked: list[int] = []

    def peak(size: int) -> int:
        asked.append(size)
        return 100 + 10 * size

    assert last_that_fits(range(1, 1_001), start, peak, budget) == wanted
    assert len(asked) == len(set(asked)) <= 5


@pytest.mark.parametrize("power", [0.5, 2.0, 3.0])
def test_a_bent_peak_is_found_too(power: float) -> None:
    asked: list[int] = []

    def peak(size: int) -> int:
        asked.append(size)
        return int(1_000 * size**power)

    sizes = range(1, 65_537)
    wanted = max(size for size in sizes if int(1_000 * size**power) <= 250_000)
    assert last_that_fits(sizes, 8, peak, 250_000) == wanted
    assert len(asked) <= 8 + 16


def test_a_step_in_the_peak_is_found_by_halving() -> None:
    assert last_that_fits(range(1, 65_537), 8, lambda n: 1 if n <= 12_345 else 9, 5) == 12_345


def test_the_longest_sequence_in_a_gigabyte() -> None:
    found = largest(GPT, "every-block", "seq_len", 10**9)
    assert found is not None
    length, there = found
    assert (length, there.peak_bytes) == (3_456, 990_983_400)
    assert estimate(GPT, {"seq_len": length + 64}, "every-block").peak_bytes > 10**9


def test_state_alone_above_the_budget_fits_nothing() -> None:
    assert largest(TINY, "none", "batch", 1_000) is None


def test_the_largest_batch_under_two_plans() -> None:
    plain, every = reach(TINY, ("none", "every-block"), "batch", 2_000_000)
    assert plain is not None
    assert every is not None
    for plan, (batch, there) in (("none", plain), ("every-block", every)):
        assert there.peak_bytes <= 2_000_000
        assert estimate(TINY, {"batch": batch + 1}, plan).peak_bytes > 2_000_000
    assert every[0] > plain[0]


def test_photos_have_no_sequence_length() -> None:
    with pytest.raises(InputError, match="receipts has no seq_len"):
        largest(StudySpec(workload=ReceiptsSettings()), "none", "seq_len", 10**9)


def test_a_search_that_stops_at_its_limit_says_so() -> None:
    small = an_estimate(state=1)
    reached = (None, (65_535, small), (65_536, small))
    rows = fit_document("batch", 5, ("a", "b", "c"), reached)["plans"]
    assert [row["at_limit"] for row in rows] == [False, False, True]
    assert [reached_words(row["largest"], row["at_limit"]) for row in rows] == [
        "none fits", "65,535", "at least 65,536 (the search stops there)",
    ]  # fmt: skip
    everything = largest(TINY, "none", "batch", 10**15)
    assert everything is not None
    assert everything[0] == LIMITS["batch"]


# --- the JSON -----------------------------------------------------------------------------------


def test_the_published_document() -> None:
    found = dict(zip(("none", "every-block"), estimates(TINY, {}, ("none", "every-block")), strict=True))
    fit = fit_document("seq_len", 5, ("none",), (None,))
    raw = document(TINY, {"seq_len": 16}, found, ("said",), fit)
    assert raw["schema"] == "recompute-estimate/1"
    assert raw["shape"] == {"seq_len": 16, "batch": 2}
    assert raw["workload"]["width"] == 32
    assert [one["plan"] for one in raw["estimates"]] == ["none", "every-block"]
    assert raw["estimates"][1]["plan_hash"].startswith("sha256:")
    assert raw["estimates"][0]["peak_bytes"] == found["none"].peak_bytes
    assert raw["estimates"][0]["kind"] == "estimated"
    assert raw["advice"] == ["said"]
    assert raw["fit"] == {
        "field": "seq_len",
        "budget_bytes": 5,
        "plans": [{"plan": "none", "largest": None, "at_limit": False, "peak_bytes": None}],
    }
