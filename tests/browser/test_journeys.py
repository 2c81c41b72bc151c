"""What people do with the dashboard, done in a real Chromium against the real server."""

import http.client
import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Page, expect

from recompute_core.studies.locks import Lock
from recompute_core.studies.store import Store
from tests.pages import studies

from .chrome import Watched, server, settle

pytestmark = pytest.mark.browser
Visitor = Callable[..., Watched]
LOOKS = pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 800)])
TINY = "gpt_blocks=2&gpt_width=32&gpt_heads=2&gpt_lengths=32&gpt_batches=1&plans=every-block"
STUDY = re.compile(r"study=([0-9a-f-]+)")
_RUN_MS = 420_000  # a study takes a minute; a machine that tests other things, several


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Store, str]]:
    """A server whose store holds one finished study of a tiny model."""
    home = tmp_path_factory.mktemp("home")
    store = Store(home)
    tiny = {"name": "gpt", "blocks": 2, "width": 32, "heads": 2, "batch": 1}
    spec = studies.spec_of(
        workload=tiny, shapes=[{"seq_len": 32}], plans=["every-block"],
        timing={"min_pairs": 3, "max_pairs": 3, "budget_s": 0},
    )  # fmt: skip
    study = studies.filled(store, spec)
    with server(home) as address:
        yield address, store, study
    store.close()


def _study_in(page: Page) -> str:
    page.wait_for_url(STUDY)
    found = STUDY.search(page.url)
    assert found is not None
    return found[1]


def _verdict(page: Page, timeout_ms: int = _RUN_MS) -> str:
    line = page.locator(".rs-verdict p")
    expect(line).to_be_visible(timeout=timeout_ms)
    return line.inner_text()


def _is_dark(page: Page) -> bool:
    colour = page.evaluate("() => getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) < 200


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[tuple[str, Store]]:
    """A server on which nothing has been measured yet."""
    with server(tmp_path) as address:
        store = Store(tmp_path)
        yield address, store
        store.close()


def test_from_an_empty_home_to_a_measured_verdict(empty: tuple[str, Store], visitor: Visitor) -> None:
    address, store = empty
    page = visitor().page()
    page.goto(address)
    settle(page)
    expect(page.get_by_text("Nothing has been measured on this machine yet.")).to_be_visible()
    page.get_by_role("button", name="Run the quick study").click()
    study = _study_in(page)
    expect(page.get_by_role("heading", name="Live")).to_be_visible(timeout=20_000)
    # The first finding is on the page long before the end.
    expect(page.locator(".rs-finding")).to_contain_text("plain at T=128", timeout=90_000)
    said = _verdict(page)
    page.get_by_role("link", name="Open the trade-off").click()
    expect(page.get_by_role("heading", name="Trade-off")).to_be_visible(timeout=20_000)
    assert _verdict(page, 20_000) == said
    expect(page.get_by_role("option")).to_have_count(4)
    expect(page.locator(".spot").first).to_be_visible()
    row = store.study(study)
    assert (row.status, row.sentence) == ("done", said)
    with urllib.request.urlopen(f"{address}/api/healthz", timeout=10) as answer:
        assert json.load(answer)["torch_loaded"] is False


@LOOKS
def test_tune_a_threshold_then_declare_it(
    served: tuple[str, Store, str], visitor: Visitor, theme: str, width: int
) -> None:
    address, store, study = served
    page = visitor(theme, width).page()
    page.goto(f"{address}/tradeoff?study={study}")
    settle(page)
    assert _is_dark(page) is (theme == "dark")
    assert _verdict(page, 20_000).startswith("Adopt every-block")
    expect(page.get_by_text("What-if: thresholds differ")).to_have_count(0)
    slider = page.get_by_role("slider").first
    slider.focus()
    for _ in range(30):
        slider.press("ArrowLeft")
    expect(page.get_by_text("What-if: thresholds differ from the declared ones")).to_be_visible()
    expect(page.locator(".rs-verdict p")).to_contain_text("Keep the original")
    page.wait_for_url(re.compile("peak=0.52"))
    assert store.study(study).verdict == "adopt"

    # The what-if itself can be pasted elsewhere.
    other = visitor(theme, width).page()
    other.goto(page.url)
    settle(other)
    expect(other.get_by_text("What-if: thresholds differ from the declared ones")).to_be_visible()

    page.get_by_role("button", name="Declare and re-run").click()
    page.wait_for_url(re.compile(r"/live\?study="))
    again = _study_in(page)
    assert again != study
    assert _verdict(page)
    row = store.study(again)
    assert row.status == "done"
    assert row.spec.thresholds.peak_ratio == 0.52


def test_a_link_shows_the_same_study_in_another_browser(
    served: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, store, study = served
    page = visitor("dark", 800).page()
    for where in ("", "live", "tradeoff", "studies", "set-up"):
        page.goto(f"{address}/{where}?study={study}")
        settle(page)
        assert _study_in(page) == study
        if where in ("live", "tradeoff"):
            assert _verdict(page, 20_000) == store.study(study).sentence
        # A browser that refuses the clipboard: the address is shown instead.
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(); }")
        page.get_by_role("button", name="Copy link").click()
        shown = page.get_by_label("Address of this page")
        expect(shown).to_be_visible()
        assert f"study={study}" in shown.input_value()


def test_the_old_address_of_trade_off_leads_there(
    served: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, _, study = served
    page = visitor().page()
    page.goto(f"{address}/result?study={study}&peak=0.52")
    page.wait_for_url(re.compile(rf"/tradeoff\?.*study={study}"))
    settle(page)
    expect(page.get_by_role("heading", name="Trade-off")).to_be_visible()
    expect(page.get_by_text("What-if: thresholds differ from the declared ones")).to_be_visible()


def test_longer_sequences_are_estimated_and_the_server_stays_free_of_torch(
    served: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, _, study = served
    page = visitor().page()
    page.goto(f"{address}/tradeoff?study={study}")
    settle(page)
    page.get_by_role("tab", name="Longer sequences").click()
    expect(page.get_by_text("estimated at T=8192 B=1")).to_be_visible(timeout=90_000)
    page.get_by_role("button", name="Find the longest sequence").click()
    expect(page.get_by_text("Estimated: the whole peak")).to_be_visible(timeout=90_000)
    with urllib.request.urlopen(f"{address}/api/healthz", timeout=10) as answer:
        assert json.load(answer)["torch_loaded"] is False


def test_the_best_plans_are_found_and_one_is_looked_at(
    served: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, _, study = served
    page = visitor().page()
    page.goto(f"{address}/tradeoff?study={study}")
    settle(page)
    rings = page.locator(".spot.ring")
    expect(rings).to_have_count(0)
    page.get_by_role("button", name="Find the best plans").click()
    expect(page.get_by_text("Searching for plans at T=32 B=1")).to_be_visible(timeout=20_000)
    expect(page.get_by_role("button", name="Search again")).to_be_visible(timeout=120_000)
    settle(page)
    assert rings.count() >= 2
    expect(page.get_by_text("Device: idle")).to_be_visible(timeout=20_000)
    settle(page)  # the whole page is drawn once more after the device is idle, which shuts an open list
    picked = page.get_by_role("combobox", name="Plan to measure")
    picked.scroll_into_view_if_needed()  # a list that is open shuts when the page moves under it
    page.wait_for_timeout(500)
    picked.press("ArrowDown")
    last = page.locator("[role=option]:not(g)").last  # not the points of the picture
    name = last.inner_text(timeout=10_000)
    last.click()
    expect(picked).to_have_value(name)
    plan_map = page.get_by_role("region", name="What the plan does where")
    expect(plan_map.locator("tbody tr")).to_have_count(2)
    expect(plan_map).to_contain_text("recomputed")
    expect(page.get_by_text("parts in 2 blocks:")).to_be_visible()
    with urllib.request.urlopen(f"{address}/api/healthz", timeout=10) as answer:
        assert json.load(answer)["torch_loaded"] is False


def test_a_search_of_another_tab_is_followed_to_its_end(
    served: tuple[str, Store, str], visitor: Visitor
) -> None:
    address, store, _ = served
    study = studies.filled(store)
    page = visitor().page()
    page.goto(f"{address}/tradeoff?study={study}")
    settle(page)
    lock = Lock(store.folder(study) / "plans T=128 B=4.lock")
    assert lock.acquire()
    # A pill redraws its fragment alone, which starts no ticker of its own.
    page.get_by_role("button", name="T=128", exact=True).click()
    expect(page.get_by_text("Searching: timing ops on this machine")).to_be_visible(timeout=20_000)
    page.wait_for_url(re.compile(r"shape=T%3D128\+B%3D4"))
    lock.release()
    expect(page.get_by_role("button", name="Find the best plans")).to_be_visible(timeout=20_000)
    # What is started elsewhere shows without a click, and the address shows the shape again.
    assert lock.acquire()
    expect(page.get_by_text("Searching: timing ops on this machine")).to_be_visible(timeout=20_000)
    other = visitor().page()
    other.goto(page.url)
    settle(other)
    expect(other.get_by_text("Searching: timing ops on this machine")).to_be_visible(timeout=20_000)
    lock.release()
    expect(other.get_by_role("button", name="Find the best plans")).to_be_visible(timeout=20_000)


def test_an_unknown_study_is_said_in_one_line(visitor: Visitor, served: tuple[str, Store, str]) -> None:
    page = visitor().page()
    page.goto(f"{served[0]}/tradeoff?study=20990101-000000-ffff")
    settle_error = page.get_by_text("There is no study “20990101-000000-ffff” here.")
    expect(settle_error).to_be_visible(timeout=20_000)


def test_no_link_is_made_of_what_stands_in_an_address(
    visitor: Visitor, served: tuple[str, Store, str]
) -> None:
    page = visitor().page()
    for foreign in ("https://evil.com", "me@evil.com", "www.evil.com", "&#x202e;moc.live", ":smile:"):
        page.goto(f"{served[0]}/tradeoff?study={quote(foreign)}")
        said = page.get_by_test_id("stAlert").get_by_test_id("stMarkdownContainer")
        expect(said).to_contain_text("There is no study")
        assert foreign in said.inner_text().replace("\u2060", "")
        expect(said.locator("a")).to_have_count(0)


def test_a_closed_tab_changes_nothing(served: tuple[str, Store, str], visitor: Visitor) -> None:
    address, store, _ = served
    watched = visitor("dark", 800)
    page = watched.page()
    page.goto(f"{address}/set-up?{TINY}")
    settle(page)
    page.get_by_role("button", name="Declare thresholds and launch").click()
    page.wait_for_url(re.compile(r"/live\?study="))
    study = _study_in(page)
    expect(page.get_by_role("heading", name="Live")).to_be_visible(timeout=20_000)
    link = page.url
    page.close()
    assert not store.study(study).ended
    back = watched.page()
    back.goto(link)
    settle(back)
    assert _verdict(back) == store.study(study).sentence
    assert store.study(study).status == "done"


def test_a_bad_value_keeps_what_was_chosen(served: tuple[str, Store, str], visitor: Visitor) -> None:
    page = visitor().page()
    page.goto(f"{served[0]}/set-up?gpt_lengths=64&gpt_lengths=abc&curve=true")
    settle(page)
    expect(page.get_by_text("Sequence lengths: 'abc' is not a whole number")).to_be_visible()
    expect(page.get_by_text("64", exact=True).first).to_be_visible()
    page.reload()
    settle(page)
    expect(page.get_by_text("Sequence lengths: 'abc' is not a whole number")).to_be_visible()


def test_every_answer_carries_the_security_headers(served: tuple[str, Store, str]) -> None:
    for path in ("/", "/api/healthz", "/tradeoff", "/_stcore/health"):
        with urllib.request.urlopen(served[0] + path, timeout=10) as answer:
            policy = answer.headers["content-security-policy"]
            assert "unsafe-eval" not in policy
            assert "default-src 'self'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"


def test_it_answers_to_its_own_names_alone(served: tuple[str, Store, str]) -> None:
    """So that no page of another site can have its name point here."""
    address = urlsplit(served[0])
    for host, status in ((address.netloc, 200), ("localhost", 200), ("evil.example", 400), ("", 400)):
        for path in ("/", "/api/healthz", "/_stcore/host-config"):
            asked = http.client.HTTPConnection(address.netloc, timeout=10)
            asked.request("GET", path, headers={"Host": host})
            answer = asked.getresponse()
            assert answer.status == status, (host, path)
            assert answer.headers["x-content-type-options"] == "nosniff"
            asked.close()
