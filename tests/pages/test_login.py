"""The door: closed by secrets that cannot be read, and not there without any."""

from collections.abc import Callable
from pathlib import Path

from tests.pages.conftest import OpenPage
from tests.pages.reading import shown


def test_secrets_that_cannot_be_read_let_nobody_in(
    open_page: OpenPage, secrets: Callable[[str], Path]
) -> None:
    path = secrets("[auth\nclient_id =")
    app = open_page()
    assert shown(app.error[0].value) == (
        f"{path} cannot be read, so nobody is let in. Mend it or take it away."
    )
    assert not app.title and not app.sidebar.markdown and not app.button


def test_secrets_without_a_login_ask_for_none(
    open_page: OpenPage, secrets: Callable[[str], Path]
) -> None:
    secrets('other = "x"')
    app = open_page()
    assert not app.error
    assert [one.value for one in app.title] == ["Recompute Studio"]
    assert "Log out" not in [one.label for one in app.button]
