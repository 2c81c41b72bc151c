"""Supplied figures: the gates of studies, a report that says so everywhere, and those who forge one."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from recompute_core.__main__ import cli
from recompute_core.errors import InputError
from recompute_core.gates import latency_gate
from recompute_core.intervals import median_interval, ratio_interval
from recompute_core.reports.bundle import HTML, TESTS, Bundle, write_bundle
from recompute_core.reports.evidence import STUDY
from recompute_core.reports.instructions import NAME as VERIFY
from recompute_core.reports.keys import write_key
from recompute_core.reports.measurements import read_measurements
from recompute_core.reports.recheck import verified
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.release import release_supplied
from recompute_core.reports.signers import Signers
from recompute_core.reports.statement import DECISION_TYPE
from recompute_core.reports.strict_json import canonical
from recompute_core.reports.supplied import SUPPLIED, derive_supplied, gates_of_supplied
from recompute_core.reports.verification import SUPPORT, SUPPORT_OF_SUPPLIED, TRUST
from recompute_core.results import Gate
from recompute_core.spec import Thresholds
from recompute_core.supplied import judge_supplied, read_supplied
from tests.reports import decisions
from tests.reports.decisions import checked, payload_of, with_files
from tests.reports.figures import CSV, RATIOS, as_bytes, evidence, forged, honest, measurements, said
from tests.reports.signing import ANN, NOW, SIGNERS

# --- gates -------------------------------------------------------------------------------------


def gates(**changes: Any) -> tuple[Gate, ...]:
    given = read_measurements(as_bytes(measurements(**changes)), "m.json")
    return gates_of_supplied(given, given.thresholds)


def test_the_gates_are_those_of_studies() -> None:
    parity, saving, latency = gates()
    given = read_measurements(as_bytes(measurements()), "m.json")
    assert given.update_s is not None
    assert given.update_s.timing is not None
    assert latency == latency_gate(given.update_s.timing, Thresholds())
    assert (latency.observed, latency.ci95) == (1.26, median_interval(RATIOS))
    assert (saving.observed, saving.ci95, saving.outcome) == (0.5, (0.5, 0.5), "pass")
    assert saving.sentence == "Peak 40.0 GB instead of 80.0 GB."
    assert (parity.observed, parity.outcome) == (3e-07, "pass")
    assert {gate.kind for gate in (parity, saving, latency)} == {"supplied"}


def test_peaks_that_differ_have_an_interval() -> None:
    saving = gates(peak_allocated_bytes={"plain": [100, 110, 90], "candidate": [80, 82]})[1]
    assert (saving.observed, saving.ci95) == (0.81, (80 / 110, 82 / 90))
    assert saving.outcome == "undecided"


def test_times_without_pairs_have_a_wider_interval() -> None:
    plain, own = [0.9, 1.0, 1.1], [1.2, 1.3, 1.4]
    latency = gates(update_s={"plain": plain, "candidate": own})[2]
    assert (latency.observed, latency.ci95) == (1.3, ratio_interval(own, plain))
    assert latency.outcome == "undecided"
    assert "3 and 3 updates, not in pairs" in latency.sentence


@pytest.mark.parametrize(
    ("gradients", "outcome", "threshold"),
    [
        ({"largest_gradient_gap": 0, "largest_relative_gap": 0}, "pass", 1e-4),
        ({"largest_gradient_gap": 1e-4, "largest_relative_gap": 1e-4}, "pass", 1e-4),
        ({"largest_gradient_gap": 2e-4, "largest_relative_gap": 0}, "fail", 1e-4),
        ({"largest_gradient_gap": 0, "largest_relative_gap": 2e-4}, "fail", 1e-4),
        ({"largest_gradient_gap": 0}, "undecided", 1e-4),
        ({"largest_gradient_gap": 1}, "fail", 1e-4),
        ({"largest_gradient_gap": 0, "largest_relative_gap": 0, "not_comparable": ["w"]}, "fail", 1e-4),
        ({"not_comparable": ["w: NaN"]}, "fail", 1e-4),
        (None, "not_run", 1e-4),
    ],
)
def test_a_gap_that_is_missing_is_no_small_gap(
    gradients: dict[str, Any] | None, outcome: str, threshold: float
) -> None:
    parity = gates(gradients=gradients)[0]
    assert (parity.outcome, parity.threshold) == (outcome, threshold)


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, "adopt", "Adopt every-block at seq_len=2048 batch=8, on supplied figures: peak 40.0 GB"),
        ({"gradients": None}, "undecided", "gradient parity was not run"),
        ({"peak_allocated_bytes": None}, "undecided", "memory saving was not run"),
        ({"update_s": None}, "undecided", "update latency was not run"),
        (
            {"gradients": None, "update_s": {"pairs": [[1, 2]] * 7}},
            "keep_original",
            "Keep the original rather than every-block at seq_len=2048 batch=8, on supplied figures: "
            "update latency fails (",
        ),
        ({"gradients": {"largest_gradient_gap": 1}}, "keep_original", "gradient parity fails"),
    ],
)
def test_the_verdict_says_that_the_figures_were_supplied(
    changes: dict[str, Any], verdict: str, words: str
) -> None:
    found = derive_supplied(evidence(data=as_bytes(measurements(**changes))))
    assert found.verdict == verdict
    assert words in found.sentence
    assert "on supplied figures" in found.sentence


# --- the report --------------------------------------------------------------------------------


def test_three_figures_pass_with_a_warning_that_they_say_little(tmp_path: Path) -> None:
    path = tmp_path / "three.json"
    one = {"peak_allocated_mb": 100, "median_update_ms": 10, "largest_gradient_gap": 0}
    path.write_text(json.dumps({"plain": one, "candidate": one | {"peak_allocated_mb": 50}}))
    found = judge_supplied(read_supplied(path))
    assert found["verdict"] == "adopt"
    assert any("No relative gap was supplied" in warning for warning in found["warnings"])


def test_a_report_on_supplied_figures_verifies_and_is_no_measured_one() -> None:
    found = checked(honest().bundle)
    assert found.verified, found.sentence
    assert found.predicate is None
    assert found.supplied == found.decision == honest().predicate
    assert found.document()["kind"] == "supplied"
    names = [one.id.partition(":")[0] for one in found.checks]
    gates = ["gate"] * 3
    at = SUPPORT_OF_SUPPLIED.index("gates")
    assert names == [*TRUST, *SUPPORT_OF_SUPPLIED[:at], *gates, *SUPPORT_OF_SUPPLIED[at + 1 :]]
    assert "Verified, signed by ann. Adopt every-block" in found.sentence
    assert "on supplied figures" in found.sentence


def test_of_csv_too() -> None:
    bundle = release_supplied(evidence("m.csv", CSV.encode()), ANN).bundle
    assert bundle.files["evidence/measurements.csv"] == CSV.encode()
    found = checked(bundle).supplied
    assert found is not None
    assert found.shapes[0].gates == honest().predicate.shapes[0].gates
    assert found.sentence == honest().predicate.sentence


def test_every_part_of_it_says_supplied() -> None:
    found, files = said(), honest().bundle.files
    assert found["kind"] == "supplied"
    shape = found["shapes"][0]
    assert {one["kind"] for one in (*shape["gates"], *shape["figures"])} == {"supplied"}
    claims = " ".join(found["not_claimed"])
    for words in (
        "The figures were supplied by “Ada”; nobody here has measured them",
        "Parity was not proven here",
        "The thresholds were not declared before a run that we saw",
        "not that the figures are true",
    ):
        assert words in claims
    tests = payload_of(files[TESTS])["predicate"]
    assert tests["passedTests"] == [
        f"{gate} at seq_len=2048 batch=8 (supplied)"
        for gate in ("gradient_parity", "memory_saving", "update_latency")
    ]
    page = files[HTML].decode()
    assert "<title>Adopt, on supplied figures: every-block</title>" in page
    for words in ("supplied figures", "Parity was not proven here", "not declared before", "8 x H200"):
        assert words in page
    assert ">measured<" not in page
    assert "cells.json" not in page
    assert "recheck" not in files[VERIFY].decode()
    assert "they were supplied" in files[VERIFY].decode()


def test_a_gate_without_a_figure_is_a_warning_among_the_tests() -> None:
    data = as_bytes(measurements(gradients=None, update_s={"plain": [1] * 3, "candidate": [2] * 3}))
    bundle = release_supplied(evidence(data=data), ANN).bundle
    tests = payload_of(bundle.files[TESTS])["predicate"]
    assert tests["result"] == "FAILED"
    assert tests["warnedTests"] == ["gradient_parity at seq_len=2048 batch=8 (supplied)"]
    assert checked(bundle).verified
    assert "no gap of a gradient was supplied" in bundle.files[HTML].decode()


def test_thresholds_that_are_not_the_files_are_said_to_be_others() -> None:
    found = derive_supplied(evidence(peak_ratio=0.9))
    assert found.received.set_afterwards == {"peak_ratio": 0.9}
    assert "peak_ratio 0.9 set by whoever made this report, not by the file" in found.received.sentence
    named = as_bytes(measurements(thresholds={"peak_ratio": 0.9}))
    assert derive_supplied(evidence(data=named, peak_ratio=0.9)).received.set_afterwards == {}


def test_recheck_has_nothing_to_repeat(tmp_path: Path) -> None:
    write_bundle(tmp_path / "decision", honest().bundle)
    with pytest.raises(InputError, match="its figures were supplied"):
        verified(tmp_path / "decision", SIGNERS)


def test_openssl_and_sha256sum_check_it_as_its_instructions_say(tmp_path: Path) -> None:
    """Whatever the figures are called: `{"sha256":` in a name is no digest."""
    odd = '{"sha256":"' + "0" * 64 + '"},"name":"gone"'
    data = as_bytes(measurements(plan=odd, workload=odd, provenance={"machine": odd}))
    bundle = release_supplied(evidence(data=data), ANN).bundle
    write_bundle(tmp_path / "decision", bundle)
    commands = "".join(re.findall(r"```sh\n(.*?)```", bundle.files[VERIFY].decode(), re.DOTALL))
    done = subprocess.run(
        ["sh"], input=commands, cwd=tmp_path / "decision", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:3] == ["Verified OK", "Verified OK"]
    assert [line for line in done.stdout.splitlines() if line.endswith(": OK")] == [
        "VERIFY.md: OK",
        "evidence/measurements.json: OK",
        "evidence/supplied.json: OK",
        "report.html: OK",
    ]


# --- tampering ---------------------------------------------------------------------------------


def _slower(name: str = "measurements.json") -> dict[str, bytes]:
    raw = measurements(update_s={"pairs": [[1.0, 2 * ratio] for ratio in RATIOS]})
    return evidence() | {name: as_bytes(raw)}


def _about(**changes: Any) -> dict[str, bytes]:
    files = evidence()
    return files | {SUPPLIED: canonical(json.loads(files[SUPPLIED]) | changes)}


def _gate(number: int, **changes: Any) -> dict[str, Any]:
    found = said()
    found["shapes"][0]["gates"][number] |= changes
    return found


def _received(**changes: Any) -> dict[str, Any]:
    found = said()
    return found | {"received": found["received"] | changes}


def _figure(**changes: Any) -> dict[str, Any]:
    found = said()
    found["shapes"][0]["figures"][0] |= changes
    return found


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in said().items() if key != name}


LATENCY = "gate: update_latency at seq_len=2048 batch=8"
SAVING = "gate: memory_saving at seq_len=2048 batch=8"

TAMPERED: dict[str, tuple[Callable[[], Bundle], str, str]] = {
    "sample changed": (
        lambda: with_files(
            {"evidence/measurements.json": _slower()["measurements.json"]}, honest().bundle
        ),
        "evidence",
        "evidence-changed",
    ),
    "sample changed and signed": (lambda: forged(files=_slower()), LATENCY, "gate-differs"),
    "threshold changed": (
        lambda: with_files(
            {"evidence/supplied.json": _about(thresholds={"peak_ratio": 0.9})[SUPPLIED]}, honest().bundle
        ),
        "evidence",
        "evidence-changed",
    ),
    "threshold changed and signed": (
        lambda: forged(_received(thresholds=Thresholds(peak_ratio=0.9).model_dump())),
        "thresholds",
        "thresholds-differ",
    ),
    "threshold changed in the evidence": (
        lambda: forged(files=evidence(peak_ratio=0.4)),
        "thresholds",
        "thresholds-differ",
    ),
    "received earlier": (
        lambda: forged(_received(received_at="2020-01-01T00:00:00Z")),
        "thresholds",
        "thresholds-differ",
    ),
    "label dropped": (lambda: forged(_without("kind")), "statement", "predicate-form"),
    "label measured": (lambda: forged(said() | {"kind": "measured"}), "statement", "predicate-form"),
    "gate's label dropped": (
        lambda: forged(_gate(1, kind="measured")),
        SAVING,
        "gate-differs",
    ),
    "figure's label changed": (lambda: forged(_figure(kind="measured")), "facts", "facts-differ"),
    "sentence without the word": (
        lambda: forged(said() | {"sentence": "Adopt every-block."}),
        "facts",
        "facts-differ",
    ),
    "claims dropped": (lambda: forged(said() | {"not_claimed": []}), "facts", "facts-differ"),
    "supplied by another": (lambda: forged(said() | {"supplied_by": "Bob"}), "facts", "facts-differ"),
    "verdict changed": (
        lambda: forged(said() | {"verdict": "undecided"}),
        "verdict",
        "verdict-differs",
    ),
    "called a measured decision": (
        lambda: forged(decisions.predicate(), kind=DECISION_TYPE),
        "evidence",
        "kind-differs",
    ),
    "called a measured decision, as it is": (
        lambda: forged(kind=DECISION_TYPE),
        "statement",
        "predicate-form",
    ),
    "a study called supplied": (
        lambda: forged(files=decisions.evidence()),
        "evidence",
        "kind-differs",
    ),
    "a study beside it": (
        lambda: forged(files=evidence() | {STUDY: decisions.evidence()[STUDY]}),
        "records",
        "evidence-form",
    ),
    "measurements missing": (
        lambda: forged(files={SUPPLIED: evidence()[SUPPLIED]}),
        "records",
        "evidence-missing",
    ),
    "measurements that are none": (
        lambda: forged(files=evidence() | {"measurements.json": b"{}"}),
        "records",
        "measurements-form",
    ),
    "something more beside the thresholds": (
        lambda: forged(files=_about(trust="me")),
        "records",
        "evidence-form",
    ),
    "a threshold in words": (
        lambda: forged(files=_about(thresholds={"peak_ratio": "0.82"})),
        "records",
        "evidence-form",
    ),
    "no time": (lambda: forged(files=_about(received_at="then")), "records", "evidence-form"),
    "no time in UTC": (
        lambda: forged(files=_about(received_at="2026-01-01T14:00:00+14:00")),
        "records",
        "evidence-form",
    ),
}


def test_the_forger_is_honest_when_nothing_is_changed() -> None:
    assert checked(forged()).verified


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_is_refused_for_its_own_reason(what: str) -> None:
    tamper, check, code = TAMPERED[what]
    found = checked(tamper())
    assert not found.verified
    assert found.decision is None
    assert (found.failures[0].id, found.failures[0].code) == (check, code), found.failures


def test_the_refusal_says_which_kind_it_is() -> None:
    first = checked(TAMPERED["called a measured decision"][0]()).failures[0]
    assert first.sentence == (
        "The report says that its figures were measured; its evidence says they were supplied."
    )
    second = checked(TAMPERED["gate's label dropped"][0]()).failures[0]
    assert second.sentence.endswith("give pass (0.5, threshold 0.82, supplied).")


def test_of_another_version_the_label_is_asked_for_all_the_same() -> None:
    other = {"made_by": "recompute_core 99"}
    about = _about(**other)
    assert checked(forged(said() | other, about)).verified
    assert not checked(forged(_without("kind") | other, about)).verified
    assert SUPPORT != SUPPORT_OF_SUPPLIED


# --- as it is typed ----------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RECOMPUTE_KEY_PASSPHRASE", "correct horse battery")
    monkeypatch.chdir(tmp_path)
    write_key(tmp_path / "ann.key", ANN, "correct horse battery")
    trusted = Signers().with_trust(ANN.public_key(), "ann", NOW)
    (tmp_path / "signers.json").write_text(json.dumps(trusted.document()))
    (tmp_path / "signers.json").chmod(0o644)  # whatever the umask
    (tmp_path / "m.csv").write_text(CSV)
    (tmp_path / "m.json").write_bytes(as_bytes(measurements()))
    return tmp_path


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, words, standalone_mode=False)


def _code(result: Result) -> int:
    error = result.exception
    if error is None or isinstance(error, SystemExit):
        return result.exit_code
    found: int = error.exit_code  # type: ignore[attr-defined]
    return found


TO = ("--key", "k", "--out", "o")
SLOW = {"pairs": [[1, 2]] * 7}


@pytest.mark.parametrize(
    ("changes", "code", "last"),
    [
        ({}, 0, "Adopt every-block"),
        ({"update_s": SLOW}, 1, "Keep the original rather than"),
        ({"gradients": None}, 3, "Undecided on every-block"),
    ],
)
def test_gate_ends_as_its_verdict_does(
    here: Path, changes: dict[str, Any], code: int, last: str
) -> None:
    (here / "m.json").write_bytes(as_bytes(measurements(**changes)))
    found = _run("gate", "m.json")
    assert _code(found) == code
    assert found.output.splitlines()[-1].startswith(last)
    document = json.loads(_run("gate", "m.json", "--json", "-").output)
    assert (document["schema"], document["kind"]) == ("recompute-gate/1", "supplied")
    assert [gate["id"] for gate in document["gates"]] == [
        "gradient_parity",
        "memory_saving",
        "update_latency",
    ]


@pytest.mark.usefixtures("here")
def test_thresholds_are_set_over_those_of_the_file() -> None:
    found = _run("gate", "m.csv", "--set", "thresholds.update_ratio=1.19", "--json", "-")
    assert _code(found) == 1
    assert json.loads(found.output)["thresholds"]["update_ratio"] == 1.19


@pytest.mark.usefixtures("here")
def test_report_and_verify() -> None:
    words = ("report", "m.csv", "--key", "ann.key", "--out", "decision")
    made = _run(*words, "--set", "thresholds.peak_ratio=0.6", "--json", "-")
    assert _code(made) == 0, made.exception
    document = json.loads(made.output)
    assert (document["kind"], document["study_id"], document["verdict"]) == ("supplied", None, "adopt")
    found = _run("verify", "decision", "--signers", "signers.json")
    assert _code(found) == 0, found.output
    assert "on supplied figures" in found.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gate",), "give either a file of measurements or --recorder"),
        (("gate", "m.json", "--recorder"), "give either"),
        (("gate", "none.json"), "none.json: cannot be read"),
        (("gate", "empty.csv"), "empty.csv: is empty"),
        (("gate", "huge.json"), "huge.json: more than 1000000 bytes"),
        (("gate", "m.json", "--set", "workload=x"), "take thresholds alone"),
        (("gate", "m.json", "--set", "thresholds.peak_ratio=2"), "--set thresholds.peak_ratio"),
        (("gate", "m.json", "--set", "thresholds=2"), "--set thresholds: expected settings"),
        (("report", "m.json", "--candidate", "x", *TO), "leave it out"),
        (("report", "three.json", *TO), "no report rests on them"),
        (
            ("report", "20260101-000000-0000", *TO),
            "--candidate PLAN: say which",
        ),
        (
            (
                "report",
                "20260101-0000",
                "--set",
                "thresholds.peak_ratio=1",
                *TO,
            ),
            "declared before it ran",
        ),
    ],
)
def test_mistakes_are_one_line(here: Path, words: tuple[str, ...], says: str) -> None:
    three = {"peak_allocated_mb": 2, "median_update_ms": 2, "largest_gradient_gap": 0}
    (here / "three.json").write_text(json.dumps({"plain": three, "candidate": three}))
    (here / "empty.csv").write_bytes(b"\xef\xbb\xbf")
    (here / "huge.json").write_bytes(b" " * 1_000_001)
    found = _run(*words)
    assert _code(found) == 2, found.output
    assert says in str(found.exception)
    assert "\n" not in str(found.exception)


@pytest.mark.usefixtures("here")
def test_a_name_cannot_move_the_cursor(here: Path) -> None:
    (here / "m.json").write_bytes(as_bytes(measurements(plan="\x1b[2Jevil")))
    found = _run("gate", "m.json")
    assert "\x1b" not in found.output
    assert "?[2Jevil" in found.output


def test_evidence_of_no_measurements_is_not_gathered() -> None:
    with pytest.raises(Untrusted):
        evidence(data=b"{}")
