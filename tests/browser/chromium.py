"""Finds a Chromium or Chrome for the browser journeys, and installs one where there is none.

`python -m tests.browser.chromium`: Debian's package when run as root, Playwright's own otherwise.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from ..debian import install

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_ELSEWHERE = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome on this machine, Playwright's own included."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    for path in _ELSEWHERE:
        if Path(path).exists():
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def main() -> None:
    """Make sure there is one, or say in one line what to install."""
    if find_chromium():
        return
    if not install("chromium"):
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
    if not find_chromium():
        sys.exit("No Chromium or Chrome for the browser journeys: install the package 'chromium'.")


if __name__ == "__main__":
    main()
