"""The quick study from a click in a browser: when what is known shows up on the page.

A fresh server, an empty store and Chromium on the same cores. Nothing absolute is asserted.
"""

import tempfile
import time
from pathlib import Path

from tests.browser.chrome import browser, server, settle, watch

_SHOWN = {
    "first finding": ".rs-finding:has-text(':')",
    "first parity": ".rs-finding:has-text('parity')",
    "first memory figure": ".rs-finding:has-text('memory: peak')",
    "first time figure": ".rs-finding:has-text('times as long')",
    "verdict": ".rs-verdict p",
}


def main() -> None:
    """Print the seconds from the click to each of them."""
    with tempfile.TemporaryDirectory() as home, server(Path(home)) as address, browser() as chromium:
        page = watch(chromium).page()
        page.goto(address)
        settle(page)
        page.get_by_role("button", name="Run the quick study").click()
        clicked = time.perf_counter()
        print("| on the page | s after the click |\n|---|---|")
        for name, selector in _SHOWN.items():
            page.locator(selector).first.wait_for(timeout=600_000)
            print(f"| {name} | {time.perf_counter() - clicked:.1f} |", flush=True)
        print(f"\n{page.locator('.rs-verdict p').inner_text()}")
        print("Aim: the verdict within 60 s, the first figures within 10 s, on 2 cores.")


if __name__ == "__main__":
    main()
