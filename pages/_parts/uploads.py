"""Uploads to Streamlit: from people who are let in, and no more at a time than memory is meant to hold.

Streamlit takes an upload from any open page, one without a login included, and ends each file, but not
their sum; so both are asked before it reads the first byte.
"""

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config, runtime
from streamlit.runtime.stats import CACHE_MEMORY_FAMILY

from .login import may_enter

MOST_BYTES = 200_000_000
"""Of all uploads that are kept or on their way, of everybody."""
ROUTE = "_stcore/upload_file"


class Uploads:
    """Refuses uploads before the login, and those that there is no place for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._on_their_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or ROUTE not in scope["path"]:
            await self._app(scope, receive, send)
        elif not may_enter(Request(scope).cookies):
            await PlainTextResponse("Log in first.", 403)(scope, receive, send)
        elif scope["method"] == "PUT":
            await self._put(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _put(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What an upload says of its length binds nobody, and while it is read it is there twice.
        each = 2 * config.get_option("server.maxUploadSize") * 1024 * 1024
        if kept_bytes() + (self._on_their_way + 1) * each > MOST_BYTES:
            said = "No place for more uploads: take some away, or close pages that have any."
            await PlainTextResponse(said, 507)(scope, receive, send)
            return
        self._on_their_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._on_their_way -= 1


def kept_bytes() -> int:
    """What Streamlit keeps of all uploads of all pages that are open."""
    kept = runtime.get_instance().uploaded_file_mgr.get_stats()
    return sum(one.byte_length for one in kept.get(CACHE_MEMORY_FAMILY, ()))
