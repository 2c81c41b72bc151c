"""Components of our own whose scripts are files of this server.

The content-security policy lets no script run but those of this server (`script-src 'self'`). Streamlit
makes a blob of a script that is given as text, and serves files for installed packages alone, so that a
component's folder is made known to it here.
"""

from functools import lru_cache
from pathlib import Path

import streamlit as st
from streamlit.components.v2.get_bidi_component_manager import get_bidi_component_manager
from streamlit.components.v2.manifest_scanner import ComponentConfig, ComponentManifest
from streamlit.components.v2.types import ComponentRenderer

_PACKAGE = "recompute-studio"


def served(name: str, html: str, isolated: bool = False) -> ComponentRenderer:
    """The component whose script and styles are `NAME_web/NAME.js` and `.css` beside this file.

    Its elements are part of the page and know the page's styles, unless they are isolated.
    """
    full = f"{_PACKAGE}.{name}"
    manager = get_bidi_component_manager()
    if manager.get_component_asset_root(full) is None:
        known = ComponentManifest(_PACKAGE, "1", [ComponentConfig(name, f"{name}_web")])
        manager.register_from_manifest(known, Path(__file__).parent)
    return _renderer(full, name, html, isolated)


@lru_cache(maxsize=8)
def _renderer(full: str, name: str, html: str, isolated: bool) -> ComponentRenderer:
    return st.components.v2.component(
        full, html=html, css=f"{name}.css", js=f"{name}.js", isolate_styles=isolated
    )
