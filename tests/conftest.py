"""What tests of several rooms share: one browser, as Playwright runs once in a process, and a place for
each process of tests where two run side by side."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chrome import browser

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    # A temporary folder has one queue for what measures: each of the two measures by itself. Threads
    # that wait do not spin, as the cores are the other's too.
    place = Path(tempfile.gettempdir()) / f"tests-{worker}"
    place.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)
    os.environ["OMP_WAIT_POLICY"] = "passive"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium; without one the journeys fail with what to do, they are never skipped."""
    with browser() as opened:
        yield opened
