"""The picture whose lines are dragged and whose points are picked: a component of our own.

Its scripts are files served from this server, as the content-security policy asks (`script-src 'self'`):
Streamlit would make a blob of a script that is given as text. Streamlit serves the files of installed
packages alone, so that the folder is made known to it here.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import streamlit as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from streamlit.components.v2.get_bidi_component_manager import get_bidi_component_manager
from streamlit.components.v2.manifest_scanner import ComponentConfig, ComponentManifest
from streamlit.components.v2.types import ComponentRenderer

KEY = "hand on the picture"
_PACKAGE, _NAME, _FOLDER = "recompute-studio", "picture", "picture_web"


class Hand(BaseModel):
    """What the browser says the hand has done. Untrusted: thresholds are checked once more as such."""

    model_config = ConfigDict(frozen=True, strict=True)

    seq: Annotated[int, Field(ge=0, le=2**53)]
    """Counts what was said; the answer names the last one heard."""
    peak: Annotated[float, Field(allow_inf_nan=False)]
    update: Annotated[float, Field(allow_inf_nan=False)]
    picked: Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=5000)]


def hand() -> Hand | None:
    """What the hand has done last; None where that makes no sense."""
    state = st.session_state.get(KEY) or {}
    try:
        return Hand.model_validate(state.get("hand"))
    except ValidationError:
        return None


def draggable(data: dict[str, object], on_hand: Callable[[], None]) -> None:
    """Draws the picture of `plotted.document`; `on_hand` is called when the hand has moved."""
    manager = get_bidi_component_manager()
    if manager.get_component_asset_root(f"{_PACKAGE}.{_NAME}") is None:
        known = ComponentManifest(_PACKAGE, "1", [ComponentConfig(_NAME, _FOLDER)])
        manager.register_from_manifest(known, Path(__file__).parent)
    _renderer()(key=KEY, data=data, on_hand_change=on_hand)


@lru_cache(maxsize=1)
def _renderer() -> ComponentRenderer:
    return st.components.v2.component(
        f"{_PACKAGE}.{_NAME}",
        html='<div class="picture"></div>',
        css="picture.css",
        js="picture.js",
    )
