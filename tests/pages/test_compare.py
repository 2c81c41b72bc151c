"""Compare in every state, run by AppTest from the main script."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from pages._parts.compare_sides import usual
from recompute_core.spec import parse_spec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store

from . import reading, studies
from .conftest import OpenPage
from .reading import figures, text

SLOWER = [ratio + 0.25 for ratio in studies.NARROW]


def document(store: Store, study: str) -> dict:
    return assemble(store.study(study), store.cells(study)).document()


def drop(app: AppTest, data: bytes, name: str = "other.json") -> AppTest:
    app.get("file_uploader")[0].set_value((name, data, "application/json"))
    app.run()
    assert not app.exception, [one.value for one in app.exception]
    return app


def link(app: AppTest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(reading.link(app)).query)


def test_few_pairs_promise_no_95_percent(open_page: OpenPage, store: Store) -> None:
    few, many = studies.filled(store, ratios=studies.NARROW[:3]), studies.filled(store)
    said = text(open_page("compare", a=few, b=many))
    assert "95 % intervals" not in said
    assert "a difference is promised no more. Each is taken by itself" in said


# --- nothing to compare ------------------------------------------------------------------------------


def test_without_studies_it_says_what_to_do(open_page: OpenPage) -> None:
    assert "Nothing has been measured on this machine yet." in text(open_page("compare"))


def test_with_one_study_it_says_what_to_do(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    said = text(open_page("compare", a=study))
    assert "There is one study here so far." in said


def test_with_an_open_side_it_asks(open_page: OpenPage, store: Store) -> None:
    studies.filled(store)
    a = studies.filled(store)
    app = open_page("compare", a=a)
    assert "Choose a study for A and one for B" in text(app)
    assert app.selectbox(key="compare a").value == a


def test_a_study_without_figures_does_not_say_that_they_were_measured(
    open_page: OpenPage, store: Store
) -> None:
    begun = studies.Filled(store, studies.spec_of())
    begun.prepare(begun.shapes[0])
    claimed = store.claim(begun.id)
    said = text(open_page("compare", a=studies.filled(store), b=begun.id))
    assert said.count("Figures measured here") == 1 and said.count("Figures none yet") == 1
    assert "not tested in B adopt no verdict yet" in said
    claimed.release()


def test_a_pair_is_chosen_by_itself(open_page: OpenPage, store: Store) -> None:
    first = studies.filled(store)
    photos = studies.filled(store, studies.spec_of(workload={"name": "gpt", "batch": 8}))
    last = studies.filled(store, ratios=SLOWER)
    studies.Filled(store, studies.spec_of())  # has no verdict
    app = open_page("compare", study=first)
    assert (app.query_params["a"], app.query_params["b"]) == (first, last)
    assert "rose from 1.20 to 1.45" in text(app)
    app = open_page("compare", study=photos)
    assert (app.query_params["a"], app.query_params["b"]) == (photos, last)


def test_studies_of_two_workloads_are_a_pair_where_there_are_no_others(store: Store) -> None:
    gpt = studies.filled(store)
    receipts = store.create(parse_spec({"workload": {"name": "receipts"}, "plans": ["every-block"]}))
    assert usual(store.studies(), None) == {"a": gpt, "b": receipts}
    other = studies.filled(store)
    assert usual(store.studies(), receipts) == {}
    assert usual(store.studies(), gpt) == {"a": gpt, "b": other}
    assert usual([], None) == {}


def test_an_id_that_is_not_here_is_said(open_page: OpenPage, store: Store) -> None:
    a = studies.filled(store)
    app = open_page("compare", a=a, b="*nobody*")
    assert "B: there is no study “*nobody*” here that can be read." in text(app)
    assert "b" not in app.query_params


# --- two studies ---------------------------------------------------------------------------------------


def test_two_studies_next_to_each_other(open_page: OpenPage, store: Store) -> None:
    a = studies.filled(store)
    b = studies.filled(
        store,
        studies.spec_of(thresholds={"update_ratio": 1.5}, plans=["every-block", "norms"]),
        SLOWER,
        0.61,
    )
    app = open_page("compare", a=a, b=b)
    said = text(app)
    assert "Update ratio of every-block at T=128 B=4 rose from 1.20 to 1.45 (+0.24 to +0.26)" in said
    assert "Peak of every-block at T=128 B=4 rose from 165.6 MB to 168.4 MB (+1.7 %)" in said
    assert "Asked differently: plans and the threshold of the gate on update time." in said
    assert "Not compared: 2 candidates in A alone and 2 candidates in B alone." in said
    assert "The thresholds differ, so each verdict is of other gates." in said
    assert "2 facts were asked, 0 found" in said
    drawn = json.loads(figures(app)[0])
    assert {trace.get("name") for trace in drawn["data"] if trace.get("showlegend") is not False} == {
        "A: passes every gate",
        "B: passes every gate",
    }
    marks = {t["name"]: t["marker"]["symbol"] for t in drawn["data"] if t.get("name")}
    assert marks == {"A: passes every gate": "circle-open", "B: passes every gate": "circle"}
    assert link(app)["a"] == [a]
    assert link(app)["b"] == [b]


@pytest.mark.parametrize("peak", [0.6, 0.81, 0.83])
def test_equal_peaks_are_drawn_apart_and_on_their_side_of_the_gate(
    open_page: OpenPage, store: Store, peak: float
) -> None:
    one = studies.spec_of(shapes=[{"seq_len": 128}], plans=["every-block"])
    a, b = (studies.filled(store, one, ratios, peak) for ratios in (studies.NARROW, SLOWER))
    data = json.loads(figures(open_page("compare", a=a, b=b))[0])["data"]
    heights = {trace["name"][0]: trace["y"][0] for trace in data if trace.get("name")}
    assert heights["B"] == pytest.approx(peak, abs=1e-3)
    assert 0.005 < abs(heights["A"] - peak) < 0.03
    assert (heights["A"] > 0.82) == (peak > 0.82)
    step = next(trace for trace in data if trace["mode"] == "lines")
    assert step["y"][:2] == [heights["A"], heights["B"]]


def test_an_interval_that_leaves_the_picture_ends_in_an_arrow(open_page: OpenPage, store: Store) -> None:
    a = studies.filled(store, ratios=(0.2, 1.2, 1.2, 1.3, 1.3, 1.4, 6.0))
    drawn = json.loads(figures(open_page("compare", a=a, b=studies.filled(store)))[0])
    arrows = [
        (symbol, x)
        for trace in drawn["data"]
        if isinstance(trace.get("marker", {}).get("symbol"), list)
        for symbol, x in zip(trace["marker"]["symbol"], trace["x"], strict=True)
    ]
    left, right = drawn["layout"]["xaxis"]["range"]
    assert set(arrows) == {("triangle-left", left), ("triangle-right", right)}


def test_the_same_study_twice_differs_in_nothing(open_page: OpenPage, store: Store) -> None:
    a = studies.filled(store)
    said = text(open_page("compare", a=a, b=a))
    assert "A and B are the same study." in said
    assert "No difference beyond the intervals in 4 candidates" in said
    assert "Nothing: the same specification" in said


def test_different_shapes_have_no_candidate_in_common(open_page: OpenPage, store: Store) -> None:
    a = studies.filled(store)
    b = studies.filled(store, studies.spec_of(shapes=[{"seq_len": 512}]))
    said = text(open_page("compare", a=a, b=b))
    assert "No candidate is in both at the same shape." in said
    assert "Candidates in one study alone" in said


@pytest.mark.parametrize(
    "make", [studies.refused_by_parity, studies.refused_by_legality, studies.failed]
)
def test_refused_and_failed_candidates_say_why(open_page: OpenPage, store: Store, make) -> None:
    a, b = studies.filled(store, studies.spec_of()), make(store)
    said = text(open_page("compare", a=a, b=b))
    assert "not in B: " in said


def test_a_running_study_is_said_to_be_incomplete(open_page: OpenPage, store: Store) -> None:
    a, b = studies.filled(store), studies.running(store).id
    assert "B is not complete: interrupted." in text(open_page("compare", a=a, b=b))


def test_sides_are_chosen_swapped_and_remembered(open_page: OpenPage, store: Store) -> None:
    a, b = studies.filled(store), studies.filled(store, ratios=SLOWER)
    app = open_page("compare")
    app.selectbox(key="compare a").set_value(a).run()
    app.selectbox(key="compare b").set_value(b).run()
    assert (app.query_params["a"], app.query_params["b"]) == (a, b)
    assert "rose from 1.20 to 1.45" in text(app)
    next(button for button in app.button if button.label == "Swap").click().run()
    assert not app.exception
    assert "fell from 1.45 to 1.20 (-0.26 to -0.24)" in text(app)
    app.switch_page("home.py").run()
    for side in ("a", "b"):
        if side in app.query_params:
            del app.query_params[side]
    app.switch_page("compare.py").run()
    assert "fell from 1.45 to 1.20" in text(app)


def test_views_and_what_moved(open_page: OpenPage, store: Store) -> None:
    a, b = studies.filled(store), studies.filled(store, ratios=SLOWER)
    app = open_page("compare", a=a, b=b, figures="Time")
    assert "Plain's update, ms" in text(app)
    app.session_state["figures"] = "Memory"
    app.session_state["beyond"] = True
    app.run()
    assert not app.exception
    assert "None moved beyond its interval." in text(app)


# --- another machine -----------------------------------------------------------------------------------


def test_the_same_study_of_another_machine(open_page: OpenPage, store: Store) -> None:
    a = studies.filled(store)
    raw = document(store, a)
    raw["environment"] |= {"device_name": "Other <b>processor</b>", "torch": "2.12.0"}
    app = drop(open_page("compare", a=a, b="file"), json.dumps(raw).encode())
    said = text(app)
    assert "Not the same processor (“Test processor” in A, “Other" in said
    assert "seconds are not compared, ratios are." in said
    assert "supplied, from a file" in said
    assert "The figures of B are supplied: read from a file." in said
    assert "A link to this page does not carry the file" in said
    assert "Update, ms" not in said
    assert not any("<b>processor" in element.proto.body for element in app.get("html"))
    assert store.count() == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"not json", "The file: not JSON"),
        (b'{"schema": "recompute-plan/1"}', "its schema is recompute-plan/1"),
        (b'{"schema": "recompute-study/1"}', "field required"),
        (b"[1]", "not the result of a study"),
    ],
)
def test_a_file_that_is_no_study_is_refused_in_a_line(
    open_page: OpenPage, store: Store, data: bytes, says: str
) -> None:
    a = studies.filled(store)
    said = text(drop(open_page("compare", a=a, b="file"), data))
    assert says in said
    assert "Choose a study for A and one for B" in said


def test_a_file_that_is_too_large_is_refused(
    open_page: OpenPage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recompute_core.comparing.imported.MOST_BYTES", 1000)
    a = studies.filled(store)
    app = drop(open_page("compare", a=a, b="file"), json.dumps(document(store, a)).encode())
    assert "at most 1000 are read" in text(app)
    assert app.get("file_uploader")[0].proto.max_upload_size_mb == 20


def test_one_side_alone_may_be_a_file(open_page: OpenPage, store: Store) -> None:
    studies.filled(store)
    assert "One of the two may be a file" in text(open_page("compare", a="file", b="file"))
