"""Load in short: no error, and a crowd's study goes on. How fast, `make test-load` measures and says."""

import sqlite3
from contextlib import closing

import pytest

from tests.faults.scene import scene
from tests.faults.servers import running_server

from .__main__ import P95_S, crowd_table, failures, late, pages_table
from .crowd import Found, crowd
from .piles import Shown, thousand_studies, week_of_events
from .visitor import PAGES, Visitor


@pytest.mark.timeout(300)
def test_eight_browsers_on_a_running_study_see_no_error() -> None:
    found = crowd(8, 15)
    assert found.troubles == ()
    assert found.redraws > 8
    assert found.finished > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fill", [thousand_studies, week_of_events])
def test_every_page_of_a_store_that_has_grown(fill) -> None:
    shown = fill()
    assert len(shown) == 10
    assert [one.troubles for one in shown] == [()] * 10


def test_an_error_box_and_a_page_without_its_heading_are_trouble() -> None:
    with scene() as here:
        with closing(sqlite3.connect(here.home / "recompute.sqlite3")) as foreign:
            foreign.execute("CREATE TABLE studies (other TEXT)")
        with running_server(here) as (address, _):
            for page in PAGES:
                with Visitor(address, page) as visitor:
                    visitor.open()
                assert any(each.startswith("error box: ") for each in visitor.troubles), page
                assert any("lacks its heading" in each for each in visitor.troubles), page


def test_what_is_missed_is_said() -> None:
    good = Found(20, 300.0, 5000, 0.1, 0.5, 2.0, (), 210.0, 200.0, 9)
    assert failures(good) == []
    bad = Found(20, 300.0, 5000, 0.1, P95_S + 0.01, 2.0, ("no page x", "no page x"), 221.0, 200.0, 0)
    assert failures(bad) == [
        "trouble: no page x",
        "95 of 100 redraws took up to 1.01 s, not 1",
        "221 MB, where a fresh server has 200 MB",
        "the study did not go on meanwhile",
    ]
    assert (
        crowd_table(bad).splitlines()[-1]
        == "| 20 | 300 | 5,000 | 100 | 1010 | 2000 | 2 | 221 | 200 | 0 |"
    )
    pages = [Shown("home", 1.6, 0.2, ()), Shown("live", 0.3, 0.6, ("an error",))]
    assert late(pages) == [
        "live: an error",
        "home: first shown after 1.60 s",
        "live: redrawn in 0.60 s",
    ]
    assert pages_table("a week", pages) == "| a week | 2 | 1600 (home) | 600 (live) | 1 |"
