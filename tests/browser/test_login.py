"""Behind a login nothing is seen before it, whichever address is opened first."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from recompute_core.studies.store import Store
from tests.pages.studies import spec_of

from .chrome import Watched, server
from .provider import CLIENT, EMAIL, provider

PATHS = ("", "live", "result", "decision", "studies")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server behind a login, and a study that it has."""
    home = tmp_path_factory.mktemp("guarded")
    store = Store(home)
    study = store.create(spec_of())
    store.close()
    with provider() as issuer:

        def secrets(address: str) -> str:
            return (
                f'[auth]\nredirect_uri = "{address}/oauth2callback"\n'
                f'cookie_secret = "{"only for this test" * 3}"\nclient_id = "{CLIENT}"\n'
                'client_secret = "x"\n'
                f'server_metadata_url = "{issuer}/.well-known/openid-configuration"\n'
            )

        with server(home, secrets) as address:
            yield address, study


def door(page: Page) -> None:
    expect(page.get_by_role("button", name="Log in")).to_be_visible(timeout=30_000)


def test_no_cold_deep_link_leads_around_the_login(
    guarded: tuple[str, str], visitor: Callable[..., Watched]
) -> None:
    address, study = guarded
    page = visitor().page()
    for path in PATHS:
        page.goto(f"{address}/{path}?study={study}")
        door(page)
        shown = page.locator("body").inner_text()
        assert study not in shown and "Studies" not in shown and "gpt" not in shown, shown
        assert page.locator("[data-testid=stSidebar] a").count() == 0


def put(page: Page, address: str) -> tuple[int, str]:
    """An upload without a token against forged requests, which Streamlit refuses in other words."""
    answer = page.context.request.put(f"{address}/_stcore/upload_file/any/any", data=b"x")
    return answer.status, answer.text()


def test_nothing_is_uploaded_before_the_login(
    guarded: tuple[str, str], visitor: Callable[..., Watched]
) -> None:
    address, _ = guarded
    page = visitor().page()
    assert put(page, address) == (403, "Log in first.")
    page.goto(f"{address}/verify")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text(f"Logged in as {EMAIL}")).to_be_visible(timeout=30_000)
    assert "Log in first." not in put(page, address)[1]
    page.goto(f"{address}/verify")
    page.locator("input[type=file]").first.set_input_files(
        {"name": "report.zip", "mimeType": "application/zip", "buffer": b"no report"}
    )
    expect(page.get_by_text("is no .zip").first).to_be_visible(timeout=30_000)


def test_who_logs_in_sees_the_studies_until_they_log_out(
    guarded: tuple[str, str], visitor: Callable[..., Watched]
) -> None:
    address, study = guarded
    page = visitor().page()
    page.goto(f"{address}/studies")
    door(page)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text(f"Logged in as {EMAIL}")).to_be_visible(timeout=30_000)
    page.goto(f"{address}/live?study={study}")
    expect(page.get_by_role("heading", name="Live")).to_be_visible(timeout=30_000)
    # Until the browser has been at the logout, its cookie lets it in: no login is shown before.
    page.route("**/auth/logout", lambda way: way.abort("aborted"))
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("Logging out")).to_be_visible(timeout=30_000)
    assert page.get_by_role("button", name="Log in").count() == 0
    assert page.get_by_text(study).count() == 0
    page.unroute("**/auth/logout")
    page.goto(f"{address}/live?study={study}")
    page.get_by_role("button", name="Log out").click()
    door(page)
    page.goto(f"{address}/live?study={study}")
    door(page)
