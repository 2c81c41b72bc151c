"""axe-core from the npm registry, pinned: finds what keeps people out of a page.

`python -m tests.browser.axe` puts it beside the environment; the tests do so by themselves too.
"""

import base64
import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

VERSION = "4.14.1"
_URL = f"https://registry.npmjs.org/axe-core/-/axe-core-{VERSION}.tgz"
_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
_KEPT = Path(sys.prefix) / f"axe-core-{VERSION}.min.js"


def source() -> str:
    """The script; fetched once, and only in the very bytes that were pinned."""
    if not _KEPT.exists():
        with urllib.request.urlopen(_URL, timeout=60) as answer:
            packed = answer.read()
        if base64.b64encode(hashlib.sha512(packed).digest()).decode() != _SHA512:
            raise RuntimeError(f"{_URL} is not what was pinned")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            _KEPT.write_bytes(member.read())
    return _KEPT.read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    """The serious and critical ones on a page as it stands, a line for each element.

    The script is put in by the browser's debugger, so the page's security policy stays as it is.
    """
    page.evaluate(source())
    found: list[dict[str, Any]] = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    )
    return [
        f"{one['impact']} {one['id']}: {node['html'][:160]} ({'; '.join(_why(node))[:200]})"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def _why(node: dict[str, Any]) -> list[str]:
    return [check["message"] for kind in ("any", "all", "none") for check in node[kind]]


if __name__ == "__main__":
    source()
