"""What stands before Streamlit's uploads: the login, and an end to all that is kept."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.types import Message, Receive, Scope, Send
from streamlit import config
from streamlit.auth_util import set_cookie_with_chunks
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value

from pages._parts.login import may_enter
from pages._parts.uploads import Uploads, kept_bytes

PUT = "/_stcore/upload_file/session/file"
COOKIE = "_streamlit_user"
KEY = "only for this test" * 3
AUTH = f'[auth]\ncookie_secret = "{KEY}"\n'


def cookies(key: str, **user: object) -> dict[str, str]:
    """The cookies that Streamlit sets when somebody logs in."""
    made: dict[str, str] = {}

    def signed(name: str, value: str) -> bytes:
        return create_signed_value(key, name, value)

    def keep(name: str, value: str) -> None:
        made[name] = signed(name, value).decode()

    set_cookie_with_chunks(keep, signed, COOKIE, user, cookie_attr_size=100)
    return made


def test_whoever_streamlit_let_in_may_enter(secrets: Callable[[str], Path]) -> None:
    secrets(AUTH)
    assert may_enter(cookies(KEY, is_logged_in=True))
    long = cookies(KEY, is_logged_in=True, groups=os.urandom(5000).hex())
    assert len(long) > 1 and may_enter(long)


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {COOKIE: ""},
        {COOKIE: "x"},
        {COOKIE: "é\x80"},
        {COOKIE: '{"is_logged_in": true}'},
        cookies("another key" * 4, is_logged_in=True),
        cookies(KEY, is_logged_in=False),
        cookies(KEY, email="ada@example.org"),
        {f"{COOKIE}_tokens": cookies(KEY, is_logged_in=True)[COOKIE]},
        {COOKIE: cookies(KEY, is_logged_in=True)[COOKIE][:-1]},
    ],
)
def test_nobody_else_does(secrets: Callable[[str], Path], shown: dict[str, str]) -> None:
    secrets(AUTH)
    assert not may_enter(shown)


def test_without_a_login_anybody_enters_and_with_half_of_one_nobody(
    secrets: Callable[[str], Path],
) -> None:
    secrets('other = "x"')
    assert may_enter({})
    secrets("[auth]")
    assert not may_enter({})
    secrets("[auth\n")
    assert not may_enter(cookies(KEY, is_logged_in=True))


class Server:
    """Streamlit's place behind the door: takes uploads once it is let go on."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.taken.append(f"{scope['method']} {scope['path']}")
        await self.go_on.wait()


async def ask(door: Uploads, method: str = "PUT", path: str = PUT) -> int:
    """The status of what the door answers; 0 where it says nothing itself."""
    said: list[Message] = []

    async def hear(message: Message) -> None:
        said.append(message)

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    await door({"type": "http", "method": method, "path": path, "headers": []}, nothing, hear)
    return said[0]["status"] if said else 0


def in_a_loop(check: Callable[[], object]) -> None:
    """In a thread of its own: a browser driven earlier in this process leaves its event loop running."""
    with ThreadPoolExecutor(1) as apart:
        apart.submit(lambda: asyncio.run(check())).result()  # type: ignore[arg-type]


def test_uploads_without_a_login_never_reach_streamlit(secrets: Callable[[str], Path]) -> None:
    secrets(AUTH)

    async def check() -> None:
        server = Server()
        server.go_on.set()
        door = Uploads(server)
        for path in (PUT, "/base" + PUT, "//_stcore/upload_file/a/b"):
            for method in ("PUT", "DELETE"):
                assert await ask(door, method, path) == 403
        assert not server.taken
        assert await ask(door, "GET", "/_stcore/health") == 0
        assert server.taken == ["GET /_stcore/health"]

    in_a_loop(check)


def test_there_is_an_end_to_all_uploads_together(
    secrets: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets('other = "x"')
    manager = MemoryUploadedFileManager("/_stcore/upload_file")
    instance = SimpleNamespace(uploaded_file_mgr=manager)
    monkeypatch.setattr("streamlit.runtime.get_instance", lambda: instance)
    each = 2 * config.get_option("server.maxUploadSize") * 1024 * 1024
    monkeypatch.setattr("pages._parts.uploads.MOST_BYTES", 3 * each + 4)

    async def check() -> None:
        server = Server()
        door = Uploads(server)
        assert kept_bytes() == 0
        manager.add_file("one", UploadedFileRec("a", "a.zip", "x", b"12345"))
        manager.add_file("two", UploadedFileRec("b", "b.zip", "x", b"1234567"))
        assert kept_bytes() == 12
        waiting = [asyncio.create_task(ask(door)) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(server.taken) == 2
        assert await waiting[2] == 507
        assert await ask(door) == 507
        assert len(server.taken) == 2
        server.go_on.set()
        assert [await one for one in waiting[:2]] == [0, 0]
        assert await ask(door) == 0
        manager.remove_session_files("one")
        manager.remove_session_files("two")
        assert await asyncio.gather(*(ask(door) for _ in range(3))) == [0, 0, 0]

    in_a_loop(check)
