"""Verify: believed only when every check passes, and otherwise nothing is shown but why."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages._parts import decision_rechecks, verify
from recompute_core.reports.bundle import REPORT, Bundle, zip_of
from recompute_core.reports.keys import PrivateKey, fingerprint
from recompute_core.reports.predicate import Predicate
from recompute_core.reports.recheck_history import history, keep, statement_digest
from recompute_core.reports.recheck_record import Change, Recheck, ShapeRecheck, SignedBy
from recompute_core.reports.release import release_supplied
from recompute_core.reports.signers import Signers, change_signers
from recompute_core.reports.supplied import gather_supplied
from recompute_core.reports.verification import SUPPORT, TRUST, Check, Verification
from recompute_core.reports.verify import verify_zip
from recompute_core.spec import Thresholds
from recompute_core.studies.store import Store
from tests.reports import decisions
from tests.reports.signing import ANN, BOB, EVE

from . import studies
from .conftest import OpenPage
from .reading import text

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(autouse=True)
def _own_signers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECOMPUTE_SIGNERS", raising=False)


def _trust(path: Path, key: PrivateKey = ANN, name: str = "ann") -> None:
    change_signers(path, lambda known: known.with_trust(key.public_key(), name, NOW))


@pytest.fixture
def signers(store: Store) -> Path:
    """The server's own signers file, in which Ann is trusted."""
    path = store.home / "signers.json"
    _trust(path)
    return path


def _drop(app: AppTest, data: bytes, name: str = "report.zip") -> AppTest:
    app.get("file_uploader")[0].set_value((name, data, "application/zip"))
    app.run()
    assert not app.exception, [one.value for one in app.exception]
    return app


def _flipped(bundle: Bundle) -> Bundle:
    """The same with one raw sample changed."""
    name = "evidence/cells.json"
    return decisions.with_files({name: bundle.files[name].replace(b"0.24", b"0.20", 1)}, bundle)


# --- nothing dropped --------------------------------------------------------------------------------


def test_it_says_what_it_will_look_at_and_whom_it_trusts(open_page: OpenPage, signers: Path) -> None:
    _trust(signers, BOB, "bob")
    words = text(open_page("verify"))
    for check in TRUST + SUPPORT:
        assert f"{check} waiting {verify.LOOKS[check]}" in words
    assert "This server trusts 2 signers: ann, bob." in words.replace("\\", "")
    assert "keys trust" not in words


def test_a_server_that_trusts_nobody_says_how(open_page: OpenPage, store: Store) -> None:
    app = open_page("verify")
    assert "This server trusts no signer yet, so every report is refused." in text(app)
    assert [code.value for code in app.code if "keys trust" in code.value] == [
        "python -m recompute_core keys trust public_key.pem --name WHO"
    ]


def test_a_signers_file_that_others_may_change_is_one_line(open_page: OpenPage, signers: Path) -> None:
    signers.chmod(0o666)
    (error,) = open_page("verify").error
    assert "others may change whom you trust" in error.value


def test_a_revoked_signer_is_not_named_as_trusted() -> None:
    known = Signers().with_trust(ANN.public_key(), "ann", NOW)
    revoked = known.without_trust(known.find("ann"), NOW)
    assert verify.whom_line(revoked, NOW).startswith("This server trusts no signer")
    assert verify.whom_line(known, NOW) == "This server trusts 1 signer: ann."


# --- verified -----------------------------------------------------------------------------------------


def test_a_verified_report_with_its_gates_and_what_it_does_not_claim(
    open_page: OpenPage, signers: Path
) -> None:
    bundle = decisions.honest()
    app = _drop(open_page("verify"), zip_of(bundle))
    words = text(app)
    said = decisions.predicate()
    assert "Verified. Signed by ann; its evidence supports all of it." in words
    assert f"known as ann Key ECDSA on P-256 Fingerprint {fingerprint(ANN.public_key())}" in words
    for check in (*TRUST, "records", "spec_hash", "thresholds", "verdict", "facts"):
        assert f"{check} holds" in words
    assert "gate: update_latency at T=256 B=4 holds" in words
    assert said["sentence"] in words
    assert "Memory saving peak, ratio to plain pass 0.600 exact 0.82 declared" in words
    assert "Thresholds declared" in words and "First measured" in words
    for claim in said["not_claimed"]:
        assert claim in words
    assert said["rollback"]["code"] in [code.value for code in app.code]
    assert "Not run again on this machine yet." in words
    assert "bundle waiting" not in words


def test_the_answer_comes_first_and_does_not_look_like_another(store: Store) -> None:
    """The head is that of an adoption only where the report says adopt; the checks come last, folded."""
    signer = Signers().with_trust(ANN.public_key(), "ann", NOW).find("ann")
    checks = (Check("records", "pass", "good."),)

    def head(verdict: str) -> str:
        said = Predicate.model_construct(verdict=verdict)
        return verify.outcome_line(Verification(checks, NOW, signer, said))

    assert "rs-edge-pass" in head("adopt") and "The verdict is adopt." in head("adopt")
    for verdict, words in (("undecided", "undecided"), ("keep_original", "keep original")):
        assert "rs-pass" not in head(verdict) and "rs-edge-pass" not in head(verdict)
        assert f"The verdict is {words}, not adopt." in head(verdict)


def test_what_a_report_says_stands_before_its_checks(open_page: OpenPage, signers: Path) -> None:
    app = _drop(open_page("verify"), zip_of(decisions.honest()))
    words = text(app)
    assert words.index("What it says") < words.index("Rollback") < words.index("Checks")
    (folded,) = [box for box in app.expander if box.label.startswith("All ")]
    assert folded.label.endswith(" checks hold") and not folded.proto.expanded
    sentences = " ".join(
        one.sentence for one in verify_zip(zip_of(decisions.honest()), _known(), NOW).checks
    )
    assert "the report says pass (" in sentences and "and its samples give the same." in sentences


def _known() -> Signers:
    return Signers().with_trust(ANN.public_key(), "ann", NOW)


def test_the_operators_file_of_signers_counts(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "elsewhere" / "whom.json"
    _trust(path)
    monkeypatch.setenv("RECOMPUTE_SIGNERS", str(path))
    app = _drop(open_page("verify"), zip_of(decisions.honest()))
    assert "Verified. Signed by ann" in text(app)
    monkeypatch.setenv("RECOMPUTE_SIGNERS", str(tmp_path / "missing.json"))
    assert "missing.json: no such file" in open_page("verify").error[0].value.replace("\\", "")
    assert verify.trust_command(path).endswith(f"--signers {path}")


def test_of_many_gates_only_those_that_fail_are_listed(store: Store) -> None:
    gates = [Check(f"gate: memory_saving at T={n}", "pass", "as its samples give.") for n in range(30)]
    wrong = Check("gate: memory_saving at T=99", "fail", "the report says otherwise.", "gate-differs")
    drawn = verify.checks_table((Check("records", "pass", "good."), *gates, wrong))
    assert drawn.count("<tr>") == 1 + 3
    assert "30 gates, computed again from their samples" in drawn
    assert "T=99" in drawn and "refused" in drawn


def test_rechecks_of_the_report_are_shown(open_page: OpenPage, signers: Path, store: Store) -> None:
    study = studies.filled(store)
    bundle = decisions.honest()
    statement = statement_digest(bundle.files[REPORT])
    for hour, outcome in enumerate(("same", "lost")):
        keep(store.home, _recheck(statement, study, outcome, f"2026-12-0{hour + 1}T10:00:00.000Z"))
    words = text(_drop(open_page("verify"), zip_of(bundle)))
    first, second = words.index("1 Dec 2026, 10:00 UTC"), words.index("2 Dec 2026, 10:00 UTC")
    assert second < first, "newest first"
    assert "lost Lost at T=128: <b>. Took 12 s. Changed since: torch." in words
    words = text(open_page("decision", study=study))
    assert "same Same at T=128: <b>. Took 12 s." in words
    assert decision_rechecks.of_plan(store.home, study, "every-2nd-block") == []


def _recheck(statement: str, study: str, outcome: str, at: str) -> Recheck:
    word = outcome.capitalize()
    shape = ShapeRecheck(
        shape_key="T=128", shape={"seq_len": 128}, outcome=outcome, code="bitwise",
        sentence=f"{word} at T=128: <b>.", held_in_report=True,
    )  # fmt: skip
    return Recheck(
        schema="recompute-recheck/1", statement=statement, study_id=study, plan="every-block",
        plan_hash="sha256:0", signer=SignedBy(name="ann", fingerprint="sha256:0"), checked_at=at,
        seconds=12.0, made_by="recompute_core", environment={}, shapes=(shape,), sentence=shape.sentence,
        changes=(Change(about="library", what="torch", old="2.13.0", new="2.14.0", effect="drift"),),
    )  # fmt: skip


def test_a_report_is_verified_once_however_often_the_page_is_drawn(
    open_page: OpenPage, signers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    def look(data: bytes, *whom: object) -> Verification:
        looked.append(data)
        return verify_zip(data, *whom)  # type: ignore[arg-type]

    monkeypatch.setattr("recompute_core.reports.verify.verify_zip", look)
    app = _drop(open_page("verify"), zip_of(decisions.honest()))
    app.run()
    assert len(looked) == 1
    _drop(app, zip_of(_flipped(decisions.honest())))
    assert len(looked) == 2
    assert "Refused by the check evidence" in text(app)
    change_signers(signers, lambda known: known.without_trust(known.find("ann"), NOW))
    app.run()
    assert len(looked) == 3
    assert "Refused by the check signer" in text(app), "whom one trusts may change meanwhile"


def test_rechecks_of_other_plans_are_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def counted(home: Path, statement: str) -> tuple[Recheck, ...]:
        read.append(statement)
        return history(home, statement)

    monkeypatch.setattr(decision_rechecks, "history", counted)
    for number in range(5):
        recheck = _recheck(f"sha256:{number:064}", f"study {number}", "same", f"2026-12-0{number + 1}")
        keep(store.home, recheck)
    assert len(decision_rechecks.of_plan(store.home, "study 3", "every-block")) == 1
    assert len(read) == 5
    assert len(decision_rechecks.of_plan(store.home, "study 3", "every-block")) == 1
    assert len(read) == 5, "none has changed"
    keep(store.home, _recheck(f"sha256:{3:064}", "study 3", "lost", "2026-12-09"))
    assert len(decision_rechecks.of_plan(store.home, "study 3", "every-block")) == 2
    assert len(read) == 6, "one has"


def test_supplied_figures_are_said_to_be_so(open_page: OpenPage, signers: Path) -> None:
    file = {
        "schema": "recompute-measurements/1",
        "workload": "<b>our 7B model</b>",
        "plan": "every-block",
        "shape": {"seq_len": 2048, "batch": 8},
        "peak_allocated_bytes": {"plain": [82_000_000_000], "candidate": [41_000_000_000]},
        "update_s": {"pairs": [[1.30, 1.62], [1.31, 1.61], [1.29, 1.60]]},
        "gradients": {"largest_gradient_gap": 3e-07, "largest_relative_gap": 2e-06},
        "supplied_by": "Ada",
        "provenance": {"machine": "8 x H200"},
    }
    evidence = gather_supplied(json.dumps(file).encode(), "figures.json", Thresholds(), NOW)
    released = release_supplied(evidence, ANN)
    words = text(_drop(open_page("verify"), zip_of(released.bundle)))
    assert "Verified. Signed by ann" in words
    assert released.predicate.sentence in words
    assert "Figures supplied, not measured here Supplied by Ada" in words
    assert "machine, as written 8 x H200" in words
    assert "Workload <b>our 7B model</b>" in words, "as text"
    assert "peak, ratio to plain, supplied pass 0.500 one value, no interval 0.82 as supplied" in words
    for claim in released.predicate.not_claimed:
        assert claim in words
    assert "Rechecks" not in words and "Rollback" not in words


# --- refused ------------------------------------------------------------------------------------------


def _is_silent(app: AppTest) -> None:
    """Nothing of what it says is on the page."""
    words = text(app)
    for secret in ("Adopt every-block", "165.6 MB", "What it says", "Rollback", "Rechecks", "not claim"):
        assert secret not in words
    assert "Nothing else of a report that is refused is shown." in words


def test_a_tampered_report_is_refused_by_name(open_page: OpenPage, signers: Path) -> None:
    app = _drop(open_page("verify"), zip_of(_flipped(decisions.honest())))
    words = text(app)
    assert "Refused by the check evidence. evidence/cells.json was changed after it was signed." in words
    assert "signer holds" in words and "evidence refused" in words
    assert f"gates not reached {verify.LOOKS['gates']}" in words
    _is_silent(app)


def test_a_verdict_that_its_samples_contradict_is_refused(open_page: OpenPage, signers: Path) -> None:
    said = decisions.predicate()
    said["shapes"][0]["gates"][2]["observed"] = 1.01
    app = _drop(open_page("verify"), zip_of(decisions.forged(said)))
    assert "Refused by the check gate: update_latency at T=128 B=4. " in text(app)
    _is_silent(app)


def test_an_unknown_signer_with_the_fingerprint_and_the_command(
    open_page: OpenPage, signers: Path
) -> None:
    app = _drop(open_page("verify"), zip_of(decisions.honest(EVE)))
    words = text(app)
    assert "Refused by the check signer." in words
    assert f"Signer unknown Fingerprint {fingerprint(EVE.public_key())}" in words
    assert [code.value for code in app.code if "keys trust" in code.value]
    _is_silent(app)


def test_a_key_that_did_not_sign_is_not_offered(open_page: OpenPage, signers: Path) -> None:
    """The report is Eve's, and the key in it Bob's: whom to trust cannot be read off it."""
    from recompute_core.reports.keys import public_pem

    swapped = {"public_key.pem": public_pem(BOB.public_key()).encode()}
    data = zip_of(decisions.with_files(swapped, decisions.honest(EVE)))
    words = text(_drop(open_page("verify"), data))
    assert "Refused by the check signer." in words
    assert fingerprint(BOB.public_key()) not in words


def test_an_expired_signer_is_refused(open_page: OpenPage, store: Store) -> None:
    known = Signers().with_trust(ANN.public_key(), "ann", NOW - timedelta(days=9), NOW + timedelta(1))
    found = verify_zip(zip_of(decisions.honest()), known, NOW + timedelta(days=2))
    assert "Refused by the check signer" in verify.outcome_line(found)
    assert verify.unknown_key(zip_of(decisions.honest()), found, NOW) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no .zip"),
        (b"%PDF-1.7 not a zip", "is no .zip"),
        (b"PK\x05\x06" + bytes(18), "is no report"),
        (bytes(21_000_000), "the .zip has more than 20000000 bytes"),
    ],
    ids=["empty", "not a zip", "an empty zip", "21 MB"],
)
def test_what_is_no_report_is_one_line(
    open_page: OpenPage, signers: Path, data: bytes, why: str
) -> None:
    app = _drop(open_page("verify"), data)
    assert "Refused by the check bundle." in text(app)
    assert why.lower() in text(app).lower()
    _is_silent(app)


def test_hostile_text_is_shown_as_text() -> None:
    bad = Check("gate: <script>alert(1)</script>", "fail", "<img src=x onerror=alert(1)>\u202e", "x")
    found = Verification((bad,), NOW)
    drawn = verify.outcome_line(found) + verify.checks_table(found.checks)
    assert "<script" not in drawn and "<img" not in drawn and "\u202e" not in drawn


def test_nothing_that_is_dropped_is_written(open_page: OpenPage, signers: Path, store: Store) -> None:
    app = open_page("verify")
    before = {(path, path.stat().st_mtime_ns) for path in store.home.rglob("*") if path.is_file()}
    _drop(app, zip_of(decisions.honest()))
    _drop(app, bytes(3_000_000))
    after = {(path, path.stat().st_mtime_ns) for path in store.home.rglob("*") if path.is_file()}
    assert after == before, "RECOMPUTE_HOME, which is the temporary folder here too"


def test_an_upload_stays_in_memory_up_to_the_largest() -> None:
    """Starlette writes what is larger than this to a temporary file."""
    from starlette.formparsers import MultiPartParser
    from streamlit import config

    import app  # noqa: F401

    most = config.get_option("server.maxUploadSize")
    assert most == 20
    assert MultiPartParser.spool_max_size > (most + 1) * 1024 * 1024
