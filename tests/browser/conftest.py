"""A Chromium for all journeys; each journey fails on console errors and requests to other hosts."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from .chrome import Watched, watch


@pytest.fixture
def visitor(chromium: Browser) -> Iterator[Callable[..., Watched]]:
    """Opens fresh browser contexts; whatever went wrong in any of them fails the journey."""
    opened: list[Watched] = []

    def open_(theme: str = "light", width: int = 1440) -> Watched:
        opened.append(watch(chromium, theme, width))
        return opened[-1]

    yield open_
    for watched in opened:
        watched.context.close()
    problems = [problem for watched in opened for problem in watched.problems]
    assert problems == []
