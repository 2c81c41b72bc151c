"""Every page in every state, run by AppTest from the main script."""

import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages._parts.words import device_line
from recompute_core.spec import parse_spec, preset
from recompute_core.studies.store import Store

from . import studies
from .conftest import FRAME, OpenPage
from .reading import components, figures, pictured, text

ROOT = Path(__file__).parents[2]
PAGES = ("home", "setup", "live", "tradeoff", "studies")


def _button(app: AppTest, label: str):
    return next(button for button in app.button if button.label == label)


# --- no study -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_store_says_what_to_do_next(open_page: OpenPage, page: str) -> None:
    said = text(open_page(page))
    if page != "setup":
        assert "Nothing has been measured on this machine yet." in said
        assert "when nothing else runs here (estimated)" in said
    assert "Device: idle" in said


def test_the_quick_study_is_one_button(open_page: OpenPage, store: Store, launched: list[str]) -> None:
    app = open_page()
    _button(app, "Run the quick study").click().run()
    assert not app.exception
    assert [row.id for row in store.studies()] == launched
    assert store.study(launched[0]).spec == parse_spec(preset("quick"))
    assert app.query_params["study"] == launched[0]
    assert "Live" in text(app)


def test_two_browsers_that_ask_for_the_same_get_one_study(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    _button(open_page(), "Run the quick study").click().run()
    lock = store.driver_lock(launched[0])
    assert lock.acquire()  # as if its driver lived
    app = open_page()
    _button(app, "Run the quick study").click().run()
    lock.release()
    assert len(launched) == 1
    assert app.query_params["study"] == launched[0]


# --- done ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_a_finished_study_on_every_page(open_page: OpenPage, store: Store, page: str) -> None:
    study = studies.filled(store)
    app = open_page(page, study=study)
    assert app.query_params["study"] == study
    if page in ("home", "live", "tradeoff"):
        assert store.study(study).sentence in text(app)
        assert len(figures(app)) + len(components(app, "picture")) >= 1


@pytest.mark.parametrize("page", PAGES)
def test_a_study_over_ranks_says_whose_figures_it_shows(
    open_page: OpenPage, store: Store, page: str
) -> None:
    study = studies.filled(store, studies.spec_of(ranks={"count": 2}))
    app = open_page(page, study=study)
    assert app.query_params["study"] == study
    if page in ("home", "live", "tradeoff"):
        assert "(1.19 to 1.22), the worst of 2 ranks, gradients bitwise equal" in text(app)


@pytest.mark.parametrize("page", ["home", "live", "tradeoff", "demo"])
def test_a_compiled_study_says_what_compiled_it(open_page: OpenPage, store: Store, page: str) -> None:
    study = studies.filled(store, studies.spec_of(compile={"backend": "inductor"}))
    assert "compiled by inductor" in text(open_page(page, study=study)).lower()


def test_the_noise_floor_over_ranks_is_that_of_ranks_and_one_process(
    open_page: OpenPage, store: Store
) -> None:
    study = studies.filled(store, studies.spec_of(ranks={"count": 2}))
    app = open_page("tradeoff", study=study)
    app.session_state["section"] = "Parity"
    app.run()
    assert "The noise floor is plain over 2 ranks against one process." in text(app)


def test_the_device_line_says_that_ranks_share_the_batch() -> None:
    here = {"device": "cpu", "device_name": "EPYC", "ranks": 2, "ranks_kind": "ddp"}
    assert device_line(here) == "CPU EPYC, 2 ranks (ddp) that share the batch"
    assert device_line({"device": "cpu", "device_name": "EPYC"}) == "CPU EPYC"


def test_the_newest_study_is_shown_and_put_into_the_address(open_page: OpenPage, store: Store) -> None:
    studies.filled(store)
    newest = studies.filled(store, ratios=studies.WIDE)
    assert open_page("tradeoff").query_params["study"] == newest


def test_the_picture_has_a_point_for_each_candidate(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store, peak_ratio=0.5)
    picture = pictured(open_page("tradeoff", study=study))
    assert [point["parity"] for point in picture["points"]] == ["pass"] * 4
    assert all(point["peak_high"] <= picture["limits"]["peak"] for point in picture["points"])
    assert picture["limits"] == picture["declared"] == {"peak": 0.82, "update": 1.35}


def test_undecided_says_so(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store, ratios=studies.WIDE, spec=studies.spec_of(plans=["every-block"]))
    app = open_page("tradeoff", study=study)
    assert "Undecided on every-block" in text(app)
    (first, _), limits = pictured(app)["points"], pictured(app)["limits"]
    assert first["update_low"] <= limits["update"] < first["update_high"]


@pytest.mark.parametrize(
    "section",
    [
        "Curves",
        "Timeline",
        "Block map",
        "Selective curve",
        "Step time",
        "Parity",
        "Environment",
    ],
)
def test_every_section_of_the_tradeoff(open_page: OpenPage, store: Store, section: str) -> None:
    spec = studies.spec_of(plans=["blocks:0", "blocks:0,1", "blocks:0,1,2", "every-block"])
    study = studies.filled(store, spec)
    app = open_page("tradeoff", study=study)
    app.session_state["section"] = section
    app.run()
    assert not app.exception
    drawn = {"Curves": 4, "Timeline": 1, "Selective curve": 2, "Step time": 1}.get(section, 0)
    assert len(figures(app)) == drawn


@pytest.mark.parametrize("section", ["Curves", "Selective curve"])
def test_intervals_of_few_pairs_are_headed_by_what_they_cover(
    open_page: OpenPage, store: Store, section: str
) -> None:
    spec = studies.spec_of(plans=["blocks:0", "blocks:0,1", "blocks:0,1,2", "every-block"])
    for ratios, name in ((studies.NARROW[:3], "75"), (studies.NARROW, "95")):
        app = open_page("tradeoff", study=studies.filled(store, spec, ratios=ratios))
        app.session_state["section"] = section
        said = text(app.run())
        assert f"with {name} % intervals" in said
        assert ("Of 3 pairs, as here, they cover 75 %." in said) == (name == "75")


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (studies.refused_by_parity, "blocks.3.attn.weight"),
        (studies.refused_by_legality, "blocks.0.norm keeps running statistics"),
    ],
)
@pytest.mark.parametrize("page", ["home", "live", "tradeoff"])
def test_a_refused_candidate_never_shows_a_cost(
    open_page: OpenPage, store: Store, make, why: str, page: str
) -> None:
    study = make(store)
    app = open_page(page, study=study)
    said = text(app)
    assert why in said
    assert "Keep the original" in said
    assert " MB " not in said.replace("MB is", "")
    assert " ms " not in said
    for figure in figures(app):
        assert "every-block" not in figure
    if page == "tradeoff":
        for section in ("Curves", "Timeline", "Step time", "Parity"):
            app.session_state["section"] = section
            app.run()
            assert not app.exception
            assert all("every-block" not in figure for figure in figures(app))


# --- failed, interrupted, running, queued -------------------------------------------------------


def test_a_failed_cell_shows_its_reason_and_can_be_resumed(
    open_page: OpenPage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = studies.failed(store)
    app = open_page("live", study=study)
    assert "the worker was killed (signal 9)" in text(app)
    assert "Ended incomplete" in text(app)
    resumed: list[str] = []
    monkeypatch.setattr(
        "recompute_core.studies.launch.resume", lambda store, study: resumed.append(study)
    )
    _button(app, "Resume").click().run()
    assert not app.exception
    assert resumed == [study]


def test_an_interrupted_study_is_marked(open_page: OpenPage, store: Store) -> None:
    study = studies.running(store).id
    app = open_page("live", study=study)
    assert "Interrupted: its driver is gone" in text(app)
    assert "○ interrupted" in str(open_page("studies").dataframe[0].value["Verdict"].tolist())


def test_a_running_study_shows_pairs_progress_and_can_be_cancelled(
    open_page: OpenPage, store: Store
) -> None:
    study = studies.running(store)
    lock = store.driver_lock(study.id)
    assert lock.acquire()
    try:
        app = open_page("live", study=study.id)
        said = text(app)
        assert "Measuring gpt: 11 of 12 cells" in said
        assert "every-2nd-block at T=128 B=4: 4 pairs" in said
        assert "Measuring gpt, 11 of 12 cells" in said
        _button(app, "Cancel").click().run()
        assert store.study(study.id).cancel
        assert "Cancelling gpt" in text(app)
        assert "Watch it live" in str([link.proto.label for link in open_page().get("page_link")])
    finally:
        lock.release()


def test_a_queued_study_says_how_many_are_ahead(open_page: OpenPage, store: Store) -> None:
    first = studies.running(store)
    second = store.create(studies.spec_of())
    locks = [store.driver_lock(first.id), store.driver_lock(second)]
    assert all(lock.acquire() for lock in locks)
    try:
        app = open_page("live", study=second)
        said = text(app)
        assert "Waiting: next in line behind gpt, 11 of 12 cells." in said
        assert "Measuring gpt, 11 of 12 cells, 1 waiting; this study is next in line" in said
        assert "Watch the study ahead" in str([link.proto.label for link in app.get("page_link")])
    finally:
        for lock in locks:
            lock.release()


def test_a_study_that_ends_while_watched_shows_its_verdict(open_page: OpenPage, store: Store) -> None:
    study = studies.running(store)
    lock = store.driver_lock(study.id)
    assert lock.acquire()
    app = open_page("live", study=study.id)
    study.clock(study.shapes[0], "every-2nd-block", studies.NARROW)
    study.conclude()
    lock.release()
    app.run()
    assert not app.exception
    assert store.study(study.id).sentence in text(app)


# --- what-if ------------------------------------------------------------------------------------


def test_a_what_if_is_marked_and_can_be_reset(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store, peak_ratio=0.5)
    app = open_page("tradeoff", study=study)
    assert "What-if" not in text(app)
    app.slider(key="peak_ratio").set_value(0.4).run()
    said = text(app)
    assert "What-if: thresholds differ from the declared ones" in said
    assert "Keep the original" in said
    assert app.query_params["peak"] == "0.4"
    assert store.study(study).verdict == "adopt"
    _button(app, "Reset").click().run()
    assert "What-if" not in text(app)
    assert "peak" not in app.query_params


def test_a_what_if_in_the_address_is_shown(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    app = open_page("home", study=study)
    app.query_params["update"] = "1.05"
    app.switch_page("tradeoff.py").run()
    assert "What-if" in text(app)
    assert app.slider(key="update_ratio").value == 1.05


@pytest.mark.parametrize("value", ["nan", "-1", "none", "0.001"])
def test_a_bad_threshold_in_the_address_is_one_line(
    open_page: OpenPage, store: Store, value: str
) -> None:
    study = studies.filled(store)
    app = open_page("home", study=study)
    app.query_params["peak"] = value
    app.switch_page("tradeoff.py").run()
    assert not app.exception
    assert len(app.warning) == 1
    assert "What-if" not in text(app)


def test_declare_and_re_run_starts_a_study_with_those_thresholds(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    study = studies.filled(store)
    app = open_page("tradeoff", study=study)
    app.slider(key="update_ratio").set_value(1.1).run()
    _button(app, "Declare and re-run").click().run()
    assert not app.exception
    assert launched
    assert launched[0] != study
    again = store.study(launched[0]).spec
    assert again.thresholds.update_ratio == 1.1
    assert again.plans == store.study(study).spec.plans
    assert app.query_params["study"] == launched[0]


# --- addresses ----------------------------------------------------------------------------------


def test_no_string_of_a_script_is_drawn_by_itself() -> None:
    """Streamlit would show a docstring below a constant of the main script on every page."""
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert config["runner"]["magicEnabled"] is False


@pytest.mark.parametrize("page", ["live", "tradeoff", "studies", "home"])
def test_an_unknown_study_is_one_clear_line(open_page: OpenPage, page: str) -> None:
    app = open_page(page, study="<b>nothing</b>")
    assert [error.value for error in app.error] == [
        "There is no study “\\<b\\>nothing\\</b\\>” here. The Studies page lists what was measured."
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_study_with_a_damaged_record_is_one_line(open_page: OpenPage, store: Store, page: str) -> None:
    study = studies.filled(store)
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute("UPDATE cells SET payload = NULL WHERE phase = 'noise'")
    app = open_page(page, study=study)
    assert not app.exception
    damaged = "the study is damaged: its record of noise of plain at T=128 B=4 cannot be read"
    assert [error.value for error in app.error] == (
        [damaged] if page in ("home", "live", "tradeoff") else []
    )


def test_a_store_that_is_not_ours_is_one_line(store: Store, open_page: OpenPage) -> None:
    store.close()
    store.path.write_bytes(b"not a database at all, and long enough to be seen as such" * 40)
    for extra in ("-wal", "-shm"):
        store.path.with_name(store.path.name + extra).unlink(missing_ok=True)
    app = AppTest.from_file(str(FRAME))
    app.run(timeout=30)
    assert not app.exception
    assert len(app.error) == 1
    assert "not a store of Recompute Studio" in app.error[0].value


def test_the_picker_links_to_each_study(open_page: OpenPage, store: Store) -> None:
    made = [studies.filled(store) for _ in range(3)]
    for study in made:
        app = open_page("tradeoff", study=study)
        assert app.query_params["study"] == study
        assert study in text(app)
        links = [link.proto.query_string for link in app.get("page_link")]
        assert [link for link in links if f"study={study}" in link]
        assert all([link for link in links if f"study={other}" in link] for other in made)
