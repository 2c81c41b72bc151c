"""A decision signed in a real Chromium, taken away, and checked by whoever gets it."""

import json
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from recompute_core.reports.keys import fingerprint, public_pem, write_key
from recompute_core.reports.signers import change_signers
from recompute_core.reports.verification import SUPPORT, TRUST
from recompute_core.studies.store import Store
from tests.pages import studies
from tests.reports import decisions
from tests.reports.signing import ANN, EVE

from .chrome import Watched, server, settle

pytestmark = pytest.mark.browser
Visitor = Callable[..., Watched]
LOOKS = pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 800)])
PASSPHRASE = "correct horse 81274"
PRINT = fingerprint(ANN.public_key())


@dataclass(frozen=True)
class Served:
    """A server that has a key and trusts its owner, with one finished study."""

    address: str
    home: Path
    study: str
    sentence: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    key = home / "keys" / "release.pem"
    write_key(key, ANN, PASSPHRASE)
    key.with_name("release.pem.pub.pem").write_text(public_pem(ANN.public_key()))
    now = datetime.now(UTC).replace(microsecond=0)
    change_signers(home / "signers.json", lambda known: known.with_trust(ANN.public_key(), "ann", now))
    store = Store(home)
    tiny = {"name": "gpt", "blocks": 2, "width": 32, "heads": 2, "batch": 1}
    study = studies.filled(store, studies.spec_of(workload=tiny, shapes=[{"seq_len": 32}]))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RECOMPUTE_KEY", str(key))
        environment.delenv("RECOMPUTE_SIGNERS", raising=False)
        with server(home) as address:
            yield Served(address, home, study, store.study(study).sentence)
    store.close()


@pytest.fixture(autouse=True)
def _patient() -> Iterator[None]:
    """A machine that tests other things answers late."""
    expect.set_options(timeout=30_000)
    yield
    expect.set_options(timeout=5_000)


def _open(page: Page, address: str) -> None:
    page.goto(address)
    settle(page)


def _sign(page: Page, passphrase: str) -> None:
    page.get_by_label("Passphrase of the key").fill(passphrase)
    page.get_by_role("button", name="Sign", exact=True).click()


def _bytes(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame


def _download(page: Page, to: Path) -> Path:
    with page.expect_download() as started:
        page.get_by_role("button", name="Download the signed report").click()
    assert started.value.suggested_filename.startswith("decision-")
    started.value.save_as(to)
    return to


def _drop(page: Page, report: Path) -> None:
    page.locator("input[type=file]").set_input_files(report)


def _changed(report: Path, to: Path) -> Path:
    """The same .zip with one raw sample changed."""
    with zipfile.ZipFile(report) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "evidence/cells.json":
                assert b'"plain_s":0.2' in data
                data = data.replace(b'"plain_s":0.2', b'"plain_s":0.3', 1)
            new.writestr(name, data)
    return to


def _saw_no_report(page: Page) -> None:
    expect(page.get_by_text("Nothing else of a report that is refused is shown.")).to_be_visible()
    for secret in ("What it says", "Rollback", "Adopt every-block"):
        expect(page.get_by_text(secret)).to_have_count(0)


@LOOKS
def test_from_a_study_to_a_report_that_another_verifies(
    served: Served, visitor: Visitor, theme: str, width: int, tmp_path: Path
) -> None:
    page, sent = visitor(theme, width).page(), list[bytes]()
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(_bytes(frame))))
    _open(page, f"{served.address}/tradeoff?study={served.study}")
    page.get_by_role("link", name="Decision", exact=True).click()
    expect(page.get_by_role("heading", name="Decision")).to_be_visible()
    expect(page.locator(".rs-verdict p")).to_have_text(served.sentence)
    expect(page.locator(".rs-decided tbody tr")).to_have_count(4)
    expect(page.get_by_text(PRINT)).to_be_visible()

    _sign(page, "wrong horse 00000")
    expect(page.get_by_text("Not signed: release.pem: wrong passphrase")).to_be_visible()
    expect(page.get_by_role("button", name="Download the signed report")).to_have_count(0)
    _sign(page, PASSPHRASE)
    expect(page.get_by_text("Signed", exact=True)).to_be_visible()
    expect(page.get_by_label("Passphrase of the key")).to_have_value("")
    assert PASSPHRASE not in page.url
    assert PASSPHRASE not in page.content()
    page.wait_for_timeout(3_500)  # the sidebar asks for itself
    report = _download(page, tmp_path / "report.zip")
    assert "report.html" in zipfile.ZipFile(report).namelist()

    page.get_by_role("link", name="Check it as its reader would").click()
    expect(page.get_by_role("heading", name="Verify")).to_be_visible()
    expect(page.locator(".rs-checks .rs-not_run")).to_have_count(len(TRUST + SUPPORT))
    _drop(page, report)
    expect(page.locator(".rs-verdict").first).to_contain_text("Verified. Signed by ann")
    expect(page.get_by_text("known as ann")).to_be_visible()
    gates = 3  # in place of the one check `gates`, as the study has one shape
    expect(page.locator(".rs-checks .rs-pass")).to_have_count(len(TRUST + SUPPORT) - 1 + gates)
    expect(page.locator(".rs-checks .rs-fail, .rs-checks .rs-not_run")).to_have_count(0)
    expect(page.locator(".rs-verdict").nth(1)).to_contain_text(served.sentence)
    assert sum(PASSPHRASE.encode() in frame for frame in sent) == 1, "what follows leaves it out"
    assert PASSPHRASE not in (served.home / "server.log").read_text()
    kept = [file for file in served.home.rglob("*") if file.is_file()]
    assert not [file for file in kept if PASSPHRASE.encode() in file.read_bytes()]


def test_a_report_that_was_tampered_with_is_refused(
    served: Served, visitor: Visitor, tmp_path: Path
) -> None:
    page = visitor("dark", 800).page()
    _open(page, f"{served.address}/decision?study={served.study}&plan=every-2nd-block")
    _sign(page, PASSPHRASE)
    report = _download(page, tmp_path / "report.zip")
    _open(page, f"{served.address}/verify")
    _drop(page, _changed(report, tmp_path / "changed.zip"))
    line = page.locator(".rs-verdict")
    expect(line).to_contain_text("Refused by the check evidence.")
    expect(line).to_contain_text("evidence/cells.json was changed after it was signed.")
    _saw_no_report(page)


def test_a_report_of_an_unknown_signer_names_the_fingerprint(
    served: Served, visitor: Visitor, tmp_path: Path
) -> None:
    from recompute_core.reports.bundle import zip_of

    report = tmp_path / "report.zip"
    report.write_bytes(zip_of(decisions.honest(EVE)))
    page = visitor().page()
    _open(page, f"{served.address}/verify")
    _drop(page, report)
    expect(page.locator(".rs-verdict")).to_contain_text("Refused by the check signer.")
    expect(page.locator(".rs-facts")).to_contain_text(fingerprint(EVE.public_key()))
    expect(page.get_by_text("keys trust public_key.pem --name WHO")).to_be_visible()
    _saw_no_report(page)


def test_what_is_no_report_or_too_large_is_refused(
    served: Served, visitor: Visitor, tmp_path: Path
) -> None:
    page = visitor().page()
    _open(page, f"{served.address}/verify")
    text = tmp_path / "text.zip"
    text.write_bytes(b"not a zip")
    _drop(page, text)
    expect(page.locator(".rs-verdict")).to_contain_text("Refused by the check bundle.")
    page.reload()
    settle(page)
    large = tmp_path / "large.zip"
    large.write_bytes(bytes(21_500_000))
    _drop(page, large)
    expect(page.locator("[data-testid=stFileUploader]")).to_contain_text("large.zip")
    expect(page.locator(".rs-verdict")).to_have_count(0)


def test_the_preview_and_another_trainers_settings(
    served: Served, visitor: Visitor, tmp_path: Path
) -> None:
    page = visitor().page()
    _open(page, f"{served.address}/decision?study={served.study}")
    with page.expect_download() as started:
        page.get_by_role("button", name="Download an unsigned preview").click()
    started.value.save_as(tmp_path / "preview.html")
    preview = (tmp_path / "preview.html").read_text()
    assert served.sentence in preview and "Unsigned preview." in preview
    page.get_by_role("tab", name="megatron").click()
    expect(page.get_by_role("button", name="Download megatron_")).to_be_visible(timeout=120_000)
    expect(page.get_by_text("--recompute-granularity").first).to_be_visible()
    with urllib.request.urlopen(f"{served.address}/api/healthz", timeout=10) as answer:
        assert json.load(answer)["torch_loaded"] is False
