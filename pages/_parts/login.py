"""Who may see anything: whoever the operator's identity provider lets in, once one is configured.

The frame runs before every page, however its address was come by, so this is the one door. Without an
`[auth]` section in Streamlit's secrets there is none: the server then answers this machine alone.
"""

from html import escape
from pathlib import Path

import streamlit as st

from .words import literal


def require_login() -> None:
    """Draw nothing but a login until there is one; ends the run there."""
    unread = unread_secrets()
    if unread is not None:
        st.error(literal(f"{unread} cannot be read, so nobody is let in. Mend it or take it away."))
        st.stop()
    if st.user.get("is_logged_in", True):
        return
    st.title("Recompute Studio", anchor=False)
    st.write("Log in to see studies, reports and launches of this server.")
    st.button("Log in", type="primary", on_click=st.login)
    st.stop()


def unread_secrets() -> str | None:
    """A secrets file that is there and cannot be read: it may be the one that asks for a login."""
    if st.secrets.load_if_toml_exists():
        return None
    return next((path for path in st.get_option("secrets.files") if Path(path).exists()), None)


def account() -> None:
    """Who is logged in, and the way out; nothing where no login is asked for."""
    if not st.user.get("is_logged_in"):
        return
    name = st.user.get("email") or st.user.get("name") or st.user.get("sub") or "somebody"
    st.html(f'<div class="rs-side">Logged in as {escape(str(name)[:80])}</div>')
    st.button("Log out", on_click=st.logout)
