"""How long a warm server takes to serve a first page: from the navigation until its content is shown.

A headless Chromium on the same cores, with an empty cache at each visit, as somebody has who opens the
dashboard for the first time; and once more in the same browser, whose cache then has the scripts.
Nothing absolute is asserted.
"""

import json
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext

from recompute_core.studies.store import Store
from tests.browser.chrome import browser, server, settle, watch
from tests.pages import studies

from . import history_speed

VISITS = 9
PAGES = {
    "Home": ("", {"words": ".rs-verdict p", "picture": ".spot[data-id]"}),
    "Trade-off": ("tradeoff", {"words": ".rs-verdict p", "picture": ".spot[data-id]"}),
    "Studies": ("studies", {"words": "h1", "picture": "[data-testid=stDataFrame] canvas"}),
}
"""Where each page is, and what of it is waited for: its words, and its picture or list."""
_NOTE_WHEN_SHOWN = """(wanted => {
    const shown = window.shownAt = {};
    const look = () => {
        const hosts = [...document.querySelectorAll("*")].filter((one) => one.shadowRoot);
        const roots = [document, ...hosts.map((one) => one.shadowRoot)];
        for (const [name, selector] of Object.entries(wanted)) {
            const found = roots.map((root) => root.querySelector(selector)).find(Boolean);
            const is_new = !(name in shown) && found && found.getClientRects().length;
            if (is_new) shown[name] = performance.now();
        }
        if (Object.keys(shown).length < Object.keys(wanted).length) requestAnimationFrame(look);
    };
    look();
})"""
Shown = dict[str, float]
"""Milliseconds from the navigation until something was shown."""


def visit(context: BrowserContext, address: str, wanted: dict[str, str]) -> Shown:
    """Open the address in a new tab and wait until all is shown."""
    page = context.new_page()
    page.add_init_script(f"{_NOTE_WHEN_SHOWN}({json.dumps(wanted)})")
    page.goto(address)
    page.wait_for_function(
        "(many) => Object.keys(window.shownAt).length === many", arg=len(wanted), timeout=120_000
    )
    shown: Shown = page.evaluate("window.shownAt")
    settle(page)  # what comes after must not be paid for by the next visit
    page.close()
    return shown


def timed(chromium: Browser, address: str, wanted: dict[str, str]) -> tuple[list[Shown], list[Shown]]:
    """Visits by browsers that were never here, and each one's second."""
    first, again = [], []
    for _ in range(VISITS):
        context = watch(chromium).context
        first.append(visit(context, address, wanted))
        again.append(visit(context, address, wanted))
        context.close()
    return first, again


def _line(visits: list[Shown], what: str) -> str:
    times = [shown[what] / 1e3 for shown in visits]
    return f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def main() -> None:
    """Print the times."""
    print("| page | studies | browser | words, s | picture or list, s |")
    print("|---|---|---|---|---|")
    with browser() as chromium:
        for number in (1, history_speed.STUDIES):
            with tempfile.TemporaryDirectory() as home:
                store = Store(Path(home))
                if number == 1:
                    studies.filled(store)
                else:
                    history_speed.fill(store, 12)
                store.close()
                with server(Path(home)) as address:
                    for name, (path, wanted) in PAGES.items():
                        where = f"{address}/{path}"
                        visit(watch(chromium).context, where, wanted)  # warms the server
                        for who, visits in zip(
                            ("new", "again"), timed(chromium, where, wanted), strict=True
                        ):
                            words, picture = (_line(visits, what) for what in ("words", "picture"))
                            print(f"| {name} | {number:,} | {who} | {words} | {picture} |", flush=True)
    print(f"\nMedians of {VISITS} visits, with the shortest and the longest. Aim: under 1.5 s.")


if __name__ == "__main__":
    main()
