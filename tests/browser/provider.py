"""An OpenID Connect provider on this machine that knows one person and asks nothing."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "recompute-studio"
EMAIL = "ada@example.org"


class _Provider(ThreadingHTTPServer):
    """Its key, and the nonce of each code that was given out."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.key = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
        self.nonces: dict[str, str] = {}

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: _Provider

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        issuer = self.server.issuer
        if asked.path == "/.well-known/openid-configuration":
            self._json(
                {
                    "issuer": issuer,
                    "authorization_endpoint": f"{issuer}/authorize",
                    "token_endpoint": f"{issuer}/token",
                    "jwks_uri": f"{issuer}/keys",
                    "id_token_signing_alg_values_supported": ["RS256"],
                }
            )
        elif asked.path == "/keys":
            self._json({"keys": [self.server.key.as_dict(private=False)]})
        elif asked.path == "/authorize":
            given = {name: values[0] for name, values in parse_qs(asked.query).items()}
            code = f"code-{len(self.server.nonces)}"
            self.server.nonces[code] = given["nonce"]
            back = urlencode({"code": code, "state": given["state"]})
            self.send_response(302)
            self.send_header("Location", f"{given['redirect_uri']}?{back}")
            self.end_headers()
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        code = parse_qs(body)["code"][0]
        now = int(time.time())
        claims = {
            "iss": self.server.issuer, "aud": CLIENT, "sub": "1", "email": EMAIL, "iat": now,
            "exp": now + 600, "nonce": self.server.nonces[code],
        }  # fmt: skip
        token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.server.key)
        self._json({"access_token": "x", "token_type": "Bearer", "expires_in": 600, "id_token": token})

    def _json(self, answer: object) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def provider() -> Iterator[str]:
    """Serve one; yields its issuer's address."""
    server = _Provider()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
