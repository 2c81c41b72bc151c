"""The pure functions the pages are laid out from."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis.strategies import text

from pages._parts import ask, charts, history, labels, markup, picture, plotted, progress, words
from pages._parts.pairs import pairs_chart
from pages._parts.palette import DARK, LIGHT
from pages._parts.picture import points
from pages._parts.whatif import rejudge
from pages._parts.words import device_line
from recompute_core.reports.page import words as page_words
from recompute_core.spec import Thresholds
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Event, Store
from recompute_core.words import shape_labels

from . import studies


def _result(store: Store, study: str, limits: Thresholds | None = None):
    return assemble(store.study(study), store.cells(study), limits)


@pytest.mark.parametrize(
    "make",
    [studies.filled, studies.refused_by_parity, studies.refused_by_legality, studies.failed],
)
@pytest.mark.parametrize(
    "changed",
    [{"peak_ratio": 0.4}, {"update_ratio": 1.05}, {"relative_gap": 1e-9, "gradient_gap": 50.0}, {}],
)
def test_a_what_if_says_what_the_core_says(store: Store, make, changed: dict) -> None:
    study = make(store)
    limits = Thresholds().model_copy(update=changed)
    assert rejudge(_result(store, study), limits) == _result(store, study, limits)


def test_a_point_lies_at_its_ratios(store: Store) -> None:
    found = points(_result(store, studies.filled(store, peak_ratio=0.5)).judged)
    whole = next(p for p in found if p.plan == "every-block" and p.shape_key == "T=128 B=4")
    assert whole.peak == pytest.approx(0.5)
    assert whole.update == pytest.approx(1.20)
    assert whole.outcome == "pass"
    assert whole.plain_bytes == 276_000_000


def test_a_dominated_point_is_not_on_the_pareto_line(store: Store) -> None:
    spec = studies.spec_of(shapes=[{"seq_len": 128}], plans=["blocks:0,1", "blocks:1,2"])
    found = points(_result(store, studies.filled(store, spec)).judged)
    assert [p.best for p in found] == [True, False]  # the same peak, and slower


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ([(1.06, 1.03), (1.23, 0.99)], [(1.0, 1.0), (1.23, 0.99)]),  # the first is worse than plain
        ([(0.93, 1.04), (1.23, 0.99)], [(0.93, 1.04), (1.0, 1.0), (1.23, 0.99)]),
        ([(0.98, 0.9), (1.2, 0.7)], [(0.98, 0.9), (1.2, 0.7)]),  # plain itself is beaten
        ([(1.1, 1.0)], None),
    ],
)
def test_plain_is_a_choice_like_any_other(
    store: Store, where: list[tuple[float, float]], line: list[tuple[float, float]] | None
) -> None:
    (one,) = points(_result(store, studies.failed(store)).judged)
    found = picture._with_pareto([replace(one, update=u, peak=p) for u, p in where])
    assert plotted._pareto(found) == ([] if line is None else [line])


def test_the_picture_holds_measured_candidates_only(store: Store) -> None:
    result = _result(store, studies.failed(store))
    assert [point.plan for point in points(result.judged)] == ["every-block"]


def test_names_beside_points_cover_nothing() -> None:
    crowd = [labels.Named(1.1 + 0.01 * (n % 3), 0.6 + 0.004 * n, f"blocks:{n}") for n in range(30)]
    placed = labels.place(crowd, (0.95, 1.5), (0.4, 1.04), (1.35, 0.82))
    assert any(placed)
    assert None in placed  # no room for all: those are left to the hover


def test_points_at_one_place_leave_each_other_room_for_a_name() -> None:
    """Both are named, and a name lies over a gate only once no other place is free."""
    twins = [labels.Named(1.22, 0.8, f"every-2nd-block, T={n}") for n in (128, 256)]
    placed = labels.place(twins, (0.85, 1.6), (0.5, 1.02), (1.35, 0.82))
    assert placed == ["bottom left", "top right"]


def test_a_name_lies_over_a_gate_rather_than_nowhere() -> None:
    close = [labels.Named(1.2, 0.815, "every-2nd-block"), labels.Named(1.2, 0.79, "")]
    bars = [((0.9, 0.80), (1.34, 0.80))]
    assert None not in labels.place(close, (1.19, 1.36), (0.78, 0.84), (1.21, 0.82), bars)[:1]


def test_the_selective_curve_starts_at_plain(store: Store) -> None:
    plans = ["blocks:0", "blocks:0,1", "every-block", "blocks:2"]
    spec = studies.spec_of(shapes=[{"seq_len": 128}], plans=plans)
    stops = charts.selective(_result(store, studies.filled(store, spec)), "T=128 B=4")
    assert [stop.blocks for stop in stops] == [0, 1, 2, 6]
    assert stops[0].ratio == 1
    assert stops[0].saved_mb == pytest.approx(130)
    assert stops[-1].ratio == pytest.approx(1.2, abs=1e-3)


def test_a_plan_that_recomputes_blocks_in_part_is_no_stop_of_the_curve(store: Store) -> None:
    spec = studies.spec_of(shapes=[{"seq_len": 128}], plans=["blocks:0", "norms", "keep-attention"])
    assert charts.selective(_result(store, studies.filled(store, spec)), "T=128 B=4") == []


def test_estimates_in_bfloat16_are_half() -> None:
    full, half = (studies.spec_of(precision=name) for name in ("float32", "bfloat16"))
    for one, other in zip(ask.shape_estimates(full), ask.shape_estimates(half), strict=True):
        assert float(one[1]) == pytest.approx(2 * float(other[1]), abs=0.2)
        assert float(one[2]) == pytest.approx(2 * float(other[2]), abs=0.2)


def test_recipes_below_the_level_of_blocks_stand_apart() -> None:
    whole = [
        *("every-block", "every-2nd-block", "every-3rd-block", "every-4th-block", "all-but-last"),
        *("knapsack-25", "knapsack-50", "knapsack-75"),
    ]
    finer = [
        *("norms", "mlp", "attention", "attention-mlp-apart", "nested", "keep-matmul-attention"),
        *("keep-attention", "torchtitan-selective", "megatron-core-attn"),
    ]
    assert [list(ask.BLOCK_RECIPES), list(ask.FINER_RECIPES)] == [whole, finer]


def test_every_chart_draws_in_both_themes(store: Store) -> None:
    result = _result(store, studies.filled(store))
    for colours in (LIGHT, DARK):
        look = charts.Look(colours, result.spec.plans)
        for read in (charts.saved_mb, charts.peak_mb, charts.step_ms(result)):
            assert len(charts.over_shapes(result, "MB", read, look).data) == 3
        assert len(charts.ratio_over_shapes(result, 1.35, "gate", look).data) == 2
        json.loads(pairs_chart([(0.2, 0.25)] * 9, 1.35, colours).to_json())


def test_a_running_study_is_counted_and_timed(store: Store) -> None:
    study = studies.running(store)
    cells, events = store.cells(study.id), store.events(study.id)
    result = assemble(store.study(study.id), cells)
    board = progress.grid(result, cells, live=True)
    assert progress.settled(board) == (11, 12)
    assert [step.name for step in progress.steps(result, board) if step.state == "running"] == ["time"]
    shape, plan, pairs = progress.present_pairs(events)
    assert (shape, plan, len(pairs)) == ("T=128 B=4", "every-2nd-block", 4)


def test_no_reason_can_carry_markup() -> None:
    assert "<script>" not in markup.lines("Not measured", ["<script>alert(1)</script>"])
    assert "<script>" not in markup.verdict_line("adopt", "<script>")
    assert "<b>" not in markup.facts([("<b>", "<b>")])


def test_the_history_marks_what_is_not_complete(store: Store) -> None:
    studies.failed(store)
    studies.running(store)
    shown = history.history_table(store.studies(), store.spans())
    assert shown["Verdict"].tolist() == ["○ interrupted", "● adopt, incomplete"]


@pytest.mark.parametrize(
    ("value", "said"), [(0.0, "0"), (1e-4, "1e-4"), (2.55e-5, "2.5e-5"), (None, "–")]
)
def test_gaps_are_short(value: float | None, said: str) -> None:
    assert words.figure(value) == said


def test_shapes_and_plans_are_short() -> None:
    assert shape_labels(["T=128 B=4", "T=256 B=4"]) == {
        "T=128 B=4": "T=128",
        "T=256 B=4": "T=256",
    }
    assert words.shapes_line(studies.spec_of()) == "T=128, 256 B=4"
    both = studies.spec_of(shapes=[{"seq_len": 8, "batch": 1}, {"seq_len": 9, "batch": 2}])
    assert words.shapes_line(both) == "T=8 B=1, T=9 B=2"
    photos = [{"batch": 8}, {"batch": 16}]
    spec = studies.spec_of(workload="receipts", shapes=photos, plans=["nested"])
    assert words.shapes_line(spec) == "192x96 B=8, 16"
    assert words.plan_label("blocks:0,1,2,3") == "blocks:0–3"
    assert words.plan_label("blocks:0,2") == "blocks:0,2"
    assert words.plan_label("none") == "plain"


def test_what_a_user_wrote_is_shown_as_it_is() -> None:
    assert words.literal("![x](http://a)") == "\\!\\[x\\](http\\:\u2060//a)"
    assert words.literal("own:mine: no www.a, :red") == "own\\:\u2060mine: no www\u2060.a, \\:red"
    assert words.literal("1. a_b & a@b.co") == "1\\. a\\_b \\& a\u2060@b.co"
    assert words.literal(":smile_x: a:b --c") == "\\:\u2060smile\\_x: a\\:b -\u2060-c"
    assert words.literal("# a\n\u202eb\x1b[2J") == "\\# a ?b?\\[2J"


@given(text(alphabet="aw.:/@_&#x;0 *-+=|~$<>[]()!\\`\u202e\u200b\n\x1b") | text())
def test_whoever_wrote_it_no_link_and_no_mark_is_left(foreign: str) -> None:
    said = words.literal(foreign)
    assert not re.search(r"://|(?<!\u2060)@|(?i:www)\.|:[\w+/\\-]+:|--|<-", said)
    assert not re.search(r"(?<!\\)(?:\\\\)*[*_`\[\]<>!$~&#|{}]|(?<!\\):\S", said.replace("\\\\", ""))
    assert all(letter.isprintable() or letter == "\u2060" for letter in said)
    plain = re.sub(r"\\(.)", r"\1", said).replace("\u2060", "")
    assert plain == "".join(c if c.isprintable() else "?" for c in " ".join(foreign.splitlines()))


def test_a_moment_is_shown_in_utc() -> None:
    for write in (words.when, page_words.when):
        assert write("2026-11-30T01:30:00+14:00").startswith("29 Nov 2026, 11:30")
        assert write("2026-11-29T11:30:00.000Z").startswith("29 Nov 2026, 11:30")
    assert page_words.when("0001-01-01T00:00:00+14:00") == "0001-01-01T00:00:00+14:00"


def test_the_making_of_photos_is_said_while_it_lasts() -> None:
    making = Event(
        1, 0.0, "progress", "s", "none", "reference", {"what": "making photos", "percent": 40}
    )
    done = Event(2, 1.0, "done", "s", "none", "reference", {})
    assert progress.preparing([making]) == "making photos: 40 %"
    assert progress.preparing([making, done]) is None
    assert progress.preparing([]) is None


def test_update_times_of_plans_are_of_one_plain_however_the_machine_drifts(store: Store) -> None:
    result = _result(store, studies.filled(store))
    read = charts.step_ms(result)
    shape = result.judged[0].candidate.shape_key
    at = [one for one in result.judged if one.candidate.shape_key == shape]
    assert len(at) == 2 and len({read(one)[0] for one in at}) == 1
    for one in at:
        plain, own = read(one)
        assert own / plain == pytest.approx(one.candidate.timing.ratio_median)


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    assert words.plan_short("every-block") == "every-block"
    assert words.plan_short("b" * 28) == "b" * 28
    short = words.plan_short(studies.LONG_PLAN)
    assert len(short) == 28
    assert short == f"{studies.LONG_PLAN[:16]}…{studies.LONG_PLAN[-11:]}"


def test_the_device_line_names_ranks_and_engine() -> None:
    here = {"device": "cpu", "device_name": "Test processor", "torch": "2.13.0"}
    assert device_line(here) == "CPU Test processor, torch 2.13.0"
    said = device_line({**here, "ranks": 2, "ranks_kind": "ddp", "engine": "ray"})
    assert (
        said == "CPU Test processor, torch 2.13.0, 2 ranks (ddp) that share the batch, on a Ray cluster"
    )
