"""What tests of several rooms share: one browser, as Playwright runs once in a process."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chrome import browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium; without one the journeys fail with what to do, they are never skipped."""
    with browser() as opened:
        yield opened
