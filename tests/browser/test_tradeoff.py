"""Gates that are dragged, and one selection, in a real Chromium against the real server."""

import re
from collections.abc import Callable, Iterator
from itertools import product

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pages._parts import plotted
from pages._parts.data import Snapshot
from pages._parts.gate_address import ends_of
from pages._parts.palette import VERDICT_MARK
from pages._parts.whatif import rejudge
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store
from tests.pages import studies

from .chrome import Watched, server, settle

pytestmark = pytest.mark.browser
Visitor = Callable[..., Watched]
SHAPE = "T=128 B=4"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Store, str]]:
    """A server whose store holds one finished study: two plans at two shapes, wide intervals."""
    home = tmp_path_factory.mktemp("home")
    store = Store(home)
    study = studies.filled(store, ratios=studies.WIDE)
    with server(home) as address:
        yield address, store, study
    store.close()


def _open(page: Page, address: str) -> None:
    page.goto(address)
    _drawn(page)


def _drawn(page: Page) -> None:
    """The picture comes with scripts of its own, which a busy machine is slow to fetch."""
    page.locator(".spot[data-id]").first.wait_for(timeout=90_000)
    settle(page)


def _peak_at(page: Page) -> str:
    return str(page.get_by_role("slider", name="Peak memory, at most").get_attribute("aria-valuetext"))


def _drag(page: Page, down_px: int) -> None:
    """Take the peak's line in the middle and pull it, in steps as a hand does."""
    box = page.locator(".handle.peak .catch").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 9):
        page.mouse.move(x, y + down_px * step / 8)


def test_a_gate_is_dragged_by_mouse_and_keys_and_all_else_follows(
    tuned: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, _, study = tuned
    page = visitor().page()
    _open(page, f"{address}/tradeoff?study={study}")
    point = page.locator(f'.spot[data-id="every-2nd-block {SHAPE}"]')
    expect(point).to_have_attribute("data-outcome", "pass")
    assert _peak_at(page) == "0.82 of plain, declared"

    _drag(page, 90)
    # The hand still holds the line: points follow in the browser, everything else a moment later.
    expect(point).to_have_attribute("data-outcome", "fail")
    expect(page.get_by_text("What-if: thresholds differ from the declared ones")).to_be_visible()
    expect(page.locator(".declared text").nth(0)).to_have_text("declared 0.82")
    held = _peak_at(page)
    assert held.endswith("of plain, what-if; declared 0.82")
    page.wait_for_timeout(500)
    assert _peak_at(page) == held  # no answer has moved it
    page.mouse.up()
    figure = held.split()[0]
    page.wait_for_url(re.compile(f"peak={figure.rstrip('0')}"))
    slider = page.get_by_role("slider", name="Peak, at most")
    expect(slider).to_have_value(figure.rstrip("0"))

    handle = page.get_by_role("slider", name="Peak memory, at most")
    handle.focus()
    for key, value in (("Home", "0.05"), ("PageUp", "0.15"), ("Shift+ArrowUp", "0.25"),
                       ("ArrowUp", "0.26"), ("ArrowDown", "0.25")):  # fmt: skip
        page.keyboard.press(key)
        assert _peak_at(page).startswith(value)
    page.wait_for_url(re.compile("peak=0.25"))
    expect(page.locator(".rs-verdict p")).to_contain_text("Keep the original")

    page.reload()
    _drawn(page)
    assert _peak_at(page) == "0.25 of plain, what-if; declared 0.82"
    expect(page.get_by_role("button", name="Declare and re-run")).to_be_visible()
    page.get_by_role("button", name="Reset").click()
    expect(handle).to_have_attribute("aria-valuetext", "0.82 of plain, declared")


def test_one_selection_in_picture_table_and_address(
    tuned: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, _, study = tuned
    page = visitor("dark", 800).page()
    _open(page, f"{address}/tradeoff?study={study}")
    first = page.locator(f'.spot[data-id="every-block {SHAPE}"]')
    second = page.locator(f'.spot[data-id="every-2nd-block {SHAPE}"]')
    second.focus()
    expect(page.locator(".tip")).to_contain_text("7 pairs")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"pick=every-2nd-block"))
    first.focus()
    page.keyboard.press("Shift+Enter")
    expect(page.get_by_text("2 candidates picked")).to_be_visible()
    expect(page.get_by_role("option", selected=True)).to_have_count(2)
    page.wait_for_url(re.compile(r"pick=every-2nd-block.*pick=every-block"))
    other = visitor().page()
    _open(other, page.url)
    expect(other.get_by_role("option", selected=True)).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.get_by_text("candidates picked")).to_have_count(0)
    expect(page.get_by_role("option", selected=True)).to_have_count(0)
    page.wait_for_url(lambda url: "pick" not in url)


def test_a_finger_pulls_a_line_and_scrolls_the_page_and_filters_follow(
    tuned: tuple[str, Store, str], chromium: Browser
) -> None:
    address, _, study = tuned
    view = {"width": 480, "height": 900}
    watched = Watched(chromium.new_context(has_touch=True, is_mobile=True, viewport=view))
    page = watched.page()
    _open(page, f"{address}/tradeoff?study={study}&verdict=adopt")
    points = page.get_by_role("option")
    expect(points).to_have_count(2)
    expect(page.locator(".out .spot")).to_have_count(2)
    expect(page.get_by_text("The filters leave 2 of 4 candidates")).to_be_visible()
    main = page.get_by_test_id("stMain")
    handle = page.locator(".handle.peak .catch")
    handle.scroll_into_view_if_needed()

    before = main.evaluate("main => main.scrollTop")
    _swipe(watched, page, page.locator(".handle.update .catch"), 0, -90)
    page.wait_for_function(
        "top => document.querySelector('[data-testid=stMain]').scrollTop > top", arg=before
    )
    _comes_to_rest(page, main)  # a finger that touches a page still moving only stops it
    assert _peak_at(page) == "0.82 of plain, declared"
    expect(page.locator(".handle.update")).to_have_attribute("aria-valuetext", "1.35 of plain, declared")

    _swipe(watched, page, handle, 0, 100)
    expect(page.locator(".handle.peak")).to_have_attribute("aria-valuetext", re.compile("what-if"))
    page.wait_for_url(re.compile("peak="))
    kept = points.count()
    assert kept < 2  # those that the line has passed fade as it moves
    expect(page.get_by_text(re.compile(f"The filters leave {kept or 'none'} of 4"))).to_be_visible()
    page.get_by_role("button", name="Reset").tap()
    expect(points).to_have_count(2)
    points.first.locator(".halo").tap(force=True)
    page.wait_for_url(re.compile("pick=every-2nd-block"))
    watched.context.close()
    assert watched.problems == []


def _comes_to_rest(page: Page, main: Locator) -> None:
    top = None
    while (now := main.evaluate("main => main.scrollTop")) != top:
        top = now
        page.wait_for_timeout(150)


def _swipe(watched: Watched, page: Page, line: Locator, right_px: int, down_px: int) -> None:
    """What a finger does that is set down on a line, moved, and taken away."""
    box = line.bounding_box()
    assert box is not None
    x, y = box["x"] + min(box["width"] / 2, 80), box["y"] + min(box["height"] / 2, 160)
    hand = watched.context.new_cdp_session(page)
    for step in range(13):
        at = {"x": x + right_px * step / 12, "y": y + down_px * step / 12}
        kind = "touchMove" if step else "touchStart"
        hand.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [at]})
        page.wait_for_timeout(16)
    hand.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.parametrize(("larger", "highest"), [(36, "9,936 MB"), (450, "124.2 GB")])
def test_large_peaks_stand_clear_of_the_name_of_their_axis(
    tuned: tuple[str, Store, str], visitor: Visitor, larger: int, highest: str
) -> None:
    address, store, _ = tuned
    study = studies.filled(store, studies.spec_of(shapes=[{"seq_len": 128}]), larger=larger)
    page = visitor().page()
    _open(page, f"{address}/tradeoff?study={study}")
    title = page.locator(".grid .up").bounding_box()
    ticks = page.locator(".grid .soft").filter(has_text=re.compile("MB|GB"))
    expect(ticks.first).to_be_visible()
    assert highest in ticks.all_text_contents()
    boxes = [tick.bounding_box() for tick in ticks.all()]
    assert title is not None and len(boxes) >= 4
    assert all(box and box["x"] >= title["x"] + title["width"] + 2 for box in boxes)


def test_a_table_that_is_cut_off_shows_that_it_scrolls(
    tuned: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, _, study = tuned
    page = visitor().page()
    _open(page, f"{address}/tradeoff?study={study}")
    table = page.locator(".stDataFrame .dvn-scroller").first
    assert table.evaluate("table => table.scrollWidth > table.clientWidth")
    bar = table.evaluate("table => getComputedStyle(table).scrollbarColor")
    assert not bar.startswith("rgba(0, 0, 0, 0)")


def test_what_the_browser_decides_is_what_python_decides(
    tuned: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, store, study = tuned
    row, cells = store.study(study), store.cells(study)
    found = Snapshot(row, cells, [], assemble(row, cells))
    edges = [0.5, 0.6, 0.8, 0.82, 1.0]
    times = [1.0, 1.1, 1.2, 1.35, 1.52, 1.55, 2.0, *(e for one in _intervals(found) for e in one)]
    page = visitor().page()
    _open(page, f"{address}/tradeoff?study={study}")
    for gap in (1e-4, 1e-9):
        base = row.spec.thresholds.model_copy(update={"gradient_gap": gap})
        judged = [
            rejudge(found.result, base.model_copy(update={"peak_ratio": peak, "update_ratio": update}))
            for peak, update in product(edges, times)
        ]
        points = plotted.document(found, judged[0], plotted_shapes(found), ends_of(base))["points"]
        script = """async ([points, limits]) => {
            const { outcome } = await import(
                "/_stcore/bidi-components/recompute-studio.picture/outcome.js");
            return limits.map((limit) => points.map((point) => outcome(point, limit)));
        }"""
        limits = [
            {"peak": one.thresholds.peak_ratio, "update": one.thresholds.update_ratio} for one in judged
        ]
        said = page.evaluate(script, [points, limits])
        assert said == [[VERDICT_MARK[one.verdict] for one in result.judged] for result in judged]
        assert len({outcome for one in said for outcome in one}) == 3
    script = """async (ends) => {
        const { bar } = await import("/_stcore/bidi-components/recompute-studio.picture/drawing.js");
        return ends.map(([from, to]) => bar(from, to, -50, 50));
    }"""
    whole, beyond = page.evaluate(script, [[-20, 30], [-80, 90]])
    assert whole == "M-20 0L30 0M-20 -3L-20 3M30 -3L30 3", "a cap at each end"
    assert beyond == "M-50 0L50 0M-44 -4L-50 0L-44 4M44 -4L50 0L44 4", "arrows where the picture ends"


def plotted_shapes(found: Snapshot) -> list[str]:
    return list(dict.fromkeys(one.candidate.shape_key for one in found.result.judged))


def _intervals(found: Snapshot) -> list[tuple[float, float]]:
    timings = [one.candidate.timing for one in found.result.judged]
    return [timing.ratio_ci95 for timing in timings if timing is not None]
