"""Set up: from choices to a launched study, and bad values in one line with nothing lost."""

import pytest

from pages._parts import ask
from pages._parts.words import workload_label
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.spec import Compile, Ranks, StudySpec, TimingSettings
from recompute_core.studies.store import Store

from .conftest import OpenPage
from .reading import shown, text


def _launch(app):
    return next(b for b in app.button if b.label == "Declare thresholds and launch")


def test_the_strip_says_cells_minutes_and_memory(open_page: OpenPage) -> None:
    app = open_page("setup")
    said = text(app)
    assert "Cells 24" in said
    assert app.button(key="launch").help.startswith("A cell is one phase of one plan at one shape.")
    assert "Duration, estimated about" in said
    assert "Memory, estimated about" in said


def test_pairs_and_budget_are_told_before_the_launch(open_page: OpenPage, store: Store) -> None:
    app = open_page("setup")
    app.selectbox(key="effort").set_value("normal").run()
    said = text(app)
    least, budget = ask.EFFORTS["normal"]["min_pairs"], "20 s"
    assert f"Timing: {least} to 31 pairs of updates of each candidate. After {least} it ends" in said
    assert f"0.04 wide or {budget} are spent. A pair takes about" in said


def test_a_budget_that_leaves_the_fewest_pairs_says_so() -> None:
    timing = TimingSettings(min_pairs=7, max_pairs=31, budget_s=20)
    assert ask.timing_words(timing, None).endswith("0.04 wide or 20 s are spent.")
    assert "about 0.5 s at the largest shape" in ask.timing_words(timing, 0.5)
    assert ask.timing_words(timing, 0.5).endswith("so that the budget is enough for 31.")
    assert ask.timing_words(timing, 2.0).endswith("so that the budget is enough for 10.")
    assert "so that the budget leaves 7; another *Timing*" in ask.timing_words(timing, 2.9)


def test_a_cluster_is_offered_where_the_operator_has_named_one(
    open_page: OpenPage, store: Store, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machines are others: nothing is estimated of them, and what this one is doing is no matter."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    app = open_page("setup", engine="ray")
    assert not [one for one in app.selectbox if one.key == "engine"]
    assert app.warning[0].value.endswith("Engine: “ray” is none of local.")
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    app = open_page("setup", engine="ray")
    assert not app.warning
    assert app.selectbox(key="engine").value == "ray"
    assert "Duration, estimated" not in text(app)
    _launch(app).click().run()
    assert store.study(launched[0]).spec.engine == "ray"
    assert store.study(launched[0]).spec.threads is None


def test_ranks_a_compiler_and_its_budgets_are_declared(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    app = open_page("setup")
    assert app.number_input(key="rank_count").disabled
    assert app.button_group(key="budgets").disabled
    app.selectbox(key="ranks").set_value("fsdp2").run()
    app.number_input(key="rank_count").set_value(4).run()
    said = text(app)
    assert "Duration, estimated" not in said
    assert "for one process, not compiled" in said
    _launch(app).click().run()
    assert store.study(launched[0]).spec.ranks == Ranks(kind="fsdp2", count=4)
    app = open_page("setup", compile="aot_eager", budgets="50")
    _launch(app).click().run()
    spec = store.study(launched[1]).spec
    assert spec.compile == Compile(backend="aot_eager")
    assert spec.plans == ("every-block", "every-2nd-block", "memory-budget-50")
    assert spec.ranks is None


def test_nothing_is_estimated_of_what_a_compiler_keeps() -> None:
    plans = ("every-block", "memory-budget-50")
    compiled = StudySpec(plans=plans, compile=Compile(backend="aot_eager"))
    assert ask.saved_estimates(compiled) == [("none", "–"), ("every-block", "–")]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"ranks": "ddp"}, "Estimates are of one process, and this study trains over 2 ranks (ddp)"),
        ({"compile": "aot_eager"}, "Estimates are not made for compiled training."),
    ],
)
def test_what_fits_is_said_of_one_process_that_is_not_compiled(
    open_page: OpenPage, asked: dict[str, str], why: str
) -> None:
    app = open_page("setup", **asked)
    assert why in text(app)
    assert not [one for one in app.button if one.key == "fit"]


def test_a_budget_without_a_compiler_is_left_out(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    app = open_page("setup", budgets="50")
    _launch(app).click().run()
    assert store.study(launched[0]).spec.plans == ("every-block", "every-2nd-block")


def test_a_batch_that_ranks_cannot_share_is_one_line(open_page: OpenPage, launched: list[str]) -> None:
    app = open_page("setup", ranks="ddp", rank_count="3")
    assert "cannot be cut into 3 equal parts" in app.error[0].value
    assert _launch(app).disabled and not launched


def test_ranks_and_a_compiler_are_refused_before_anybody_launches(open_page: OpenPage) -> None:
    app = open_page("setup", ranks="ddp", compile="aot_eager")
    assert [shown(one.value) for one in app.error] == [
        "“Data parallel” and “Compiled” exclude each other: training over ranks is not compiled here. "
        "Choose “one process” in the one or “not compiled” in the other."
    ]
    assert _launch(app).disabled
    assert app.selectbox(key="compile").value == app.query_params["compile"] == "aot_eager"
    app.selectbox(key="ranks").set_value("one process").run()
    assert not app.error and not _launch(app).disabled
    app.selectbox(key="ranks").set_value("fsdp2").run()
    assert app.error and _launch(app).disabled


def test_a_cluster_that_does_not_answer_is_one_line(
    open_page: OpenPage, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    app = open_page("setup", engine="ray")
    _launch(app).click().run()
    assert "engine ray: no cluster answers at" in app.error[0].value
    assert not launched


def test_threads_are_shown_and_set(open_page: OpenPage, store: Store, launched: list[str]) -> None:
    app = open_page("setup")
    assert "Threads torch's choice" in text(app)
    app.number_input(key="threads").set_value(1).run()
    assert "Threads 1, set" in text(app)
    _launch(app).click().run()
    assert store.study(launched[0]).spec.threads == 1
    assert open_page("setup", threads="0").warning[0].value.startswith("Not taken from the address")


def test_launching_declares_what_was_chosen(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    app = open_page("setup")
    app.multiselect(key="by_hand").set_value(["0", "2"]).run()
    app.number_input(key="max_update").set_value(1.5).run()
    app.multiselect(key="gpt_lengths").set_value(["64"]).run()
    _launch(app).click().run()
    assert not app.exception
    spec = store.study(launched[0]).spec
    assert spec.plans == ("every-block", "every-2nd-block", "blocks:0,2")
    assert spec.shapes == ({"seq_len": 64, "batch": 4},)
    assert spec.thresholds.update_ratio == 1.5
    assert app.query_params["study"] == launched[0]


def test_the_selective_curve_adds_each_number_of_blocks_once(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    app = open_page("setup")
    app.toggle(key="curve").set_value(True).run()
    _launch(app).click().run()
    plans = store.study(launched[0]).spec.plans
    assert plans[:3] == ("every-block", "every-2nd-block", "blocks:0")
    assert "blocks:0,1,2,3,4" in plans
    assert "blocks:0,1,2,3,4,5" not in plans  # every-block is that already


def test_finer_plans_and_precision_are_launched_and_equal_plans_only_once(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    app = open_page("setup")
    app.button_group(key="plans").set_value(["all-but-last", "knapsack-25"]).run()
    app.button_group(key="finer").set_value(["norms", "keep-attention"]).run()
    app.selectbox(key="precision").set_value("bfloat16").run()
    assert "◔ in part" in text(app)
    _launch(app).click().run()
    assert not app.exception
    spec = store.study(launched[0]).spec
    assert spec.plans == ("all-but-last", "norms", "keep-attention")  # knapsack-25 is all-but-last
    assert spec.precision == "bfloat16"


def test_receipts_have_photo_shapes_norm_and_dropout(
    open_page: OpenPage, store: Store, launched: list[str]
) -> None:
    app = open_page("setup")
    app.button_group(key="workload").set_value("receipts").run()
    assert not app.exception
    app.selectbox(key="norm").set_value("batch").run()
    app.number_input(key="dropout").set_value(0.2).run()
    app.multiselect(key="receipts_lengths").set_value(["96x64"]).run()
    _launch(app).click().run()
    workload = store.study(launched[0]).spec.workload
    assert (workload.name, workload.norm, workload.dropout) == ("receipts", "batch", 0.2)
    assert store.study(launched[0]).spec.shapes[0]["height"] == 96


def _set(app, key: str, value) -> None:
    if key in ("gpt_lengths", "gpt_batches"):
        # Own values are typed in the browser; the address carries them the same way.
        app.session_state[key] = value
    else:
        app.number_input(key=key).set_value(value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("gpt_lengths", ["0"], "Sequence lengths: '0' is not a whole number from 1 to 2147483647"),
        ("gpt_lengths", ["abc"], "Sequence lengths: 'abc' is not a whole number from 1 to 2147483647"),
        ("gpt_lengths", [], "Sequence lengths: choose at least one"),
        ("gpt_batches", ["-4"], "Batch sizes: '-4' is not a whole number from 1 to 2147483647"),
        ("max_peak", -0.5, "thresholds.peak_ratio"),
        ("max_update", 0.5, "thresholds.update_ratio"),
        ("gpt_width", 250, "width 250 must be a multiple of 16"),
    ],
)
def test_a_bad_value_is_one_line_and_nothing_is_lost(
    open_page: OpenPage, key: str, value, said: str
) -> None:
    app = open_page("setup")
    app.multiselect(key="by_hand").set_value(["1"]).run()
    _set(app, key, value)
    app.run()
    assert not app.exception
    assert [error for error in app.error if said in shown(error.value)], [e.value for e in app.error]
    assert len(app.error) == 1
    assert not [b for b in app.button if b.label == "Declare thresholds and launch"]
    assert app.multiselect(key="by_hand").value == ["1"]
    assert app.session_state[key] == value


def test_no_plan_at_all_is_one_line(open_page: OpenPage) -> None:
    app = open_page("setup")
    app.button_group(key="plans").set_value([]).run()
    assert [error.value for error in app.error] == [
        "Plans: choose at least one plan, blocks by hand, or the selective curve"
    ]


def test_a_shape_beyond_memory_is_refused_when_launched(open_page: OpenPage, store: Store) -> None:
    app = open_page("setup")
    _set(app, "gpt_lengths", ["90000000"])
    app.run()
    _launch(app).click().run()
    assert not app.exception
    assert "plain needs about" in app.error[0].value
    assert store.studies() == []


def test_another_model_is_looked_at_and_launched(
    open_page: OpenPage, store: Store, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOMPUTE_WORKLOADS", "mine=tests.workloads.factories:least")
    app = open_page("setup")
    app.button_group(key="workload").set_value("another model").run()
    assert "Name a model; its blocks are found by building it once." in text(app)
    assert not [one for one in app.button if one.key == "launch"]
    app.selectbox(key="model").set_value("own:mine").run(timeout=120)
    assert not app.exception
    said = text(app)
    assert "2 blocks, layers.0 to layers.1; no part is known as norm, attention or MLP." in said
    assert "Another's model is not estimated here" in said
    assert "Duration, estimated" not in said
    _launch(app).click().run(timeout=60)
    (study,) = launched
    spec = store.study(study).spec
    assert spec.workload.name == "own:mine"
    assert anatomy_of(spec.workload).names == ("layers.0", "layers.1")
    assert (spec.shapes, spec.plans) == (({},), ("every-block", "every-2nd-block"))


def test_a_model_that_cannot_be_built_is_one_line_with_a_way_on(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOMPUTE_WORKLOADS", "mine=tests.workloads.factories:fails")
    app = open_page("setup")
    app.button_group(key="workload").set_value("another model").run()
    app.selectbox(key="model").set_value("own:mine").run(timeout=120)
    (error,) = app.error
    said = shown(error.value)
    assert "tests.workloads.factories:fails: raised RuntimeError: no such file" in said
    assert "\n" not in error.value
    assert [one.label for one in app.button if one.key == "look again"] == ["Look again"]
    monkeypatch.setenv("RECOMPUTE_WORKLOADS", "mine=tests.workloads.factories:least")
    app.button(key="look again").click().run(timeout=120)
    assert "2 blocks, layers.0 to layers.1" in text(app)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("gpt", "gpt"),
        ("hf:LlamaConfig", "hf:LlamaConfig"),
        ("hf:LlamaConfig?hidden_size=8&vocab_size=9", "hf:LlamaConfig (2 settings)"),
        ("own:a.very.long.package.of.mine.models:make_it", "own:a.very.long.package.of.mine.models:…"),
    ],
)
def test_a_long_name_is_cut_where_it_is_a_label(name: str, label: str) -> None:
    assert workload_label(name) == label


def test_out_of_memory_leads_to_what_fits(open_page: OpenPage) -> None:
    (lead,) = [
        link for link in open_page("home").get("page_link") if "out of memory" in link.proto.label
    ]
    assert lead.proto.query_string == "fit=open"
    for asked in ({}, {"fit": "open"}):
        app = open_page("setup", **asked)
        (question,) = [one for one in app.expander if one.label.startswith("My run is out of memory")]
        assert question.proto.expanded == bool(asked)
        assert "at batch 4, whose update fits. Estimated" in text(app)
        assert "Find the longest sequence" in [button.label for button in app.button]


def test_a_name_of_another_model_can_be_clicked(open_page: OpenPage) -> None:
    app = open_page("setup", workload="another model")
    said = [shown(button.label) for button in app.button]
    assert any("LlamaConfig" in label for label in said) and any("timm:" in label for label in said)
    assert any("RECOMPUTE_WORKLOADS=mine=package.module:function" in one.value for one in app.code)
