"""axe-core finds no serious or critical violation on any page, in either theme, and no page scrolls
sideways in a narrow window."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, TimeoutError

from recompute_core.studies.store import Store
from tests.pages.studies import filled

from .axe import violations
from .chrome import Watched, server, settle
from .screenshots import PAGES

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server with a finished study, and its id."""
    home = tmp_path_factory.mktemp("home")
    store = Store(home)
    study = filled(store)
    store.close()
    with server(home) as address:
        yield address, study


_WIDTHS = """() => {
    const main = document.querySelector('[data-testid=stMain]');
    return [main.scrollWidth, main.clientWidth];
}"""
_FITS = f"() => {{ const [content, room] = ({_WIDTHS})(); return content <= room; }}"


def _wider_than_a_narrow_window(page: Page) -> str:
    """How much wider the page as it stands is than its place at 800 px; empty where it is not."""
    usual = page.viewport_size
    assert usual is not None
    page.set_viewport_size({"width": 800, "height": usual["height"]})
    page.wait_for_timeout(150)
    try:
        page.wait_for_function(_FITS, timeout=5_000)  # charts follow the window a little later
        return ""
    except TimeoutError:
        content, room = page.evaluate(_WIDTHS)
        return f"{content} px of content in {room} px"
    finally:
        page.set_viewport_size(usual)


def on_every_page(
    visitor: Callable[..., Watched], address: str, query: str, theme: str
) -> dict[str, list[str]]:
    """The violations of each page that has any."""
    watched = visitor(theme)
    page = watched.page()
    found: dict[str, list[str]] = {}
    for name, path in PAGES.items():
        page.goto(f"{address}/{path}{query}")
        settle(page)
        if problems := violations(page):
            found[name] = problems
        if beyond := _wider_than_a_narrow_window(page):
            found.setdefault(name, []).append(beyond)
    watched.context.close()
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_keeps_anybody_out(
    served: tuple[str, str], visitor: Callable[..., Watched], theme: str
) -> None:
    address, study = served
    assert on_every_page(visitor, address, f"?study={study}", theme) == {}


def test_no_page_without_a_study_keeps_anybody_out(
    tmp_path: Path, visitor: Callable[..., Watched]
) -> None:
    with server(tmp_path) as address:
        assert on_every_page(visitor, address, "", "light") == {}
