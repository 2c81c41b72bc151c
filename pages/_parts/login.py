"""Who may see anything: whoever the operator's identity provider lets in, once one is configured.

The frame runs before every page, however its address was come by, so this is the one door. Without an
`[auth]` section in Streamlit's secrets there is none: the server then answers this machine alone.
"""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path

import streamlit as st
from streamlit.auth_util import get_cookie_with_chunks
from streamlit.web.server.server_util import get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from .words import literal

LEAVING = "login.leaving"


def require_login() -> None:
    """Draw nothing but a login until there is one; ends the run there."""
    unread = unread_secrets()
    if unread is not None:
        st.error(literal(f"{unread} cannot be read, so nobody is let in. Mend it or take it away."))
        st.stop()
    if st.user.get("is_logged_in", not login_is_asked()):
        return
    st.title("Recompute Studio", anchor=False)
    if st.session_state.get(LEAVING):
        st.write("Logging out …")
        st.stop()
    st.write("Log in to see studies, reports and launches of this server.")
    st.button("Log in", type="primary", on_click=st.login)
    st.stop()


def unread_secrets() -> str | None:
    """A secrets file that is there and cannot be read: it may be the one that asks for a login."""
    if st.secrets.load_if_toml_exists():
        return None
    return next((path for path in st.get_option("secrets.files") if Path(path).exists()), None)


def login_is_asked() -> bool:
    """Whether the secrets, which can be read, set up a login, be it half."""
    return "auth" in st.secrets if st.secrets.load_if_toml_exists() else False


def may_enter(cookies: Mapping[str, str]) -> bool:
    """The same door for a request that is no page: is it by somebody who is logged in, where they must?

    Streamlit signs its cookie of who is logged in, and is asked for its signature.
    """
    if unread_secrets() is not None:
        return False
    if not login_is_asked():
        return True
    secret = get_cookie_secret()
    signed = get_cookie_with_chunks(
        lambda name: decode_signed_value(secret, name, cookies.get(name, "")), USER_COOKIE_NAME
    )
    return signed is not None and json.loads(signed).get("is_logged_in") is True


def account() -> None:
    """Who is logged in, and the way out; nothing where no login is asked for."""
    if not st.user.get("is_logged_in"):
        return
    name = st.user.get("email") or st.user.get("name") or st.user.get("sub") or "somebody"
    st.html(f'<div class="rs-side">Logged in as {escape(str(name)[:80])}</div>')
    st.button("Log out", on_click=_leave)


def _leave() -> None:
    """Log out. The session ends at once, the browser's cookie only once it has followed to the logout.

    Whoever goes elsewhere in between is logged in still, so this page must not show the login before.
    """
    st.session_state[LEAVING] = True
    st.logout()
