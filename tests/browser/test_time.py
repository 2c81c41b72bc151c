"""Faults of time: a refresh, a second browser, a server that stops and starts again, a tab that is left
open overnight. Nothing is lost and nothing is doubled."""

import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from recompute_core.studies.store import Store

from .chrome import Watched, end_drivers, free_port, serving, settle

pytestmark = pytest.mark.browser
Visitor = Callable[..., Watched]
SMALL = (
    "gpt_blocks=2&gpt_width=32&gpt_heads=2&gpt_batches=1&plans=every-block"
    "&gpt_lengths=32&gpt_lengths=48&gpt_lengths=64"
)
_RUN_MS = 420_000  # a quarter of a minute; on a machine that tests other things, several


def _verdict(page: Page) -> str:
    line = page.locator(".rs-verdict p")
    expect(line).to_be_visible(timeout=_RUN_MS)
    return line.inner_text()


def _forgive(*watched: Watched) -> None:
    """While the server is away a browser says so in its console; nothing else is forgiven."""
    for one in watched:
        one.problems[:] = [said for said in one.problems if not said.startswith("console: ")]


def _stopped_in_the_middle(store: Store) -> tuple[str, int]:
    """The study and the process that drives it, halted once some cell is done, so that all that follows
    falls into the middle of its run."""
    deadline = time.monotonic() + _RUN_MS / 1e3
    while time.monotonic() < deadline:
        for row in store.studies():
            if any(cell.state == "done" for cell in store.cells(row.id)):
                driver = _driver_of(row.id)
                os.kill(driver, signal.SIGSTOP)
                return row.id, driver
        time.sleep(0.05)
    raise AssertionError("no cell was done in time")


def _driver_of(study: str) -> int:
    listed = subprocess.run(["ps", "-axwwo", "pid=,args="], capture_output=True, text=True, check=True)
    lines = [line.split() for line in listed.stdout.splitlines()]
    return next(int(pid) for pid, *words in lines if study in words)


def test_time_loses_nothing_and_doubles_nothing(
    tmp_path_factory: pytest.TempPathFactory, visitor: Visitor
) -> None:
    home, port = tmp_path_factory.mktemp("time") / "home", free_port()
    home.mkdir()
    store = Store(home)
    first, second = visitor(), visitor("dark", 800)
    driver = 0
    try:
        with serving(home, port) as address:
            page = first.page()
            page.goto(f"{address}/set-up?{SMALL}")
            settle(page)
            page.get_by_role("button", name="Declare thresholds and launch").dblclick()
            study, driver = _stopped_in_the_middle(store)
            page.wait_for_url(re.compile(f"study={study}"))
            expect(page.locator(".rs-finding")).to_contain_text("at T=32", timeout=60_000)
            # A second browser by its address, and a refresh in the middle.
            other = second.page()
            other.goto(page.url)
            page.reload()
            for one in (page, other):
                expect(one.get_by_role("button", name="Cancel", exact=True)).to_be_visible(
                    timeout=60_000
                )
            assert first.problems + second.problems == []
        # The server is gone, in the middle of a run; its driver is not.
        assert store.driver_lock(study).is_held()
        with serving(home, port):
            for one in (page, other):
                expect(one.get_by_text("Measuring gpt: ")).to_be_visible(timeout=60_000)
            os.kill(driver, signal.SIGCONT)
            said = {_verdict(page), _verdict(other)}
            assert said == {store.study(study).sentence}
            _forgive(first, second)
            done = Counter(
                (event.shape_key, event.plan, event.phase)
                for event in store.events(study)
                if event.kind == "done"
            )
            assert set(done.values()) == {1}
            assert {cell.state for cell in store.cells(study)} == {"done"}
            assert len(done) == len(store.cells(study)) == 3 * (4 + 4)
            assert [(row.id, row.status) for row in store.studies()] == [(study, "done")]
            _overnight(page, home)
            assert [row.id for row in store.studies()] == [study]
        # In the morning another server answers; the tab was never touched.
        with serving(home, port):
            settle(page, 60)  # what it shows is of yesterday until it is connected again
            expect(page.get_by_text("Device: idle")).to_be_visible(timeout=60_000)
            page.get_by_role("link", name="Trade-off", exact=True).click(timeout=60_000)
            expect(page.get_by_role("heading", name="Trade-off")).to_be_visible(timeout=60_000)
            assert _verdict(page) in said
            assert f"study={study}" in page.url
            for one in (page, other):
                one.close()  # before their server goes
            for watched in (first, second):
                watched.context.cookies()  # an answer comes after all that the browser said before it
            _forgive(first, second)
    finally:
        if driver and store.live():
            os.kill(driver, signal.SIGCONT)
        end_drivers(home)
        store.close()


def _overnight(page: Page, home: Path) -> None:
    """The store's drive goes and comes back while a tab looks at a study that ended long ago."""
    away = home.with_name("away")
    home.rename(away)
    expect(page.get_by_text("is gone; put it back").first).to_be_visible(timeout=60_000)
    assert not home.exists(), "nothing is made in its place"
    away.rename(home)
    expect(page.get_by_text("is gone; put it back")).to_have_count(0, timeout=60_000)
    expect(page.get_by_text("Device: idle")).to_be_visible(timeout=60_000)
    expect(page.locator(".rs-verdict p")).to_be_visible()
