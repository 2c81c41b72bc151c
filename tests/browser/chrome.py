"""Finding a Chromium, starting the real server, and listening for anything that goes wrong."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from .chromium import find_chromium

ROOT = Path(__file__).parents[2]
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_LOCAL = {"127.0.0.1", "localhost"}


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium; raises RuntimeError where there is none."""
    path = find_chromium()
    if path is None:
        raise RuntimeError("no Chromium found: 'python -m tests.browser.chromium' installs one")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def server(home: Path, secrets: Callable[[str], str] = lambda address: "") -> Iterator[str]:
    """The real server on a free port with its own RECOMPUTE_HOME; yields its address.

    `secrets` makes Streamlit's secrets, as TOML, from that address.
    """
    try:
        with serving(home, free_port(), secrets) as address:
            yield address
    finally:
        end_drivers(home)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def serving(home: Path, port: int, secrets: Callable[[str], str] = lambda address: "") -> Iterator[str]:
    """The server alone; the drivers of its studies outlive it."""
    # A temporary folder of its own keeps this server's studies out of the machine's queue.
    apart = home / "tmp"
    apart.mkdir(parents=True, exist_ok=True)
    options: tuple[str, ...] = ()
    if text := secrets(f"http://127.0.0.1:{port}"):
        (home / "secrets.toml").write_text(text)
        options = ("--secrets.files", str(home / "secrets.toml"))
    environment = {**os.environ, "RECOMPUTE_HOME": str(home), "TMPDIR": str(apart)}
    with running(port, environment, home / "server.log", *options) as (address, _):
        yield address


@contextmanager
def running(
    port: int, environment: dict[str, str], log: Path, *options: str
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The server as a process in an environment; its address once it answers, and the process."""
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *options], cwd=ROOT, env=environment, stdout=out, stderr=out
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/healthz", process, log)
        yield address, process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def end_drivers(home: Path) -> None:
    """Drivers outlive the server by design; a test's own must not outlive the test."""
    from recompute_core.reinvest.kept import Kept, runs
    from recompute_core.studies.store import Store

    store = Store(home)

    def running() -> list[Kept]:
        return [run for row in store.studies() for run in runs(store, row.id) if run.lock.is_held()]

    for row in store.live():
        store.ask_cancel(row.id)
    for run in running():
        run.ask_cancel()
    deadline = time.monotonic() + 20
    while (store.live() or running()) and time.monotonic() < deadline:
        time.sleep(0.2)
    store.close()


def _wait_for(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended at once:\n{log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the server did not answer within 60 s:\n{log.read_text()[-2000:]}")


@dataclass
class Watched:
    """A browser context that notes console errors, page errors and requests to other hosts."""

    context: BrowserContext
    problems: list[str] = field(default_factory=list)

    def page(self) -> Page:
        page = self.context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        page.on("request", lambda request: self._request(request.url))
        page.on("websocket", lambda socket: self._request(socket.url))
        return page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not _is_probe(message):
            self.problems.append(f"console: {message.text} ({message.location.get('url')})")

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.hostname not in _LOCAL:
            self.problems.append(f"request to another host: {url}")


_PROBE = re.compile(r"/[a-z-]+/_stcore/(health|host-config)")


def _is_probe(message: ConsoleMessage) -> bool:
    """On a cold deep link Streamlit asks under the page's path for its server before it asks at the
    root, and Chromium notes the first answer, 404, as an error. Nothing else is let through."""
    path = urlsplit(message.location.get("url", "")).path
    return "404" in message.text and _PROBE.fullmatch(path) is not None


def watch(chromium: Browser, theme: str = "light", width: int = 1440, height: int = 900) -> Watched:
    """A fresh context in a theme and a width."""
    return Watched(
        chromium.new_context(
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": width, "height": height},
        )
    )


_ENDED = "[data-testid=stApp][data-test-script-state=notRunning][data-test-connection-state=CONNECTED]"


def settle(page: Page, timeout_s: float = 30) -> None:
    """Wait until the page has been drawn and its script has ended."""
    page.wait_for_selector("[data-testid=stMainBlockContainer] h1", timeout=timeout_s * 1e3)
    page.wait_for_selector(_ENDED, timeout=timeout_s * 1e3)
    page.wait_for_timeout(300)
