"""Studies: what is listed, what a search keeps, what is chosen, and what is damaged."""

import sqlite3

import pytest
from streamlit.testing.v1 import AppTest

from pages._parts.chrome import picker_label
from pages._parts.history import history_table, in_full, kept, workloads
from recompute_core.spec import parse_spec
from recompute_core.studies.salvage import leave_mark, were_set_aside
from recompute_core.studies.store import Store

from . import studies
from .conftest import OpenPage
from .reading import shown, text


def listed(app: AppTest) -> list[str]:
    return [] if not app.dataframe else list(app.dataframe[0].value["Study"])


def spoil(store: Store, study: str, change: str) -> None:
    database = sqlite3.connect(store.path)
    database.execute(f"UPDATE studies SET {change} WHERE id = ?", (study,))
    database.commit()
    database.close()


def choose(app: AppTest, *rows: int) -> AppTest:
    every = app.session_state._state._state.filtered_state
    key = next(key for key in every if key.startswith("history "))
    app.session_state[key] = {"selection": {"rows": list(rows), "columns": [], "cells": []}}
    app.run()
    assert not app.exception
    return app


def test_a_row_has_all_that_tells_studies_apart(store: Store) -> None:
    studies.filled(store)
    study = studies.filled(store, studies.spec_of(plans=["every-block"]), ratios=studies.WIDE)
    table = history_table(store.studies(), store.spans()).iloc[0]
    assert table["Verdict"] == "◆ undecided"
    assert (table["Workload"], table["Shapes"], table["Plans"]) == (
        "gpt",
        "T=128, 256 B=4",
        "every-block",
    )
    assert (table["Device"], table["Threads"], table["torch"]) == ("Test processor", 2, "2.13.0+cpu")
    assert (table["Took"], table["Study"]) == ("1 s", study)


def test_studies_that_train_in_other_ways_are_told_apart(open_page: OpenPage, store: Store) -> None:
    studies.filled(store)
    over = studies.filled(store, studies.spec_of(ranks={"count": 2}))
    compiled = studies.filled(store, studies.spec_of(compile={"backend": "inductor"}))
    rows = store.studies()
    table = history_table(rows, store.spans())
    assert sorted(table["Workload"]) == ["gpt", "gpt, ddp ×2", "gpt, inductor"]
    assert [row.id for row in kept(rows, "ddp", None, [])] == [over]
    assert [row.id for row in kept(rows, "inductor", "gpt", [])] == [compiled]
    labels = {row.id: picker_label(row) for row in rows}
    assert labels[over].startswith("gpt, ddp ×2, ")
    links = [link.proto.label for link in open_page("tradeoff", study=over).get("page_link")]
    assert shown(labels[compiled]) in map(shown, links)


def test_spans_reach_from_the_first_event_to_the_last(store: Store) -> None:
    study = studies.filled(store)
    database = sqlite3.connect(store.path)
    first, last = database.execute("SELECT MIN(seq), MAX(seq) FROM events").fetchone()
    database.execute("UPDATE events SET at = 1000 WHERE seq = ?", (first,))
    database.execute("UPDATE events SET at = 1075.5 WHERE seq = ?", (last,))
    database.commit()
    database.close()
    assert store.spans() == {study: 75.5}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("", None, []), [0, 1, 2]),
        (("norms", None, []), [1]),
        (("T=128 NORMS", None, []), [1]),
        (("norms every-block", None, []), []),
        (("2.13.0 processor", None, []), [0, 1, 2]),
        (("", "receipts", []), [2]),
        (("", None, ["undecided"]), [0]),
        (("", None, ["no verdict", "undecided"]), [0, 2]),
        (("", "gpt", ["adopt"]), [1]),
    ],
)
def test_a_search_keeps_what_fits(store: Store, asked: tuple, expected: list[int]) -> None:
    made = [
        studies.filled(store, studies.spec_of(plans=["every-block"]), ratios=studies.WIDE),
        studies.filled(store, studies.spec_of(plans=["norms"], thresholds={"peak_ratio": 1.0})),
        studies.Filled(store, parse_spec({"workload": "receipts"})).id,
    ]
    found = kept(sorted(store.studies(), key=lambda row: made.index(row.id)), *asked)
    assert [row.id for row in found] == [made[index] for index in expected]
    assert workloads(store.studies()) == ["gpt", "receipts"]


def test_what_is_searched_for_stands_in_the_address(open_page: OpenPage, store: Store) -> None:
    studies.filled(store)
    kept_one = studies.filled(store, studies.spec_of(plans=["attention"]))
    app = open_page("studies", q="attention", of="gpt")
    assert listed(app) == [kept_one]
    assert "1 of 2 studies, newest first." in text(app)
    app.text_input(key="q").set_value("nothing like it").run()
    assert "No study fits this search." in text(app)
    next(button for button in app.button if button.label == "Show all studies").click().run()
    assert len(listed(app)) == 2


def test_one_row_opens_and_two_are_compared(open_page: OpenPage, store: Store) -> None:
    older, newer = studies.filled(store), studies.filled(store)
    app = open_page("studies")
    assert "Choose one row to open it, or two to compare them." in text(app)
    choose(app, 0, 1)
    next(button for button in app.button if button.label == "Compare the two").click().run()
    assert not app.exception
    assert (app.query_params["a"], app.query_params["b"]) == (older, newer)
    app = choose(open_page("studies"), 0)
    next(button for button in app.button if button.label == "Open the study").click().run()
    assert not app.exception
    assert "Trade-off" in text(app)


def test_three_rows_are_too_many(open_page: OpenPage, store: Store) -> None:
    for _ in range(3):
        studies.filled(store)
    assert "3 rows are chosen" in text(choose(open_page("studies"), 0, 1, 2))


def test_a_selection_does_not_move_on_to_other_studies(open_page: OpenPage, store: Store) -> None:
    studies.filled(store)
    app = choose(open_page("studies"), 0)
    studies.filled(store, studies.spec_of(plans=["norms"]))
    app.run()
    assert not [button for button in app.button if button.label == "Open the study"]


@pytest.mark.parametrize(
    "damage",
    [
        "spec = '{'",
        "spec = '{\"newer\": 1}'",
        "environment = '[]'",
        "created_at = 'yesterday'",
        "declared_at = ''",
        "status = 'odd'",
        "verdict = 'odd'",
    ],
)
def test_a_damaged_study_breaks_no_page(open_page: OpenPage, store: Store, damage: str) -> None:
    whole, damaged = studies.filled(store), studies.filled(store)
    spoil(store, damaged, damage)
    app = open_page("studies", study=damaged)
    said = text(app)
    assert listed(app) == [whole]
    assert "1 study of this store cannot be read: damaged, or written by another version." in said
    assert f"The study “{damaged}” is damaged or was written by another version." in said
    assert "compare" in text(open_page("compare", a=damaged, b=whole)).lower()


def test_a_damaged_store_is_set_aside_and_said(open_page: OpenPage, store: Store) -> None:
    """While the server has it open: once the damage was met, the next look has a store again."""
    studies.filled(store)
    assert len(listed(open_page("studies"))) == 1
    store.close()
    sqlite3.connect(store.path).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    data = bytearray(store.path.read_bytes())
    data[len(data) // 4 : len(data) // 2] = b"\xa5" * (len(data) // 2 - len(data) // 4)
    store.path.write_bytes(data)
    leave_mark(store.path)
    said = text(open_page("studies"))
    (aside,) = were_set_aside(store.path)
    assert f"A store was found damaged and set aside as {aside.name}, in {store.home}." in said


def test_a_study_that_was_deleted_is_said(open_page: OpenPage, store: Store) -> None:
    whole = studies.filled(store)
    app = open_page("studies", study="gone")
    assert "There is no study “gone” here." in text(app)
    assert listed(app) == [whole]


def test_foreign_and_long_names_are_one_line(store: Store) -> None:
    name = "own:" + "n" * 300 + "\u202e<b>"
    row = store.study(store.create(parse_spec({"workload": {"name": name}, "plans": ["every-block"]})))
    cell = history_table([row], {}).iloc[0]["Workload"]
    assert cell == f"own:{'n' * 35}…"
    whole = dict(in_full(row))["Workload"]
    assert whole.isprintable()
    assert whole.endswith("?<b>")


def test_one_study_that_is_chosen_is_read_in_full(open_page: OpenPage, store: Store) -> None:
    studies.long_names(store)
    app = open_page("studies")
    assert app.dataframe[0].value["Workload"][0] == "hf:LlamaForCausalLMConfig (5 settings)"
    said = text(choose(app, 0))
    assert studies.LONG_MODEL in said
    assert studies.LONG_PLAN in said


def test_of_many_plans_the_first_are_named_and_the_others_counted(store: Store) -> None:
    plans = ["norms", "mlp", "attention", "nested", "every-block"]
    studies.Filled(store, studies.spec_of(plans=plans))
    assert history_table(store.studies(), {})["Plans"][0] == "norms, mlp, attention and 2 more"
