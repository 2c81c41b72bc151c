"""Trade-off's picture, its table and its one selection, in every state of a study."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from streamlit.testing.v1 import AppTest

from pages._parts import candidates, candidates_view, charts, picks, plotted, published
from pages._parts.data import snapshot
from pages._parts.gate_address import ends_of
from pages._parts.palette import LIGHT
from pages._parts.picture import pareto
from pages._parts.whatif import rejudge
from pages._parts.whole_intervals import with_intervals
from recompute_core.gates import judge
from recompute_core.spec import StudySpec, Thresholds, parse_spec, preset
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store

from . import studies
from .conftest import OpenPage
from .reading import components, pictured, text

SHAPE = "T=128 B=4"
EVERY, SECOND = f"every-block {SHAPE}", f"every-2nd-block {SHAPE}"


def hand_says(app: AppTest, **said: Any) -> AppTest:
    """What the browser tells the server when a line was dragged or a point picked."""
    (picture,) = components(app, "picture")
    states = app._tree.get_widget_states()
    state = states.widgets.add()
    state.id, state.json_value = picture.proto.id, json.dumps({"hand": said})
    app._run(states)
    assert not app.exception, [e.value for e in app.exception]
    return app


def rows(app: AppTest) -> pd.DataFrame:
    """The table of candidates."""
    found: pd.DataFrame = app.dataframe[0].value
    return found


# --- the line and what lies on it -------------------------------------------------------------------

COST = some.tuples(some.integers(0, 12), some.integers(0, 12))


@given(some.lists(COST, max_size=24))
def test_nothing_beats_what_lies_on_the_pareto_line(costs: Sequence[tuple[int, int]]) -> None:
    def beaten(one: tuple[int, int]) -> bool:
        return any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in costs)

    assert pareto(costs) == [index for index, one in enumerate(costs) if not beaten(one)]


# --- the table: differences only --------------------------------------------------------------------

VALUE = some.one_of(some.none(), some.sampled_from(["a", "b", ""]), some.floats(0, 2))
ROWS = some.lists(
    some.fixed_dictionaries(dict.fromkeys(("Plan", "Peak, ratio", "Kind"), VALUE)), max_size=6
)


@settings(deadline=None)
@given(ROWS)
def test_a_column_is_left_out_only_where_all_rows_agree(rows: list[dict[str, object]]) -> None:
    frame = pd.DataFrame(rows, columns=["Plan", "Peak, ratio", "Kind"])
    shown, shared = candidates.differences_only(frame, always=("Plan",))
    assert sorted([*shown, *shared]) == sorted(frame.columns)
    assert "Plan" in shown
    for name in frame.columns:
        values = {None if pd.isna(value) else value for value in frame[name]}
        assert (name in shared) == (name != "Plan" and len(frame) > 1 and len(values) == 1)


def test_the_caption_names_what_all_rows_share(open_page: OpenPage, store: Store) -> None:
    app = open_page("tradeoff", study=studies.filled(store))
    assert "The same in all rows: Gradient parity ● pass" in text(app)
    assert "Pairs 7" in text(app)
    assert "Pairs" not in rows(app)
    assert rows(app)["Plan"].tolist() == ["every-block", "every-2nd-block"] * 2
    app.toggle(key=f"differences of {app.query_params['study']}").set_value(False).run()
    assert set(rows(app)["Pairs"]) == {7}
    assert app.query_params["differences"] == "off"


def test_the_caption_says_once_that_figures_are_measured_and_megabytes_as_the_page_does(
    open_page: OpenPage, store: Store
) -> None:
    said = text(open_page("tradeoff", study=studies.filled(store)))
    assert said.lower().count("figures measured here") == 1
    assert "Peak, plain (MB) 276.0;" in said
    shared = {"Kind": "measured here", "Peak, plain (MB)": candidates.said("Peak, plain (MB)", 0.4824)}
    assert candidates.shared_sentence(shared) == "The same in all rows: Peak, plain (MB) 0.482."


def test_a_column_has_the_digits_that_its_smallest_figure_needs() -> None:
    assert [f"{candidates_view._decimals(mb)}" % mb for mb in (0.4824, 4.824, 48.24, 482.4)] == [
        "0.482", "4.82", "48.2", "482.4"
    ]  # fmt: skip


def test_filters_are_kept_in_the_address(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    app = open_page("tradeoff", study=study)
    app.multiselect(key=f"plan of {study}").set_value(["every-block"]).run()
    assert rows(app)["Plan"].tolist() == ["every-block"] * 2
    assert app.query_params["plan"] == "every-block"
    app.pills(key=f"verdict of {study}").set_value(["keep_original"]).run()
    assert not app.dataframe
    assert "No candidate is left by these filters." in text(app)
    again = open_page("tradeoff", study=study, plan="every-2nd-block", verdict="adopt")
    assert rows(again)["Plan"].tolist() == ["every-2nd-block"] * 2


def test_filters_narrow_picture_tabs_and_words(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    app = open_page("tradeoff", study=study, plan="every-block")
    seen = pictured(app)
    assert seen["filters"] == {"marks": [], "plans": ["every-block"]}
    assert {point["plan"] for point in seen["points"]} == {"every-block", "every-2nd-block"}
    assert "every-2nd-block" not in seen["words"]
    assert "the filters leave them out: 2 candidates" in seen["words"]
    assert "The filters leave 2 of 4 candidates; the others fade" in text(app)
    app.session_state["section"] = "Parity"
    app.run()
    assert app.dataframe[1].value["Plan"].tolist() == ["every-block"] * 2
    app.pills(key=f"verdict of {study}").set_value(["keep_original"]).run()
    assert pictured(app)["filters"]["marks"] == ["fail"]
    assert "The filters leave none of 4 candidates; tabs show them all." in text(app)
    next(button for button in app.button if button.label == "Show all").click().run()
    assert pictured(app)["filters"] == {"marks": [], "plans": []}
    assert "plan" not in app.query_params
    assert "verdict" not in app.query_params


def test_the_margin_names_what_the_filters_leave(open_page: OpenPage, store: Store) -> None:
    study = studies.failed(store)
    assert pictured(open_page("tradeoff", study=study, plan="every-block"))["aside"] == []
    (aside,) = pictured(open_page("tradeoff", study=study, plan="every-2nd-block"))["aside"]
    assert aside["name"] == "every-2nd-block"


def test_figures_that_are_missing_are_told_as_such_and_stay_numbers(
    open_page: OpenPage, store: Store
) -> None:
    app = open_page("tradeoff", study=studies.failed(store))
    table = app.dataframe[0]
    assert table.proto.placeholder == "–"
    assert table.value["Update, ratio"].dtype == float
    assert "signal 9" in table.value["Why not"][1]
    stored = json.loads(candidates.as_json(table.value))
    assert stored[1]["Update, ratio"] is None
    assert list(table.value).index("Why not") < list(table.value).index("Update, ratio")


def test_files_hold_every_column_and_whole_figures(store: Store) -> None:
    frame = pd.DataFrame({"Plan": ["a", "b"], "Peak, ratio": [0.1 + 0.2, None], "Pairs": [7, None]})
    assert candidates.as_csv(frame).decode().splitlines()[1].startswith("a,0.30000000000000004")
    assert json.loads(candidates.as_json(frame))[0]["Peak, ratio"] == pytest.approx(0.3, rel=1e-14)
    assert candidates.as_parquet(frame)[:4] == b"PAR1"


# --- a line that is dragged -------------------------------------------------------------------------


def test_a_dragged_line_moves_the_sliders_the_verdict_and_the_address(
    open_page: OpenPage, store: Store
) -> None:
    study = studies.filled(store, peak_ratio=0.5)
    app = open_page("tradeoff", study=study)
    assert pictured(app)["seq"] == 0
    hand_says(app, seq=3, peak=0.4, update=1.35, picked=[])
    assert app.slider(key="peak_ratio").value == 0.4
    assert app.query_params["peak"] == "0.4"
    assert "What-if: thresholds differ from the declared ones" in text(app)
    assert "Keep the original" in text(app)
    assert set(rows(app)["Verdict"]) == {"✕ keep original"}
    seen = pictured(app)
    assert (seen["seq"], seen["limits"]["peak"], seen["declared"]["peak"]) == (3, 0.4, 0.82)
    next(button for button in app.button if button.label == "Reset").click().run()
    assert pictured(app)["limits"] == pictured(app)["declared"]
    assert "peak" not in app.query_params


@pytest.mark.parametrize(
    "said",
    [
        {"seq": 1, "peak": 1.5, "update": 1.2, "picked": []},
        {"seq": 1, "peak": 0.0001, "update": 1.2, "picked": []},
        {"seq": 1, "peak": 0.5, "update": 99.0, "picked": []},
        {"seq": 1, "peak": "0.5", "update": 1.2, "picked": []},
        {"seq": -1, "peak": 0.5, "update": 1.2, "picked": []},
        {"seq": 1, "peak": 0.5, "update": 1.2, "picked": [7]},
        {"seq": 1, "peak": float("nan"), "update": 1.2, "picked": []},
        {"seq": 1},
        {},
    ],
)
def test_a_browser_that_lies_moves_nothing(
    open_page: OpenPage, store: Store, said: dict[str, Any]
) -> None:
    app = hand_says(open_page("tradeoff", study=studies.filled(store)), **said)
    assert app.slider(key="peak_ratio").value == 0.82
    assert app.slider(key="update_ratio").value == 1.35
    assert "What-if" not in text(app)


def test_the_lines_end_where_the_sliders_end(open_page: OpenPage, store: Store) -> None:
    wide = {"peak_ratio": 0.02, "update_ratio": 3.0}
    app = open_page("tradeoff", study=studies.filled(store, studies.spec_of(thresholds=wide)))
    assert pictured(app)["ends"] == {"peak": [0.02, 1.0], "update": [1.0, 3.0]}
    assert ends_of(Thresholds()).hold(Thresholds(peak_ratio=0.05, update_ratio=2))
    assert not ends_of(Thresholds()).hold(Thresholds(update_ratio=2.01))


# --- one selection ----------------------------------------------------------------------------------


def test_what_is_picked_in_the_picture_is_picked_everywhere(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    app = open_page("tradeoff", study=study)
    hand_says(app, seq=1, peak=0.82, update=1.35, picked=[SECOND, "nobody", SECOND])
    assert app.query_params["pick"] == SECOND
    assert pictured(app)["picked"] == [SECOND]
    assert app.session_state["table of candidates"]["selection"]["rows"] == [1]
    assert "1 candidate picked" in text(app)
    app.session_state["section"] = "Timeline"
    app.run()
    assert app.selectbox(key="timeline plan").options == ["every-2nd-block"]
    next(button for button in app.button if button.label == "Show all").click().run()
    assert pictured(app)["picked"] == []
    assert app.session_state["table of candidates"]["selection"]["rows"] == []
    assert "pick" not in app.query_params


def test_a_selection_in_the_address_is_shown_and_what_is_unknown_left_out(
    open_page: OpenPage, store: Store
) -> None:
    app = open_page("tradeoff", study=studies.filled(store), pick=EVERY)
    assert pictured(app)["picked"] == [EVERY]
    assert app.session_state["table of candidates"]["selection"]["rows"] == [0]
    app = open_page("tradeoff", study=studies.filled(store), pick="<script>alert(1)</script>")
    assert pictured(app)["picked"] == []
    assert "pick" not in app.query_params
    assert "script" not in text(app)


def test_a_picked_row_that_the_filters_hide_stays_picked(open_page: OpenPage, store: Store) -> None:
    app = open_page("tradeoff", study=studies.filled(store), pick=EVERY, plan="every-2nd-block")
    assert app.session_state["table of candidates"]["selection"]["rows"] == []
    assert pictured(app)["picked"] == [EVERY]
    assert app.query_params["pick"] == EVERY


def test_no_more_are_kept_than_an_address_holds(open_page: OpenPage, store: Store) -> None:
    app = open_page("tradeoff", study=studies.many(store, 100))
    every = [point["id"] for point in pictured(app)["points"]]
    hand_says(app, seq=1, peak=0.82, update=1.35, picked=every)
    assert len(app.query_params["pick"]) == picks.MOST < len(every)


# --- what the picture shows, state by state -----------------------------------------------------------


@pytest.mark.parametrize("make", [studies.refused_by_parity, studies.refused_by_legality])
def test_nothing_measured_is_said_with_its_reasons(
    open_page: OpenPage, store: Store, make: Callable[[Store], str]
) -> None:
    app = open_page("tradeoff", study=make(store))
    assert not components(app, "picture")
    assert "the picture is empty" in text(app)
    assert set(rows(app)["Verdict"]) == {"✕ keep original"}


def test_what_was_not_measured_in_full_stands_in_the_margin(open_page: OpenPage, store: Store) -> None:
    app = open_page("tradeoff", study=studies.failed(store))
    (aside,) = pictured(app)["aside"]
    assert aside["name"] == "every-2nd-block"
    assert "signal 9" in aside["why"]
    assert aside["sentence"].startswith("Not measured in full, every-2nd-block")
    assert "signal 9" in " ".join(rows(app)["Why not"])


def test_a_running_study_shows_what_is_known(open_page: OpenPage, store: Store) -> None:
    begun = studies.running(store)
    claimed = store.claim(begun.id)
    app = open_page("tradeoff", study=begun.id)
    assert [point["id"] for point in pictured(app)["points"]] == [EVERY]
    assert pictured(app)["aside"] == []
    assert rows(app)["Verdict"].tolist() == ["● adopt", "○ not yet"]
    claimed.release()


def test_dominated_points_can_be_hidden_and_the_address_says_so(
    open_page: OpenPage, store: Store
) -> None:
    spec = studies.spec_of(shapes=[{"seq_len": 128}], plans=["every-2nd-block", "blocks:0,1,2"])
    study = studies.filled(store, spec)
    app = open_page("tradeoff", study=study, dominated="hidden")
    assert pictured(app)["hidden"] is True
    assert [point["best"] for point in pictured(app)["points"]] == [True, False]
    assert "dominated: another plan" in " ".join(pictured(app)["points"][1]["tip"])
    app.toggle(key=f"dominated of {study}").set_value(False).run()
    assert pictured(app)["hidden"] is False
    assert "dominated" not in app.query_params


def test_the_words_at_a_point_say_plan_shape_pairs_interval_and_kind(
    open_page: OpenPage, store: Store
) -> None:
    tip = pictured(open_page("tradeoff", study=studies.filled(store)))["points"][0]["tip"]
    assert tip == [
        f"every-block at {SHAPE}",
        "peak 165.6 MB, plain 276.0 MB: 0.600 (exact)",
        "update 240 ms, plain 200 ms: 1.200 (1.190 to 1.220), 7 pairs",
        "measured here",
    ]


# --- curves ------------------------------------------------------------------------------------------


def test_so_many_plans_have_a_line_and_picked_ones_first() -> None:
    every = [f"plan-{number}" for number in range(20)]
    shown = charts.plans_shown(every, {"plan-19"})
    assert len(shown) == charts.MOST_LINES
    assert shown[-1] == "plan-19"
    assert charts.plans_shown(every[:3], set()) == tuple(every[:3])


def test_estimates_go_on_dashed_and_hollow_from_the_last_measured_point(store: Store) -> None:
    study = studies.filled(store)
    result = assemble(store.study(study), store.cells(study))
    look = charts.Look(LIGHT, ("every-block",), log=True)
    beyond = {"none": {512: 400.0}, "every-block": {512: 120.0, 1024: 240.0}}
    figure = charts.over_shapes(result, "MB", charts.peak_mb, look, beyond)
    dashed = [trace for trace in figure.data if trace.line.dash == "dash"]
    assert [list(trace.x) for trace in dashed] == [[256, 512], [256, 512, 1024]]
    assert all(trace.marker.symbol.endswith("-open") for trace in dashed)
    assert all("estimated" in word for trace in dashed for word in trace.customdata[1:])
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_the_published_figures_are_of_the_preset_and_of_no_other_model() -> None:
    sweep = parse_spec(preset("gpt-sweep"))
    assert published.is_that_model(sweep)
    assert not published.is_that_model(sweep.model_copy(update={"plans": ("norms",)}))
    assert not published.is_that_model(parse_spec({**preset("gpt-sweep"), "precision": "bfloat16"}))
    assert not published.is_that_model(StudySpec.model_validate({"workload": {"name": "receipts"}}))


def test_the_closed_form_gives_the_published_counts() -> None:
    """u = 4*B*T*d; a block keeps 9u + 16*B*T*h + 8*B*T + 4*B*heads*T, recomputed it keeps u."""
    batch, width, heads, vocab, blocks, hidden = 8, 256, 8, 65, 6, 682
    for row in published.PUBLISHED:
        tokens = row.tokens
        unit = 4 * batch * tokens * width
        block = 9 * unit + 16 * batch * tokens * hidden + 8 * batch * tokens + 4 * batch * heads * tokens
        tail = 3 * unit + 4 * batch * tokens * vocab + 4 * batch * tokens + 4
        rope = 8 * tokens * (width // heads)
        assert row.activations == (blocks * (block + unit) + rope + tail, blocks * unit + tail)


def test_the_published_table_stands_next_to_ours(open_page: OpenPage, store: Store) -> None:
    spec = parse_spec({**preset("gpt-sweep"), "shapes": [{"seq_len": 128}, {"seq_len": 300}]})
    app = open_page("tradeoff", study=studies.filled(store, spec))
    said = text(app)
    assert "Published figures of this model, next to ours" in said
    assert "152,610,820 150,000,000" in said
    assert "differ from the published ones" in said
    assert "supplied, not measured here" in said


# --- a what-if ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        studies.filled,
        studies.failed,
        studies.refused_by_parity,
        studies.refused_by_legality,
        lambda store: studies.filled(store, ratios=studies.WIDE),
        lambda store: studies.running(store).id,
    ],
)
def test_a_moved_line_judges_as_a_study_with_these_thresholds_would(
    store: Store, make: Callable[[Store], str]
) -> None:
    study = make(store)
    result = assemble(store.study(study), store.cells(study))
    for peak, update, gap in ((0.5, 1.2, 1e-4), (0.82, 1.36, 1e-4), (1.0, 1.0, 1e-4), (0.7, 1.5, 1e-9)):
        limits = Thresholds(peak_ratio=peak, update_ratio=update, gradient_gap=gap)
        expected = tuple(judge(one.candidate, limits) for one in result.judged)
        assert rejudge(result, limits).judged == expected


# --- intervals ---------------------------------------------------------------------------------------


def _view(store: Store, ratios: Sequence[float]) -> tuple[dict[str, float], list[dict[str, Any]]]:
    study = studies.filled(store, ratios=ratios)
    found = snapshot(store, study)
    shapes = list(dict.fromkeys(one.candidate.shape_key for one in found.result.judged))
    shown = plotted.document(found, found.result, shapes, ends_of(found.row.spec.thresholds))
    return shown["view"], shown["points"]  # type: ignore[return-value]


def test_the_picture_holds_whole_intervals(store: Store) -> None:
    view, drawn = _view(store, (0.86, 1.30, 1.31, 1.32, 1.33, 1.34, 1.52))
    assert min(point["update_low"] for point in drawn) == pytest.approx(0.86)
    assert view["left"] < min(point["update_low"] for point in drawn)
    assert view["right"] > max(point["update_high"] for point in drawn)


def test_an_absurdly_wide_interval_does_not_squeeze_the_points(store: Store) -> None:
    view, drawn = _view(store, (0.2, 1.2, 1.2, 1.3, 1.3, 1.4, 6.0))
    assert max(point["update_high"] for point in drawn) > view["right"]
    assert min(point["update_low"] for point in drawn) < view["left"]
    assert view["right"] - view["left"] < 1.5


@given(
    some.floats(0.5, 1), some.floats(1, 3),
    some.lists(some.tuples(some.floats(0, 1), some.floats(1, 9)), max_size=6),
)  # fmt: skip
def test_a_range_holds_its_points_and_is_at_most_thrice_as_wide(
    low: float, high: float, intervals: list[tuple[float, float]]
) -> None:
    left, right = with_intervals(low, high, intervals)
    assert left <= low and high <= right
    most = max(high - low, 0.1)
    assert right - left <= high - low + 2 * most + 1e-9
    for start, end in intervals:
        assert left <= start or left == low - most
        assert right >= end or right == high + most
