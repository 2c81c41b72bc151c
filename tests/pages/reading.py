"""What a page says, as text."""

import html
import json
import re
from typing import Any

from streamlit.testing.v1 import AppTest


def text(app: AppTest) -> str:
    """Everything in words: markup without its tags, captions, messages, labels."""
    parts: list[str] = []
    for kind in ("html", "markdown", "caption", "title", "subheader", "error", "info", "warning"):
        for element in app.get(kind):
            body = getattr(element, "value", None) or getattr(element.proto, "body", "")
            parts.append(re.sub(r"<style>.*?</style>|<[^>]+>", " ", str(body), flags=re.DOTALL))
    parts += [button.label for button in app.button]
    return html.unescape(" ".join(shown(" ".join(parts)).split()))


def shown(markdown: str) -> str:
    """What a reader sees of text that was kept from being Markdown: without escapes and joiners."""
    return re.sub(r"\\([^\w\s])|\\(_)", r"\1\2", markdown).replace("\u2060", "")


def figures(app: AppTest) -> list[str]:
    """The Plotly figures of a page, as JSON."""
    return [str(element.proto.spec) for element in app.get("plotly_chart")]


def components(app: AppTest, name: str) -> list[Any]:
    """The components of our own of that name: `picture`, `blocks`, `copy`."""
    return [one for one in app.get("bidi_component") if one.proto.component_name.endswith(f".{name}")]


def pictured(app: AppTest) -> dict[str, Any]:
    """What the draggable picture of Trade-off was given."""
    (picture,) = components(app, "picture")
    found: dict[str, Any] = json.loads(picture.proto.json)
    return found


def link(app: AppTest) -> str:
    """The address that a page gives to copy."""
    (copy,) = components(app, "copy")
    found: str = json.loads(copy.proto.json)["link"]
    return found
