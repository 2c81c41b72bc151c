"""The tabs of Trade-off that show one plan at work, and those that estimate."""

import json
from collections.abc import Iterator

import pandas as pd
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from pages._parts import beyond, estimated, planmap, tables, timelines
from pages._parts.palette import DARK, LIGHT
from recompute_core.errors import InputError
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import ATTENTION, named_regions
from recompute_core.results import Estimate, Memory, PeakAt, PeakParts, Timeline
from recompute_core.settings import GptSettings
from recompute_core.spec import Region, StudySpec
from recompute_core.studies.assemble import assemble
from recompute_core.studies.flow import PLAIN
from recompute_core.studies.store import Store
from tests.core.toys import alike

from . import studies
from .conftest import OpenPage
from .reading import figures, text

TINY = {"name": "gpt", "blocks": 2, "width": 32, "heads": 2, "vocab": 17, "batch": 1}


def _open(open_page: OpenPage, study: str, section: str) -> AppTest:
    app = open_page("tradeoff", study=study)
    app.session_state["section"] = section
    app.run()
    assert not app.exception, [e.value for e in app.exception]
    return app


# --- block map ----------------------------------------------------------------------------------


def _words(plan: str, blocks: int = 2) -> list[list[str]]:
    rows = planmap.plan_map(named_regions(plan, alike(blocks)), alike(blocks))
    return [[cell.word for cell in row.cells] for row in rows]


@pytest.mark.parametrize(
    ("plan", "first", "second"),
    [
        ("none", ["kept"] * 4, ["kept"] * 4),
        ("every-block", ["recomputed"] * 4, ["recomputed"] * 4),
        ("blocks:1", ["kept"] * 4, ["recomputed"] * 4),
        ("norms", ["recomputed", "kept"] * 2, ["recomputed", "kept"] * 2),
        ("nested", ["recomputed", "recomputed twice"] * 2, ["recomputed", "recomputed twice"] * 2),
        ("keep-attention", ["selective"] * 4, ["selective"] * 4),
        ("megatron-core-attn", *[["kept", "selective", "kept", "kept"]] * 2),
    ],
)
def test_what_a_plan_does_to_each_part(plan: str, first: list[str], second: list[str]) -> None:
    assert _words(plan) == [first, second]


def test_a_module_inside_a_part_is_recomputed_in_part() -> None:
    rows = planmap.plan_map((Region(modules=("blocks.0.mlp.down",)),), alike(1))
    assert [cell.state for cell in rows[0].cells] == ["kept", "kept", "kept", "partly"]


def test_block_10_is_not_taken_for_block_1() -> None:
    rows = planmap.plan_map((Region(modules=("blocks.1",)),), alike(11))
    assert [row.block for row in rows if row.cells[0].state == "recomputed"] == ["blocks.1"]


def test_blocks_that_are_one_are_bracketed() -> None:
    regions = (Region(modules=("blocks.1", "blocks.2", "blocks.3")),)
    rows = planmap.plan_map(regions, alike(5))
    assert [row.group for row in rows] == [None, "first", "middle", "last", None]
    assert planmap.drawn(rows).count("rs-bracket-") == 3
    assert planmap.summary(rows) == (
        "Of 20 parts in 5 blocks: 12 recomputed, 8 kept. "
        "Blocks joined by a bracket come back as one (1)."
    )


def test_kept_ops_are_named() -> None:
    regions = named_regions("torchtitan-selective", alike(1))
    cell = planmap.plan_map(regions, alike(1))[0].cells[1]
    assert planmap.summary(planmap.plan_map(regions, alike(1))) == (
        "Of 4 parts in 1 block: 4 recomputed but for every second of the matmuls and attention."
    )
    assert cell.sentence == (
        "attn: recomputed; its region keeps every second of the matmuls and attention"
    )
    assert planmap.op_words("aten.native_layer_norm.default:0,2") == "native layer norm 1 and 3"


def test_kept_matmuls_are_numbered_from_one_and_named_by_their_modules() -> None:
    gpt = anatomy_of(GptSettings(blocks=3))
    regions = (
        Region(modules=("blocks.0",), keep=("aten.mm.default:0,1,6", *ATTENTION)),
        Region(modules=("blocks.1.mlp",), keep=("aten.mm.default:2",)),
        Region(modules=("blocks.2.attn",), keep=("aten.mm.default:9",)),
    )
    assert planmap.summary(planmap.plan_map(regions, gpt)) == (
        "Of 12 parts in 3 blocks: 4 recomputed but for matmuls 1, 2 and 7 of 7 (query, key, mlp.down) "
        "and attention; 1 recomputed but for matmul 3 of 3 (mlp.down); 1 recomputed but for matmul 10; "
        "6 kept."
    )


def test_the_map_says_in_words_what_it_says_in_colour() -> None:
    drawn = planmap.drawn(planmap.plan_map(named_regions("nested", alike(1)), alike(1)))
    assert drawn.count("</span> recomputed twice") == 2
    assert 'title="attn: recomputed twice in backward: regions are nested"' in drawn


def test_the_tab_block_map(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store, studies.spec_of(plans=["every-block", "every-2nd-block"]))
    app = _open(open_page, study, "Block map")
    assert "Of 24 parts in 6 blocks: 24 recomputed." in text(app)
    app.selectbox(key="map plan").select("every-2nd-block").run()
    assert not app.exception
    assert "Of 24 parts in 6 blocks: 12 recomputed, 12 kept." in text(app)


# --- timeline -----------------------------------------------------------------------------------

LINE = Timeline(
    seconds=(0.0, 0.1, 0.2, 0.3),
    bytes=(100, 200, 400, 100),
    marks=((0.0, "zero_grad"), (0.05, "forward"), (0.1, "backward"), (0.25, "optimizer")),
)


def test_phases_follow_each_other_to_the_end() -> None:
    assert LINE.phases == [
        ("forward", 50, 100),
        ("backward", 100, 250),
        ("optimizer", 250, 300),
    ]
    assert LINE.model_copy(update={"marks": ()}).phases == []


def weighed(**kinds: tuple[int, ...]) -> tuple[Memory, Timeline]:
    """An update with this time line, 100 bytes of it state."""
    line = LINE.model_copy(update=kinds)
    return Memory(
        source="invented", saved_bytes=0, naive_saved_bytes=0, state_bytes=100, peak_samples=(300,),
        timeline=line,
    ), line  # fmt: skip


KINDS = {"kept": (0, 60, 40, 0), "back": (0, 0, 200, 0)}


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_the_timeline_has_both_updates_their_peaks_and_their_phases(colours) -> None:
    drawn = timelines.timeline_chart("nested", weighed(), weighed(**KINDS), colours)
    chart = json.loads(drawn.to_json())
    lines = [t for t in chart["data"] if t.get("mode") == "lines" and "stackgroup" not in t]
    assert [t["name"] for t in lines] == ["plain", "nested"]
    assert [t["line"]["dash"] for t in lines] == ["dot", "solid"]
    assert [t["text"] for t in chart["data"] if t.get("mode") == "markers+text"] == [
        ["peak 0.000400 MB"]
    ] * 2
    assert [t["text"] for t in chart["data"] if t["type"] == "bar"] == [
        ["forward", "backward", "optimizer"]
    ] * 2


def _areas(chart: go.Figure) -> dict[str, tuple[float, ...]]:
    return {t.name: t.y for t in chart.data if t.type == "scatter" and t.stackgroup}


def test_the_areas_of_the_timeline_add_up_to_it() -> None:
    pair = weighed(), weighed(**KINDS)
    stacked = _areas(timelines.timeline_chart("nested", *pair, LIGHT))
    assert {name: [round(y * 1e6) for y in ys] for name, ys in stacked.items()} == {
        "state": [100, 100, 100, 100],
        "kept for backward": [0, 60, 40, 0],
        "brought back": [0, 0, 200, 0],
        "passing": [0, 40, 60, 0],
    }
    assert list(_areas(timelines.timeline_chart("nested", *pair, LIGHT, stack_plain=True))) == [
        "state",
        "made by the update",
    ]


def test_each_kind_has_a_look_of_its_own_besides_its_colour() -> None:
    drawn = timelines.areas(*weighed(**KINDS), LIGHT)[1:]
    assert len({area.hatch for area in drawn}) == len(drawn)


def test_the_tab_timeline_says_where_the_peaks_sit(open_page: OpenPage, store: Store) -> None:
    app = _open(open_page, studies.filled(store), "Timeline")
    assert (
        "Plain peaks at 276.0 MB in backward of blocks.5, every-block at 165.6 MB in backward, blocks.5 "
        "recomputed: its activations came back."
    ) in text(app)
    assert "Measured here at T=256 B=4" in text(app)
    assert (
        "At its peak every-block holds 76.0 MB state, 22.4 MB kept for backward, 44.8 MB brought back, "
        "22.4 MB passing. State, which no plan changes: 19.0 MB parameters, 19.0 MB gradients, 37.9 MB "
        "optimizer, 0.100 MB buffers and inputs."
    ) in text(app)
    app.segmented_control(key="timeline areas of every-block").set_value(PLAIN).run()
    assert "At its peak plain holds 76.0 MB state, 50.0 MB kept for backward, 150.0 MB passing." in text(
        app
    )
    app.selectbox(key="timeline plan").select("every-2nd-block").run()
    assert "every-2nd-block at 220.8 MB" in text(app)
    app.session_state["section"] = "Block map"
    app.run()
    assert app.selectbox(key="map plan").value == "every-2nd-block"  # the choice goes along


def test_a_snapshot_that_was_kept_can_be_taken_to_pytorchs_viewer(
    open_page: OpenPage, store: Store
) -> None:
    on_a_cpu, on_a_gpu = studies.filled(store), studies.filled(store)
    with store._transaction() as db:
        db.execute("UPDATE cells SET payload = json_set(payload, '$.history', 'a name') "
                   "WHERE phase = 'memory' AND study = ?", (on_a_gpu,))  # fmt: skip
    (store.folder(on_a_gpu) / "history T=256 B=4 every-block.pickle").write_bytes(b"a pickle")

    def offered(study: str) -> list[str]:
        buttons = _open(open_page, study, "Timeline").get("download_button")
        return [one.proto.label for one in buttons if "snapshot" in one.proto.label]

    assert offered(on_a_gpu) == ["Memory snapshot of every-block"], "plain's is no longer there"
    assert offered(on_a_cpu) == []


# --- estimates ----------------------------------------------------------------------------------


def an_estimate(peak_mb: float) -> Estimate:
    """An estimate with this peak, half of it saved."""
    return Estimate(
        source="invented",
        saved_bytes=int(peak_mb * 5e5),
        naive_saved_bytes=0,
        parts=PeakParts(state=0, blocks=int(peak_mb * 1e6), outside=0, backward=0, optimizer=0),
        peak_at=PeakAt(phase="backward", module="blocks.5", replaying=False),
        timeline=Timeline(seconds=(0,), bytes=(0,), marks=()),
    )


class FakeEstimator:
    """Peaks of one MB for every unit of size, a quarter of that under a plan."""

    is_warm = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def ask(self, spec: StudySpec, shape: dict[str, int], plan: str) -> Estimate:
        size = shape.get("seq_len") if spec.workload.name == "gpt" else shape["batch"]
        assert size is not None
        self.asked.append((plan, size))
        return an_estimate(size * (1 if plan == "none" else 0.25))

    def advice(self, spec: StudySpec, shape: dict[str, int]) -> tuple[str, ...]:
        return ("Do not recompute here.",)

    def largest(
        self, spec: StudySpec, plan: str, field: str, budget_bytes: int
    ) -> tuple[int, Estimate] | None:
        if budget_bytes < 10**9:
            return None
        return budget_bytes // 1_000_000, an_estimate(budget_bytes / 1e6)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEstimator:
    made = FakeEstimator()
    monkeypatch.setattr(estimated, "estimator", lambda: made)
    return made


def test_longer_sequences_stand_beside_the_measured_ones(
    open_page: OpenPage, store: Store, fake: FakeEstimator
) -> None:
    app = _open(open_page, studies.filled(store), "Longer sequences")
    assert fake.asked == [("none", 8192), ("every-block", 8192), ("every-2nd-block", 8192)]
    table = app.dataframe[1].value
    assert table["Peak (MB)"].tolist() == [8192, 2048, 2048]
    assert table["Saved (MB)"].tolist() == [4096, 1024, 1024]
    assert table["Peak ratio"].tolist() == [1, 0.25, 0.25]
    assert set(table["Kind"]) == {"estimated"}
    said = text(app)
    assert "estimated at T=8192 B=4" in said
    assert "Do not recompute here." in said
    chart = json.loads(figures(app)[0])
    marks = [t for t in chart["data"] if t["mode"] == "markers"]
    hollow = [t for t in marks if t["marker"]["symbol"].endswith("-open")]
    assert [t["x"] for t in hollow] == [[8192]] * 3
    assert [t["x"] for t in marks if t not in hollow] == [[128, 256]] * 3
    assert all("estimated" in t["hovertemplate"] for t in hollow)
    app.select_slider(key="longer seq_len").set_value(65_536).run()
    assert not app.exception
    assert fake.asked[-1] == ("every-2nd-block", 65_536)


def test_fit_is_asked_by_a_button_and_forgotten_when_the_budget_changes(
    open_page: OpenPage, store: Store, fake: FakeEstimator
) -> None:
    app = _open(open_page, studies.filled(store), "Longer sequences")
    assert len(app.dataframe) == 2  # that of all candidates, and the estimates
    next(b for b in app.button if b.label == "Find the longest sequence").click().run()
    assert not app.exception
    table = app.dataframe[2].value
    assert table["Plan"].tolist() == ["plain", "every-block", "every-2nd-block"]
    assert set(table["Longest sequence (tokens)"]) == {"80,000"}
    assert set(table["Kind"]) == {"estimated"}
    assert app.number_input(key="fit GB").max == 1e5
    app.number_input(key="fit GB").set_value(0.5).run()
    assert len(app.dataframe) == 2  # that of all candidates, and the estimates
    next(b for b in app.button if b.label == "Find the longest sequence").click().run()
    assert set(app.dataframe[2].value["Longest sequence (tokens)"]) == {"none fits"}
    app.number_input(key="fit GB").set_value(1048.576).run()
    next(b for b in app.button if b.label == "Find the longest sequence").click().run()
    says = "at least 1,048,576 (the search stops there)"
    assert set(app.dataframe[2].value["Longest sequence (tokens)"]) == {says}


def test_photos_have_larger_batches(open_page: OpenPage, store: Store, fake: FakeEstimator) -> None:
    spec = studies.spec_of(workload="receipts", shapes=[{"batch": 8}, {"batch": 16}], plans=["nested"])
    app = _open(open_page, studies.filled(store, spec), "Larger batches")
    assert fake.asked == [("none", 256), ("nested", 256)]
    assert "estimated at 192x96 B=256" in text(app)
    assert "Find the largest batch" in text(app)


def test_an_estimator_that_gives_no_answer_is_one_line(
    open_page: OpenPage, store: Store, fake: FakeEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*asked: object) -> Estimate:
        raise InputError("the estimator gave no answer within 120 s")

    monkeypatch.setattr(fake, "ask", ask)
    app = _open(open_page, studies.filled(store), "Longer sequences")
    assert [e.value for e in app.error] == ["the estimator gave no answer within 120 s"]


ELSEWHERE = [
    (
        {"ranks": {"count": 2}},
        "Estimates are of one process, and this study trains over 2 ranks (ddp) that share the batch: "
        "none is made of it.",
        "of a study over ranks the named plans are measured.",
    ),
    (
        {"compile": {"backend": "aot_eager"}, "plans": ["every-block", "memory-budget-50"]},
        "Estimates are not made for compiled training.",
        "of a compiled study the named plans are measured.",
    ),
]


@pytest.mark.parametrize(("asked", "why", "search"), ELSEWHERE, ids=["ranks", "compiled"])
def test_of_training_that_estimates_do_not_know_the_measured_points_are_shown(
    open_page: OpenPage, store: Store, fake: FakeEstimator, asked: dict, why: str, search: str
) -> None:
    app = _open(open_page, studies.filled(store, studies.spec_of(**asked)), "Longer sequences")
    assert not fake.asked
    assert not app.error
    said = text(app)
    assert why in said
    assert search in said
    assert not {"Find the best plans", "Find the longest sequence"} & {b.label for b in app.button}
    chart = json.loads(figures(app)[0])
    assert chart["layout"]["xaxis"]["tickvals"] == [128, 256]
    marks = [t for t in chart["data"] if t["mode"] == "markers"]
    assert [(t["x"], t["marker"]["symbol"]) for t in marks] == [
        ([128, 256], symbol) for symbol in ("square", "circle", "diamond")
    ]


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({}, "in turn, in one process. Rings"),
        ({"ranks": {"count": 2}}, "in turn, 2 ranks in step, each time that of the slowest rank. Rings"),
    ],
)
def test_step_time_says_of_whom_the_times_are(
    open_page: OpenPage, store: Store, asked: dict, where: str
) -> None:
    app = _open(open_page, studies.filled(store, studies.spec_of(**asked)), "Step time")
    assert f"plain and recomputed updates {where}" in text(app)


def test_curves_beyond_what_was_measured_are_offered_where_they_can_be_estimated(
    open_page: OpenPage, store: Store
) -> None:
    offered = []
    for asked in ({}, *(asked for asked, _, _ in ELSEWHERE)):
        app = _open(open_page, studies.filled(store, studies.spec_of(**asked)), "Curves")
        offered.append("Estimate beyond what was measured" in {one.label for one in app.toggle})
    assert offered == [True, False, False]


def test_measured_peaks_are_of_the_same_batch(store: Store) -> None:
    shapes = [{"seq_len": 128}, {"seq_len": 256}, {"seq_len": 256, "batch": 8}]
    study = studies.filled(store, studies.spec_of(shapes=shapes))
    result = assemble(store.study(study), store.cells(study))
    found = beyond.measured_peaks(result, "seq_len", {"seq_len": 256, "batch": 4})
    assert found["none"] == {128: 276.0, 256: 276.0}
    assert list(found) == ["none", "every-block", "every-2nd-block"]


def test_the_sizes_end_at_65_536() -> None:
    assert beyond.stops("seq_len")[:4] == [256, 384, 512, 768]
    assert beyond.stops("seq_len")[-1] == beyond.stops("batch")[-1] == 65_536
    assert beyond.stops("batch")[:3] == [1, 2, 4]


@pytest.fixture
def real() -> Iterator[None]:
    estimated.estimator.cache_clear()
    yield
    estimated.estimator().close()
    estimated.estimator.cache_clear()


def test_with_the_real_estimator(open_page: OpenPage, store: Store, real: None) -> None:
    spec = studies.spec_of(workload=TINY, shapes=[{"seq_len": 32}], plans=["every-block"])
    app = open_page("tradeoff", study=studies.filled(store, spec))
    app.default_timeout = 120
    app.session_state["section"] = "Longer sequences"
    app.run()
    assert not app.exception, [e.value for e in app.exception]
    plain, every = app.dataframe[1].value["Saved (MB)"].tolist()
    assert 0 < every < plain / 5
    assert "estimated at T=8192 B=1" in text(app)


def test_tables_say_megabytes_to_three_digits_and_keep_the_numbers() -> None:
    frame = pd.DataFrame(
        {"Plan": ["plain"] * 3, "Peak (MB)": [0.5124, 1234.5, None], "Pairs": [3, 5, 7]}
    )
    said = tables.said_in_mb(frame)
    assert "0.512" in said.to_html()
    assert "1,234.5" in said.to_html()
    assert said.data["Peak (MB)"].tolist()[:2] == [0.5124, 1234.5]
