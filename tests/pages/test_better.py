"""Better plans on Trade-off: searched for, looked at, measured."""

import pytest
from streamlit.testing.v1 import AppTest

from pages._parts import better, found
from pages._parts.data import measured_in
from pages._parts.labels import Named, place
from pages._parts.picture import describe, points, view_of
from pages._parts.queue import device_words, queue_of
from recompute_core.errors import StoreError
from recompute_core.plans.names import plan_hash
from recompute_core.rerun import repeated
from recompute_core.results import PlanPoint, PlanResult
from recompute_core.spec import CheckpointSettings, Region, StudySpec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.locks import Lock, machine_lock
from recompute_core.studies.searching import (
    INTERRUPTED,
    Failed,
    keep_answer,
    search_state,
    searches,
)
from recompute_core.studies.store import Cell, Store
from tests.core import records as make
from tests.core.toys import alike

from . import studies
from .conftest import OpenPage
from .reading import figures, pictured, text

SHAPE = "T=256 B=4"
HIGH = make.plan_point("best-3mb", 3_000_000, "blocks.0").model_copy(update={"overhead": 0.125})
LOW = make.plan_point("best-2mb", 2_000_000, "blocks.0", "blocks.1")
CUSTOM = {"best-3mb": HIGH.regions, "best-2mb": LOW.regions}


def answer(*plans: PlanPoint) -> PlanResult:
    """What a search has found at the studies' last shape; plain's peak is 4 MB."""
    given = make.plan_answer(*(plans or (HIGH, LOW)))
    return given.model_copy(update={"shape_key": SHAPE, "chosen": None, "recipes": ()})


# --- pure -----------------------------------------------------------------------------------------


def test_found_plans_lie_where_their_estimates_say() -> None:
    ring = found.estimated_points(answer())[0]
    assert (ring.plan, ring.shape_key, ring.update, ring.peak) == ("best-3mb", SHAPE, 1.125, 0.75)
    assert ring.hover == (
        "<b>best-3mb</b> at T=256 B=4, estimated<br>peak 3.00 MB, plain 4.00 MB<br>update 12.5 % longer"
    )
    assert len(found.estimated_points(answer())) == 2  # plain has its corner


@pytest.mark.parametrize(
    ("megabytes", "plan", "says"),
    [
        (4, None, "No recompute needed: plain's estimated peak is 4.00 MB."),
        (3.5, "best-3mb", "Cheapest within 3.50 MB: best-3mb, estimated peak 3.00 MB, 12.5 % more"),
        (3, "best-3mb", "Cheapest within 3.00 MB: best-3mb"),
        (2.9, "best-2mb", "Cheapest within 2.90 MB: best-2mb, estimated peak 2.00 MB, 25.0 % more"),
        (1.9, None, "No plan found reaches 1.90 MB; the lowest is 2.00 MB, by best-2mb."),
    ],
)
def test_a_budget_in_one_line(megabytes: float, plan: str | None, says: str) -> None:
    best = found.cheapest_within(answer(), megabytes)
    assert (best and best.plan) == plan
    assert found.budget_sentence(answer(), megabytes).startswith(says)


@pytest.mark.parametrize("peak", [178_651_000, 178_700_000, 178_749_000])
def test_a_budget_equal_to_plains_peak_as_shown_needs_no_recompute(peak: int) -> None:
    given = answer().model_copy(update={"plain": make.plan_point("none", peak)})
    says = "No recompute needed: plain's estimated peak is 178.7 MB."
    assert found.budget_sentence(given, 178.7) == says
    assert found.cheapest_within(given, 178.7) is None
    assert found.budget_sentence(given, 178.6).startswith("Cheapest within 178.6 MB")
    tight = answer(HIGH.model_copy(update={"peak_bytes": peak}), LOW)
    tight = tight.model_copy(update={"plain": make.plan_point("none", 10**9)})
    best = found.cheapest_within(tight, 178.7)
    assert best
    assert best.plan == "best-3mb"


def test_a_budget_beyond_measure_is_counted_with() -> None:
    assert found.budget_sentence(answer(), 1e6).startswith("No recompute needed")


def test_how_much_a_plan_recomputes() -> None:
    assert found.regions_line(LOW, alike(6)) == "8 of 24 parts"
    finer = HIGH.model_copy(
        update={
            "regions": (
                Region(modules=("blocks.0",)),
                Region(modules=("blocks.0.attn",)),
                Region(modules=("blocks.1",), keep=("aten.mm.default",)),
            )
        }
    )
    assert found.regions_line(finer, alike(6)) == "8 of 24 parts, 1 nested, 4 selective"


def test_the_table_marks_the_budgets_choice_and_escapes() -> None:
    odd = HIGH.model_copy(update={"plan": "<b>"})
    table = found.plans_table(answer(odd, LOW), alike(6), LOW)
    assert "<strong>▸ best-2mb</strong>" in table
    assert "&lt;b&gt;" in table
    assert table.count("<tr>") == 4  # heads, plain and two plans
    assert "Measured" not in table
    assert '<span title="Of 24 parts in 6 blocks: 8 recomputed, 16 kept.">8 of 24 parts</span>' in table


def test_a_measured_peak_beyond_two_percent_is_flagged() -> None:
    near = HIGH.model_copy(update={"measured_peak_bytes": 3_030_000, "measured_ratio": 1.5})
    far = LOW.model_copy(update={"measured_peak_bytes": 1_950_000})
    table = found.plans_table(answer(near, far), alike(6), None)
    assert ">3.03</td>" in table
    assert ">+1.0</td>" in table
    assert ">-2.5, beyond 2 %</td>" in table
    assert ">50.0</td>" in table
    assert table.count("–") == 4  # nothing of plain was measured, nor the time of the other


def test_a_found_plan_becomes_a_study_of_its_own() -> None:
    spec = studies.spec_of(timing={"min_pairs": 9}, thresholds={"peak_ratio": 0.5})
    one = found.measuring(spec, answer(), [LOW])
    assert one.plans == ("best-2mb",)
    assert one.custom_plans == {"best-2mb": LOW.regions}
    assert one.shapes == ({"seq_len": 256},)
    assert (one.timing, one.thresholds) == (spec.timing, spec.thresholds)
    assert found.measuring(spec, answer(), [HIGH, LOW]).plans == ("best-3mb", "best-2mb")
    again = repeated(spec, "20261130-141500-49bd", spec.thresholds)
    assert found.measuring(again, answer(), [LOW]) == one, "these plans are new: it repeats no study"


def test_rings_are_told_in_words(store: Store) -> None:
    study = studies.filled(store)
    judged = assemble(store.study(study), store.cells(study)).judged
    rings = found.estimated_points(answer())
    says = f"Estimated at {SHAPE}: best-3mb: update 1.12, peak 0.75;"
    assert says in describe(points(judged), studies.spec_of().thresholds, rings)


def _right_edge(store: Store, *updates: float) -> float:
    """How far right a picture with rings at these ratios reaches."""
    study = studies.filled(store)
    judged = assemble(store.study(study), store.cells(study)).judged
    judged = tuple(one for one in judged if one.candidate.shape_key == SHAPE)
    plans = [
        LOW.model_copy(update={"plan": f"p{n}", "overhead": at - 1, "peak_bytes": 3_900_000 - n * 10**5})
        for n, at in enumerate(updates)
    ]
    limits = studies.spec_of().thresholds
    return view_of(points(judged), limits, found.estimated_points(answer(*plans)), None)[1]


def test_a_point_far_beyond_all_others_does_not_squeeze_them(store: Store) -> None:
    assert _right_edge(store, 1.05, 1.1, 1.75) < 1.5


def test_points_that_are_many_or_near_are_all_in_view(store: Store) -> None:
    for updates in ((1.05, 1.5, 1.6), (1.6, 1.65, 1.7, 1.75, 1.8)):
        assert _right_edge(store, *updates) > max(updates)


def test_a_budget_is_a_line_with_its_name() -> None:
    assert found.budget_in(answer(), 3, several=True).name == "budget 3.00 MB at T=256 B=4"
    line = found.budget_in(answer(), 3, several=False)
    assert line == found.Budget(0.75, "budget 3.00 MB")


def test_no_name_is_crossed_by_an_interval_where_there_is_other_room() -> None:
    points_ = [Named(0.5, 0.5, "a name"), Named(0.45, 0.56, "")]
    inside = ((0.0, 1.0), (0.0, 1.0), (0.9, 0.1))
    assert place(points_, *inside)[0] == "top right"
    bar = ((0.4, 0.54), (0.9, 0.54))
    assert place(points_, *inside, bars=[bar])[0] == "bottom right"


# --- the page -------------------------------------------------------------------------------------


def _open(open_page: OpenPage, study: str) -> AppTest:
    return open_page("tradeoff", study=study)


def test_a_search_is_started_at_the_last_shape(
    open_page: OpenPage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "recompute_core.studies.launch.subprocess.Popen",
        lambda command, **_: started.append((command[3], command[4])) or _Ended(),
    )
    study = studies.filled(store)
    app = _open(open_page, study)
    app.button(key="search").click().run()
    assert not app.exception
    assert started == [(study, SHAPE)]


class _Ended:
    def wait(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("shown", "now", "reruns"),
    [
        (None, "running", 1),  # started in another tab
        ("waiting", "running", 1),
        ("running", None, 1),  # ended, or killed
        ("running", "running", 0),
        (None, None, 0),
    ],
)
def test_the_page_is_shown_anew_when_a_search_stands_otherwise_than_it_shows(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    shown: str | None,
    now: str | None,
    reruns: int,
) -> None:
    done: list[int] = []
    session: dict[str, object] = {}
    monkeypatch.setattr("pages._parts.better.st.session_state", session)
    monkeypatch.setattr("pages._parts.better.st.rerun", lambda: done.append(1))
    monkeypatch.setattr("pages._parts.better.search_state", lambda *_: shown or "none")
    monkeypatch.setattr("pages._parts.better.search_progress", lambda *_: now)
    better._tick("a study")  # nothing is shown yet
    assert better.state_at("a study", SHAPE) == (shown or "none")
    better._tick("another study")
    assert not done
    better._tick("a study")
    assert len(done) == reruns


def test_the_page_notes_the_shape_that_a_pill_has_chosen(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    lock = Lock(store.folder(study) / "plans T=128 B=4.lock")
    assert lock.acquire()
    app = _open(open_page, study)
    assert app.session_state["search shown"] == (study, SHAPE, None)
    app.pills(key=f"shapes of {study}").set_value(["T=128 B=4"]).run()
    assert app.session_state["search shown"] == (study, "T=128 B=4", "running")
    assert "Searching: timing ops" in text(app)
    lock.release()
    app.run()  # all of it, its first tick included
    assert app.session_state["search shown"] == (study, "T=128 B=4", None)
    assert app.button(key="search").label == "Find the best plans"


def test_a_chosen_shape_is_in_the_address(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    app = open_page("home", study=study)
    app.query_params["shape"] = ["T=128 B=4", "T=9 B=9"]
    app.switch_page("tradeoff.py").run()
    pills = app.pills(key=f"shapes of {study}")
    assert pills.value == ["T=128 B=4"]
    assert app.query_params["shape"] == "T=128 B=4"
    pills.set_value([]).run()
    assert "shape" not in app.query_params
    pills.set_value([SHAPE]).run()
    assert app.query_params["shape"] == SHAPE
    # Coming back from another page, by a link that names the study alone.
    app.switch_page("home.py").run()
    app.query_params.pop("shape")
    app.switch_page("tradeoff.py").run()
    assert app.pills(key=f"shapes of {study}").value == [SHAPE]


def test_a_store_that_takes_nothing_costs_one_line_and_nothing_else(
    open_page: OpenPage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("/a/store: Read-only file system")

    monkeypatch.setattr("pages._parts.better.start_search", refuse)
    study = studies.filled(store)
    for again in (False, True):
        if again:
            keep_answer(store, study, answer())
        app = _open(open_page, study)
        app.button(key="search").click().run()
        assert not app.exception
        assert [error.value for error in app.error] == ["/a/store: Read-only file system"]
        assert "Intervals of update times" in text(app)
        assert app.get("tab")


def test_a_damaged_answer_takes_nothing_down(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    flat = {"plain": make.plan_point("none", 0)}
    keep_answer(store, study, answer().model_copy(update=flat))
    (store.folder(study) / f"plans {SHAPE}.failed").write_bytes(b"\xff")
    app = _open(open_page, study)
    assert "failed" in app.error[0].value
    assert app.button(key="search").label == "Find the best plans"
    assert app.get("tab")


def test_what_a_failed_search_had_found_before_is_shown(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    keep_answer(store, study, answer())
    (store.folder(study) / f"plans {SHAPE}.failed").write_text(INTERRUPTED)
    app = _open(open_page, study)
    assert app.error[0].value == f"The last search at {SHAPE} failed: {INTERRUPTED}"
    assert pictured(app)["rings"]
    assert app.button(key="search").label == "Search again"


def test_the_fields_have_an_end(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    keep_answer(store, study, answer())
    budget = _open(open_page, study).number_input(key="budget MB")
    assert budget.max == 1e6
    assert "0.1 to 1,000,000 MB" in budget.help


def test_where_found_plans_have_been_measured_is_linked(open_page: OpenPage, store: Store) -> None:
    study, measuring = studies.filled(store), studies.filled(store, custom_spec())
    spec = store.study(measuring).spec
    points_ = [
        point.model_copy(update={"plan_hash": plan_hash(point.regions, spec.checkpoint)})
        for point in (HIGH, LOW)
    ]
    keep_answer(store, study, answer(*points_))
    app = _open(open_page, study)
    (link,) = (link.proto for link in app.get("page_link") if "measured in" in link.proto.label)
    assert link.label == f"best-3mb, best-2mb: measured in study {measuring}"
    assert f"study={measuring}" in link.query_string
    row = store.study(study)
    assert set(measured_in(row, SHAPE).values()) == {measuring}
    assert measured_in(row, "T=128 B=4") == {}
    assert measuring not in measured_in(store.study(measuring), SHAPE).values()


def test_a_measurement_of_another_model_is_no_measurement(store: Store) -> None:
    study = studies.filled(store)
    studies.filled(store, studies.spec_of(workload={"name": "gpt", "batch": 4, "width": 128}))
    studies.filled(store, studies.spec_of(precision="bfloat16"))
    assert measured_in(store.study(study), SHAPE) == {}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("running", "Searching: timing ops"),
        ("waiting", "Waiting: this machine is busy with something else that is measured."),
        (Failed("no room [here]"), r"The last search at T=256 B=4 failed: no room \[here\]"),
    ],
)
def test_a_search_under_way_or_failed_is_said(
    open_page: OpenPage, store: Store, monkeypatch: pytest.MonkeyPatch, state: object, says: str
) -> None:
    monkeypatch.setattr("pages._parts.better.search_state", lambda *_: state)
    app = _open(open_page, studies.filled(store))
    assert says in text(app) + "".join(error.value for error in app.error)
    assert any(button.key == "search" for button in app.button) is isinstance(state, Failed)


def test_found_plans_are_shown_weighed_against_a_budget_and_measured(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    study = studies.filled(store)
    keep_answer(store, study, answer())
    app = _open(open_page, study)
    assert pictured(app)["rings"]
    app.number_input(key="budget MB").set_value(2.5).run()
    assert not app.exception
    assert "Cheapest within 2.50 MB: best-2mb" in text(app)
    assert app.selectbox(key=f"found {SHAPE} 2.5").value == "best-2mb"
    assert "Of 24 parts in 6 blocks: 8 recomputed, 16 kept." in text(app)
    app.button(key="measure one").click().run()
    assert not app.exception
    spec = store.study(launched[0]).spec
    assert spec.custom_plans == {"best-2mb": LOW.regions}
    assert search_state(store, launched[0], SHAPE) == answer()


def test_a_search_is_done_again(
    open_page: OpenPage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr("pages._parts.better.start_search", lambda *asked: started.append(asked[2]))
    study = studies.filled(store)
    keep_answer(store, study, answer())
    app = _open(open_page, study)
    again = app.button(key="search")
    assert again.label == "Search again"
    again.click().run()
    assert not app.exception
    assert started == [SHAPE]


def test_the_device_is_busy_while_a_search_runs(store: Store) -> None:
    study = studies.filled(store)
    assert device_words(queue_of(store), None) == (False, "Device: idle")
    (store.folder(study)).mkdir(parents=True, exist_ok=True)
    locks = [Lock(store.folder(study) / f"plans {shape}.lock") for shape in (SHAPE, "T=128 B=4")]
    for lock in locks:
        assert lock.acquire()
    assert searches(store) == [(study, "T=128 B=4"), (study, SHAPE)]
    assert device_words(queue_of(store), None) == (True, "Searching for plans at T=128 B=4, 1 waiting")
    locks[1].release()
    assert device_words(queue_of(store), None) == (True, f"Searching for plans at {SHAPE}")
    store.claim(store.create(studies.spec_of()))
    assert device_words(queue_of(store), None) == (True, f"Searching for plans at {SHAPE}, 1 waiting")
    locks[0].release()
    assert device_words(queue_of(store), None) == (True, "Starting, 1 waiting")


def test_the_device_line_names_what_holds_the_machine(store: Store) -> None:
    machine = machine_lock("a check of the blocks of gpt")
    assert machine.acquire()
    assert device_words(queue_of(store), None) == (
        True,
        "Device: busy with a check of the blocks of gpt",
    )
    machine.release()
    assert device_words(queue_of(store), None) == (False, "Device: idle")


def test_the_device_is_busy_whatever_holds_the_machine(store: Store) -> None:
    study, machine = studies.filled(store), machine_lock()
    assert machine.acquire()  # a command, or a study of another RECOMPUTE_HOME
    assert device_words(queue_of(store), None) == (
        True,
        "Device: busy with another study, search, check or second use",
    )
    lock = Lock(store.folder(study) / f"plans {SHAPE}.lock")
    assert lock.acquire()
    busy = (True, "Device: busy with another study, search, check or second use, 1 waiting")
    assert device_words(queue_of(store), None) == busy
    turn = Lock(store.folder(study) / f"plans {SHAPE}.turn")
    assert turn.acquire()
    assert device_words(queue_of(store), None) == (True, f"Searching for plans at {SHAPE}")
    for held in (turn, lock, machine):
        held.release()


def test_all_are_forecast_at_the_pace_of_this_study(store: Store) -> None:
    def cell(plan: str, shape: str, seconds: float | None) -> Cell:
        return Cell(shape, plan, "parity", "done", None, None, 0.0, seconds)

    cells = [cell("none", SHAPE, 50), cell("a", SHAPE, 2), cell("a", SHAPE, 10), cell("b", SHAPE, 8)]
    cells += [cell("c", "T=1 B=1", 99), cell("c", SHAPE, None)]
    assert found.cell_seconds(cells, SHAPE) == 10
    assert found.cell_seconds(cells, "T=2 B=1") is None
    assert better.forecast_words(11, 10).startswith(" All of them: about 110 s (11 plans,")
    assert better.forecast_words(11, None) == ""


def test_all_of_them_are_measured(open_page: OpenPage, store: Store, launched: list[str]) -> None:
    study = studies.filled(store)
    keep_answer(store, study, answer())
    _open(open_page, study).button(key="measure all").click().run()
    assert store.study(launched[0]).spec.plans == ("best-3mb", "best-2mb")


def test_nothing_better_is_said(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    plain = make.plan_point("none", 4_000_000)
    nothing = {"points": (plain,), "floor": plain, "sentence": "No plan can pass: it moves."}
    keep_answer(store, study, answer().model_copy(update=nothing))
    app = _open(open_page, study)
    assert "No better plan at T=256 B=4. No plan can pass: it moves." in text(app)
    assert not any(button.key == "measure one" for button in app.button)


# --- a study of found plans -----------------------------------------------------------------------


def found_study(store: Store) -> str:
    return studies.filled(store, custom_spec())


def custom_spec() -> StudySpec:
    return studies.spec_of(
        shapes=[{"seq_len": 256}],
        plans=list(CUSTOM),
        custom_plans={
            name: [region.model_dump(mode="json") for region in regions]
            for name, regions in CUSTOM.items()
        },
    )


@pytest.mark.parametrize("page", ["home", "live", "tradeoff", "studies"])
def test_a_study_of_found_plans_is_shown_by_their_names(
    open_page: OpenPage, store: Store, page: str
) -> None:
    app = open_page(page, study=found_study(store))
    named = {name for name in CUSTOM if name in text(app) + "".join(figures(app))}
    assert named if page == "home" else "best-3mb" in named or page == "studies"


def test_measured_peaks_stand_beside_their_estimates(open_page: OpenPage, store: Store) -> None:
    study = found_study(store)
    keep_answer(store, study, answer(*map(_hashed, (HIGH, LOW))))
    app = _open(open_page, study)
    assert "Measured peak (MB)" in text(app)
    assert "beyond 2 %" in text(app)


def test_what_was_measured_of_another_plan_of_this_name_does_not_stand_beside_it(
    open_page: OpenPage, store: Store
) -> None:
    """Names are rounded peaks: another search may give one to other regions."""
    study = found_study(store)
    keep_answer(store, study, answer(HIGH, LOW))  # with other hashes
    assert "Measured peak (MB)" not in text(_open(open_page, study))


def _hashed(point: PlanPoint) -> PlanPoint:
    real = plan_hash(point.regions, CheckpointSettings())
    return point.model_copy(update={"plan_hash": real})


def test_declared_anew_a_study_keeps_its_found_plans(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    app = _open(open_page, found_study(store))
    app.slider(key="update_ratio").set_value(1.6).run()
    app.button(key="declare").click().run()
    assert not app.exception
    assert store.study(launched[0]).spec.custom_plans == CUSTOM
