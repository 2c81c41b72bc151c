"""The entry of the dashboard: `streamlit run app.py`.

Serves `pages/_frame.py` and `/api/healthz`, adds the security headers to every answer, answers to its
own names alone, and stands before uploads. Nothing here, and nothing it serves, imports torch:
measurements run in processes of their own.
"""

import base64
import hashlib
import re
import sys
from pathlib import Path

import pandas  # noqa: F401  whole before two visitors' first pages would import it side by side
import streamlit as st
from starlette.formparsers import MultiPartParser
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages._parts.uploads import Uploads


def inline_script_hashes(page: str) -> list[str]:
    """CSP sources for the inline scripts of an HTML page, so that no others may run."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]


def content_security_policy() -> str:
    """Everything from this server alone; no `eval`, no frames, no other host."""
    page = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    scripts = " ".join(["'self'", *inline_script_hashes(page)])
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src {scripts}",
            "style-src 'self' 'unsafe-inline'",  # Streamlit's styles are written by its scripts
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "frame-src 'none'",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


class SecurityHeaders:
    """Adds the security headers to every HTTP answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [
            (b"content-security-policy", content_security_policy().encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"same-origin"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = {name for name, _ in self._headers}
                kept = [(k, v) for k, v in message.get("headers", []) if k.lower() not in ours]
                message = {**message, "headers": [*kept, *self._headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


async def healthz(request: Request) -> JSONResponse:
    """Is the server up, and is its process still free of torch?"""
    return JSONResponse(
        {"status": "ok", "streamlit": st.__version__, "torch_loaded": "torch" in sys.modules}
    )


# A report that is uploaded stays in memory: Starlette would keep what is over 1 MB in a temporary file.
# How large one may be is said in .streamlit/config.toml.
MultiPartParser.spool_max_size = 32_000_000

app = st.App(
    Path(__file__).parent / "pages" / "_frame.py",
    routes=[Route("/api/healthz", healthz)],
    middleware=[
        Middleware(SecurityHeaders),
        # Streamlit asks this of WebSockets alone. An empty list allows every name.
        Middleware(TrustedHostMiddleware, st.get_option("server.allowedHosts") or ["*"], False),
        Middleware(Uploads),
    ],
)
