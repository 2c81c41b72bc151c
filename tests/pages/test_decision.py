"""Decision: what is released in every state of a study, and a passphrase that stays nowhere."""

import io
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages._parts import decision, decision_sign, exports
from pages._parts.data import snapshot
from recompute_core.errors import InputError
from recompute_core.reports.claims import rollback_words
from recompute_core.reports.evidence import gather
from recompute_core.reports.keys import fingerprint, public_pem, write_key
from recompute_core.reports.predicate import Predicate, derive
from recompute_core.reports.signers import Signers
from recompute_core.reports.verify import verify_zip
from recompute_core.spec import Compile, Thresholds
from recompute_core.studies.store import Store
from tests.reports.signing import ANN, BOB

from . import studies
from .conftest import OpenPage
from .reading import text

ROOT = Path(__file__).parents[2]
PASSPHRASE = "correct horse 81274"
PRINT = fingerprint(ANN.public_key())


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A key that the operator has configured, its public half beside it."""
    path = tmp_path / "keys" / "release.pem"
    write_key(path, ANN, PASSPHRASE)
    path.with_name("release.pem.pub.pem").write_text(public_pem(ANN.public_key()))
    monkeypatch.setenv("RECOMPUTE_KEY", str(path))
    return path


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECOMPUTE_KEY", raising=False)


def _said(store: Store, study: str, plan: str = "every-block") -> Predicate:
    return derive(gather(store, study, plan))


def _sign(app: AppTest, passphrase: str) -> AppTest:
    (field,) = app.text_input
    field.set_value(passphrase)
    next(button for button in app.button if button.label == "Sign").click().run()
    assert not app.exception
    return app


def _downloads(app: AppTest) -> list[str]:
    return [element.proto.label for element in app.get("download_button")]


# --- what is released ------------------------------------------------------------------------------


def test_without_a_study_it_says_what_to_do(open_page: OpenPage) -> None:
    assert "Nothing has been measured on this machine yet." in text(open_page("decision"))


def test_an_adopted_plan_with_its_gates_and_the_way_back(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    said = _said(store, study)
    app = open_page("decision", study=study)
    words = text(app)
    assert said.sentence in words
    assert "Memory saving peak, ratio to plain pass 0.600 exact 0.82 declared Peak 165.6 MB" in words
    assert "1.200 1.190 to 1.220 1.35 declared" in words
    assert "T=128 B=4 adopt" in words and "T=256 B=4 adopt" in words
    for claim in said.not_claimed:
        assert claim in words
    assert said.rollback.code in [code.value for code in app.code]
    assert "An update ran under the plan at T=128 B=4, 6 replays in it, then the plan was taken" in words
    assert app.query_params["plan"] == "every-block"
    assert "What-if" not in words


def test_intervals_of_few_pairs_say_what_they_cover(open_page: OpenPage, store: Store) -> None:
    few = studies.spec_of(timing={"min_pairs": 3})
    said = text(open_page("decision", study=studies.filled(store, few, studies.NARROW[:3])))
    assert "Of 3 pairs, as here, they cover 75 %." in said
    assert "as here" not in text(open_page("decision", study=studies.filled(store)))


def test_the_plan_of_the_verdict_comes_first_then_lower_peaks(store: Store) -> None:
    plans = ["all-but-last", "every-4th-block", "every-block", "every-2nd-block"]
    spec = studies.spec_of(plans=plans, thresholds={"peak_ratio": 0.85})
    result = snapshot(store, studies.filled(store, spec)).result
    assert decision.candidates(result) == [
        "every-block",
        "all-but-last",
        "every-2nd-block",
        "every-4th-block",
    ]
    labels = decision.candidate_labels(result)
    assert labels["every-block"] == "every-block: adopt, peak 165.6 MB at T=256"
    assert labels["every-4th-block"].startswith("every-4th-block: keep original")


def test_the_plan_is_in_the_address(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    app = open_page("decision", study=study, plan="every-2nd-block")
    assert app.selectbox[0].value == "every-2nd-block"
    app.selectbox[0].set_value("every-block").run()
    assert app.query_params["plan"] == "every-block"
    app = open_page("decision", study=study, plan="<b>none</b>")
    assert "This study has no plan" in text(app)
    assert app.query_params["plan"] == "every-block"


@pytest.mark.parametrize(
    "make", [studies.refused_by_parity, studies.refused_by_legality, studies.failed]
)
def test_a_plan_that_is_not_adopted_is_a_decision_too(open_page: OpenPage, store: Store, make) -> None:
    study = make(store)
    app = open_page("decision", study=study, plan="every-2nd-block")
    words = text(app)
    assert _said(store, study, "every-2nd-block").sentence in words
    assert "not run – 1.35 declared" in words
    missed = "Not adopted, and exported all the same: every-2nd-block did not pass its gates in study"
    assert words.index(missed) < words.index("Exact: it recomputes")


def test_a_study_under_way_has_nothing_to_release(open_page: OpenPage, store: Store) -> None:
    app = open_page("decision", study=studies.running(store).id)
    assert "Interrupted: its driver is gone; what was finished is kept. There is nothing" in text(app)
    assert not app.get("download_button")


def test_an_unknown_study_is_said_in_one_line(open_page: OpenPage, store: Store) -> None:
    studies.filled(store)
    app = open_page("decision", study="20990101-000000-ffff")
    assert "There is no study “20990101-000000-ffff” here." in text(app)
    assert not app.selectbox


def test_a_what_if_is_shown_beside_the_declared_and_not_used(open_page: OpenPage, store: Store) -> None:
    study = studies.filled(store)
    app = open_page("tradeoff", study=study, peak="0.5")
    app.switch_page("decision.py").run()
    assert not app.exception
    words = text(app)
    assert "What-if: thresholds on Trade-off differ from the declared ones." in words
    assert "0.600 exact 0.82 declared 0.5 fail" in words
    assert _said(store, study).sentence.startswith("Adopt") and _said(store, study).sentence in words


def test_the_relative_gap_is_called_by_its_name(store: Store) -> None:
    said = _said(store, studies.refused_by_parity(store))
    (first, *_) = said.shapes[0].gates
    assert first.observed == 28.5
    relative = first.model_copy(update={"observed": 0.7})
    shape = said.shapes[0].model_copy(update={"gates": (relative,)})
    assert "largest gradient gap" in decision.gate_table(said)
    assert "largest relative gap" in decision.gate_table(said.model_copy(update={"shapes": (shape,)}))


def test_the_facts_of_a_compiled_study_name_its_compiler(store: Store) -> None:
    said = _said(store, studies.filled(store))
    assert "compiled by" not in decision.decision_facts(said)
    facts = decision.decision_facts(said, Compile(backend="inductor"))
    assert "torch 2.13.0+cpu, compiled by inductor" in facts


def test_hostile_text_is_shown_as_text(store: Store) -> None:
    said = _said(store, studies.filled(store)).model_copy(
        update={
            "sentence": "<img src=x onerror=alert(1)>\u202e",
            "plan": "<script>",
            "not_claimed": ("<b>",),
        }
    )
    drawn = decision.verdict(said) + decision.decision_facts(said) + decision.not_claimed(said)
    for tag in ("<img", "<script", "<b>"):
        assert tag not in drawn
    assert "\u202e" not in drawn


def test_other_thresholds_judge_other_gates(store: Store) -> None:
    result = snapshot(store, studies.filled(store)).result
    assert decision.what_if_gates(result, "every-block", None) == {}
    assert decision.what_if_gates(result, "every-block", result.thresholds) == {}
    found = decision.what_if_gates(result, "every-block", Thresholds(peak_ratio=0.5))
    assert found["T=128 B=4", "memory_saving"].outcome == "fail"
    assert len(found) == 6


# --- signing -----------------------------------------------------------------------------------------


def test_signing_is_off_without_a_key(open_page: OpenPage, store: Store) -> None:
    app = open_page("decision", study=studies.filled(store))
    assert "Signing is off:** this server has no key." in text(app)
    assert "`RECOMPUTE_KEY=/path/to/key.pem`" in text(app)
    assert (
        "asks for a passphrase (where there is no terminal it takes that of `RECOMPUTE_KEY_PASSPHRASE`"
        in (text(app))
    )
    assert not app.text_input
    assert "Download an unsigned preview" in _downloads(app)


def test_a_key_that_others_may_read_is_not_used(open_page: OpenPage, store: Store, key: Path) -> None:
    key.chmod(0o644)
    app = open_page("decision", study=studies.filled(store))
    assert "others may use it, mode 0644; run chmod 600 on it" in text(app)
    assert "Signing is off:** release.pem" in text(app).replace("\\", "")
    assert str(key.parent) not in text(app)
    assert not app.text_input


def test_a_key_that_is_made_later_needs_no_restart(open_page: OpenPage, store: Store, key: Path) -> None:
    made, public = key.read_bytes(), key.with_name("release.pem.pub.pem")
    key.unlink()
    app = open_page("decision", study=studies.filled(store))
    assert "`python -m recompute_core keys new --out release.pem` makes one" in text(app)
    assert "then reload this page." in text(app)
    assert "Start the server" not in text(app)
    key.touch(mode=0o600)
    key.write_bytes(made)
    app.run()
    assert f"Key release.pem Fingerprint {PRINT}" in text(app)
    _sign(app, PASSPHRASE)
    assert f"keys trust {public.name} --name WHO` (where there is no terminal, with `--yes`" in text(app)


def test_a_signed_report_verifies(open_page: OpenPage, store: Store, key: Path) -> None:
    study = studies.filled(store)
    app = open_page("decision", study=study)
    assert f"Key release.pem Fingerprint {PRINT}" in text(app)
    assert app.text_input[0].proto.type == app.text_input[0].proto.PASSWORD
    _sign(app, PASSPHRASE)
    assert f"Signed {PRINT}" in text(app)
    assert _downloads(app)[0].startswith("Download the signed report (0.")
    assert "trust your own key first" in text(app)
    signed = app.session_state["signed report"]
    now = datetime.now(UTC)
    found = verify_zip(signed.data, Signers().with_trust(ANN.public_key(), "ann", now), now)
    assert found.verified, found.sentence
    assert found.predicate == _said(store, study)
    assert "report.html" in zipfile.ZipFile(io.BytesIO(signed.data)).namelist()
    # Of another plan nothing is offered.
    app.selectbox[0].set_value("every-2nd-block").run()
    assert not any(label.startswith("Download the signed") for label in _downloads(app))


def test_a_second_click_or_a_wrong_passphrase_later_loses_no_report(
    open_page: OpenPage, store: Store, key: Path
) -> None:
    app = _sign(open_page("decision", study=studies.filled(store)), PASSPHRASE)
    signed = app.session_state["signed report"]
    for typed, errors in (("", 0), ("wrong horse 00000", 1), ("", 0)):
        _sign(app, typed)
        assert (app.session_state["signed report"], len(app.error)) == (signed, errors)
        assert _downloads(app)[0].startswith("Download the signed report")
    app.selectbox[0].set_value("every-2nd-block").run()
    (error,) = _sign(app, "").error
    assert error.value == "Not signed: type the passphrase."


def test_a_preview_of_a_study_that_was_removed_says_so(store: Store) -> None:
    said = _said(store, studies.filled(store))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision_sign, "get_store", lambda: Store(store.home / "another"))
        page = decision_sign._preview(said).decode()
    assert "<p>No preview: no study " in page


@pytest.mark.parametrize("typed", ["", "wrong horse 00000", "x" * 1000])
def test_a_wrong_passphrase_is_one_line(
    open_page: OpenPage, store: Store, key: Path, typed: str
) -> None:
    app = _sign(open_page("decision", study=studies.filled(store)), typed)
    (error,) = app.error
    why = "release.pem: wrong passphrase" if typed else "type the passphrase"
    assert error.value.replace("\\", "").startswith(f"Not signed: {why}")
    assert str(key.parent) not in error.value
    assert not any(label.startswith("Download the signed") for label in _downloads(app))
    _sign(app, PASSPHRASE)
    assert not app.error
    assert f"Signed {PRINT}" in text(app)


@pytest.mark.parametrize("typed", [PASSPHRASE, "wrong horse 00000"])
def test_the_passphrase_is_forgotten_with_the_run(
    open_page: OpenPage,
    store: Store,
    key: Path,
    typed: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("DEBUG")
    app = open_page("decision", study=studies.filled(store))
    _sign(app, typed)
    state = app.session_state._state
    while not hasattr(state, "_old_state"):
        state = state._state
    kept = repr((state._old_state, state._new_session_state, state._new_widget_state.states))
    assert typed not in kept
    assert [field.value for field in app.text_input] == [""]
    assert typed not in str(app.query_params)
    assert typed not in text(app)
    said = capfd.readouterr()
    assert typed not in caplog.text + said.out + said.err


def test_a_report_that_nobody_would_read_is_not_signed(
    open_page: OpenPage, store: Store, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recompute_core.reports.bundle.MOST_BYTES", 1000)
    app = _sign(open_page("decision", study=studies.filled(store)), PASSPHRASE)
    assert "at most 1000 may be read" in app.error[0].value
    assert not any(label.startswith("Download the signed") for label in _downloads(app))


def test_a_public_half_that_is_anothers_stops_it(open_page: OpenPage, store: Store, key: Path) -> None:
    key.with_name("release.pem.pub.pem").write_text(public_pem(BOB.public_key()))
    app = _sign(open_page("decision", study=studies.filled(store)), PASSPHRASE)
    assert "is not the public half of release.pem" in app.error[0].value


def test_a_key_without_its_public_half_signs(open_page: OpenPage, store: Store, key: Path) -> None:
    key.with_name("release.pem.pub.pem").unlink()
    app = open_page("decision", study=studies.filled(store))
    assert "no .pub.pem lies beside it" in text(app)
    assert f"Signed {PRINT}" in text(_sign(app, PASSPHRASE))


# --- export --------------------------------------------------------------------------------------------


def test_the_torch_module_is_there_at_once(open_page: OpenPage, store: Store) -> None:
    app = open_page("decision", study=studies.filled(store))
    assert "Download plan_every_block.py" in _downloads(app)
    assert any("def remove_plan(" in code.value for code in app.code)
    assert "Exact: it recomputes what the plan recomputes." in text(app)


def test_another_trainer_is_asked_of_a_process_of_its_own(
    open_page: OpenPage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, asked = studies.filled(store), []

    def answer(home: Path, study: str, plan: str, to: str) -> dict[str, object]:
        asked.append((home, study, plan, to))
        return {
            "exact": False,
            "cannot": ["megatron cannot <keep>."],
            "notes": ["Use it."],
            "warning": None,
            "filename": "megatron.txt",
            "text": "--recompute-method block\n",
        }

    monkeypatch.setattr(exports, "asked_elsewhere", answer)
    app = open_page("decision", study=study)
    app.session_state["export to"] = "megatron"
    app.run()
    assert not app.exception
    assert "and what that costs (estimated) megatron cannot <keep>." in text(app)
    assert "Download megatron.txt" in _downloads(app)
    app.run()
    assert asked == [(store.home, study, "every-block", "megatron")], "once, however often it is drawn"


def test_the_command_line_answers_and_refuses_in_one_line(store: Store) -> None:
    tiny = {"name": "gpt", "blocks": 2, "width": 32, "heads": 2, "batch": 1}
    spec = studies.spec_of(workload=tiny, shapes=[{"seq_len": 32}], plans=["every-block"])
    study = studies.filled(store, spec)
    found = exports.asked_elsewhere(store.home, study, "every-block", "megatron")
    assert found["to"] == "megatron" and found["text"]
    with pytest.raises(InputError, match="has no candidate '--help'"):
        exports.asked_elsewhere(store.home, study, "--help", "megatron")


_ALL_OF_IT = """
import os, sys
from pathlib import Path
from pages._parts import decision, decision_sign, exports, verify
from recompute_core.studies.store import Store
store = Store(Path(os.environ["RECOMPUTE_HOME"]))
row = store.studies()[0]
signed = decision_sign.sign(store, row.id, "every-block", Path(os.environ["RECOMPUTE_KEY"]), sys.argv[1])
exports.export(row, "every-block", "torch")
print(len(signed.data) > 0, sorted(name for name in sys.modules if name.split(".")[0] == "torch"))
"""


def test_signing_and_the_export_to_torch_load_no_torch(store: Store, key: Path) -> None:
    studies.filled(store)
    done = subprocess.run(
        [sys.executable, "-c", _ALL_OF_IT, PASSPHRASE],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "RECOMPUTE_HOME": str(store.home),
            "RECOMPUTE_KEY": str(key),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "True []", done.stdout + done.stderr


def test_a_budget_is_offered_as_what_it_is() -> None:
    assert exports.takes("memory-budget-50", "torch").startswith("One assignment")
    assert "apply_plan" in exports.takes("every-block", "torch")


def test_the_way_back_says_in_plain_words_where_the_module_is() -> None:
    assert "`" not in rollback_words("every-block")
    assert "The command export writes the module with both" in rollback_words("every-block")
