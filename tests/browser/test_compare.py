"""Two studies chosen in the list and compared, and one of another machine dropped as a file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store
from tests.pages import studies

from .chrome import Watched, server, settle

pytestmark = pytest.mark.browser
_PATIENCE_MS = 20_000
_ROW_PX, _HEAD_PX = 36, 36


def _tick(page: Page, row: int) -> None:
    """The box at the left of a row: the list is drawn on a canvas."""
    grid = page.get_by_test_id("stDataFrame")
    grid.click(position={"x": 17, "y": _HEAD_PX + _ROW_PX * row + _ROW_PX / 2})


def test_two_studies_and_two_machines(tmp_path: Path, visitor: Callable[..., Watched]) -> None:
    store = Store(tmp_path)
    older = studies.filled(store)
    newer = studies.filled(store, ratios=[ratio + 0.25 for ratio in studies.NARROW])
    studies.filled(store, studies.spec_of(plans=["norms"]))
    raw = assemble(store.study(newer), store.cells(newer)).document()
    raw["environment"]["device_name"] = "Other processor"
    file = tmp_path / "other.json"
    file.write_text(json.dumps(raw))
    with server(tmp_path) as address:
        page = visitor().page()
        page.goto(f"{address}/studies")
        settle(page)
        page.get_by_placeholder("plan, shape").fill("every-2nd-block")
        page.keyboard.press("Enter")
        expect(page.get_by_text("2 of 3 studies, newest first.")).to_be_visible(timeout=_PATIENCE_MS)
        assert "q=every-2nd-block" in page.url
        settle(page)
        _tick(page, 0)
        expect(page.get_by_role("button", name="Open the study")).to_be_visible(timeout=_PATIENCE_MS)
        _tick(page, 1)
        page.get_by_role("button", name="Compare the two").click()
        rose = page.get_by_text("rose from 1.20 to 1.45")
        expect(rose).to_be_visible(timeout=_PATIENCE_MS)
        assert f"a={older}" in page.url
        assert f"b={newer}" in page.url
        page.get_by_role("button", name="Swap").click()
        expect(page.get_by_text("fell from 1.45 to 1.20")).to_be_visible(timeout=_PATIENCE_MS)
        page.reload()
        settle(page)
        expect(page.get_by_text("fell from 1.45 to 1.20")).to_be_visible(timeout=_PATIENCE_MS)

        page.goto(f"{address}/compare?a={older}&b=file")
        settle(page)
        page.set_input_files("input[type=file]", file)
        expect(rose).to_be_visible(timeout=_PATIENCE_MS)
        expect(page.get_by_text("Not the same processor")).to_be_visible(timeout=_PATIENCE_MS)
    store.close()
