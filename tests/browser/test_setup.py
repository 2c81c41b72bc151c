"""Set up in a real Chromium: the block map under mouse and keys, and the form in its address."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from .chrome import Watched, server, settle

pytestmark = pytest.mark.browser
Visitor = Callable[..., Watched]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("home")
    with server(home) as found:
        yield found


@pytest.fixture(autouse=True)
def _patient() -> Iterator[None]:
    """A machine that tests other things answers late."""
    expect.set_options(timeout=30_000)
    yield
    expect.set_options(timeout=5_000)


def _params(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def _block(page: Page, number: int) -> Locator:
    return page.locator(f"button[data-block='{number}']")


def _by_hand(page: Page, numbers: list[int]) -> None:
    """The map, the list and the address say the same."""
    expect(page.locator("button[data-block][aria-pressed=true]")).to_have_count(len(numbers))
    for number in numbers:
        expect(_block(page, number)).to_have_attribute("aria-pressed", "true")
    held = f"By hand: {len(numbers)} of 24 blocks recomputed." if numbers else "By hand: none."
    expect(page.get_by_text(held)).to_be_visible()
    wanted = "" if not numbers else "".join(f"by_hand={number}&?" for number in numbers)
    page.wait_for_url(re.compile(wanted))
    assert _params(page).get("by_hand", []) == [str(number) for number in numbers]


def test_blocks_by_mouse_and_by_keys_and_the_form_by_its_address(address: str, visitor: Visitor) -> None:
    page = visitor().page()
    page.goto(f"{address}/set-up?gpt_blocks=24")
    settle(page)
    expect(page.locator("button[data-block]")).to_have_count(24)
    _block(page, 2).click()
    _by_hand(page, [2])
    _block(page, 5).click(modifiers=["Shift"])
    _by_hand(page, [2, 3, 4, 5])
    page.locator("tr[data-block='3'] .rs-weight").click()
    _by_hand(page, [2, 4, 5])
    # By keys alone: one stop of the Tab key, arrows from block to block.
    _block(page, 3).press("ArrowDown")
    expect(_block(page, 4)).to_be_focused()
    _block(page, 4).press("Space")
    _by_hand(page, [2, 5])
    expect(_block(page, 4)).to_be_focused()
    _block(page, 4).press("End")
    expect(_block(page, 23)).to_be_focused()
    _block(page, 23).press("Enter")
    _by_hand(page, [2, 5, 23])
    # The list is the other way to the same choice.
    page.get_by_role("button", name="every-2nd-block").click()
    field = page.get_by_role("spinbutton", name="Peak, at most")
    field.fill("0.7")
    field.press("Enter")
    page.wait_for_url(re.compile("max_peak=0.7"))
    settle(page)
    assert set(_params(page)) == {"gpt_blocks", "by_hand", "plans", "max_peak"}, "what differs, no more"
    field.fill("0.82")
    field.press("Enter")
    page.wait_for_url(re.compile("^(?!.*max_peak)"))
    settle(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    expect(page.get_by_label("Address of this page")).to_be_hidden()
    link = page.evaluate("() => navigator.clipboard.readText()")
    assert parse_qs(urlsplit(link).query) == _params(page)

    other = visitor("dark", 800).page()
    other.goto(link)
    settle(other)
    _by_hand(other, [2, 5, 23])
    head = page.locator(".rs-plan-head").all_inner_texts()
    expect(other.locator(".rs-plan-head")).to_have_text(head)
    other.reload()
    settle(other)
    _by_hand(other, [2, 5, 23])


def test_a_hostile_address_is_one_line_that_stays(address: str, visitor: Visitor) -> None:
    page = visitor().page()
    page.goto(f"{address}/set-up?gpt_width=1e400&workload=%3Cscript%3E&by_hand=7&rng=ignore")
    settle(page)
    line = page.get_by_text("Not taken from the address, the usual stands.")
    expect(line).to_be_visible()
    expect(line).to_contain_text("Width: “1e400” is not a whole number.")
    expect(line).to_contain_text("Blocks by hand: “7” is none of 0, 1, 2, 3, 4, 5.")
    page.wait_for_timeout(1500)
    expect(line).to_be_visible()
    assert set(_params(page)) == {"rng"}
