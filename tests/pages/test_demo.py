"""The demo in every state: nothing, every phase of a run, refused, failed, undecided, done."""

import time
from collections.abc import Iterator

import pytest
from streamlit.testing.v1 import AppTest

from pages._parts.demo_study import DEMO
from pages._parts.demo_words import STEPS
from recompute_core.studies.flow import PLAIN
from recompute_core.studies.store import Store

from . import studies
from .conftest import FRAME, OpenPage
from .reading import components, figures, pictured, text
from .studies import NARROW, WIDE, Filled

ALL = range(1, 6)
ONE_SHAPE = studies.spec_of(shapes=[{"seq_len": 256}])


def _button(app: AppTest, label: str):
    return next(button for button in app.button if button.label == label)


def _open(step: int | str, study: str | None = None, **more: str) -> AppTest:
    """The demo at a step, as a link opens it in another browser."""
    app = AppTest.from_file(str(FRAME), default_timeout=60)
    app.query_params.update({"step": str(step), **({"study": study} if study else {}), **more})
    app.switch_page("demo.py").run()
    assert not app.exception, [e.value for e in app.exception]
    return app


# --- nothing ---------------------------------------------------------------------------


def test_an_empty_demo_is_one_button_and_then_fills(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    app = open_page("demo")
    said = text(app)
    assert "Nothing that can be shown has been measured here yet." in said
    assert all(name in said for name in STEPS)
    assert "estimated" in said
    _button(app, "Measure the demo").click().run()
    assert not app.exception
    assert [row.id for row in store.studies()] == launched
    assert store.study(launched[0]).spec == DEMO
    assert app.query_params["study"] == launched[0]
    assert STEPS[0] in text(app)


def test_home_links_to_the_demo(open_page: OpenPage) -> None:
    assert "See it step by step" in [link.proto.label for link in open_page().get("page_link")]


def test_a_press_of_long_ago_is_not_remembered_by_a_later_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = _open(1, studies.filled(store, ONE_SHAPE))
    _button(app, "Next").click().run()
    assert app.query_params["step"] == "2"
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3600)
    app.query_params["step"] = "4"
    app.run()
    _button(app, "Presenter's view").click().run()
    assert (app.query_params["step"], app.query_params["present"]) == ("4", "1")


# --- done ---------------------------------------------------------------------------


@pytest.fixture
def done(store: Store) -> str:
    return studies.filled(store, ONE_SHAPE, peak_ratio=0.4)


def test_every_step_of_a_finished_study_has_a_picture_and_a_finding(done: str, store: Store) -> None:
    wanted = {
        1: "The model with its gradients and its optimizer takes 76.0 MB. At the highest moment, in "
        "backward of blocks.5, 276.0 MB are in use: 3.6 times as much.",
        2: "Saved bytes fall 2.5 times, and the peak with them, 2.5 times.",
        3: "An update takes 1.20 times as long",
        4: "Every-2nd-block brings 50 % of the fall in peak of every-block for 50 % of the time it adds",
        5: "Not one bit differs from plain's update, in 120 tensors.",
    }
    for step in ALL:
        app = _open(step, done)
        said = text(app)
        assert wanted[step] in said
        assert STEPS[step - 1] in said and f"Demo, step {step} of 5." in said
        assert "Measured here: gpt at T=256 B=4 on CPU Test processor" in said
        assert len(figures(app)) == (1 if step < 4 else 0)
        assert all(chart.proto.alt for chart in app.get("plotly_chart"))
        assert len(components(app, "picture")) == (1 if step == 4 else 0)
    assert store.study(done).sentence in said
    assert "Sign it on Decision" in [link.proto.label for link in app.get("page_link")]


def test_next_and_back_walk_the_steps_and_the_address_follows(done: str) -> None:
    app = _open(1, done)
    assert _button(app, "Back").disabled
    for step in (2, 3, 4, 5):
        _button(app, "Next").click().run()
        assert app.query_params["step"] == str(step)
        assert f"Demo, step {step} of 5." in text(app)
    assert _button(app, "Next").disabled
    _button(app, "Back").click().run()
    assert app.query_params["step"] == "4"


def test_a_redraw_with_the_address_of_before_turns_no_step_back(
    done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    app = _open(1, done)
    _button(app, "Next").click().run()
    app.query_params["step"] = "1"
    app.run()
    assert "Demo, step 2 of 5." in text(app)
    assert app.query_params["step"] == "2"
    clock[0] += 5  # the browser's own way back
    app.query_params["step"] = "1"
    app.run()
    assert "Demo, step 1 of 5." in text(app)


@pytest.mark.parametrize("asked", ["0", "6", "two", "３"])
def test_a_step_that_is_none_is_the_first(done: str, asked: str) -> None:
    app = _open(asked, done)
    assert "Demo, step 1 of 5." in text(app)


def test_the_presenters_view_leaves_the_rest_away(done: str) -> None:
    app = _open(2, done)
    assert not any('"rs-present"' in e.proto.body for e in app.get("html"))
    _button(app, "Presenter's view").click().run()
    assert app.query_params["present"] == "1"
    assert any('"rs-present"' in e.proto.body for e in app.get("html"))
    assert "Copy link" not in text(app)
    _button(app, "Leave the presenter's view").click().run()
    assert "present" not in app.query_params


def test_a_gate_can_be_moved_and_the_verdict_follows(done: str, store: Store) -> None:
    app = _open(4, done)
    assert store.study(done).sentence in text(app)
    assert "Back to the declared gates" not in text(app)
    next(s for s in app.slider if s.label == "Peak, at most").set_value(0.3).run()
    said = text(app)
    assert "what-if" in said and "Keep the original" in said
    assert app.query_params["peak"] == "0.3"
    drawn = pictured(app)
    assert (drawn["limits"]["peak"], drawn["declared"]["peak"]) == (0.3, 0.82)
    assert drawn["still"] and "fails a gate" in drawn["words"]
    assert store.study(done).verdict == "adopt"
    # What was decided is decided by what was declared.
    _button(app, "Next").click().run()
    assert store.study(done).sentence in text(app)
    _button(app, "Back").click().run()
    assert "what-if" in text(app)
    _button(app, "Back to the declared gates").click().run()
    assert "what-if" not in text(app)
    assert "peak" not in app.query_params


def test_gates_in_the_address_are_checked(done: str) -> None:
    app = _open(4, done, peak="0.3", update="nan")
    assert "what-if" not in text(app)


def test_pairs_can_be_played_again(done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("pages._parts.demo_steps.time.monotonic", lambda: clock[0])
    app = _open(3, done)
    assert "in 7 pairs" in text(app)
    _button(app, "Replay the pairs").click().run()
    assert "The pairs come once more, as they were timed." in text(app)
    assert "is being timed" not in text(app)
    clock[0] += 1.0  # pairs of 0.44 s
    app.run()
    assert "After 2 pairs: 1.21 times as long. That tells little yet." in text(app)
    clock[0] += 5.0
    app.run()
    assert "in 7 pairs" in text(app)
    _button(app, "Replay the pairs").click().run()
    _button(app, "Next").click().run()
    _button(app, "Back").click().run()
    assert "in 7 pairs" in text(app)


# --- other verdicts ---------------------------------------------------------------------------


def test_undecided_says_that_so_many_pairs_cannot_tell(store: Store) -> None:
    spec = studies.spec_of(shapes=[{"seq_len": 256}], plans=["every-block"])
    study = studies.filled(store, spec, ratios=WIDE)
    assert "That does not tell whether it keeps to 1.35" in text(_open(3, study))
    assert "This study has no measured plan in between" in text(_open(4, study))
    app = _open(5, study)
    said = text(app)
    assert "Undecided on every-block: the interval of the update time straddles its gate" in said
    links = [link.proto.label for link in app.get("page_link")]
    assert "Why, and measure longer, on Trade-off" in links and "Open Decision" in links


def test_a_plan_that_is_undecided_at_one_shape_shows_the_gates_of_that_shape(store: Store) -> None:
    study = Filled(store, studies.spec_of(plans=["every-block"]))
    for shape, ratios in zip(study.shapes, (WIDE, NARROW), strict=True):
        study.prepare(shape)
        study.prove(shape, "every-block")
        study.weigh(shape, PLAIN, 1.0)
        study.weigh(shape, "every-block", 0.4)
        study.clock(shape, "every-block", ratios)
    study.conclude()
    app = _open(5, study.id)
    said = text(app)
    assert "Undecided on every-block at T=128 B=4: update latency is undecided" in said
    assert "The gates of every-block at T=128 B=4." in said
    (cards,) = [e.proto.body for e in app.get("html") if '<ul class="rs-demo-gates"' in e.proto.body]
    assert cards.count("rs-edge-pass") == 2 and cards.count("rs-edge-undecided") == 1
    assert "It passes at T=256 B=4, but a plan has to pass at every shape." in said
    assert "Measured here: gpt at T=128 B=4 and T=256 B=4 on" in said
    assert "gpt at T=128 B=4 and T=256 B=4 on" in text(_open(4, study.id))
    assert "gpt at T=256 B=4 on" in text(_open(3, study.id))


def test_the_middle_says_of_which_shape_it_speaks(store: Store, done: str) -> None:
    several = studies.filled(store, peak_ratio=0.4)
    assert "Measured here, at T=256 B=4" in text(_open(4, several))
    assert "Measured here, at" not in text(_open(4, done))


def test_a_failed_gate_says_what_that_means(store: Store) -> None:
    spec = studies.spec_of(shapes=[{"seq_len": 256}], plans=["every-block"])
    study = studies.filled(store, spec, ratios=[1.6] * 9)
    said = text(_open(5, study))
    assert "Keep the original rather than every-block: an update takes longer than was declared" in said


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (studies.refused_by_parity, "is not plain's, so that nothing it costs was measured"),
        (studies.refused_by_legality, "may not be replayed: blocks.0.norm keeps running statistics"),
    ],
)
def test_a_refused_study_says_so_and_shows_no_cost(store: Store, make, why: str) -> None:
    study = make(store)
    for step in (1, 3, 5):
        app = _open(step, study)
        said = text(app)
        assert why in said if step < 5 else store.study(study).sentence in said
        assert figures(app) == []
        assert "MB are in use" not in said
        assert ("Measure the demo" in said) == (step < 5)
    assert "no cost of it may be shown" in said
    assert "Keep the original rather than every-block" in said and "Undecided" not in said


def test_a_missed_canary_says_what_to_do(store: Store) -> None:
    study = Filled(store, ONE_SHAPE)
    study.prepare(study.shapes[0])
    for plan in study.spec.plans:
        study.prove(study.shapes[0], plan)
    with store._transaction() as db:  # the canary's record, as a check that is blind would write it
        db.execute("UPDATE cells SET payload = json_set(payload, '$.caught', json('false')) "
                   "WHERE phase = 'canary'")  # fmt: skip
    study.conclude()
    said = text(_open(2, study.id))
    assert "let a replay pass that was broken on purpose, and proves nothing" in said
    assert "Lower the relative gap in Set up" in said


def test_out_of_memory_is_said_with_its_reason(store: Store) -> None:
    study = Filled(store, ONE_SHAPE)
    shape = study.shapes[0]
    study.prepare(shape)
    for plan in study.spec.plans:
        study.prove(shape, plan)
    store.begin_cell(study.id, shape, PLAIN, "memory")
    store.fail_cell(study.id, shape, PLAIN, "memory", "out of memory: the worker was killed")
    study.conclude("incomplete")
    app = _open(1, study.id)
    assert "out of memory: the worker was killed" in text(app)
    assert "resume this one on Live" in text(app)
    assert "Open it on Live" in [link.proto.label for link in app.get("page_link")]


def test_a_time_that_failed_leaves_the_memory_to_show(store: Store) -> None:
    study = Filled(store, studies.spec_of(shapes=[{"seq_len": 128}], plans=["every-block"]))
    shape = study.shapes[0]
    study.prepare(shape)
    study.prove(shape, "every-block")
    study.weigh(shape, PLAIN, 1.0)
    study.weigh(shape, "every-block", 0.4)
    store.begin_cell(study.id, shape, "every-block", "time")
    store.fail_cell(study.id, shape, "every-block", "time", "the worker was killed (signal 9)")
    study.conclude("incomplete")
    assert "Saved bytes fall 2.5 times" in text(_open(2, study.id))
    assert "the worker was killed (signal 9)" in text(_open(3, study.id))


# --- running ---------------------------------------------------------------------------


@pytest.fixture
def going(store: Store) -> Iterator[Filled]:
    """A study that runs and has found nothing yet."""
    study = Filled(store, ONE_SHAPE)
    lock = store.driver_lock(study.id)
    assert lock.acquire()
    yield study
    lock.release()


def test_the_steps_fill_while_the_study_runs(store: Store, going: Filled) -> None:
    shape = going.shapes[0]

    def said(step: int) -> str:
        return text(_open(step, going.id))

    assert "as soon as one recomputed update is proven equal to plain's" in said(1)
    assert "torch is being loaded" in said(1)
    going.prepare(shape)
    store.begin_cell(going.id, shape, "every-block", "parity")
    assert "Measuring gpt: parity of every-block, 3 of" in said(1)
    going.prove(shape, "every-block")
    going.weigh(shape, PLAIN, 1.0)
    assert "276.0 MB are in use" in said(1)
    assert "is measured once it is proven equal to plain's" in said(2)
    going.weigh(shape, "every-block", 0.4)
    assert "the peak with them, 2.5 times" in said(2)
    assert "Pairs are timed after memory." in said(3)
    store.begin_cell(going.id, shape, "every-block", "time")
    for ratio in NARROW[:4]:
        store.add_event(going.id, "pair", (shape, "every-block", "time"),
                        plain_s=0.2, candidate_s=0.2 * ratio)  # fmt: skip
    assert "After 4 pairs: 1.20 times as long, so far from" in said(3)
    assert "A plan has a place in the picture once" in said(4)
    going.clock(shape, "every-block", NARROW)
    assert "in 7 pairs" in said(3)
    assert "This study has no measured plan in between" in said(4)
    assert "The verdict is given when every plan has been measured." in said(5)


def test_a_study_that_ends_while_watched_shows_its_verdict(store: Store, going: Filled) -> None:
    shape = going.shapes[0]
    app = _open(5, going.id)
    going.prepare(shape)
    going.weigh(shape, PLAIN, 1.0)
    for plan in going.spec.plans:
        going.prove(shape, plan)
        going.weigh(shape, plan, 0.4)
        going.clock(shape, plan, NARROW)
    going.conclude()
    app.run()
    assert not app.exception
    assert store.study(going.id).sentence in text(app)


def test_what_was_cut_off_says_to_resume_it(store: Store) -> None:
    study = Filled(store, ONE_SHAPE)
    study.prepare(study.shapes[0])
    said = text(_open(1, study.id))  # no driver: interrupted
    assert "The study ended before this was measured. Resume it on Live." in said


# --- which study ---------------------------------------------------------------------------


def test_the_newest_that_can_be_shown_stands_in_and_says_so(store: Store, done: str) -> None:
    refused = studies.refused_by_parity(store)
    app = _open(1, refused)
    said = text(app)
    assert "The study you chose (done) has nothing to show here: parity fails" in said
    assert "276.0 MB are in use" in said
    assert app.query_params["study"] == refused
    assert "The study you chose" not in text(_open(1, done))


def test_without_a_choice_the_newest_that_can_be_shown_is_shown(
    open_page: OpenPage, store: Store, done: str
) -> None:
    studies.refused_by_parity(store)
    app = open_page("demo")
    assert app.query_params["study"] == done
    assert "The study you chose" not in text(app)


def test_an_unknown_study_is_said_in_one_line(done: str) -> None:
    app = _open(1, "20990101-000000-ffff")
    assert "There is no study “20990101-000000-ffff” here." in text(app)
    assert figures(app) == []


def test_many_shapes_are_told_at_the_largest(store: Store) -> None:
    study = studies.filled(store, peak_ratio=0.4)
    assert "gpt at T=256 B=4" in text(_open(2, study))
    assert len(pictured(_open(4, study))["points"]) == 4


def test_a_device_that_cannot_tell_when_shows_figures_without_a_picture(store: Store, done: str) -> None:
    with store._transaction() as db:
        db.execute("UPDATE cells SET payload = json_set(payload, '$.timeline', json('null'), "
                   "'$.not_measured', json('{\"timeline\": \"counters do not tell when\"}')) "
                   "WHERE phase = 'memory'")  # fmt: skip
    app = _open(2, done)
    assert "No memory over time on this device: counters do not tell when." in text(app)
    assert "Saved bytes fall 2.5 times" in text(app)
    assert figures(app) == []
