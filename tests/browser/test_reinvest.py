"""A reinvestment launched, watched, left and found again in a real Chromium against the real server."""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from recompute_core.reinvest.kept import run_named
from recompute_core.reinvest.result import result_of
from recompute_core.spec import parse_spec
from recompute_core.studies.admission import admit
from recompute_core.studies.driver import drive
from recompute_core.studies.store import Store
from tests.reinvest.photos import photos, receipts_study

from .chrome import Watched, server, settle

pytestmark = pytest.mark.browser
Visitor = Callable[..., Watched]
RUN = re.compile(r"run=([0-9a-f]{12})")
_RUN_MS = 420_000  # half a minute; on a machine that tests other things, several


@dataclass(frozen=True)
class Served:
    """A server with a measured study of a tiny encoder, whose plan passed."""

    address: str
    store: Store
    study: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    store = Store(home)
    own = photos(tmp_path_factory.mktemp("own") / "photos")
    study = store.create(admit(parse_spec(receipts_study(own)), home))
    drive(store, study)
    with server(home) as address:
        yield Served(address, store, study)
    store.close()


@pytest.fixture(autouse=True)
def _patient() -> Iterator[None]:
    """A machine that tests other things answers late."""
    expect.set_options(timeout=30_000)
    yield
    expect.set_options(timeout=5_000)


def _type(page: Page, label: str, value: str) -> None:
    field = page.get_by_role("spinbutton", name=label)
    field.fill(value)
    field.press("Enter")
    settle(page)


def _launch(page: Page, examples: int) -> str:
    _type(page, "Effective batch (examples an update)", "12")
    _type(page, "Examples in each run", str(examples))
    page.get_by_text("Microbatch, and another effective batch").click()
    _type(page, "Microbatch under the plan", "6")
    page.get_by_role("button", name="Declare thresholds and launch").click()
    page.wait_for_url(RUN)
    found = RUN.search(page.url)
    assert found is not None
    return found[1]


def test_from_the_trade_off_to_a_verdict(served: Served, visitor: Visitor) -> None:
    watched = visitor()
    page = watched.page()
    page.goto(f"{served.address}/tradeoff?study={served.study}")
    settle(page)
    page.get_by_role("link", name="See what the saved memory buys").click()
    expect(page.get_by_role("heading", name="Reinvest")).to_be_visible()
    settle(page)
    run = _launch(page, 96)
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
    expect(page.locator(".rs-step.rs-is-running")).to_have_count(1)

    # Closing the tab changes nothing, and the address finds it again.
    link = page.url
    page.close()
    page = watched.page()
    page.goto(link)
    settle(page)
    expect(page.locator(".rs-verdict p")).to_be_visible(timeout=_RUN_MS)
    result = result_of(run_named(served.store, served.study, run))
    assert (result.status, result.microbatch) == ("done", 6)
    expect(page.locator(".rs-verdict p")).to_have_text(result.sentence)
    expect(page.locator(".rs-spent tbody tr")).to_have_count(4)
    for title in ("1. How far it goes", "2. Same objective", "3. What it buys", "4. Rare defects"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(4)
    page.get_by_role("radio", name="torn", exact=True).click()
    settle(page)
    expect(page.locator(".js-plotly-plot")).to_have_count(4)
    with page.expect_download() as started:
        page.get_by_role("button", name="Download the result as JSON").click()
    document = json.loads(Path(started.value.path()).read_text())
    assert document == result.document()
    with urllib.request.urlopen(f"{served.address}/api/healthz", timeout=10) as answer:
        assert json.load(answer)["torch_loaded"] is False


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cancelled_and_gone_on_with(served: Served, visitor: Visitor, theme: str) -> None:
    page = visitor(theme, 420).page()
    page.goto(f"{served.address}/reinvest?study={served.study}&run=new")
    settle(page)
    run = _launch(page, 12_000 if theme == "light" else 12_012)
    kept = run_named(served.store, served.study, run)
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_text("Cancelled; what was finished is kept.")).to_be_visible(timeout=60_000)
    assert kept.cancel_asked() and not kept.lock.is_held()
    wide = page.evaluate(
        "() => { const m = document.querySelector('[data-testid=stMain]');"
        " return m.scrollWidth - m.clientWidth; }"
    )
    assert wide == 0, "nothing is wider than a narrow window"
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_enabled()
    assert kept.lock.is_held()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible(timeout=60_000)
