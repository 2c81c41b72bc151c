"""Pictures of every page, in both themes: `python -m tests.browser.screenshots OUT_DIR`.

Shows the studies of RECOMPUTE_HOME (by default `.recompute`) through a server of its own. `--study ID`
chooses the study of Live and Trade-off; otherwise it is the newest that has a verdict.
"""

import argparse
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from recompute_core.studies.store import Store

from .chrome import browser, server, settle, watch

PAGES = {
    "home": "",
    "demo": "demo",
    "setup": "set-up",
    "live": "live",
    "tradeoff": "tradeoff",
    "reinvest": "reinvest",
    "decision": "decision",
    "verify": "verify",
    "studies": "studies",
    "compare": "compare",
}


_TALLEST = 2400
"""Pixels of a picture; what is below is left out."""


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=Path(__file__).parent / "pictures")
    parser.add_argument("--study")
    parser.add_argument("--page", action="append", choices=PAGES)
    parser.add_argument("--width", action="append", type=int)
    asked = parser.parse_args()
    store = Store()
    study = asked.study or next((row.id for row in store.studies() if row.verdict), None)
    asked.out.mkdir(parents=True, exist_ok=True)
    query = f"?study={study}" if study else ""
    with browser() as chromium, server(store.home) as address:
        for theme in ("light", "dark"):
            for width in asked.width or (1440,):
                watched = watch(chromium, theme, width)
                page = watched.page()
                for name in asked.page or PAGES:
                    page.goto(f"{address}/{PAGES[name]}{query}")
                    settle(page)
                    height = page.evaluate(
                        "() => document.querySelector('[data-testid=stMain]').scrollHeight"
                    )
                    page.set_viewport_size(
                        {"width": width, "height": min(max(900, height + 40), _TALLEST)}
                    )
                    page.wait_for_timeout(600)
                    _shoot(page, asked.out / f"{name}-{theme}-{width}.png")
                    page.set_viewport_size({"width": width, "height": 900})
                for problem in watched.problems:
                    print(f"{theme} {width}: {problem}")
                watched.context.close()


def _shoot(page: Page, path: Path) -> None:
    """A picture of 128 colours: a third of the bytes, and the eye sees no difference."""
    page.screenshot(path=path)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
