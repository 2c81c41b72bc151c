"""The demo walked by keyboard in a real Chromium, in both themes and widths."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from pages._parts.demo_words import STEPS
from recompute_core.studies.store import Store
from tests.pages import studies

from .chrome import Watched, server, settle

pytestmark = pytest.mark.browser
Visitor = Callable[..., Watched]
_SLOW_MS = 30_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server whose store holds one finished study with a plan in between."""
    home = tmp_path_factory.mktemp("home")
    store = Store(home)
    spec = studies.spec_of(shapes=[{"seq_len": 256}])
    study = studies.filled(store, spec, peak_ratio=0.4)
    with server(home) as address:
        yield address, study
    store.close()


def _at(page: Page, step: int) -> None:
    expect(page.get_by_role("heading", name=STEPS[step - 1], exact=True)).to_be_visible(timeout=_SLOW_MS)
    page.wait_for_url(re.compile(rf"step={step}(&|$)"))
    marked = page.locator(".st-key-demo-names [data-testid=stBaseButton-secondary]")
    expect(marked).to_have_text(re.compile(f"{step}.{STEPS[step - 1]}"), timeout=_SLOW_MS)
    expect(page.locator(".rs-demo-said p")).to_be_visible(timeout=_SLOW_MS)


def _fits(page: Page) -> bool:
    script = "() => document.documentElement.scrollWidth <= window.innerWidth"
    return bool(page.evaluate(script))


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 800)])
def test_all_five_steps_by_keyboard(
    served: tuple[str, str], visitor: Visitor, theme: str, width: int
) -> None:
    address, study = served
    page = visitor(theme, width).page()
    page.goto(f"{address}/demo?study={study}&step=1")
    settle(page)
    forward = page.get_by_role("button", name="Next")
    forward.focus()
    for step in range(1, 6):
        _at(page, step)
        assert _fits(page)
        if step < 5:
            drawn = ".picture .names text" if step == 4 else ".js-plotly-plot"
            expect(page.locator(drawn).first).to_be_visible(timeout=_SLOW_MS)
            expect(forward).to_be_focused()
            page.keyboard.press("Enter")
    expect(page.locator(".rs-demo-gates li")).to_have_count(3, timeout=_SLOW_MS)
    page.get_by_role("button", name="Back", exact=True).focus()
    page.keyboard.press("Enter")
    _at(page, 4)
    slider = page.get_by_role("slider", name="Peak, at most")
    slider.focus()
    for _ in range(90):  # a redraw that comes in between may take a press with it
        if slider.input_value() == "0.37":
            break
        slider.press("ArrowLeft")
    expect(page.locator(".rs-verdict p")).to_contain_text("Keep the original", timeout=_SLOW_MS)
    page.wait_for_url(re.compile("peak=0.37"))

    # A remote that sends Page Down walks the steps where nothing else is in the way.
    page.get_by_role("button", name="Presenter's view").click()
    expect(page.get_by_test_id("stSidebar")).to_be_hidden(timeout=_SLOW_MS)
    expect(page.locator(".st-key-demo-steps kbd")).to_have_count(2, timeout=_SLOW_MS)
    page.locator("h1").click()
    page.keyboard.press("PageDown")
    _at(page, 5)
    page.keyboard.press("PageUp")
    _at(page, 4)

    # The address opens the very same in another browser.
    other = visitor(theme, width).page()
    other.goto(page.url)
    settle(other)
    _at(other, 4)
    expect(other.locator(".rs-verdict p")).to_contain_text("Keep the original", timeout=_SLOW_MS)
    expect(other.get_by_test_id("stSidebar")).to_be_hidden(timeout=_SLOW_MS)


_FIGURES = """async (values) => {
    const { figure } = await import("/_stcore/bidi-components/recompute-studio.picture/scales.js");
    return values.map(figure);
}"""


def test_pairs_arrive_again(served: tuple[str, str], visitor: Visitor) -> None:
    address, study = served
    page = visitor().page()
    page.goto(f"{address}/demo?study={study}&step=3")
    settle(page)
    said = page.locator(".rs-demo-said p")
    expect(said).to_contain_text("in 7 pairs", timeout=_SLOW_MS)
    page.get_by_role("button", name="Replay the pairs").click()
    expect(said).to_contain_text(re.compile("After [1-6] pair"), timeout=_SLOW_MS)
    expect(said).to_contain_text("in 7 pairs", timeout=_SLOW_MS)
    expect(page.get_by_role("button", name="Replay the pairs")).to_be_visible()

    # A gate that is a whole number is written as one: 2 was 2000.
    page.get_by_role("button", name="Next").click()
    _at(page, 4)
    said = page.evaluate(_FIGURES, [2, 1, 0.82, 1.5, 1.3512, 10, 0.3])
    assert said == ["2.00", "1.00", "0.82", "1.50", "1.3512", "10.00", "0.30"]
