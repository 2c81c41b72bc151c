"""Reinvest: a run in every state, what is asked for, and the pure functions under both."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from pages._parts import reinvest_ask as ask
from pages._parts import reinvest_charts, reinvest_markup
from pages._parts import reinvest_words as words
from pages._parts.palette import LIGHT
from pages._parts.reinvest_data import NEW, Shown, chosen, shown
from recompute_core.errors import InputError
from recompute_core.reinvest.admission import adopted_of, asked_of
from recompute_core.reinvest.asked import SIDES, ReinvestSpec, Side, microbatch_within
from recompute_core.reinvest.found import (
    Accumulation,
    Evaluation,
    Reach,
    Seen,
    Throughput,
    TrainingRun,
    Tried,
    Update,
)
from recompute_core.reinvest.kept import Kept, Now, declare, training_name
from recompute_core.reinvest.result import plain_microbatch
from recompute_core.results import Gap, Pair, Timing
from recompute_core.spec import StudySpec, parse_spec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.locks import machine_lock
from recompute_core.studies.store import Store
from recompute_core.workloads.receipts.cache import Facts
from recompute_core.workloads.receipts.labels import LABELS

from . import studies
from .conftest import OpenPage
from .reading import figures, text

RECEIPTS = {"name": "receipts", "blocks": 2}
SETTINGS = ("training.seeds=[0,1]", "training.examples=256", "training.evaluate_every=2")
BUDGET = 276_000_000


def receipts_spec(**changes: Any) -> StudySpec:
    timing = {"min_pairs": 7}
    return parse_spec({"workload": RECEIPTS, "plans": ["every-block"], "timing": timing, **changes})


class Made:
    """A run whose files are made up phase by phase, as the driver writes them."""

    def __init__(self, store: Store, study: str, *settings: str) -> None:
        trains = store.study(study).spec.workload.name == "receipts"
        given = (*(SETTINGS if trains else ()), *settings)
        self.kept = declare(store, asked_of(store, study, "every-block", None, "quick", given))
        self.asked: ReinvestSpec = self.kept.asked
        plain = plain_microbatch(store.study(study).spec, self.asked.shape)
        self.sizes = (plain, microbatch_within(self.asked.recomputed_batch, 24))

    def reach(self, seq_len: bool = False) -> "Made":
        tried = (
            Tried(size=28, estimated_peak_bytes=270_000_000, peak_bytes=281_000_000, bitwise=True),
            Tried(size=24, estimated_peak_bytes=250_000_000, peak_bytes=255_000_000, bitwise=True),
        )
        batch = Reach(
            field="batch", plain_size=self.sizes[0], budget_bytes=BUDGET, tried=tried,
            next_size=65,
            estimated_next_bytes=279_000_000,
        )  # fmt: skip
        length = Reach(
            field="seq_len", plain_size=128, budget_bytes=BUDGET,
            tried=(Tried(size=512, estimated_peak_bytes=400_000_000, problem="out of memory"),),
        )  # fmt: skip
        self.kept.write("batch", batch)
        if seq_len:
            self.kept.write("seq_len", length)
        used = Tried(
            size=self.sizes[1], estimated_peak_bytes=240_000_000, peak_bytes=241_000_000, bitwise=True
        )
        self.kept.write("used", used)
        return self

    def accumulate(self, gap: float = 4.6e-6, statistics: tuple[str, ...] = ()) -> "Made":
        gaps = (
            Gap(part="grad", name="stem.0.weight", absolute=gap / 100, relative=gap),
            Gap(part="grad", name="norm.bias", absolute=0.0, relative=0.0),
        )
        plain, own = (self._accepted(size) for size in self.sizes)
        self.kept.write(
            "accumulation",
            Accumulation(
                effective_batch=self.asked.effective_batch, accepted=sum(plain),
                plain_microbatches=plain, recomputed_microbatches=own, gaps=gaps, noise_floor=0.0,
                mean_of_means_gap=0.09, batch_statistics=statistics, dropout_off=True,
            ),
        )  # fmt: skip
        return self

    def _accepted(self, size: int) -> tuple[int, ...]:
        """Of an update of 64 two are rejected, the first and the last; of a smaller one none."""
        drawn = self.asked.effective_batch
        rejected = {0, drawn - 1} if drawn == 64 else set()
        starts = range(0, drawn, size)
        return tuple(len({*range(at, min(at + size, drawn))} - rejected) for at in starts)

    def clock(self, ratio: float = 1.5) -> "Made":
        pairs = tuple(Pair(plain_s=2.0, candidate_s=2.0 * ratio * by) for by in (1, 1.01, 0.99) * 3)
        timing = Timing(samples=pairs, stopped="all pairs taken")
        plain, own = (self._accepted(size) for size in self.sizes)
        self.kept.write(
            "throughput",
            Throughput(
                timing=timing, plain_examples=sum(plain), recomputed_examples=sum(own),
                plain_microbatches=len(plain), recomputed_microbatches=len(own),
            ),
        )  # fmt: skip
        return self

    def learn(self, upto: int = 4, torn: float = 0.8) -> "Made":
        """The first `upto` of the runs to their end; `torn` of the plan's torn receipts seen rightly."""
        for side, seed in [(side, seed) for seed in self.asked.training.seeds for side in SIDES][:upto]:
            self.say(side, seed, self.asked.updates_of(side))
            name = training_name(side, seed)
            self.kept.write(name, self._trained(side, seed, 1.0 if side == "plain" else torn))
        return self

    def _trained(self, side: Side, seed: int, torn: float) -> TrainingRun:
        seen = []
        for row, label in enumerate(label for label in LABELS for _ in range(5)):
            is_right = label != "torn" or row % 5 < 5 * torn
            predicted = label if is_right else "ok"
            seen.append(Seen(row=row, receipt=f"{label}{row}", label=label, predicted=predicted))
        updates, looks = self.kept.said(side, seed)
        return TrainingRun(
            side=side, seed=seed, microbatch=self.sizes[SIDES.index(side)], effective_batch=64,
            updates=tuple(updates), evaluations=tuple(looks), seen=tuple(seen),
            weights_digest="sha256:" + "d" * 64, data_digest=studies.PHOTOS,
            rare_receipts=19, rare_photos=55,
        )  # fmt: skip

    def say(self, side: Side, seed: int, updates: int) -> None:
        """So many updates of a run in its log, a look after every second."""
        lines = []
        for number in range(1, updates + 1):
            update = Update(number=number, loss=1.8 / number, accepted=62, seconds=1.0)
            lines.append({"kind": "update", "record": update.model_dump()})
            if number % 2 == 0:
                right = {label: min(10, number + seed) for label in LABELS}
                look = Evaluation(after=number, loss=1.0, right=right, photos=dict.fromkeys(LABELS, 10))
                lines.append({"kind": "evaluation", "record": look.model_dump()})
        log = "".join(json.dumps(line) + "\n" for line in lines)
        self.kept.log(side, seed).write_text(log + '{"kind": "upd')

    def tell(self, what: str, done: int, total: int, done_then: int = 0) -> "Made":
        now = time.time()
        self.kept.tell(
            Now(words=what, done=done, total=total, at=now, started=now - 10, done_then=done_then)
        )
        return self

    def whole(self) -> Kept:
        self.reach().accumulate().clock().learn()
        return self.kept


@pytest.fixture
def study(store: Store) -> str:
    """A finished study of receipts whose plan passed."""
    return studies.filled(store, receipts_spec())


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ReinvestSpec]:
    """What the page launched; none of it gets a driver."""
    found: list[ReinvestSpec] = []

    def start(store: Store, asked: ReinvestSpec) -> Kept:
        found.append(asked)
        return declare(store, asked)

    monkeypatch.setattr("pages._parts.reinvest_form.start", start)
    return found


def _links(app: AppTest) -> list[str]:
    return [element.proto.label for element in app.get("page_link")]


def _field(app: AppTest, label: str) -> Any:
    return next(
        one for one in (*app.number_input, *app.multiselect, *app.selectbox) if one.label == label
    )


def _press(app: AppTest, label: str) -> AppTest:
    next(button for button in app.button if button.label == label).click().run()
    assert not app.exception
    return app


# --- nothing to show yet ---------------------------------------------------------------------------


def test_without_a_study_it_says_what_to_do(open_page: OpenPage) -> None:
    assert "Nothing has been measured on this machine yet." in text(open_page("reinvest"))


def test_no_candidate_passed(open_page: OpenPage, store: Store) -> None:
    study = studies.refused_by_parity(store)
    app = open_page("reinvest", study=study)
    said = text(app)
    assert "No candidate of this study passed its gates, so there is no saved memory to spend." in said
    assert store.study(study).sentence in said
    assert "See why on Trade-off" in _links(app)
    assert "Declare thresholds and launch" not in said


def test_a_study_under_way(open_page: OpenPage, store: Store) -> None:
    study = studies.running(store).id
    lock = store.claim(study)
    app = open_page("reinvest", study=study)
    lock.release()
    said = text(app)
    assert "This study is still being measured: nothing is saved yet." in said
    assert "Watch it live" in _links(app)
    assert "Declare thresholds" not in said


def test_an_unknown_study_is_said_in_one_line(open_page: OpenPage, study: str) -> None:
    app = open_page("reinvest", study="20990101-000000-ffff")
    assert "There is no study “20990101-000000-ffff” here." in text(app)
    assert not app.number_input


# --- what is asked for -------------------------------------------------------------------------------


def test_the_fields_start_from_the_preset_and_launch_what_the_command_would(
    open_page: OpenPage, store: Store, study: str, started: list[ReinvestSpec]
) -> None:
    app = open_page("reinvest", study=study)
    said = text(app)
    assert "320 examples a run, 9 pairs of updates or more" in said
    assert "6 training runs of 5 updates" in said and "Duration, estimated about" in said
    assert _field(app, "Effective batch (examples an update)").value == 64
    for label, name in (("Examples per second, at least", "as a multiple of plain's"),
                        ("Rare recall lost, at most", "as a share of its receipts")):  # fmt: skip
        assert name in _field(app, label).help, "the docstring is the help"
    _press(app, "Declare thresholds and launch")
    assert started == [asked_of(store, study, None, None, "quick")]
    assert app.query_params["run"] == declare(store, started[0]).run_id
    assert "Interrupted: its driver is gone" in text(app.run()), "the run is shown, from its top"


def test_what_was_asked_before_is_shown_and_not_done_again(
    open_page: OpenPage, store: Store, study: str, started: list[ReinvestSpec]
) -> None:
    kept = Made(store, study).whole()
    app = open_page("reinvest", study=study, run=NEW)
    _field(app, "Seeds").set_value(["0", "1"]).run()
    _field(app, "Examples in each run").set_value(256).run()
    assert "4 training runs of 4 updates" in text(app)
    _press(app, "Declare thresholds and launch")
    assert len(started) == 1, "looks every 2 updates are not the preset's"
    app = open_page("reinvest", study=study, run=kept.run_id)
    assert "Slower." in text(app)


def test_another_effective_batch_warns_before_it_is_launched(
    open_page: OpenPage, study: str, started: list[ReinvestSpec]
) -> None:
    app = open_page("reinvest", study=study)
    assert "The training objective changes" not in text(app)
    _field(app, "Effective batch under the plan").set_value(96).run()
    assert "an update will average 96 examples under the plan and 64 in plain." in text(app)
    _press(app, "Declare thresholds and launch")
    assert started[0].recomputed_effective_batch == 96
    assert "The training objective changed: an update averages 96 examples" in text(app.run())


def test_a_bad_request_is_said_in_one_line(open_page: OpenPage, study: str) -> None:
    app = open_page("reinvest", study=study)
    _field(app, "Seeds").set_value(["0", "x"]).run()
    assert "Seeds: 'x' is not a whole number from 0 up" in text(app)
    assert "Declare thresholds and launch" not in text(app)
    _field(app, "Seeds").set_value(["0", "1"]).run()
    _field(app, "Microbatch under the plan").set_value(65).run()
    app = _press(app, "Declare thresholds and launch")
    assert "microbatch 65 is more than an update's 64 examples" in text(app)


def test_gpt_is_asked_without_training(
    open_page: OpenPage, store: Store, started: list[ReinvestSpec]
) -> None:
    study = studies.filled(store)
    app = open_page("reinvest", study=study)
    said = text(app)
    assert "The verdict cannot be adopt: one gate asks what becomes of a rare class, and gpt has" in said
    assert "no training" in said and not app.multiselect
    for foreign in ("receipt", "encoder", "Rare recall", "defects", "examples a run"):
        assert foreign not in said, "an engineer with a GPT is told of a GPT"
    (launch,) = [one for one in app.button if one.label == "Declare thresholds and launch"]
    assert launch.proto.type == "secondary"
    labels = _field(app, "Candidate that passed, at its shape").options
    assert labels[0] == "every-block at T=128 B=4: peak 165.6 MB instead of 276.0 MB"
    assert len(labels) == len(adopted_of(store, study))
    _press(app, "Declare thresholds and launch")
    assert started == [asked_of(store, study, None, None, "quick")]


def test_a_plan_that_passed_at_one_shape_of_two_is_said_to(open_page: OpenPage, store: Store) -> None:
    made = studies.Filled(store, studies.spec_of())
    for shape, ratio in zip(made.shapes, (1.2, 1.6), strict=True):
        made.prepare(shape)
        made.weigh(shape, "none", 1.0)
        for plan in made.spec.plans:
            made.prove(shape, plan)
            made.weigh(shape, plan)
            made.clock(shape, plan, [ratio] * 9)
    app = open_page("reinvest", study=made.conclude())
    labels = _field(app, "Candidate that passed, at its shape").options
    assert labels and all(label.endswith(" (keep original over all shapes)") for label in labels)


# --- while it runs -----------------------------------------------------------------------------------


def test_a_run_under_way(open_page: OpenPage, store: Store, study: str) -> None:
    made = Made(store, study).reach().accumulate().clock().learn(upto=1)
    made.say("recomputed", 0, 3)
    made.tell("training recomputed, seed 0", 11, 20, done_then=4)
    lock, turn = made.kept.lock, made.kept.turn
    assert lock.acquire() and turn.acquire()
    try:
        app = open_page("reinvest", study=study)
        said = text(app)
        assert app.query_params["run"] == made.kept.run_id
        assert re.search(r"seed 0, 11 of 20 steps, about 1\d s left \(estimated\)\.", said)
        assert "how far it goes 1 of 1" in said and "rare defects 1 of 4 , running now" in said
        assert "gates 3 of 4" in said and "not yet" in said
        assert "Cancel" in [button.label for button in app.button]
        losses = next(figure for figure in figures(app) if "examples drawn" in figure)
        assert losses.count('"legendgroup"') == 2, "one line a run that has begun"
        _press(app, "Cancel")
        assert made.kept.cancel_asked()
        assert "Cancelling: stopping after what is being written." in text(app)
    finally:
        turn.release()
        lock.release()


def test_a_run_that_waits(open_page: OpenPage, store: Store, study: str) -> None:
    made = Made(store, study).tell("waiting for the machine", 0, 4)
    lock, machine = made.kept.lock, machine_lock("a check of a test")
    assert lock.acquire() and machine.acquire()
    try:
        said = text(open_page("reinvest", study=study))
        assert "Waiting: this machine is busy with a check of a test. It starts after that." in said
        assert "The largest microbatch within plain's peak is looked for first." in said
        machine.release()
        assert "Starting: torch is being loaded" in text(open_page("reinvest", study=study))
    finally:
        machine.release()
        lock.release()


@pytest.mark.parametrize(
    ("how", "words"),
    [("cancelled", "Cancelled; what was finished is kept."), ("failed", "the worker was killed")],
)
def test_one_that_was_stopped_goes_on(
    open_page: OpenPage, store: Store, study: str, started: list[ReinvestSpec], how: str, words: str
) -> None:
    made = Made(store, study).reach().accumulate()
    if how == "cancelled":
        made.kept.ask_cancel()
    else:
        made.kept.fail("whole updates in turn could not be completed: the worker was killed (signal 9)")
    app = open_page("reinvest", study=study)
    said = text(app)
    assert words in said
    assert "has room for 24 under the plan, measured 255.0 MB" in said, "what was found is shown"
    _press(app, "Go on")
    assert started == [made.asked]


# --- what was found ----------------------------------------------------------------------------------


def test_a_finished_run_section_by_section(open_page: OpenPage, store: Store, study: str) -> None:
    kept = Made(store, study).whole()
    app = open_page("reinvest", study=study)
    said, result = text(app), shown(kept).result
    assert result.verdict == "keep_original" and result.sentence in said
    assert "objective changed" not in said
    # 1
    assert (
        "Plain's peak of 276.0 MB at microbatch 16 has room for 24 under the plan, measured 255.0 MB. "
        "At 65 it would take 279.0 MB (estimated)." in said
    )
    assert "28 270.0 281.0 1.018 above plain's peak gradients bitwise plain's" in said
    assert "Whole updates use microbatch 22: 64 examples in 3 passes" in said
    # 2
    assert "15, 16, 16, 15 62" in said and "21, 22, 19 62" in said
    assert "every accepted example weighing the same 4.6e-6 within 1e-4" in said
    assert "the mistake that this avoids 9e-2 would not be within 1e-4 19,565 times" in said
    assert "the noise floor 0 for comparison" in said and "Dropout was off" in said
    # 3
    assert "Slower. 0.67 times as many examples per second as plain" in said
    assert "3 passes an update instead of 4 do not make up for recomputing here." in said
    # 4
    assert "torn the rare one 5 5 1.00 0.57 to 1.00 0.80" in said
    assert "19 receipts, 55 photos" in said and "5 receipts, 5 photos" in said
    assert "plain alone was right in 2, the plan alone in 0" in said
    assert next(g for g in result.gates if g.id == "rare_recall").sentence in said
    assert "such receipts would." in said
    # the gates
    assert "Examples per second ratio to plain's fail 0.667 0.660 to 0.673 at least 1 declared" in said
    assert "The same objective largest relative gap pass 4.6e-6 exact at most 1e-4 declared" in said
    assert "Download the result as JSON" in [e.proto.label for e in app.get("download_button")]
    assert any("recall on validation" in figure for figure in figures(app))


def test_batch_statistics_change_the_objective_and_every_section_says_so(
    open_page: OpenPage, store: Store, study: str
) -> None:
    made = Made(store, study).reach().accumulate(gap=0.3, statistics=("stem.1", "stem.4", "stem.7"))
    made.clock(0.8).learn()
    said = text(open_page("reinvest", study=study))
    sentence = shown(made.kept).result.objective
    assert sentence is not None and "stem.1" in sentence and "over the microbatch" in sentence
    assert f"{sentence} Every figure here is to be read with that." in said
    assert said.count("The training objective changed") >= 5, "at the top and beside each section"
    assert "not within 1e-4" in said and "Faster." in said


def test_gpt_without_training(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    Made(store, study).reach(seq_len=True).accumulate().clock(0.8)
    said = text(open_page("reinvest", study=study))
    assert "Training is skipped. gpt has no rare class to look at" in said
    assert "No sequence length was measured within plain's peak of 276.0 MB." in said
    assert "512 400.0 – 1.449 estimated out of memory" in said
    assert "Undecided:" in said


def test_earlier_runs_are_picked_by_links(open_page: OpenPage, store: Store, study: str) -> None:
    first = Made(store, study).whole()
    second = Made(store, study, "effective_batch=32").reach().kept
    app = open_page("reinvest", study=study)
    assert app.query_params["run"] == second.run_id, "the newest is shown"
    labels = _links(app)
    listed = [label.partition(", ")[2] for label in labels if "every-block at 192x96 B=16" in label]
    assert listed == [
        "every-block at 192x96 B=16, no larger microbatch, keep original",
        "every-block at 192x96 B=16, microbatch 22 instead of 16, keep original",
    ]
    assert "Set up another" in labels
    app = open_page("reinvest", study=study, run=first.run_id)
    assert shown(first).result.sentence in text(app)
    app = open_page("reinvest", study=study, run="<b>x</b>")
    assert "This study has no reinvestment" in text(app)


def test_the_contact_sheet_is_shown_where_the_set_has_been_rendered(
    open_page: OpenPage, store: Store, study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = "The photos, class by class"
    kept = Made(store, study).whole()
    app = open_page("reinvest", study=study)
    assert title not in [one.label for one in app.expander], "there is no set, and none is made"
    monkeypatch.setattr("pages._parts.reinvest_sections.dataset_ready", lambda home: True)
    facts = Facts(photos=1, digest="sha256:" + "f" * 64, sizes={})
    monkeypatch.setattr("pages._parts.reinvest_sections.read_facts", lambda folder: facts)
    drawn: list[Path] = []

    def contact_sheet(home: Path) -> Image.Image:
        drawn.append(home)
        return Image.new("L", (8, 8))

    monkeypatch.setattr("recompute_core.workloads.receipts.sheet.contact_sheet", contact_sheet)
    app = open_page("reinvest", study=study, run=kept.run_id)
    assert title in [one.label for one in app.expander] and not drawn, "not drawn until it is opened"
    app.session_state["reinvest sheet"] = True
    app.run()
    assert not app.exception and drawn == [store.home]
    assert "a row of photos of each class" in str(app.get("image")[0].proto)
    app.run()
    assert len(drawn) == 1, "drawn once"
    own = studies.filled(store, receipts_spec(workload={**RECEIPTS, "images": "/photos"}))
    app = open_page("reinvest", study=own)
    assert title not in [one.label for one in app.expander], "these are not its photos"


def test_trade_off_and_decision_lead_here_where_a_plan_passed(
    open_page: OpenPage, store: Store, study: str
) -> None:
    for page in ("tradeoff", "decision"):
        assert "See what the saved memory buys" in _links(open_page(page, study=study))
    refused = studies.refused_by_parity(store)
    assert "See what the saved memory buys" not in _links(open_page("tradeoff", study=refused))


# --- pure functions ----------------------------------------------------------------------------------


def test_a_request_from_the_fields() -> None:
    wanted = ask.Wanted("s", "every-block", "192x96 B=16", "full", 64, 64, None, ["2", " 7 "], 100)
    asked = ask.request_of(wanted)
    assert asked.training.seeds == (2, 7) and asked.training.examples == 100
    assert asked.recomputed_effective_batch is None, "the same is no other"
    assert asked.training.evaluate_every == 45 and asked.timing.min_pairs == 9
    for bad in ("-1", "1.5", "", "9" * 11):
        with pytest.raises(InputError, match="Seeds"):
            ask.seeds_of([bad])
    with pytest.raises(InputError, match="each seed may be named once"):
        ask.request_of(ask.Wanted("s", "p", "T=1", "quick", 4, seeds=["1", "1"]))
    assert ask.request_of(ask.Wanted("s", "p", "T=1", "quick", 4, seeds=[])).training.seeds == ()


def test_the_candidate_of_the_lowest_peak_at_the_first_shape_comes_first(store: Store) -> None:
    study = studies.filled(store)
    adopted = adopted_of(store, study)
    judged = assemble(store.study(study), store.cells(study)).judged
    assert next(iter(ask.candidates(adopted, judged))) == ("every-block", "T=128 B=4")
    spec = store.study(study).spec
    asked = asked_of(store, study, None, None, "quick")
    assert plain_microbatch(spec, adopted[0].shape_key) == 4
    assert ask.work_words(spec, asked) == "no training"
    seconds = ask.forecast_s(spec, adopted[0], asked)
    assert seconds is not None and 25 < seconds < 60
    assert ask.why_not(spec, adopted) is None
    assert "no saved memory" in (ask.why_not(spec, []) or "")


def test_the_time_left_is_of_the_updates_of_training() -> None:
    assert words.seconds_left(None, 0.0) is None
    now = Now(words="training plain, seed 0", done=8, total=20, at=110.0, started=100.0, done_then=4)
    assert words.seconds_left(now, 112.0) == pytest.approx(2.5 * 12 - 2)
    assert words.seconds_left(now, 150.0) == 0, "which is said to be longer than estimated"
    before = now.model_copy(update={"done": 2, "done_then": 0})
    assert words.seconds_left(before, 112.0) is None, "phases tell nothing of training"
    assert (words.share_done(now), words.share_done(before)) == (8 / 20, 2 / 20)


def test_a_speed_is_said_as_what_it_is(store: Store, study: str) -> None:
    def said(ratio: float, **changes: int) -> str:
        found = shown(Made(store, study).clock(ratio).kept).result.throughput
        assert found is not None
        return words.speed_sentence(found.model_copy(update=changes))

    assert said(0.8).startswith("Faster. 1.25 times") and said(0.8).endswith("instead of 4.")
    assert said(1.0).startswith("No difference that these pairs can tell. 1.00 times")
    assert said(1.5).endswith("do not make up for recomputing here.")
    assert said(1.5, recomputed_microbatches=4).endswith("with 4 passes an update against plain's 4.")


def test_the_run_to_show(store: Store, study: str) -> None:
    old, new = Made(store, study).kept, Made(store, study, "effective_batch=32").kept
    known = [new, old]
    assert chosen(known, None) is new
    assert chosen(known, old.run_id) is old
    assert chosen(known, "no such") is new
    assert chosen(known, NEW) is None and chosen([], None) is None
    lock = old.lock
    assert lock.acquire()
    assert chosen(known, None) is old, "one that is being done comes first"
    lock.release()


def test_a_run_is_read_again_only_when_its_files_change(store: Store, study: str) -> None:
    made = Made(store, study).reach()
    first = shown(made.kept)
    made.tell("something else", 1, 4)
    again = shown(made.kept)
    assert again.memo is first.memo and again.now is not None
    made.accumulate()
    assert shown(made.kept).memo is not first.memo
    assert shown(made.kept).result.accumulation is not None


def test_curves_have_a_line_a_run_over_the_examples(store: Store, study: str) -> None:
    made = Made(store, study, "recomputed_effective_batch=96")
    made.say("plain", 0, 4)
    made.say("recomputed", 0, 2)
    one: Shown = shown(made.kept)
    plain, own = one.runs
    assert reinvest_charts.losses(plain)[-1] == (256, 0.45)
    assert reinvest_charts.losses(own)[-1] == (192, 0.9)
    assert reinvest_charts.shares(plain, "torn") == [(128, 0.2), (256, 0.4)]
    assert reinvest_charts.shares(own, "accuracy") == [(192, 0.2)]
    assert reinvest_charts.classes_of(one.runs) == list(LABELS)
    drawn = reinvest_charts.curves(one.runs, reinvest_charts.losses, "loss", LIGHT)
    assert [trace.name for trace in drawn.data] == ["plain, 1 seed", "recomputed, 1 seed"]
    assert drawn.data[0].line.dash != drawn.data[1].line.dash


def test_the_recall_chart_names_receipts_and_marks_the_rare_class(store: Store, study: str) -> None:
    training = shown(Made(store, study).whole()).result.training
    assert training is not None
    drawn = reinvest_charts.recall_chart(training, LIGHT)
    assert "<b>torn</b>" in drawn.layout.yaxis.ticktext[-1]
    assert "5 receipts" in drawn.layout.yaxis.ticktext[-1]
    plain, own = drawn.data
    assert plain.x[-1] == 1.0 and own.x[-1] == 0.8
    assert own.error_x.arrayminus[-1] == pytest.approx(0.8 - training.classes[-1].recomputed_ci95[0])
    assert "torn 1.00 plain, 0.80 recomputed" in words.describe_recall(training)


def test_foreign_text_is_escaped(store: Store, study: str) -> None:
    made = Made(store, study).reach().accumulate(gap=0.3, statistics=("<b>x</b>",))
    result = shown(made.kept).result
    assert result.objective is not None
    for drawn in (
        reinvest_markup.changed_strip(result.objective),
        reinvest_markup.gate_table(result.gates, False),
    ):
        assert "<b>x" not in drawn and "&lt;b&gt;x" in drawn
    assert reinvest_markup.changed_tag(result.objective).count(":") == 0
